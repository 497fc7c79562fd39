"""A group's lag as a program sees it, before there is a commit."""

from __future__ import annotations

import offsetlog
from offsetlog.core.group import checkpoint
from offsetlog.core.group.facts import Subscription, encode_subscription
from offsetlog.core.group.requests import JoinRequest
from tests.metrics.scrapes import written


def test_a_member_that_has_committed_nothing_is_shown_with_all_that_waits(log) -> None:
    log.create_topic("orders", partitions=2)
    written(log, "orders", 60, partition=0)
    log.create_topic("other")
    group = log.group("billing")
    with log.consumer(
        group="billing", topics=["orders"], auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        assert len(consumer.poll()) == 60
        assert group.lag() == {("orders", 0): 60, ("orders", 1): 0}
        info = group.describe()
        assert info.total.records == 60 and info.total.bytes and info.total.seconds is not None
        assert [(line.committed, line.end) for line in info.partitions] == [(None, 60), (None, 0)]
        assert {line.member for line in info.partitions} == {info.members[0].member}
        assert info.to_dict()["partitions"][0]["committed"] is None
        assert "<td>-</td>" in info._repr_html_()
        consumer.commit()
        assert sum(group.lag().values()) == 0, "numbers, where there are commits"
        consumer.subscribe(["orders", "other"])
        assert group.lag() == {("orders", 0): 0, ("orders", 1): 0, ("other", 0): 0}
    assert group.lag() == {("orders", 0): 0, ("orders", 1): 0}, "as in Kafka's tool"


def test_where_it_begins_may_not_be_known(log) -> None:
    """At an end that only the member knows; or a member of an older version, which said nothing."""
    log.create_topic("orders")
    written(log, "orders", 5)
    with log.consumer(group="tail", topics=["orders"], enable_auto_commit=False) as consumer:
        consumer.poll()
        assert log.group("tail").lag() == {("orders", 0): None}
        assert log.group("tail").describe().total == (None, None, None)
        consumer.commit()
        assert log.group("tail").lag() == {("orders", 0): 0}
    log.offsets_table.accept(JoinRequest("older", "m", Subscription(("orders",))))
    assert log.group("older").lag() == {("orders", 0): None}
    assert "<td>-</td>" in log.page()._repr_html_()


def test_one_that_dies_before_its_first_commit_stays_visible(tmp_path) -> None:
    root = str(tmp_path / "log")
    with offsetlog.open(root) as log:
        log.create_topic("orders")
        written(log, "orders", 5)
        dead = log.consumer(group="billing", topics=["orders"], auto_offset_reset="earliest")
        dead.poll()
        log._heartbeats.close()  # As if it was killed.
        with offsetlog.open(root) as other:
            assert other.group("billing").lag() == {("orders", 0): 5}
            other.group("billing").remove_members()
            assert other.group("billing").lag() == {}


def test_a_state_that_an_older_version_stored_is_sound_and_the_lag_is_not_known(
    log, monkeypatch
) -> None:
    log.create_topic("orders")
    with log.consumer(group="billing", topics=["orders"], auto_offset_reset="earliest"):
        with monkeypatch.context() as older:
            older.setattr(
                checkpoint, "encode_subscription", lambda said: encode_subscription(said.rules)
            )
            log.maintain()
        with type(log)(log.store) as again:
            assert again.group("billing").lag() == {("orders", 0): None}
            assert not any(report.caches for report in again.verify())
