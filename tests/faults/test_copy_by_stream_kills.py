"""A table that a stream copies by its changes from `icebergsource` to `icebergsink`: killed wherever, it is equal."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checks.reader import rows_of
from support.spark.jobs import FollowJob, dump
from support.spark.process import SparkProcess, wait_until
from support.spark.tables import Warehouse
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_ids
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

COLUMNS = "id, name, _change_type, _change_ordinal"
BY_KEY = {"keys": "id", "operation-column": "_change_type", "sequence-by": "_change_ordinal"}
IDS = range(12)


class ChangingTable:
    """Table `db.t` of an embedded catalog, which is written without Spark.

    Args:
        folder: The catalog's folder.
    """

    def __init__(self, folder: Path) -> None:
        options = embedded_options(folder)
        self.sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        self._draw = random.Random(5)  # noqa: S311  # no secret
        self._number = 0
        self._upsert()

    def change(self, times: int) -> None:
        """Change the table so many times: upsert keys, delete some, replace all rows, or compact."""
        for _ in range(times):
            self._draw.choice([self._upsert, self._upsert, self._delete, self._replace, self._compact])()

    def rows(self) -> list[tuple[int, str]]:
        """Return the rows."""
        return sorted((row["id"], row["name"]) for row in rows_of(self.sink.table()))

    def _drawn(self) -> list[dict[str, object]]:
        ids = self._draw.sample(IDS, self._draw.randint(1, 6))
        return [{"id": number, "name": self._name(number)} for number in ids]

    def _name(self, number: int) -> str:
        """Return a name, of rows that do not change that of before."""
        self._number += 1
        return f"row {number}" if self._draw.random() < 1 / 3 else f"row {number}, change {self._number}"

    def _upsert(self) -> None:
        self.sink.commit(self.sink.write(self._drawn(), plan=self.sink.plan(keys=("id",))))

    def _delete(self) -> None:
        delete_ids(self.sink, *self._draw.sample(IDS, 2))

    def _replace(self) -> None:
        kept = [{"id": number, "name": name} for number, name in self.rows() if self._draw.random() < 3 / 4]
        self.sink.overwrite([*kept, *(row for row in self._drawn() if row["id"] not in {one["id"] for one in kept})])

    def _compact(self) -> None:
        rewrite(self.sink, rewrite_all="true")


def count(folder: Path) -> int:
    """Return how many entries one of Spark's logs has."""
    return sum(path.name.isdigit() for path in folder.glob("*"))


@pytest.mark.exhaustive
def test_copy_by_a_stream_of_changes_is_equal_after_kills(house: Warehouse, tmp_path: Path) -> None:
    """Rows of the copy would be lost, or stay although they were deleted, or be older ones."""
    source = ChangingTable(tmp_path / "source")
    checkpoint = tmp_path / "checkpoint"
    reading = {"warehouse": str(tmp_path / "source"), "on-change": "changes", "keys": "id", "columns": COLUMNS}

    def job(**trigger: object) -> str:
        limited = {**reading, "streaming-max-files-per-micro-batch": "1"}
        options = {**house.options, **BY_KEY}
        given = {"checkpoint": str(checkpoint), "options": options, "trigger": trigger}
        return dump(FollowJob(source="db.t", reading=limited, **given))  # type: ignore[arg-type]  # by names

    def landed(more: int) -> Callable[[], bool]:
        before = len(house.snapshots()) if house.has_table() else 0
        return lambda: house.has_table() and len(house.snapshots()) >= before + more

    def planned(more: int) -> Callable[[], bool]:
        before = count(checkpoint / "offsets")
        return lambda: count(checkpoint / "offsets") >= before + more

    for number, moment in enumerate((planned, landed, planned, landed)):
        source.change(6)
        with SparkProcess(tmp_path / f"driver-{number}") as driver:
            condition = moment(2)
            driver.send(job(processingTime="0 seconds"))
            wait_until(condition, "the stream has come so far")
            driver.kill()
    with SparkProcess(tmp_path / "last-driver") as driver:
        for _ in range(2):  # Spark below 4.2 ends after one micro-batch, with the next job it takes the rest
            assert (
                driver.run(
                    dump(
                        FollowJob(
                            source="db.t",
                            reading=reading,
                            checkpoint=str(checkpoint),
                            options={**house.options, **BY_KEY},
                        )
                    )
                )
                is None
            )

    found = [(row["id"], row["name"]) for row in rows_of(house.table())]
    assert sorted(found) == source.rows()
