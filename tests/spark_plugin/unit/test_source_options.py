"""Each option of the source: what it takes, what it refuses and in which words."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.options.check import (
    ignored_warning,
    is_source,
    overruled_warning,
    source_options,
)
from pyspark_offsetlog.options.parse import OffsetBound
from pyspark_offsetlog.options.spec import SINK, SOURCE

NEEDED = {"path": "/logs", "subscribe": "orders"}


def read(streaming: bool | None = True, /, **given: str) -> Any:
    options = {**NEEDED, **{name.replace("__", "."): value for name, value in given.items()}}
    return source_options({name: v for name, v in options.items() if v is not None}, streaming)


def refused(streaming: bool | None = True, /, **given: str) -> str:
    with pytest.raises(InvalidRequestError) as failed:
        read(streaming, **given)
    return str(failed.value)


# --- where, and what -----------------------------------------------------------------------


def test_the_place() -> None:
    assert read().place.root == "/logs"
    assert read(path=None, kafka__bootstrap__servers="s3://b/logs").place.root == "s3://b/logs"
    assert read(kafka__bootstrap__servers="/logs").place.root == "/logs"
    assert read(offsets__table="/elsewhere").place.offsets_table == "/elsewhere"
    assert read(single_writer="TRUE").place.single_writer is True
    assert "No path is set" in refused(path=None)
    assert "The option path cannot be ' '" in refused(path=" ")
    told = refused(path=None, kafka__bootstrap__servers="b1:9092,b2:9092")
    assert "names Kafka brokers" in told and "'b1:9092,b2:9092'" in told
    told = refused(kafka__bootstrap__servers="/other")
    assert "path is '/logs' and kafka.bootstrap.servers is '/other'" in told


def test_a_path_is_the_same_place_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in other folders, and ``offsetlog.open`` takes a home as well."""
    monkeypatch.setenv("HOME", "/home/ann")
    assert read(path="~/log", offsets__table="~/o").place[::3] == ("/home/ann/log", "/home/ann/o")
    monkeypatch.chdir("/")
    assert read(path="data/log").place.root == "/data/log"
    assert "s3:/b/log has one slash after s3:" in refused(path="s3:/b/log")


def test_what_storage_is_told() -> None:
    place = read(storage__key="k", storage__anon="true", storage__retries='{"max":5}').place
    assert dict(place.storage) == {"key": "k", "anon": True, "retries": {"max": 5}}
    assert "There is no option 'storage.'" in refused(**{"storage.": "x"})
    for name in ("url", "single_writer", "offsets_table"):
        assert f"storage.{name} is no option" in refused(**{f"storage.{name}": "x"})


def test_secrets_are_never_shown() -> None:
    options = read(path="sftp://me:hunter2@host/logs", storage__secret="hunter3")
    assert "hunter" not in repr(options) + str(options) + repr(options.place)
    assert dict(options.place.storage)["secret"] == "hunter3"
    told = refused(
        path="sftp://me:hunter2@host/logs",
        kafka__bootstrap__servers="sftp://me:hunter4@host/logs",
        storage__secret="hunter3",
    )
    assert "hunter" not in told
    assert "hunter" not in refused(storage__secret="hunter3", maxOffsetsPerTrigger="x")
    assert "hunter" not in ignored_warning({"kafka.sasl.jaas.config": "hunter5"}, SOURCE)


