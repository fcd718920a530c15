"""Files that nothing refers to: which are told and deleted, and which are not."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.checks.invariants import check_clean, check_sound
from support.tables.sink import NAME, Sink, local, rows

import iceberg_ds
from iceberg_ds.cli import main
from iceberg_ds.errors import OptionError, UnsupportedTableError


def options_of(sink: Sink) -> dict[str, str]:
    """Return the options that lead to the sink's catalog."""
    return {"warehouse": str(sink.options.warehouse)}


def leave_behind(sink: Sink, days: float = 5) -> Path:
    """Write a file that no commit names, so many days ago, and return its path."""
    sink.append(1, 2)
    (message,) = sink.write(rows(3))
    path = local(message.data_files[0].file_path)
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    return path


def test_old_file_that_nothing_refers_to_is_deleted(sink: Sink) -> None:
    """Killed writes would cost space for ever."""
    path = leave_behind(sink)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))

    assert [local(orphan.path) for orphan in result.orphan_files] == [path]
    assert (result.deleted_files_count, result.left_files_count, result.too_young) == (1, 0, 0)
    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_dry_run_deletes_nothing(sink: Sink) -> None:
    """A user could not look first."""
    path = leave_behind(sink)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than="now", dry_run=True)

    assert [local(orphan.path) for orphan in result.orphan_files] == [path]
    assert result.deleted_files_count == 0
    assert path.exists()
    assert str(result).startswith("Nothing refers to 1 file with ")


def test_young_file_may_be_of_a_running_write(sink: Sink) -> None:
    """Its commit would name a file that is gone."""
    path = leave_behind(sink, days=2)
    since = datetime.now(tz=timezone.utc)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))
    with pytest.raises(OptionError, match="that are younger than 24h: a write that still runs may have them"):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than=since)

    assert (result.orphan_files, result.too_young) == ((), 1)
    assert path.exists()
    assert iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than=since, force=True).orphan_files
    check_sound(sink.table())


def test_nothing_is_deleted_where_other_tables_may_have_it(sink: Sink) -> None:
    """Rows of another table would be gone."""
    path = leave_behind(sink)
    with sink.table().transaction() as change:
        change.set_properties(**{"gc.enabled": "false"})

    with pytest.raises(UnsupportedTableError, match=r"Cannot remove orphan files of db\.t: refused: .*gc\.enabled"):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))

    assert path.exists()


def test_command_deletes_and_tells(sink: Sink) -> None:
    """A scheduler could not clean up."""
    leave_behind(sink)

    done = CliRunner().invoke(
        main, ["remove-orphan-files", NAME, "--option", f"warehouse={sink.options.warehouse}", "--json"]
    )

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["deleted_files_count"] == 1
    check_clean(sink.table())
