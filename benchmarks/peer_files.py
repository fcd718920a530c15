"""Files that tasks have written, committed again and again from the same state: a part of `peer_commits.py`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from commit_case import table_schema
from peer_place import NAMESPACE, OWN_PYTHON, Place
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from remote import Remote
from support.peer.jvm_peer import CATALOG

_TASKS = 50
_PARTITION_COLUMN = 4  # field id of an integer of `commit_case.table_schema`


def create_table(catalog: Catalog, name: str, *, is_partitioned: bool) -> None:
    """Create a table with the columns of `commit_case`."""
    field = PartitionField(source_id=_PARTITION_COLUMN, field_id=1000, transform=IdentityTransform(), name="part")
    catalog.create_table(
        f"{NAMESPACE}.{name}", table_schema(), partition_spec=PartitionSpec(*([field] if is_partitioned else []))
    )


def check_table(catalog: Catalog, name: str, added: int, total: int, rows: int | None = None) -> None:
    """Check how many files the last commit added and the table has, and its rows if they are known.

    Raises:
        RuntimeError: It is another number.
    """
    snapshot = catalog.load_table(f"{NAMESPACE}.{name}").current_snapshot()
    summary = snapshot.summary if snapshot else None
    found = [int((summary and summary[key]) or 0) for key in ("added-data-files", "total-data-files", "total-records")]
    if found != [added, total, found[2] if rows is None else rows]:
        raise RuntimeError(f"{name}: {found} files added, in all, and rows instead of {[added, total, rows]}")


class ManyFiles:
    """Files that tasks have written for one commit, which is done again and again from the same state.

    Args:
        folder: New folder of a catalog of its own.
        files: How many there are.

    Attributes:
        files: How many there are.
        rows: Rows in all of them.
        place: The catalog of its own.
    """

    def __init__(self, folder: Path, files: int) -> None:
        self.files = files
        self.place = Place(folder=folder)
        self._saved = folder.with_name(f"{folder.name}-saved")
        self.place.database.parent.mkdir(parents=True)
        catalog = load_catalog(CATALOG, **self.place.properties)
        catalog.create_namespace(NAMESPACE)
        tasks = _TASKS if files % _TASKS == 0 else 1
        with self._process() as process:
            for name, of_tasks, of_files in (("warm", 1, 1), ("t", tasks, files // tasks)):
                create_table(catalog, name, is_partitioned=True)
                target = str(folder / f"{name}.pickle")
                table = f"{NAMESPACE}.{name}"
                self.rows = process.ask("write_batch", table=table, tasks=of_tasks, files=of_files, target=target)
        _link(folder, self._saved)

    def commit(self) -> dict[str, float]:
        """Commit them in a new process, after one small commit to another table, from the state before any commit.

        Raises:
            RuntimeError: The table does not show all of them.
        """
        shutil.rmtree(self.place.folder)
        _link(self._saved, self.place.folder)
        with self._process() as process:
            process.ask("commit_batch", target=str(self.place.folder / "warm.pickle"))
            result: dict[str, float] = process.ask("commit_batch", target=str(self.place.folder / "t.pickle"))
        check_table(load_catalog(CATALOG, **self.place.properties), "t", self.files, self.files, self.rows)
        return result

    def metadata_file(self) -> str:
        """Return the location of the table's metadata."""
        return load_catalog(CATALOG, **self.place.properties).load_table(f"{NAMESPACE}.t").metadata_location

    def _process(self) -> Remote:
        folder = self.place.folder.with_name("committers")
        return Remote(OWN_PYTHON, "peer_committer.py", folder, {"options": self.place.options})


def _link(source: Path, target: Path) -> None:
    """Copy a folder: the database as it is, of all other files, which never change, only the names."""
    subprocess.run(["cp", "-al", str(source), str(target)], check=True)
    for database in target.rglob("catalog.db"):
        content = database.read_bytes()
        database.unlink()
        database.write_bytes(content)
