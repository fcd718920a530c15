"""Options of reads: what is parsed, and that all that is wrong is said at once."""

from __future__ import annotations

import pytest

from iceberg_ds.errors import OptionError
from iceberg_ds.options.read_options import BATCH_OPTIONS, READ_OPTIONS, STREAM_OPTIONS, parse_read_options
from iceberg_ds.options.sink_options import OPTIONS

TABLE = {"table": "db.t"}


def refusal(**options: str) -> str:
    """Return the text of the error that these options raise; underscores in names stand for dashes."""
    with pytest.raises(OptionError) as raised:
        parse_read_options({**TABLE, **{name.replace("_", "-"): text for name, text in options.items()}})
    return str(raised.value)


def test_options_are_parsed() -> None:
    """Another snapshot would be read, or other columns."""
    read = parse_read_options({**TABLE, "snapshot-id": "7", "columns": '["a,b", "c"]', "where": "c > 1", "branch": "b"})

    assert (read.snapshot_id, read.columns, read.where) == (7, ("a,b", "c"), "c > 1")
    assert (read.of_table.table, read.of_table.branch) == (("db", "t"), "b")
    assert (read.on_change, read.keys, read.streaming_skip_delete_snapshots) == ("fail", None, False)


def test_all_that_is_wrong_is_said_at_once() -> None:
    """A user would mend one option after the other, with a new run for each."""
    assert refusal(snapshotid="1", schema_id="x", starting_snapshot_id="1", stream_from_timestamp="2") == (
        "Cannot read db.t:\n"
        "  - option 'snapshotid' is none of a read: did you mean 'snapshot-id'?\n"
        "  - option 'schema-id' is 'x': expected a whole number\n"
        "  - options 'starting-snapshot-id' and 'stream-from-timestamp' both say where the stream begins: give one"
    )
    assert refusal(schema_id="x") == "Cannot read db.t: option 'schema-id' is 'x': expected a whole number."


@pytest.mark.parametrize("names", ["", "a,,b", "[1, null]", '["a", {"b": 1}]', '["a"', '[""]'])
def test_what_is_no_list_of_names_is_refused(names: str) -> None:
    """A read would look for a column that nobody has named."""
    assert f"option 'columns' is '{names}': expected names with commas between them" in refusal(columns=names)


def test_a_table_that_is_none_cannot_be_read() -> None:
    """A user who reads would be told that a write failed."""
    assert refusal(table="x").startswith("Cannot read with these options:")


def test_a_secret_in_an_option_is_not_shown() -> None:
    """An error in a log would show it."""
    assert "hunter2" not in refusal(schema_id="https://me:hunter2@host/")
    assert "hunter2" not in refusal(**{"token=hunter2": "1"})


def test_each_option_is_of_batches_or_of_streams_or_of_both() -> None:
    """An option would be taken where it does nothing."""
    names = [one.name for one in (*BATCH_OPTIONS, *STREAM_OPTIONS)]

    assert [one.name for one in READ_OPTIONS] == [*names, "columns", "where"]
    # What follows a change feed is not what a write by keys has.
    assert {one.name for one in READ_OPTIONS} & {one.name for one in OPTIONS} == {"keys"}
