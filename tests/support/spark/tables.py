"""Tables that Spark writes in tests, looked at with two readers that know nothing of Spark."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from support.checks.invariants import check_sound, stored_files
from support.tables.sink import local

from iceberg_ds.catalog.pyiceberg_patches import know_variants
from iceberg_ds.table.variant import knowing_variants

FORMAT = "icebergsink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """The folder of an embedded catalog.

    Attributes:
        folder: The folder; it need not exist yet.
    """

    folder: Path

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to it."""
        return {"warehouse": str(self.folder)}

    def catalog(self) -> SqlCatalog:
        """Return a new connection to its catalog."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("default", uri=self.uri, warehouse=f"file://{self.folder}")

    @property
    def uri(self) -> str:
        """The address of its SQLite file."""
        return f"sqlite:///{self.folder}/catalog.db?timeout=60"

    @property
    def catalog_options(self) -> dict[str, str]:
        """The `catalog.*` options that describe it."""
        return {
            "catalog.type": "sql",
            "catalog.uri": self.uri,
            "catalog.warehouse": f"file://{self.folder}",
        }

    def append(self, rows: DataFrame, name: str = "db.t", **options: str) -> None:
        """Append a DataFrame; `_` in the name of an option stands for `-`."""
        more = {key.replace("_", "-"): value for key, value in options.items()}
        rows.write.format(FORMAT).mode("append").options(**self.options, **more).save(name)

    def table(self, name: str = "db.t") -> Table:
        """Load a table afresh, with columns of variants too, which PyIceberg does not know."""
        know_variants()
        with knowing_variants():
            return self.catalog().load_table(name)

    def has_table(self, name: str = "db.t") -> bool:
        """Return whether the table exists; makes no catalog, unlike PyIceberg, and so disturbs no writer that does."""
        namespace, _, table = name.rpartition(".")
        query = "SELECT 1 FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        try:
            with closing(sqlite3.connect(f"file:{self.folder}/catalog.db?mode=rw", uri=True)) as connection:
                return connection.execute(query, (namespace, table)).fetchone() is not None
        except sqlite3.OperationalError:  # no such file, or no tables in it yet
            return False

    def rows(self, name: str = "db.t") -> pa.Table:
        """Return all rows as PyIceberg reads them, ordered by their first column, after checking the metadata."""
        table = self.table(name)
        check_sound(table)
        found = table.scan().to_arrow()
        return found.sort_by(found.column_names[0])

    def ids(self, name: str = "db.t") -> list[int]:
        """Return the ids of all rows in order."""
        return self.rows(name)["id"].to_pylist()

    def data_files(self, name: str = "db.t") -> set[Path]:
        """Return the Parquet files in the table's folder, referenced or not."""
        namespace, table = name.split(".")
        return {path for path in stored_files(str(self.folder / namespace / table)) if path.suffix == ".parquet"}

    def referenced(self, name: str = "db.t") -> set[Path]:
        """Return the data files of the current snapshot."""
        return {local(task.file.file_path) for task in self.table(name).scan().plan_files()}

    def snapshots(self, name: str = "db.t") -> list[Mapping[str, str | None]]:
        """Return the summaries of all snapshots, oldest first."""
        return [
            dict(snapshot.summary.additional_properties) if snapshot.summary else {}
            for snapshot in self.table(name).metadata.snapshots
        ]


def read_with_chdb(
    folder: Path, columns: str = "*", order: str = "id", metadata: Path | None = None, snapshot_id: int | None = None
) -> list[dict[str, Any]]:
    """Return the rows of the table in `folder` as ClickHouse reads them.

    Args:
        folder: The table's folder.
        columns: What to select.
        order: What to order by.
        metadata: The table's metadata file; None for the last one by name, as ClickHouse finds it.
        snapshot_id: The snapshot; None for the current one of the metadata.
    """
    import chdb  # noqa: PLC0415  # 300 MB that only tests of readers need

    which = "" if metadata is None else f", SETTINGS iceberg_metadata_file_path = '{metadata.relative_to(folder)}'"
    query = f"SELECT {columns} FROM icebergLocal('{folder}'{which}) ORDER BY {order}"  # noqa: S608  # no outside input
    settings = "output_format_arrow_string_as_string = 1"
    if snapshot_id is not None:
        settings += f", iceberg_snapshot_id = {snapshot_id}"
    with _below_root():
        result = chdb.query(f"{query} SETTINGS {settings}", "ArrowStream").bytes()
    found: list[dict[str, Any]] = pa.ipc.open_stream(result).read_all().to_pylist()
    return found


@contextmanager
def _below_root() -> Iterator[None]:
    """Let ClickHouse read anywhere: it refuses files outside of its working directory."""
    before = Path.cwd()
    os.chdir("/")
    try:
        yield
    finally:
        os.chdir(before)