def test_exactly_one_subscription() -> None:
    assert read(subscribe=" a , b,a ").subscription.topics == ("a", "b")
    assert read(subscribe=None, subscribePattern="pre.*").subscription.pattern == "pre.*"
    assigned = read(subscribe=None, assign='{"b":[1,0],"a":[2]}').subscription.assigned
    assert assigned == (("a", 2), ("b", 0), ("b", 1))
    told = refused(subscribe=None)
    assert "exactly one of subscribe, subscribePattern, assign. None of them is set" in told
    assert "subscribe and assign are set" in refused(assign='{"a":[0]}')
    assert "subscribe and subscribePattern are set" in refused(subscribePattern="a")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("subscribe", "", "The option subscribe cannot be ''"),
        ("subscribe", " , ", "Allowed: names of topics"),
        ("subscribe", "or/ders", "'or/ders' is not a legal"),
        ("subscribe", "_hidden", "'_hidden' begins with '_'"),
        ("subscribePattern", "", "subscribePattern cannot be ''"),
        ("subscribePattern", "a(b", "missing )"),
        ("subscribePattern", "a" * 5000, "a regular expression"),
        ("assign", "orders", "assign cannot be 'orders'"),
        ("assign", "{}", "with at least one partition"),
        ("assign", '{"orders":[]}', "assign cannot be"),
        ("assign", '{"orders":0}', "assign cannot be"),
        ("assign", '{"orders":[-1]}', "assign cannot be"),
        ("assign", '{"orders":[0.5]}', "assign cannot be"),
        ("assign", '{"orders":[true]}', "assign cannot be"),
        ("assign", '{"orders":["0"]}', "assign cannot be"),
        ("assign", '{"orders":[0],"orders":[1]}', "duplicate key 'orders'"),
        ("assign", '["orders"]', "assign cannot be"),
    ],
)
def test_bad_subscriptions(name: str, value: str, told: str) -> None:
    assert told in refused(**{"subscribe": None, name: value})  # type: ignore[dict-item]


# --- from where, to where ------------------------------------------------------------------


def test_starts_and_ends() -> None:
    assert read().start == OffsetBound("latest", option="startingOffsets")
    assert read(False).start == OffsetBound("earliest", option="startingOffsets")
    assert read(False).end == OffsetBound("latest", option="endingOffsets")
    assert read(startingOffsets=" EARLIEST ").start.kind == "earliest"
    assert read(startingOffsets="-1000").start == OffsetBound(
        "before", 1000, option="startingOffsets"
    )
    each = read(startingOffsets='{"a":{"0":23,"1":-2,"2":-1}}').start
    assert each == OffsetBound(
        "offsets", each={"a": {0: 23, 1: -2, 2: -1}}, option="startingOffsets"
    )
    assert read(startingTimestamp="1500").start == OffsetBound(
        "time", 1500, option="startingTimestamp"
    )
    assert read(startingTimestamp="-PT10M").start.number == 600_000
    assert read(startingTimestamp="-p1dt1h").start.number == 90_000_000
    times = read(startingOffsetsByTimestamp='{"a":{"0":5}}').start
    assert (times.kind, times.each) == ("times", {"a": {0: 5}})
    assert read(False, endingTimestamp="9").end == OffsetBound("time", 9, option="endingTimestamp")
    assert read(False, endingOffsetsByTimestamp='{"a":{"0":5}}').end.kind == "times"
    assert read(False, endingOffsets='{"a":{"0":-1,"1":7}}').end.each == {"a": {0: -1, 1: 7}}


OFFSETS = ("startingOffsets", "endingOffsets")
JSON_BAD = [
    '{"a":{"0":3.7}}', '{"a":{"0":true}}', '{"a":{"0":"3"}}', '{"a":{"0":-3}}', '{"a":3}',
    '{"a":{"x":3}}', '{"a":{"00":3}}', '{"a":{"-1":3}}', '{"a":{"0":NaN}}', '{"a":{"0":3}',
    '{"a":{"0":3,"0":4}}', '{"a":{"0":99999999999999999999}}', '[]', "{" * 9000,
]  # fmt: skip


@pytest.mark.parametrize("value", [*JSON_BAD, "", "none", "5", "1.5", "-0", "--1", "-P1D"])
@pytest.mark.parametrize("name", OFFSETS)
def test_bad_offsets(name: str, value: str) -> None:
    told = refused(False, **{name: value})
    assert f"The option {name} cannot be '{value[:50]}" in told
    assert "Allowed: " in told and "earliest" in told
    assert len(told) < 700


def test_relative_ends_are_refused() -> None:
    assert "endingOffsets cannot be '-10'" in refused(False, endingOffsets="-10")
    assert "endingTimestamp cannot be '-PT1M'" in refused(False, endingTimestamp="-PT1M")
    assert "endingOffsets cannot be 'group'" in refused(False, endingOffsets="group")


