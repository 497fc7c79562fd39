"""Values that share memory behave like plain lists and dictionaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offsetlog.core.topic import senders as apps
from offsetlog.core.topic.extents import EMPTY_TAIL, Extent, Tail
from offsetlog.core.topic.senders import SenderState, SenderTable


def extent(base: int, end: int, entry: int) -> Extent:
    return Extent(0, base, end, end - base, 1, 0, 0, 0, entry, "0" * 32, 0, None, False)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("push", "push", "push", "trim", "replace", "since", "fork")),
        st.integers(0, 60),
        st.integers(1, 8),
    ),
    max_size=40,
)


@given(OPERATIONS)
def test_a_tail_is_a_list_and_never_changes(operations):
    tail, model, end = EMPTY_TAIL, [], 0
    seen: list[tuple[Tail, list[Extent]]] = [(tail, model)]
    for number, (what, where, size) in enumerate(operations):
        if what == "push":
            new = extent(end, end + size, number)
            end += size
            tail, model = tail.push(new), [*model, new]
        elif what == "trim":
            tail, model = tail.trimmed(where), [e for e in model if e.end > where]
        elif what == "since":
            tail, model = tail.since(where), [e for e in model if e.entry >= where]
        elif what == "replace" and model:
            first = where % len(model)
            last = min(len(model) - 1, first + size)
            low, high = model[first].base, model[last].end
            new = extent(low, high, number)
            tail = tail.replaced(low, high, [new])
            model = (
                [e for e in model if e.end <= low] + [new] + [e for e in model if e.base >= high]
            )
        elif what == "fork":
            # Go on from an older value: the younger ones must not notice.
            tail, model = seen[where % len(seen)]
            end = model[-1].end if model else end
        seen.append((tail, model))
    for value, expected in seen:
        assert list(value) == expected
        assert len(value) == len(expected)
        for low in range(0, end + 2, 3):
            found = [e for e in expected if e.end > low and e.base < low + 4]
            assert value.overlapping(low, low + 4) == found


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("with", "with", "with", "without", "since", "fork")),
            st.integers(0, 12),
        ),
        max_size=60,
    )
)
def test_an_app_table_is_a_dictionary_and_never_changes(operations):
    before, apps._LAYER_LIMITS = apps._LAYER_LIMITS, (2, 4)
    try:
        table, model = SenderTable(), {}
        seen = [(table, model)]
        for number, (what, who) in enumerate(operations):
            if what == "with":
                known = SenderState(number, number, 0, "")
                table, model = table.with_app(f"a{who}", known), {**model, f"a{who}": known}
            elif what == "without":
                gone = f"a{who}"
                table = table.without([gone])
                model = {k: v for k, v in model.items() if k != gone}
            elif what == "since":
                table = table.landed_since(who)
                model = {k: v for k, v in model.items() if v.entry >= who}
            else:
                table, model = seen[who % len(seen)]
            seen.append((table, model))
        for value, expected in seen:
            assert dict(value.items()) == expected
            assert len(value) == len(expected)
            assert value == SenderTable.of(expected.items())
            for who in range(13):
                assert value.get(f"a{who}") == expected.get(f"a{who}")
    finally:
        apps._LAYER_LIMITS = before
