"""A query that reads what is appended to a table, taken through the steps of Spark's, in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from support.tables.sink import NAME, Sink

from iceberg_ds.reading.source import IcebergSource, IcebergStreamReader

Offset = dict[str, Any]


@dataclass(kw_only=True)
class Follower:
    """A query with its checkpoint.

    Attributes:
        sink: The table.
        options: Options of the stream, with underscores in their names.
        tells_start: Whether Spark tells the reader where a micro-batch begins, as it does since version 4.2.
        planned: Ends of the micro-batches that were planned.
        done: How many of them are done.
        keeps_schema: The columns of a DataFrame that was made before; None to make it anew at each start.
    """

    sink: Sink
    options: Mapping[str, str] = field(default_factory=dict)
    tells_start: bool = True
    planned: list[str] = field(default_factory=list)
    done: int = 0
    keeps_schema: StructType | None = None
    reader: IcebergStreamReader | None = None

    @property
    def source(self) -> IcebergSource:
        """The data source, as `format()` makes it."""
        given = {key.replace("_", "-"): text for key, text in self.options.items()}
        return IcebergSource({"table": NAME, "warehouse": str(self.sink.options.warehouse), **given})

    @property
    def committed(self) -> Offset | None:
        """The end of the last micro-batch that is done."""
        return json.loads(self.planned[self.done - 1]) if self.done else None

    def start(self) -> IcebergStreamReader:
        """Start the query, from its checkpoint."""
        source = self.source
        self.reader = source.streamReader(self.keeps_schema or source.schema())
        if not self.tells_start and self.done:
            assert self.reader.partitions(self.committed or {}, self.committed or {}) == []
        return self.reader

    def stop(self) -> None:
        """End the query, however far it is."""
        self.reader = None

    def batch(self, *, dies: bool = False, limit: Any = None) -> list[dict[str, Any]] | None:
        """Run a micro-batch, and return its rows; None if there is nothing to read.

        Args:
            dies: Whether the driver dies before Spark has noted the end; the next start repeats the micro-batch.
            limit: The limit that Spark passes on; None for the one of the options.
        """
        reader = self.reader or self.start()
        if self.committed is not None:  # Spark tells the end of a micro-batch when the next one begins
            reader.commit(self.committed)
        if len(self.planned) == self.done:
            begin = self.committed
            if self.tells_start:
                end = reader.latestOffset(begin or reader.initialOffset(), limit or reader.getDefaultReadLimit())
            else:
                end = reader.latestOffset()
            if json.dumps(end) == json.dumps(begin or reader.initialOffset()):
                return None
            self.planned.append(json.dumps(end))
        begin = self.committed or reader.initialOffset()
        found = [
            row
            for partition in reader.partitions(begin, json.loads(self.planned[self.done]))
            for batch in reader.read(partition)
            for row in pa.Table.from_batches([batch]).to_pylist()
        ]
        if dies:
            self.stop()
        else:
            self.done += 1
        return found

    def batches(self) -> list[list[int]]:
        """Run micro-batches until there is nothing to read, and return the ids of each."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(sorted(row["id"] for row in rows))
        return found

    def ids(self) -> list[int]:
        """Run micro-batches until there is nothing to read, and return the ids of all."""
        return [number for ids in self.batches() for number in ids]


ALL = ReadAllAvailable()
