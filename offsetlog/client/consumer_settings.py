"""The checks of a consumer's settings.

Rules of this module:

1. A setting that cannot work is refused with its name, its value and what is allowed.
2. The heartbeat interval is at most a third of the session timeout, so that one that is lost
   does not matter.
"""

from __future__ import annotations

from offsetlog.core.group.starting_offset import POLICIES
from offsetlog.engine.group.group_member import MemberSettings
from offsetlog.engine.group.heartbeats import HeartbeatTiming
from offsetlog.errors import InvalidRequestError
from offsetlog.values import check_name

MIN_SESSION_MS = 300


def check_policy(policy: str) -> str:
    if policy not in POLICIES:
        raise InvalidRequestError(
            f"auto_offset_reset is {policy!r}.", f"Allowed: {', '.join(POLICIES)}."
        )
    return policy


def check_whole(name: str, count: object) -> int:
    if type(count) is not int or count < 1:
        raise InvalidRequestError(f"{name} is {count!r}.", "It is a whole number from 1.")
    return count


def _check_interval(ms: object) -> float:
    if isinstance(ms, bool) or not isinstance(ms, int | float) or not ms >= 0:
        raise InvalidRequestError(
            f"auto_commit_interval_ms is {ms!r}.", "It is milliseconds from 0."
        )
    return float(ms)


def _timing(session: int, heartbeat: int | None, max_poll: int) -> HeartbeatTiming:
    check_whole("session_timeout_ms", session)
    check_whole("max_poll_interval_ms", max_poll)
    if session < MIN_SESSION_MS:
        raise InvalidRequestError(
            f"session_timeout_ms is {session}.", f"It is at least {MIN_SESSION_MS}."
        )
    beat = min(3000, session // 5) if heartbeat is None else heartbeat
    check_whole("heartbeat_interval_ms", beat)
    if beat * 3 > session:
        raise InvalidRequestError(
            f"heartbeat_interval_ms is {beat}, with a session timeout of {session} ms.",
            "It is at most a third of the session timeout.",
        )
    return HeartbeatTiming(session, beat, max_poll)


def group_settings(
    *,
    policy: str,
    auto_commit: object,
    auto_commit_ms: object,
    session_ms: int,
    heartbeat_ms: int | None,
    max_poll_ms: int,
    strategy: str,
    client: str,
) -> MemberSettings:
    if client != "":
        check_name(client, "client_id")
    if not isinstance(auto_commit, bool):
        raise InvalidRequestError(f"enable_auto_commit is {auto_commit!r}.", "True or False.")
    return MemberSettings(
        policy,
        auto_commit,
        _check_interval(auto_commit_ms),
        _timing(session_ms, heartbeat_ms, max_poll_ms),
        strategy,
        client,
    )
