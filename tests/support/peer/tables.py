"""A table as the suites of other writers use one: written by options as a user gives them, looked at through PyIceberg.

The writes take the steps that Spark's processes take, in one process, so that a case costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyspark.sql.types import StructType
from support.tables.sink import Row, Sink, epoch

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.errors import TableNotFoundError
from iceberg_ds.options.parse import parse_options
from iceberg_ds.planning.plan_write import WriteMode


def columns(**types: Any) -> StructType:
    """Return the schema of a DataFrame with nullable columns of these types, as Spark's JSON of schemas names them.

    >>> columns(id="long", price="decimal(9,2)", point=columns(x="double"))
    """
    return StructType.fromJson({"type": "struct", "fields": [_field(*column) for column in types.items()]})


def array(element: Any) -> dict[str, Any]:
    """Return the type of arrays of `element`, for `columns`."""
    return {"type": "array", "elementType": _type(element), "containsNull": True}


def mapping(key: Any, value: Any) -> dict[str, Any]:
    """Return the type of maps from `key` to `value`, for `columns`."""
    return {"type": "map", "keyType": _type(key), "valueType": _type(value), "valueContainsNull": True}


def required(schema: StructType, *names: str) -> StructType:
    """Return the schema with these columns not nullable, all of them if none is named."""
    described = schema.jsonValue()
    for one in described["fields"]:
        one["nullable"] = one["nullable"] and bool(names) and one["name"] not in names
    return StructType.fromJson(described)


def _field(name: str, of_type: Any) -> dict[str, Any]:
    return {"name": name, "type": _type(of_type), "nullable": True, "metadata": {}}


def _type(of_type: Any) -> Any:
    return of_type.jsonValue() if isinstance(of_type, StructType) else of_type


# The columns of most cases, in every suite of apache/iceberg.
SIMPLE = columns(id="integer", data="string")


def simple(*pairs: tuple[int | None, str | None]) -> list[Row]:
    """Return rows of `SIMPLE`."""
    return [{"id": number, "data": data} for number, data in pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTable:
    """Table `db.t` of an embedded catalog.

    Attributes:
        warehouse: The catalog's folder.
        options: Options of every write, beside those that it gets itself.
    """

    warehouse: Path
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = "db.t"

    def with_options(self, **options: str) -> PeerTable:
        """Return the same table, written with these options; `_` in a name stands for `-`."""
        return PeerTable(warehouse=self.warehouse, options={**self.options, **_named(options)}, name=self.name)

    def named(self, name: str) -> PeerTable:
        """Return another table of the same catalog."""
        return PeerTable(warehouse=self.warehouse, options=self.options, name=name)

    def write(
        self,
        *parts: Sequence[Mapping[str, Any]],
        schema: StructType = SIMPLE,
        mode: WriteMode = WriteMode.APPEND,
        of_epoch: int | None = None,
        query: str | None = None,
        options: Mapping[str, str] | None = None,
        **named: str,
    ) -> CommitResult:
        """Plan, write in one task for each of `parts`, and commit, as Spark does with these options.

        Options are given as a mapping, or by name, with `_` for `-`. With `of_epoch` it is that epoch of a stream.
        """
        choices: dict[str, Any] = {"of_epoch": of_epoch, "query": query, "options": options, **named}
        return self.begin(*parts, schema=schema, mode=mode, **choices)()

    def begin(
        self,
        *parts: Sequence[Mapping[str, Any]],
        schema: StructType = SIMPLE,
        mode: WriteMode = WriteMode.APPEND,
        of_epoch: int | None = None,
        query: str | None = None,
        options: Mapping[str, str] | None = None,
        **named: str,
    ) -> Callable[[], CommitResult]:
        """Plan and write as `write` does, and return what commits, for others to be faster."""
        sink = self.sink({**(options or {}), **_named(named)})
        plan = sink.plan(schema, mode, is_stream=of_epoch is not None)
        of = None if of_epoch is None else epoch(of_epoch, query) if query else epoch(of_epoch)
        messages = sink.hand_over(*parts, schema=schema, plan=plan, of_epoch=of)
        return lambda: sink.commit(messages)

    def append(self, *parts: Sequence[Mapping[str, Any]], **choices: Any) -> CommitResult:
        """Write with `mode("append")`."""
        return self.write(*parts, **choices)

    def overwrite(self, *parts: Sequence[Mapping[str, Any]], **choices: Any) -> CommitResult:
        """Write with `mode("overwrite")`."""
        return self.write(*parts, mode=WriteMode.OVERWRITE, **choices)

    def create(
        self,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        **properties: str,
    ) -> Table:
        """Create the table through PyIceberg; `_` in the name of a property stands for `-`, `__` for a dot."""
        settings = catalog_settings(parse_options(self._all_options({})))
        self.warehouse.mkdir(parents=True, exist_ok=True)
        catalog = load_catalog(settings.name, **dict(settings.properties))
        catalog.create_namespace_if_not_exists(self.name.split(".")[0])
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
        return catalog.create_table(self.name, schema, partition_spec=spec, sort_order=sort_order, properties=named)

    def load(self) -> Table:
        """Load the table afresh."""
        return self.sink().table()

    def change(self, change: Callable[[Table], object]) -> None:
        """Let somebody else change the table through PyIceberg."""
        change(self.load())

    def exists(self) -> bool:
        """Return whether the catalog has the table."""
        with suppress(TableNotFoundError):
            self.load()
            return True
        return False

    def rows(self, branch: str | None = None, **scan: Any) -> list[Row]:
        """Return all rows, ordered by their first column; those of a branch or tag if one is named."""
        table = self.load()
        if branch is not None:
            scan["snapshot_id"] = table.metadata.refs[branch].snapshot_id
        found = table.scan(**scan).to_arrow()
        return sorted(found.to_pylist(), key=lambda row: [_sortable(value) for value in row.values()])

    def files(self, branch: str | None = None) -> list[DataFile]:
        """Return the data files that readers of the table, or of a branch, read."""
        table = self.load()
        scan = table.scan() if branch is None else table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id)
        return [task.file for task in scan.plan_files()]

    def snapshots(self) -> list[Snapshot]:
        """Return the table's snapshots, oldest first."""
        return list(self.load().metadata.snapshots)

    def last(self, branch: str = "main") -> Snapshot:
        """Return the newest snapshot of a branch."""
        found = self.load().snapshot_by_name(branch)
        assert found is not None
        return found

    def summary(self, branch: str = "main") -> dict[str, str]:
        """Return the summary of the newest snapshot, its operation included."""
        summary = self.last(branch).summary
        assert summary is not None
        return {"operation": summary.operation.value, **summary.additional_properties}

    def data_files_on_disk(self) -> set[Path]:
        """Return all Parquet files of the warehouse, whether a snapshot names them or not."""
        return set(self.warehouse.rglob("*.parquet"))

    def sink(self, options: Mapping[str, str] | None = None) -> Sink:
        """Return the steps of a write with these options, beside those of the table."""
        options = {**self.options, **(options or {})}
        parsed = parse_options(self._all_options(options))
        return Sink(catalog=self._connect(parsed), options=parsed)

    def _all_options(self, options: Mapping[str, str]) -> dict[str, str]:
        # Spark hands options over in lower case.
        given = {key.lower(): value for key, value in options.items()}
        return {"path": self.name, "warehouse": str(self.warehouse), **given}

    def _connect(self, options: Any) -> CatalogClient:
        return connect(catalog_settings(options))


def _named(options: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in options.items()}


def _sortable(value: object) -> tuple[bool, str, Any]:
    """Return a key by which values of any type can be ordered, null first."""
    if isinstance(value, int | float | str | bytes):
        return (value is not None, "", value)
    return (value is not None, type(value).__name__, repr(value))
