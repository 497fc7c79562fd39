"""Leaves of the index that cannot be read cost time, never an answer and never a hang."""

from __future__ import annotations

import pytest

from offsetlog.core.topic.entry import Trim
from offsetlog.engine.topic.recent_entries import RecentEntries
from offsetlog.engine.upkeep import maintenance as maintenance_module
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.errors import UnknownTopicError
from tests.engine.append.test_open_fates import batch, send, values_of
from tests.engine.scripted import topic
from tests.simulation.mutations import planted


def with_lost_leaves():
    store, handle = topic()
    for seq in range(1, 13):
        send(handle, batch(b"%d" % seq), seq)
    handle.stored.publish()
    _, fresh = topic(root=store._root, create=False)
    gone = [info.name for info in store.list("t/_index")]
    assert gone
    store.delete(gone)
    return store, fresh


def test_a_read_falls_back_to_the_chain():
    _, handle = with_lost_leaves()
    assert values_of(handle) == [b"%d" % seq for seq in range(1, 13)]


def test_extents_of_a_state_are_those_of_the_same_tip():
    _, handle = with_lost_leaves()
    state = handle.chain.state
    handle.decide(Trim(((0, 5),)))
    found = handle.reader.live(state, lambda leaf, span: list(span))
    assert sorted((e.base, e.end) for e in found) == [(i, i + 1) for i in range(12)]
    assert [list(sizes.end) for sizes in handle.reader.sizes(state)] == [list(range(1, 13)), []]


def test_a_maintenance_round_gets_through():
    _, handle = with_lost_leaves()
    done = Maintenance(handle, grace_ms=0).run()
    assert done.new_segments == 1
    assert values_of(handle) == [b"%d" % seq for seq in range(1, 13)]


def test_a_round_whose_plan_was_overtaken_by_delete_records_goes_on(monkeypatch):
    """Another process moves the log start between the plans and their reading."""
    store, handle = topic()
    for seq in range(1, 13):
        send(handle, batch(b"%d" % seq, partition=seq % 2), seq)
    _, other = topic(root=store._root, create=False)
    plan = maintenance_module.plan_rewrites

    def planned(extents, log_start, target_bytes, min_files, *more):
        yield from plan(extents, log_start, target_bytes, 2, *more)
        other.decide(Trim(((0, 3),)))
        handle.chain.refresh()

    monkeypatch.setattr(maintenance_module, "plan_rewrites", planned)
    done = Maintenance(handle, grace_ms=0).run()
    assert done.new_segments == 1
    assert values_of(handle, 0) == [b"8", b"10", b"12"]
    assert values_of(handle, 1) == [b"%d" % seq for seq in range(1, 13, 2)]


def test_a_time_lookup_goes_on_behind_what_was_trimmed(monkeypatch):
    _, handle = topic()
    for seq in range(1, 5):
        send(handle, batch(b"%d" % seq), seq)
    row = handle.reader._first_row_at
    trims = [Trim(((0, 2),))]

    def first_row(*arguments):
        if trims:
            handle.decide(trims.pop())
        return row(*arguments)

    monkeypatch.setattr(handle.reader, "_first_row_at", first_row)
    assert handle.reader.offset_for_time(0, 1) == (2, 1)


@pytest.mark.parametrize("records", [0, 2])
def test_a_compacted_piece_without_records_has_all_columns(records):
    """Readers cope with gaps from the start; a whole piece may be one."""
    from offsetlog.core.topic.extents import Extent
    from offsetlog.core.topic.plan import PlannedPiece
    from offsetlog.engine.topic.reader import _gapped_batches

    class Source:
        groups = ()

        def last_offsets(self, base, end):
            return ()

    extent = Extent(0, 5, 9, 0, 0, 0, 0, 0, 1, "0" * 32, 0, None, True)
    columns = ("key", "value", "headers", "timestamp", "offset")
    [found] = _gapped_batches(PlannedPiece(extent, 5 + records, 9), Source(), columns)
    assert found.table.schema.names == list(columns)
    assert (found.start, found.end, found.table.num_rows) == (5 + records, 9, 0)


@pytest.mark.parametrize("comparing", [True, False])
def test_inline_rows_are_believed_under_their_write_id_only(comparing):
    """A topic was purged, and created anew while somebody still held its old state."""
    store, old = topic()
    send(old, batch(b"mine"), 1)
    old.chain._recent = RecentEntries(0).of_chain()
    store.delete_tree("t")
    _, new = topic(root=store._root)
    send(new, batch(b"other"), 1)
    read = lambda: [  # noqa: E731
        value
        for found in old.reader.read(0, 0, 1)
        for value in found.table.column("value").to_pylist()
    ]
    if comparing:
        with pytest.raises(UnknownTopicError, match="Another topic took the folder"):
            read()
    else:
        with planted("write ids not compared"):
            assert read() == [b"other"], "without the rule other rows would be given"
