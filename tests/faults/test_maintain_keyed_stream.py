"""The script that kills a stream which maintains its own table, with few kills; `make test-kills` takes more."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.keys.random_feed import CLOCK
from support.keys.streams import SCHEMA
from support.scripts import load_script, run_with_two_kills
from support.spark.jobs import MaintainedJob, dump, load
from support.spark.maintenance_steps import StepNotes
from support.tables.damage import edit_summary
from support.tables.sink import Sink, embedded_options

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

SCRIPT = Path(__file__).with_name("maintain_keyed_stream.py")


@EXHAUSTIVE
@pytest.mark.timeout(900)
def test_killed_stream_that_maintains_its_table_keeps_every_row(tmp_path: Path) -> None:
    """A stream that is killed in the middle of maintenance would lose rows, or leave a table that nobody can read."""
    printed = run_with_two_kills(SCRIPT, tmp_path / "killed")

    assert "VERDICT: every row, in a healthy table" in printed


@EXHAUSTIVE
def test_wrong_row_is_noticed(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script would find nothing, whatever becomes of the table."""
    script = load_script(SCRIPT)
    run = script.Run.of(tmp_path / "fed", 1)
    run.feed.grow(2)
    run.feed.job().run(spark)
    run.look()
    assert script.report(run, 0)
    options = embedded_options(run.feed.stream.house.folder)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    iceberg_ds.convert_deletes(script.TABLE, options=run.feed.stream.house.options)  # which an overwrite refuses
    key = max(run.feed.rows(2))
    row = dict(zip(SCHEMA.names, run.feed.rows(2)[key], strict=True))

    def found() -> str:
        """Return what the script prints of the table."""
        run.problems.clear()
        run.look()
        capsys.readouterr()
        assert not script.report(run, 0)
        return capsys.readouterr().out

    sink.commit(sink.write([row], schema=SCHEMA))
    printed = found()
    assert f"the table of 2 portions has 1 rows [({key}, " in printed
    assert "VERDICT: BROKEN" in printed

    edit_summary(sink, -1, **{"spark.sql.streaming.epochId": "1"})
    assert "epochs [1] have landed more than once" in found()

    sink.overwrite([], schema=SCHEMA, replace_where=f"id > {CLOCK}")
    assert "and not " in found()

    sink.overwrite([{**row, "id": CLOCK, "amount": 0}], schema=SCHEMA, replace_where=f"id = {CLOCK}")
    assert "has gone back from 2 portions to 1" in found()


def test_rounds_end_within_a_lease_and_after_it() -> None:
    """All kills would come while nobody may maintain the table, or none would."""
    script, draw = load_script(SCRIPT), random.Random(1)  # noqa: S311  # no secret

    lengths = [script.draw_length_s(draw, 100.0) for _ in range(100)]

    assert 20 < sum(length > 100 for length in lengths) < 80
    assert all(script.draw_length_s(draw, 0.0) <= 60 for _ in range(100))


@EXHAUSTIVE
def test_each_step_becomes_due_and_is_noted(spark: SparkSession, tmp_path: Path) -> None:
    """Kills would never come in the middle of some step, and the report would not tell."""
    script = load_script(SCRIPT)
    run = script.Run.of(tmp_path / "fed", 1)
    run.feed.grow(60)
    job = load(dump(run.job(tmp_path / "steps.jsonl")))
    assert isinstance(job, MaintainedJob)

    job.run(spark)

    notes = StepNotes.read(tmp_path / "steps.jsonl")
    assert {"convert_deletes", "rewrite_data_files", "expire_snapshots"} <= notes.landed.keys()
    assert (notes.under_way, notes.failed) == (None, [])
    run.look()
    assert run.problems == []


def test_killed_process_was_in_the_step_that_it_began(tmp_path: Path) -> None:
    """The report would tell of steps that were never taken, or not of those that were."""
    file = tmp_path / "steps.jsonl"
    file.write_text(
        '{"step": "convert_deletes", "is": "begun"}\n'
        '{"step": "convert_deletes", "is": "landed", "text": ""}\n'
        '{"step": "rewrite_manifests", "is": "begun"}\n'
        '{"step": "rewrite_manifests", "is": "failed", "error": "CatalogError", "text": "gone"}\n'
        '{"step": "expire_snapshots", "is": "begun"}\n'
        '{"step": "expire_snap'
    )

    notes = StepNotes.read(file)

    assert (dict(notes.landed), notes.under_way) == ({"convert_deletes": 1}, "expire_snapshots")
    assert notes.failed == [("rewrite_manifests", "CatalogError", "gone")]
    assert StepNotes.read(tmp_path / "none").under_way is None


def test_table_above_its_policy_is_noticed() -> None:
    """A table that nobody maintains would pass for a healthy one."""
    script = load_script(SCRIPT)
    well = iceberg_ds.TableHealth(
        table="db.t",
        branch="main",
        at_ms=0,
        format_version=2,
        snapshots=20,
        metadata_bytes=1_000_000,
        data_manifests=8,
        delete_manifests=4,
        data_files=30,
        delete_files=12,
        rows=1,
        bytes=1,
        files_read=42,
        is_complete=True,
        small_below_bytes=1,
        small_files=30,
        average_file_bytes=1,
        equality_delete_files=6,
        position_delete_files=6,
        equality_deletes=1,
        position_deletes=1,
        last_commit_ms=0,
        last_commit_age_s=0,
        newest_event_ms=None,
        lag_s=None,
    )

    assert script.too_many(well) == []
    assert script.too_many(replace(well, snapshots=21)) == ["the table has 21 snapshots, and may have 20"]
    assert script.too_many(replace(well, metadata_bytes=None)) == [
        "the table has None bytes of metadata, and may have 1000000"
    ]
