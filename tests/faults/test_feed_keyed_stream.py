"""The script that kills a stream of changes at random moments, with few of them; `make test-kills` takes more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support.keys.random_feed import CLOCK
from support.keys.streams import SCHEMA
from support.scripts import load_script, run_with_two_kills
from support.tables.damage import edit_summary
from support.tables.delete_files import delete_equal, entries, with_ids
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

SCRIPT = Path(__file__).with_name("feed_keyed_stream.py")


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_killed_stream_of_changes_keeps_every_row_the_same_row(tmp_path: Path) -> None:
    """A stream that is killed in the middle of anything would lose or double rows, or give them other ids."""
    printed = run_with_two_kills(SCRIPT, tmp_path / "killed")

    assert "VERDICT: every row, and the same row" in printed


@pytest.mark.exhaustive
def test_report_of_a_broken_table_says_so(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script would find nothing, whatever becomes of the table."""
    script = load_script(SCRIPT)
    run = script.Run.of(tmp_path / "fed", 1)
    run.feed.grow(2)
    run.feed.job().run(spark)
    run.look()
    assert script.report(run, 0, Counter())
    options = embedded_options(run.feed.stream.house.folder)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    key = max(run.feed.rows(2))
    row = dict(zip(SCHEMA.names, run.feed.rows(2)[key], strict=True))

    def found() -> str:
        """Return what the script prints of the table."""
        run.witness.problems.clear()
        run.look()
        capsys.readouterr()
        assert not script.report(run, 0, Counter())
        return capsys.readouterr().out

    sink.overwrite([row], schema=SCHEMA, replace_where=f"id = {key}")
    printed = found()
    assert f"for key {key}, which had" in printed
    assert "VERDICT: BROKEN" in printed

    sink.commit(sink.write([row], schema=SCHEMA))
    edit_summary(sink, -1, **{"spark.sql.streaming.epochId": "1"})
    printed = found()
    assert "has, unexpectedly, 1 rows" in printed
    assert "is of epoch 1, which had landed before" in printed

    sink.overwrite([], schema=SCHEMA, replace_where=f"id > {CLOCK}")
    assert "lacks " in found()

    sink.overwrite([{**row, "id": -1}], schema=SCHEMA, replace_where="id = -1")
    assert "has rows that others changed: (key, found, expected) [" in found()

    delete_equal(sink, with_ids(pa.table({"id": pa.array([key])}), id=1), [1], of=entries(sink)[0].data_file)
    assert "has equality deletes" in found()