@pytest.mark.parametrize("value", ["", "yesterday", "-5", "1.5", "-P", "-PT", "-P1X", "P1D"])
def test_bad_times(value: str) -> None:
    told = refused(startingTimestamp=value)
    assert f"The option startingTimestamp cannot be {value!r}" in told and "Allowed: " in told


@pytest.mark.parametrize("value", [v for v in JSON_BAD if v != '{"a":{"0":-3}}'])
def test_bad_times_as_json(value: str) -> None:
    for name in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        assert f"The option {name} cannot be" in refused(False, **{name: value})
        assert f"The option {name} cannot be" in refused(False, **{name: '{"a":{"0":-1}}'})


def test_what_a_batch_cannot_take() -> None:
    assert "startingOffsets=latest would read nothing" in refused(False, startingOffsets="latest")
    assert "endingOffsets=earliest would read nothing" in refused(False, endingOffsets="earliest")
    told = refused(False, startingOffsets='{"a":{"0":-1}}')
    assert "startingOffsets for a-0 is -1 (latest)" in told
    told = refused(False, endingOffsets='{"a":{"0":-2}}')
    assert "endingOffsets for a-0 is -2 (earliest)" in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":5}}'),
    ],
)
def test_a_stream_has_no_end(name: str, value: str) -> None:
    assert f"The option {name} is set for a stream" in refused(**{name: value})
    read(False, **{name: value})
    read(None, **{name: value})


def test_the_winner_among_starts_and_the_warning_about_the_losers() -> None:
    both = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a":{"0":5}}',
        "startingTimestamp": "7",
    }
    assert read(**both).start.kind == "time"
    told = overruled_warning({name.lower(): value for name, value in both.items()})
    assert told == (
        "startingTimestamp is set, so startingOffsetsByTimestamp and startingOffsets are "
        "passed over."
    )
    del both["startingTimestamp"]
    assert read(**both).start.kind == "times"
    assert "endingTimestamp is set" in overruled_warning(
        {"endingTimestamp": "5", "endingOffsets": "latest"}
    )
    assert overruled_warning({"startingOffsets": "latest", "endingTimestamp": "5"}) == ""
    assert "startingOffsets cannot be 'x'" in refused(startingTimestamp="7", startingOffsets="x")


def test_groups() -> None:
    assert read().group is None
    assert read(group__id=" g ").group == "g"
    assert read(kafka__group__id="g").group == "g"
    assert read(kafka__group__id="g", group__id="g").group == "g"
    assert "group.id is 'a' and kafka.group.id is 'b'" in refused(
        group__id="a", kafka__group__id="b"
    )
    assert "'a b' is not a legal group name" in refused(group__id="a b")
    assert "startingOffsets=group needs a group" in refused(startingOffsets="group")
    assert read(startingOffsets="group", group__id="g").start.kind == "group"
    assert read(auto__offset__reset="None").reset_policy == "none"
    assert "auto.offset.reset cannot be 'last'" in refused(auto__offset__reset="last")


# --- numbers -------------------------------------------------------------------------------

COUNTS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", ["0", "-1", "1.0", "a", "", "1e3", "99999999999999999999", "٣"])
def test_counts(name: str, value: str) -> None:
    told = refused(**{name: value})
    assert f"The option {name} cannot be {value!r}. Allowed: a whole number from 1" in told


def test_good_numbers() -> None:
    options = read(
        MAXOFFSETSPERTRIGGER="10",
        minoffsetspertrigger=" 5 ",
        maxBytesPerTrigger="64m",
        maxTriggerDelay="2 minutes",
        minPartitions="7",
        maxRecordsPerPartition="100",
        pollIntervalMs="0",
        failOnDataLoss="False",
        includeHeaders="TRUE",
        startingOffsetsByTimestampStrategy="LATEST",
    )
    assert (options.max_offsets, options.min_offsets, options.max_bytes) == (10, 5, 64 << 20)
    assert (options.max_delay_ms, options.min_partitions, options.max_records) == (120_000, 7, 100)
    assert (options.poll_ms, options.fail_on_data_loss, options.include_headers) == (0, False, True)
    assert options.at_no_match == "latest"
    assert pickle.loads(pickle.dumps(options)) == options
    assert read(maxOffsetsPerTrigger=str(2**63 - 1)).max_offsets == 2**63 - 1


