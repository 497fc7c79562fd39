"""``format("offsetlog")``: from what Spark asks for to the reader or writer that does it.

Invariants:

1. Options are checked at the first moment at which it is known what they are for, and before
   them that the plugin is made for this Spark. The import refuses none: Spark looks through all
   packages at once, and would find none of the other sources.
2. ``streamReader`` does not raise: Spark would hide the error behind one of its own. The
   reader says it when it is asked for the first time.
3. Spark plans a streaming write with a data source that it makes, and commits or aborts it with
   one that was sent. Only the former is planned and may be refused: an error on the way to
   ``abort`` would hide the one that led to it.
"""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from offsetlog.environment import check_spark
from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.about import tables
from pyspark_offsetlog.options import check
from pyspark_offsetlog.options.spec import SINK, SOURCE
from pyspark_offsetlog.runtime.pickling import PickledWithReason, ReasonedUnpickling
from pyspark_offsetlog.runtime.user_errors import one_line_errors, warn, warn_once
from pyspark_offsetlog.schema import source_schema


class OffsetLogDataSource(PickledWithReason, DataSource, metaclass=ReasonedUnpickling):
    @one_line_errors
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        check_spark(pyspark.__version__)
        self.sent = False
        if tables.is_table(options):
            check.table_options(options)
        elif check.is_source(options):
            check.source_options(options, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sent": True}

    @classmethod
    def name(cls) -> str:
        return "offsetlog"

    @one_line_errors
    def schema(self) -> StructType:
        if tables.is_table(self.options):
            return tables.table_schema(self.options)
        source = check.source_options(self.options, None)
        warn(check.ignored_warning(self.options, SOURCE))
        warn(check.overruled_warning(self.options))
        return source_schema(source.include_headers)

    @one_line_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        if tables.is_table(self.options):
            return tables.TableReader(self.options, schema)
        from pyspark_offsetlog.source.batch import OffsetLogReader

        return OffsetLogReader(check.source_options(self.options, False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_offsetlog.source.stream import OffsetLogStreamReader

        return OffsetLogStreamReader(dict(self.options), schema)

    @one_line_errors
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from pyspark_offsetlog.sink import jvm_tasks
        from pyspark_offsetlog.sink.writers import BatchWriter

        if overwrite:
            raise InvalidRequestError("A log cannot be overwritten.", "Write with .mode('append').")
        warn_once(check.ignored_warning(self.options, SINK))
        in_jvm = jvm_tasks.are_asked_for(self.options)
        return BatchWriter(check.sink_options(self.options), schema, in_jvm)

    @one_line_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """``overwrite`` is output mode ``complete``: each micro-batch appends the whole result,
        as with Kafka."""
        from pyspark_offsetlog.sink import jvm_tasks
        from pyspark_offsetlog.sink.writers import StreamCommitter, StreamWriter

        options = check.sink_options(self.options)
        if self.sent:
            return StreamCommitter(options.place, options.maintain_ms)
        warn_once(check.ignored_warning(self.options, SINK))
        return StreamWriter(options, schema, jvm_tasks.are_asked_for(self.options))
