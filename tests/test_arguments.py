"""The checker at the public door: no argument of a public function is without a rule, each rule is
applied, and what passes it works or is an error of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import offsetlog
from offsetlog import arguments
from offsetlog.arguments import (
    CALLBACK,
    FLAG,
    TEXT,
    TOPIC_PARTITION,
    WHOLE,
    checked,
    many,
    number,
    whole,
)
from offsetlog.client.notebook_html import ResetPlan
from offsetlog.engine.append.send_buffer import ArrowFuture, SendFuture
from offsetlog.errors import InvalidRequestError, OffsetLogError
from tests.client.calls import ODD, Calls, quick

CLASSES = [
    offsetlog.Log, offsetlog.Producer, offsetlog.Consumer, offsetlog.Topic, offsetlog.Group,
    SendFuture, ArrowFuture, ResetPlan,
]  # fmt: skip
OURS = {
    "Log.open_topic", "Log.group_commit", "Consumer.begin", "Consumer.out_of_range",
}  # fmt: skip
"""For other modules of the package, which are trusted; the docs do not have them."""


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "open", offsetlog.open
    for kind in CLASSES:
        for name, member in vars(kind).items():
            if not name.startswith("_") and inspect.isfunction(member):
                yield f"{kind.__name__}.{name}", member


def arguments_of(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


WITH_ARGUMENTS = {
    name: function for name, function in public() if arguments_of(function) and name not in OURS
}


def test_every_argument_of_every_public_function_has_a_rule() -> None:
    without = {
        name: missing
        for name, function in WITH_ARGUMENTS.items()
        if (missing := set(arguments_of(function)) - set(getattr(function, "rules", ())))
    }
    assert without == {}
    assert len(WITH_ARGUMENTS) > 45
    assert set(dict(public())) >= OURS


def test_the_calls_of_the_tests_are_those_functions() -> None:
    assert set(Calls.NAMES) == set(WITH_ARGUMENTS)


@pytest.mark.parametrize("name", WITH_ARGUMENTS)
def test_every_argument_is_checked(name: str, tmp_path: Any, monkeypatch: Any) -> None:
    """By its rule, before anything happens; what the rule takes is used or refused by us."""
    quick(monkeypatch)
    monkeypatch.chdir(tmp_path)
    refused = 0
    with Calls(tmp_path) as calls:
        for argument in arguments_of(WITH_ARGUMENTS[name]):
            rule = WITH_ARGUMENTS[name].rules[argument]  # type: ignore[attr-defined]
            for value in ODD:
                try:
                    rule(argument, value())
                    taken = True
                except InvalidRequestError:
                    taken = False
                    refused += 1
                default = inspect.signature(WITH_ARGUMENTS[name]).parameters[argument].default
                if not taken and value() is not default:
                    before = calls.stored()
                    with pytest.raises(InvalidRequestError) as told:
                        calls.call(name, **{argument: value()})
                    assert len(str(told.value)) < 1000 and str(told.value).isprintable()
                    assert calls.stored() == before
                else:
                    if argument == "to" and str(value()) not in ("t", "x"):
                        continue  # Nothing is copied to places outside of the test's.
                    try:
                        calls.call(name, **{argument: value()})
                    except OffsetLogError as error:
                        assert str(error).isprintable()
                    except Exception:
                        if rule is not CALLBACK:  # What a callback raises is its owner's.
                            raise
    assert refused


def test_a_new_argument_cannot_be_forgotten() -> None:
    with pytest.raises(TypeError, match="has rules for"):

        @checked(one=WHOLE)
        def forgets(one: int, two: int) -> None: ...

    with pytest.raises(TypeError, match="has rules for"):
        arguments.checks_itself(one=WHOLE, two=WHOLE)(lambda one: None)


def test_what_a_call_gets() -> None:
    @checked(a=WHOLE, b=FLAG, rest=TEXT, c=many(WHOLE), others=WHOLE)
    def call(a: int, b: bool = False, *rest: str, c: Any = (), **others: int) -> tuple[Any, ...]:
        return a, b, rest, c, others

    got = call(np.int32(5), np.True_, "x", c=(n for n in np.arange(2)), d=np.uint8(1))
    assert got == (5, True, ("x",), (0, 1), {"d": 1})
    assert [type(value) for value in (got[0], got[1], got[3][0])] == [int, bool, int]
    assert str(inspect.signature(call)) == (
        "(a: 'int', b: 'bool' = False, *rest: 'str', c: 'Any' = (), **others: 'int') "
        "-> 'tuple[Any, ...]'"
    )
    for args, named in (
        ((True,), {}), ((1.0,), {}), (("1",), {}), ((1, 1), {}), ((1, False, 5), {}),
        ((1,), {"c": "12"}), ((1,), {"c": 5}), ((1,), {"d": "x"}), ((2**63,), {}),
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError):
            call(*args, **named)


def test_an_argument_that_is_misspelt() -> None:
    with offsetlog.open("memory://misspelt") as log:
        with pytest.raises(InvalidRequestError, match="no argument 'auto_ofset_reset'. Did you"):
            log.consumer("g", auto_ofset_reset="latest")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            log.topic("a", "b")  # type: ignore[call-arg]


def test_numbers() -> None:
    assert whole(0, 5)("n", np.int64(5)) == 5 and number(0, 1)("n", np.float32(0.5)) == 0.5
    for value in (6, -1, 5.0, True, np.True_, None, float("nan"), "5", 1j):
        with pytest.raises(InvalidRequestError, match="whole numbers from 0 to 5"):
            whole(0, 5)("n", value)
    for value in (float("nan"), True, "0.5", 1.1, np.array([0.5]), None, 1j):
        with pytest.raises(InvalidRequestError, match="Allowed: 0 to 1"):
            number(0, 1)("n", value)
    assert TOPIC_PARTITION("p", ("t", np.int8(3))) == ("t", 3)


def test_nothing_is_walked_for_ever() -> None:
    import itertools

    with pytest.raises(InvalidRequestError, match="more than 1,000,000"):
        many(WHOLE)("partitions", itertools.repeat(1))


# --- what was demonstrated once ------------------------------------------------------------------


@pytest.fixture
def calls(tmp_path: Any) -> Iterator[Calls]:
    with Calls(tmp_path) as calls:
        yield calls


def test_numpy_s_integers_are_whole_numbers(calls: Calls) -> None:
    future = calls.producer.send("t", b"v", partition=np.int64(1), timestamp=np.int64(1234))
    at = future.result()
    assert (at.partition, at.timestamp) == (1, 1234) and type(at.partition) is int
    calls.consumer.seek(("t", np.int32(1)), np.int64(0))
    assert calls.consumer.position(("t", 1)) == 0
    calls.log.group("g").reset("t", to=np.int64(1), partitions=np.array([0]), dry_run=False)
    assert calls.log.topic("t").offsets_for_times({np.int64(0): np.int64(0)}) == {0: 0}


def test_finer_times_are_cut_to_milliseconds(calls: Calls) -> None:
    times = pa.array([1_700_000_000_123_456_789, -1_000], pa.timestamp("ns"))
    for column in (times, times.cast(pa.timestamp("us"), safe=False),
                   times.cast(pa.timestamp("ns", "Europe/Paris"))):  # fmt: skip
        table = pa.table({"value": [b"a", b"b"], "timestamp": column})
        future = calls.producer.send_arrow("t", table)
        stored = [future.metadata(row).timestamp for row in range(2)]
        assert stored == [1_700_000_000_123, -1]


def test_a_column_of_more_than_2_gib_is_refused_by_its_name(calls: Calls) -> None:
    """It was a StorageError that said it could be tried again."""
    chunk = pa.array([b"x" * 1_000_000] * 64)
    table = pa.table({"value": pa.chunked_array([chunk] * 34)})
    with pytest.raises(InvalidRequestError, match="'value' of the table has 2,1.* several tables"):
        calls.producer.send_arrow("t", table)


def test_headers_that_cannot_be_written(calls: Calls) -> None:
    for headers in ([("\udc80", b"v")], [("h", "text")], [(b"h", b"v")], "ab", {"h": b"v"}, 5):
        with pytest.raises(InvalidRequestError):
            calls.producer.send("t", b"v", headers=headers)


def test_a_file_of_positions_is_bounded(calls: Calls, tmp_path: Any) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(20 * 1024**3)
    for name, why in (("pipe", "not a file"), ("sparse", "larger than"), ("none", "not a file")):
        with pytest.raises(InvalidRequestError, match=why):
            calls.log.group("g").reset(from_file=tmp_path / name)


def test_a_wrong_name_is_told_of_what_was_called(tmp_path):
    with offsetlog.open(str(tmp_path)) as log:
        for call, name in ((log.producer, "ap_id"), (log.consumer, "topc")):
            with pytest.raises(InvalidRequestError) as caught:
                call(**{name: "x"})
            assert f"{call.__name__}() has no argument '{name}'" in str(caught.value)
