"""The script that kills a job which copies a table by its changes, with few kills; `make test-kills` takes more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.keys.streams import SCHEMA
from support.scripts import load_script, run_with_two_kills
from support.spark.jobs import dump, load
from support.tables.sink import Sink, embedded_options

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

SCRIPT = Path(__file__).with_name("copy_by_changes.py")


@EXHAUSTIVE
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.timeout(900)
def test_killed_copy_is_its_source(tmp_path: Path, version: str) -> None:
    """A copy would drift away from its source when the job is killed."""
    printed = run_with_two_kills(SCRIPT, tmp_path / "killed", "--format-version", version)

    assert "VERDICT: the copy is its source" in printed


@EXHAUSTIVE
def test_wrong_row_is_noticed(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script would find nothing, whatever becomes of the copy."""
    script = load_script(SCRIPT)
    run = script.Run.of(tmp_path / "tables", 1)
    for _ in range(2):
        load(dump(run.tables.portion())).run(spark)
        load(dump(run.tables.copying(1))).run(spark)
        run.look()
    assert script.report(run, 0)
    assert len(run.landed) == len(run.compared) == 2
    options = embedded_options(run.tables.house.folder, table=script.COPY)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    iceberg_ds.convert_deletes(script.COPY, options=run.tables.house.options)  # which an overwrite refuses
    rows = run.tables.feed.rows(2)
    row = dict(zip(SCHEMA.names, rows[max(rows)], strict=True))

    def found() -> str:
        """Return what the script prints of the tables."""
        run.problems.clear()
        run.look()
        capsys.readouterr()
        assert not script.report(run, 0)
        return capsys.readouterr().out

    sink.overwrite([{**row, "lsn": -1}], schema=SCHEMA, replace_where=f"id = {row['id']}")
    printed = found()
    assert f"has 1 rows [({row['id']}, " in printed
    assert f"and not 1 rows [({row['id']}, " in printed
    assert "VERDICT: BROKEN" in printed

    sink.overwrite([row, row], schema=SCHEMA, replace_where=f"id = {row['id']}")
    assert "and not 0 rows []" in found()


@EXHAUSTIVE
def test_snapshots_expire_that_the_copy_has_taken(spark: SparkSession, tmp_path: Path) -> None:
    """The copy could not go on, because the snapshot was gone that it has come to."""
    script = load_script(SCRIPT)
    run = script.Run.of(tmp_path / "tables", 1)
    tables = run.tables
    for _ in range(3):
        load(dump(tables.portion())).run(spark)
    assert tables.taken() == []
    load(dump(tables.copying(1))).run(spark)
    load(dump(tables.portion())).run(spark)
    first, second, third, _ = (one.snapshot_id for one in tables.source.metadata.snapshots)

    assert script.copied_up_to(tables.copy) == third
    assert tables.taken() == [first, second]


def test_every_change_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ways of changing the source would never come before a copy."""
    script, draw = load_script(SCRIPT), random.Random(1)  # noqa: S311  # no secret
    tables = script.Run.of(tmp_path / "tables", 1).tables
    monkeypatch.setattr(script.Tables, "taken", lambda _: [1, 2, 3])

    changes = [change for _ in range(200) if (change := script.drawn_change(tables, draw)) is not None]

    assert {name for name, _ in changes} >= {"feed", "upsert", "update", "delete", "expire", "convert", "compact all"}
    for _, job in changes:
        assert type(load(dump(job))) is type(job)
