"""What the writes of the fault matrices do, and which rows there must be before and after."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.tables.sink import QUERY, SCHEMA, Row, rows

from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import EpochId
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers.reporting import MANY_FILES

BASE = (1, 2, 3, 4)  # the ids in a table before a write
_OURS = (5, 6)
_UPSERTED = (4, 5, 6)
_DELETED, _DELETED_BY_UPSERT = 3, 2
_WIDER = StructType([*SCHEMA.fields, StructField("note", StringType())])
_RETYPED = StructType([StructField("id", LongType()), StructField("name", StringType()), StructField("n", LongType())])


class Operation(Enum):
    """What a write does to its table, and the options that ask for it."""

    APPEND = "append"
    APPEND_BY_MANIFESTS = "append by manifests of tasks"
    APPEND_AND_MERGE = "append that merges manifests"
    OVERWRITE = "overwrite"
    UPSERT = "write by keys"  # one of which is in two tasks, and one is deleted
    MARK = "upsert by marks"
    REWRITE = "upsert by rewriting"
    CREATE_BY_KEYS = "upsert into a new table"
    REPLACE = "replace where"  # rewrites files of which only some rows are replaced
    CREATE = "create"
    CREATE_EMPTY = "create without rows"
    CHANGE = "change columns, append"
    CHANGE_AND_REPLACE = "change columns and rows at once"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the write."""
        if self.encoding is not None:
            return {"keys": ("id",), "delete_when": "name = 'gone'", "delete_encoding": self.encoding}
        return {
            Operation.UPSERT: {"keys": ("id",), "keys_not_enforced": True, "delete_when": "name = 'gone'"},
            Operation.REPLACE: {"replace_where": "id >= 4"},
            Operation.CHANGE: {"schema_evolution": "add-columns"},
            Operation.CHANGE_AND_REPLACE: {"schema_evolution": "full"},
        }.get(self, {})

    def options_in(self, given: SinkOptions) -> dict[str, Any]:
        """Return the options of the write beside those that say which format version its table has."""
        if self.encoding == "position" and given.format_version == "3":
            return {**self.options, "delete_encoding": "deletion-vector"}
        return self.options

    @property
    def mode(self) -> WriteMode:
        """The write's mode."""
        if self.encoding is not None:
            return WriteMode.UPSERT
        is_overwrite = self in {Operation.OVERWRITE, Operation.REPLACE, Operation.CHANGE_AND_REPLACE}
        return WriteMode.OVERWRITE if is_overwrite else WriteMode.APPEND

    @property
    def encoding(self) -> RowEncoding | None:
        """How an upsert takes the old rows away, None for any other write."""
        if self in {Operation.MARK, Operation.CREATE_BY_KEYS}:
            return "position"
        return "copy-on-write" if self is Operation.REWRITE else None

    @property
    def schema(self) -> StructType:
        """The DataFrame's columns."""
        return {Operation.CHANGE: _WIDER, Operation.CHANGE_AND_REPLACE: _RETYPED}.get(self, SCHEMA)

    @property
    def many_files(self) -> int:
        """How many files of a task are named by a manifest."""
        return 1 if self is Operation.APPEND_BY_MANIFESTS else MANY_FILES

    @property
    def table_properties(self) -> dict[str, str]:
        """What the table is to ask for before the write."""
        return {"commit.manifest.min-count-to-merge": "2"} if self is Operation.APPEND_AND_MERGE else {}

    @property
    def ours(self) -> tuple[int, ...]:
        """The ids that it writes."""
        if self is Operation.CREATE_EMPTY:
            return ()
        return _UPSERTED if self.replaces_keys else _OURS

    @property
    def replaces_keys(self) -> bool:
        """Whether some of its rows take the place of others."""
        return self in {Operation.UPSERT, Operation.MARK, Operation.REWRITE}

    def parts(self, ids: tuple[int, ...]) -> list[list[Row]]:
        """Return the rows of its two tasks, for its own ids or those of the table before."""
        if self is Operation.UPSERT and ids == _UPSERTED:
            return [[*rows(4, 6), {"id": _DELETED, "name": "gone"}], rows(5, 6)]
        if self.encoding is not None and ids != _UPSERTED:
            return [rows(*ids)]  # a file of which some rows stay
        if self.encoding is not None:
            return [[*rows(4), {"id": _DELETED_BY_UPSERT, "name": "gone"}], rows(5, 6)]
        middle = len(ids) // 2
        return [rows(*ids[:middle]), rows(*ids[middle:])]

    @property
    def first(self) -> Operation:
        """What fills the table before it."""
        if self.encoding is not None:
            return Operation.MARK
        return self if self is Operation.UPSERT else Operation.APPEND

    @property
    def creates(self) -> bool:
        """Whether there is no table before it."""
        return self in {Operation.CREATE, Operation.CREATE_EMPTY, Operation.CREATE_BY_KEYS}

    @property
    def before(self) -> list[int] | None:
        """The ids in the table before the write, None for no table."""
        return None if self.creates else [*BASE]

    @property
    def after(self) -> list[int]:
        """The ids in the table after it."""
        kept: tuple[int, ...] = () if self.creates else BASE
        if self in {Operation.OVERWRITE, Operation.CHANGE_AND_REPLACE}:
            kept = ()
        if self is Operation.REPLACE:
            kept = tuple(number for number in kept if number < 4)
        if self.replaces_keys:
            deleted = _DELETED if self is Operation.UPSERT else _DELETED_BY_UPSERT
            kept = tuple(number for number in kept if number not in {*_UPSERTED, deleted})
        return [*kept, *self.ours]


class Mode(Enum):
    """Whether Spark repeats the write by itself."""

    BATCH = "batch"
    STREAM = "stream"

    def epoch(self, number: int, run: str) -> EpochId | None:
        """Return the micro-batch of a run, None in a batch."""
        return None if self is Mode.BATCH else EpochId(query_id=QUERY, epoch_id=number, run_id=run)


class Phase(Enum):
    """Which of Spark's processes is at work."""

    PLAN = "plan"
    TASKS = "tasks"
    COMMIT = "commit"
