"""Reads a table without the sink and without PyIceberg: the metadata's JSON, its Avro, and Parquet by PyArrow.

What the sink believes of a table is not to decide whether the table is right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from chaos.avro import read_avro

_DELETED = 2  # Iceberg spec, "Manifests": 0 existing, 1 added, 2 deleted
_DATA, _POSITION_DELETES, _EQUALITY_DELETES = 0, 1, 2

Row = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file that a snapshot lists.

    Attributes:
        content: What it holds.
        path: Its location.
        number: Its data sequence number.
    """

    content: int
    path: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """One state of a table.

    Attributes:
        metadata: Its metadata, as JSON.
        local: Returns where a location of the table is on this machine.
    """

    metadata: dict[str, Any]
    local: Callable[[str], Path]

    @classmethod
    def at(cls, location: str, local: Callable[[str], Path]) -> TableFiles:
        """Read the metadata file at a location."""
        return cls(metadata=json.loads(local(location).read_text()), local=local)

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """Its snapshots that have not expired."""
        return list(self.metadata.get("snapshots", []))

    @property
    def refs(self) -> dict[str, int]:
        """The snapshot that each branch is at."""
        return {name: ref["snapshot-id"] for name, ref in self.metadata.get("refs", {}).items()}

    def data_files(self, branch: str) -> list[Path]:
        """Return the data files of a branch, none if there is no such branch."""
        if branch not in self.refs:
            return []
        [snapshot] = [one for one in self.snapshots if one["snapshot-id"] == self.refs[branch]]
        return [self.local(path) for path in self._data_files(snapshot)]

    def rows(self, branch: str) -> Counter[Row]:
        """Return how often each row is in a branch."""
        found: Counter[Row] = Counter()
        for path in self.data_files(branch):
            rows = pq.read_table(path, columns=["id", "name"])
            found.update(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
        return found

    def rows_by_key(self, branch: str) -> Counter[Row]:
        """Return how often each row is in a branch of an unpartitioned table, whose deletes are by `id`.

        Source: Iceberg spec, "Scan Planning".
        """
        found: Counter[Row] = Counter()
        if branch not in self.refs:
            return found
        [snapshot] = [one for one in self.snapshots if one["snapshot-id"] == self.refs[branch]]
        files = list(self._files(snapshot))
        deletes = [(one, self._table(one)) for one in files if one.content == _EQUALITY_DELETES]
        hidden = {
            (row["file_path"], row["pos"])
            for one in files
            if one.content == _POSITION_DELETES
            for row in self._table(one).to_pylist()
        }
        for one in files:
            if one.content == _DATA:
                gone = {key for other, keys in deletes if other.number > one.number for key in keys["id"].to_pylist()}
                rows = enumerate(self._table(one).select(["id", "name"]).to_pylist())
                found.update(
                    (row["id"], row["name"])
                    for position, row in rows
                    if row["id"] not in gone and (one.path, position) not in hidden
                )
        return found

    def _table(self, one: Listed) -> pa.Table:
        return pq.read_table(self.local(one.path), partitioning=None)

    def referenced(self) -> set[Path]:
        """Return the manifest lists, manifests, data files and files of deletes of all snapshots."""
        found = set()
        for snapshot in self.snapshots:
            found.add(snapshot["manifest-list"])
            found.update(manifest["manifest_path"] for manifest in self._manifests(snapshot))
            found.update(one.path for one in self._files(snapshot))
        return {self.local(path) for path in found}

    def stored(self) -> set[Path]:
        """Return the manifest lists, manifests and data files that lie at the table's location."""
        folder = self.local(self.metadata["location"])
        return {path for path in folder.rglob("*") if path.suffix in {".parquet", ".avro"}}

    def _data_files(self, snapshot: dict[str, Any]) -> Iterator[str]:
        for one in self._files(snapshot):
            if one.content != _DATA:
                raise ValueError(f"{one.path} is a file of deletes, of which this table should have none.")
            yield one.path

    def _files(self, snapshot: dict[str, Any]) -> Iterator[Listed]:
        for manifest in self._manifests(snapshot):
            for entry in read_avro(self.local(manifest["manifest_path"])):
                data_file, number = entry["data_file"], entry.get("sequence_number")
                if entry["status"] != _DELETED:
                    yield Listed(
                        content=data_file.get("content", _DATA),
                        path=data_file["file_path"],
                        number=manifest.get("sequence_number", 0) if number is None else number,
                    )

    def _manifests(self, snapshot: dict[str, Any]) -> list[dict[str, Any]]:
        return read_avro(self.local(snapshot["manifest-list"]))
