"""An append that is taken for readable by a look at its values is one that readers take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offsetlog.core.topic.entry import Append, Entry, Part, SegmentRef
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.format import decisions, entries
from offsetlog.values import MAX_PARTITIONS, MIN_TIME

PLAIN = Entry(
    "0123456789abcdef" * 2,
    1_700_000_000_000,
    Append("app", 1, True, 0, 0, 3, "digest", 0, (Part(0, 1, 5, 7, 7), Part(2, 3, 9, -1, 8))),
)
EDGES = [
    -1, 0, 1, 2, MAX_PARTITIONS - 1, MAX_PARTITIONS, MAX_PARTITIONS + 1, MIN_TIME - 1, MIN_TIME,
    2**63 - 1, 2**63, True, 0.0, 1.5, "1", None,
]  # fmt: skip
TEXTS = ["", "a", "0" * 32, "g" * 32, "A" * 32, "0" * 31, "0" * 33, "x" * 64, "x" * 65, "y" * 4096,
         "y" * 4097, "\ud800", "\n", 7, None]  # fmt: skip
SEGMENT = SegmentRef(0, "0" * 32, 100, 20, "0" * 16)


@st.composite
def changed(draw: st.DrawFn) -> Entry:
    """A plain append with some of its values replaced."""
    body: Append = PLAIN.body  # type: ignore[assignment]
    numbers, texts = st.sampled_from(EDGES), st.sampled_from(TEXTS)
    values: dict[str, Any] = {
        "app": texts, "seq": numbers, "own": numbers, "born": numbers, "created_at_entry": numbers,
        "hashed_with": numbers, "digest": texts, "ts_type": numbers,
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(values)), max_size=2)):
        body = body._replace(**{name: draw(values[name])})
    parts = list(body.parts)
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(Part._fields))
        value = draw(st.sampled_from([None, SEGMENT]) if name == "segment" else numbers)
        at = draw(st.integers(0, 1))
        parts[at] = parts[at]._replace(**{name: value})
    body = body._replace(parts=tuple(parts))
    if draw(st.booleans()):
        return PLAIN._replace(body=body)
    write_id = draw(texts)
    return Entry(write_id, draw(numbers), body)


@settings(max_examples=400, deadline=None)
@given(changed())
@example(PLAIN)
def test_what_is_taken_for_readable_is_read(entry):
    try:
        plain = decisions.is_plain_append(entry)
    except (TypeError, ValueError):
        return  # Nothing is written of it either.
    if plain:
        assert decisions.decode(decisions.encode(entry), "e") == entry


JUNK = st.sampled_from([*EDGES, *TEXTS[:5], [], {}, [1], [[]], {"a": 1}])
PARTS = st.sampled_from(
    [[], {}, "", None, [[0, 1, 5, 7, 7]], [[0, 1, 5, 7, 7, None]], [[0, 1, 5, 7]], [[]], ["01577"],
     [{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}], [[0, 1, 5, 7, 7], [0, 1, 5, 7, 7, list(SEGMENT)]],
     [[0, 1, 5, 8, 7]], [[True, 1, 5, 7, 7]], [[0, 1.0, 5, 7, 7]]]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_plain_append_is_read_as_its_shape_says(data):
    raw = json.loads(decisions.encode(PLAIN))
    for name in data.draw(st.lists(st.sampled_from(sorted(raw)), max_size=2)):
        values = st.one_of(PARTS, JUNK) if name == "parts" else JUNK
        raw[name] = data.draw(values)
    for name in data.draw(st.lists(st.sampled_from(sorted(raw)), max_size=1)):
        del raw[name]
    text = json.dumps(raw)

    def read():
        try:
            return repr(decisions.decode(text, "e"))
        except CorruptLogError as error:
            return str(error)

    known = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decisions, "_plain_append", lambda raw: None)
        assert read() == known


def test_an_ordinary_append_is_plain():
    assert decisions.is_plain_append(PLAIN)
    assert decisions._plain_append(json.loads(decisions.encode(PLAIN))) == PLAIN


@pytest.mark.parametrize(
    "change",
    [{"app": "y" * 4097}, {"seq": -1}, {"seq": 2**63}, {"hashed_with": 0}, {"ts_type": 2},
     {"own": 1}, {"parts": (Part(0, 0, 5, 7, 7),)}, {"parts": (Part(0, 1, 5, 8, 7),)}],
)  # fmt: skip
def test_what_no_reader_takes_is_not_written(change):
    entry = PLAIN._replace(body=PLAIN.body._replace(**change))
    assert not decisions.is_plain_append(entry)
    with pytest.raises(InvalidRequestError, match="Nothing was written"):
        entries.encode(entry, None, "none")
