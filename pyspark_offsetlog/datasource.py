"""``format("offsetlog")``: from what Spark asks for to the reader or writer that does it.

Invariants:

1. Options are checked at the first moment at which it is known what they are for.
2. ``streamReader`` does not raise: Spark would hide the error behind one of its own. The
   reader says it when it is asked for the first time.
3. Spark plans a streaming write with a data source that it makes, and commits or aborts it with
   one that was sent. Only the former is planned and may be refused: an error on the way to
   ``abort`` would hide the one that led to it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from offsetlog.errors import InvalidRequestError

from . import options as given
from . import tables
from .plainly import plainly, warn, warn_once
from .schema import source_schema
from .travel import Traveller, TravellingClass


class OffsetLogDataSource(Traveller, DataSource, metaclass=TravellingClass):
    @plainly
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.sent = False
        if tables.is_table(options):
            tables.wanted(options)
        elif given.is_source(options):
            given.source_options(options, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sent": True}

    @classmethod
    def name(cls) -> str:
        return "offsetlog"

    @plainly
    def schema(self) -> StructType:
        if tables.is_table(self.options):
            return tables.table_schema(self.options)
        read = given.source_options(self.options, None)
        warn(given.passed_over(self.options, given.SOURCE))
        warn(given.losers(self.options))
        return source_schema(read.include_headers)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        if tables.is_table(self.options):
            return tables.TableReader(self.options, schema)
        from .batch import OffsetLogReader

        return OffsetLogReader(given.source_options(self.options, False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import OffsetLogStreamReader

        return OffsetLogStreamReader(dict(self.options), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from .sink import BatchWriter

        if overwrite:
            raise InvalidRequestError("A log cannot be overwritten.", "Write with .mode('append').")
        warn_once(given.passed_over(self.options, given.SINK))
        return BatchWriter(given.sink_options(self.options), schema)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """``overwrite`` is output mode ``complete``: each micro-batch appends the whole result,
        as with Kafka."""
        from .sink import StreamCommitter, StreamWriter

        wanted = given.sink_options(self.options)
        if self.sent:
            return StreamCommitter(wanted.place)
        warn_once(given.passed_over(self.options, given.SINK))
        return StreamWriter(wanted, schema)
