"""A batch query: where it starts and ends, and what filters leave out.

Invariants:

1. Everything is decided when the query is planned: tasks read what was planned.
2. Filters only narrow what is read, where Spark keeps them apart; it applies all of them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from offsetlog.errors import InvalidRequestError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.lines.classes import FILTERS_KEPT_APART
from pyspark_offsetlog.options.spec import SourceOptions
from pyspark_offsetlog.runtime.open_logs import open_log, with_root_id
from pyspark_offsetlog.runtime.pickling import PickledWithReason
from pyspark_offsetlog.runtime.user_errors import one_line_errors, one_line_errors_iterator
from pyspark_offsetlog.schema import chosen_columns
from pyspark_offsetlog.source.offsets import OffsetRange, Positions, split_ranges
from pyspark_offsetlog.source.plans import LogPartition
from pyspark_offsetlog.source.read_tasks import plan_ranges, plan_tasks, read
from pyspark_offsetlog.source.starting_offsets import resolve
from pyspark_offsetlog.source.subscription import SubscribedTopics
from pyspark_offsetlog.source.to_spark import output_columns
from pyspark_offsetlog.source.visibility import DataLoss

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from pyspark_offsetlog.source.filters import Narrowed


class OffsetLogReader(PickledWithReason, DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        chosen_columns(schema)
        self._options = options
        self._schema = schema
        self._narrowed: Narrowed | None = None
        if FILTERS_KEPT_APART:
            self.pushFilters = _Push(self)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        # Filters are taken on the driver; a worker has no use for it.
        return {name: value for name, value in self.__dict__.items() if name != "pushFilters"}

    def narrow(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of filters; all of them are given back, for Spark to apply."""
        # Spark 4.0 has no filters to push.
        from pyspark_offsetlog.source.filters import narrow

        self._narrowed = narrow(filters)
        return filters

    @one_line_errors
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        place = with_root_id(options.place)
        log = open_log(place)
        topics = SubscribedTopics(log, options.subscription)
        look = topics.look()
        topics.check(look)
        if not look.spans:
            raise InvalidRequestError(
                f"No topic matches subscribePattern={options.subscription.pattern!r}.",
                "'offsetlog topics list' names those that exist.",
            )
        lost = DataLoss(options.fail_on_data_loss)
        begin, look = resolve(log, options, options.start, topics, look, lost)
        end, _ = resolve(log, options, options.end, topics, look, lost)
        ranges = _ranges(options, begin, end)
        if self._narrowed is not None:
            ranges = self._narrowed.apply(log, ranges)
        ranges = split_ranges(ranges, options.min_partitions, options.max_records)
        work = plan_ranges(topics.topic, ranges)
        fails = options.fail_on_data_loss
        tasks = plan_tasks(log, place, work, options.shares_out, fails)
        return tasks or [LogPartition(place, ())]

    @one_line_errors_iterator
    def read(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        yield from read(partition, output_columns(self._schema))


class _Push:
    """``pushFilters`` that PySpark sees only where filters are pushed down: its check for
    sessions where they are not looks at ``__func__``, and would refuse the whole query."""

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", None))  # type: ignore

    def __init__(self, reader: OffsetLogReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.narrow(filters)


def _ranges(options: SourceOptions, begin: Positions, end: Positions) -> list[OffsetRange]:
    out = []
    for tp, to in sorted(end.items()):
        at = begin[tp]
        if at > to:
            raise _backwards(options, tp, at, to)
        out.append(OffsetRange(tp.topic, tp.partition, at, to))
    return out


def _backwards(
    options: SourceOptions, tp: TopicPartition, begin: int, end: int
) -> InvalidRequestError:
    return InvalidRequestError(
        f"{tp.topic}-{tp.partition} would be read from {begin} ({options.start.option}) to {end} "
        f"({options.end.option}), which is before it.",
        "Let it end where it starts, or later.",
    )
