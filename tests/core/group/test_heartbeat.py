"""A peer is judged by the watcher's own clock and its own successful looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offsetlog.core.group.heartbeat import UNWATCHED, HeartbeatReading, observe

SESSION, GAP = 10_000, 1_000


def watch(looks, session=SESSION):
    seen = UNWATCHED
    for look in looks:
        seen = observe(seen, look, session, GAP)
    return seen


def test_a_silent_peer_is_expelled_one_look_after_the_session_timeout():
    looks = [HeartbeatReading(t, "7") for t in range(0, 10_001, 1_000)]
    assert not watch(looks[:-1]).suspected
    assert watch(looks) == watch(looks)._replace(suspected=True, expel=False)
    assert watch([*looks, HeartbeatReading(10_010, "7")]).expel


def test_the_last_look_saves_it():
    looks = [HeartbeatReading(t, "7") for t in range(0, 10_001, 1_000)]
    saved = watch([*looks, HeartbeatReading(10_010, "8")])
    assert (saved.silent_ms, saved.suspected, saved.expel) == (0, False, False)


def test_a_watcher_that_slept_condemns_nobody():
    seen = watch(
        [
            HeartbeatReading(0, "7"),
            HeartbeatReading(3_600_000, "7"),
            HeartbeatReading(3_600_001, "7"),
        ]
    )
    assert seen.silent_ms == GAP + 1
    assert not seen.suspected


def test_time_in_which_looks_failed_does_not_count():
    looks = [HeartbeatReading(0, "7")]
    looks += [HeartbeatReading(t, failed=True) for t in range(500, 60_000, 500)]
    looks += [HeartbeatReading(60_000, "7"), HeartbeatReading(60_500, "7")]
    assert watch(looks).silent_ms == 500


def test_a_suspect_is_not_expelled_while_looks_fail():
    looks = [HeartbeatReading(t, "7") for t in range(0, 11_000, 1_000)]
    seen = watch([*looks, HeartbeatReading(11_000, failed=True)])
    assert seen.suspected
    assert not seen.expel
    assert watch(
        [*looks, HeartbeatReading(11_000, failed=True), HeartbeatReading(11_500, "7")]
    ).expel


def test_one_that_never_sent_a_heartbeat_is_expelled_too():
    assert watch([HeartbeatReading(t) for t in range(0, 12_000, 1_000)]).expel


def test_no_session_timeout_no_judgement():
    assert not watch(
        [HeartbeatReading(t, "7") for t in range(0, 10**6, 1_000)], session=0
    ).suspected


@given(
    st.lists(
        st.tuples(st.integers(-5_000, 50_000), st.sampled_from(["a", "b", None]), st.booleans()),
        max_size=60,
    )
)
def test_expulsion_needs_a_session_of_successful_looks_at_one_beat(steps):
    """Whatever the clock does: jumps, stops, or runs backwards."""
    now, seen, run, proven, last = 0, UNWATCHED, None, 0, None
    for step, beat, failed in steps:
        now += step
        seen = observe(seen, HeartbeatReading(now, None if failed else beat, failed), SESSION, GAP)
        if failed:
            last = None
        else:
            if run is None or run[0] != beat:
                run, proven = (beat,), 0
            elif last is not None:
                proven += max(0, min(now - last, GAP))
            last = now
        assert not seen.expel or proven >= SESSION
        assert not (seen.expel and failed)