@pytest.mark.parametrize(
    ("value", "size"),
    [("1", 1), ("1k", 1024), ("2 KB", 2048), ("1g", 1 << 30), ("1t", 1 << 40),
     (str(2**63 - 1), 2**63 - 1)],
)  # fmt: skip
def test_sizes(value: str, size: int) -> None:
    assert read(maxBytesPerTrigger=value).max_bytes == size


@pytest.mark.parametrize("value", ["0", "-1", "1.5m", "m", "", "1x", "99999999999999t", str(2**63)])
def test_bad_sizes(value: str) -> None:
    assert f"The option maxBytesPerTrigger cannot be {value!r}" in refused(maxBytesPerTrigger=value)


@pytest.mark.parametrize(
    ("value", "ms"),
    [("15m", 900_000), ("30s", 30_000), ("100ms", 100), ("1 hour", 3_600_000), ("2d", 172_800_000),
     ("PT5M", 300_000), ("0s", 0)],
)  # fmt: skip
def test_durations(value: str, ms: int) -> None:
    assert read(maxTriggerDelay=value).max_delay_ms == ms


@pytest.mark.parametrize("value", ["", "5", "m", "1.5h", "-5m", "5 parsecs", "PT", "P1X"])
def test_bad_durations(value: str) -> None:
    assert f"The option maxTriggerDelay cannot be {value!r}"[:45] in refused(maxTriggerDelay=value)


@pytest.mark.parametrize("name", ["failOnDataLoss", "includeHeaders", "single_writer"])
@pytest.mark.parametrize("value", ["yes", "1", "", "tru"])
def test_bad_booleans(name: str, value: str) -> None:
    told = refused(**{name: value})
    assert f"The option {name} cannot be {value!r}. Allowed: true or false" in told


def test_other_bad_values() -> None:
    told = refused(startingOffsetsByTimestampStrategy="maybe")
    assert "startingOffsetsByTimestampStrategy cannot be 'maybe'. Allowed: error, latest" in told
    for value in ("-1", "x", "3600001"):
        assert f"pollIntervalMs cannot be '{value}'" in refused(pollIntervalMs=value)
    assert "The option offsets.table cannot be ''" in refused(offsets__table="")
    told = refused(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
    assert "minOffsetsPerTrigger=5 is more than maxOffsetsPerTrigger=4" in told


# --- names ---------------------------------------------------------------------------------


def test_unknown_names() -> None:
    assert "There is no option 'startingoffset'. Did you mean 'startingOffsets'?" in refused(
        startingOffset="earliest"
    )
    told = refused(somethingElse="1")
    assert "There is no option 'somethingelse'" in told and "subscribePattern" in told
    assert "'topic' is not an option of the source" in refused(topic="orders")
    for name in SINK:
        if name not in SOURCE:
            assert "is not an option of the source" in refused(**{name: "x"})


def test_names_in_any_case() -> None:
    given = {"PATH": "/logs", "Subscribe": "orders", "STARTINGOFFSETS": "earliest"}
    assert source_options(given, True).start.kind == "earliest"
    assert is_source({"subscribepattern": "x"}) and not is_source({"path": "/logs"})


def test_options_of_a_kafka_client_are_one_warning() -> None:
    idle = {
        "kafka.auto.offset.reset": "earliest",
        "kafka.security.protocol": "SSL",
        "kafkaConsumer.pollTimeoutMs": "5",
        "fetchOffset.numRetries": "3",
        "groupIdPrefix": "mine",
    }
    read(**idle)
    told = ignored_warning(
        {**NEEDED, **idle, "kafka.group.id": "g", "kafka.client.id": "c"}, SOURCE
    )
    for name in idle:
        assert name.lower() in told
    assert "startingOffsets=group with auto.offset.reset in place of" in told
    assert "group.id in place of groupidprefix" in told
    assert "kafka.group.id" not in told and "kafka.client.id" not in told
    assert "\n" not in told
    assert ignored_warning(NEEDED, SOURCE) == ""
