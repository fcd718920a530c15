"""The options of writes by keys: how they are parsed, and what they ask of one another."""

from __future__ import annotations

import pytest

from iceberg_ds.errors import OptionError
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.sink_options import SinkOptions

KEYED = {"table": "db.t", "keys": "id"}


def refusal(raw: dict[str, str]) -> str:
    """Return the text of the error that these options raise."""
    with pytest.raises(OptionError) as raised:
        parse_options(raw)
    return str(raised.value)


def test_all_options_of_keys_are_parsed() -> None:
    """A write would take other rows for the winners than the user asked for."""
    options = parse_options(
        {
            "table": "db.t",
            "keys": "region,  `the id` , a.b",
            "sequence-by": "file, pos",
            "sequence-scope": "Batch",
            "operation-column": "`op`",
            "delete-when": "deleted = true",
            "keys-not-enforced": "true",
            "inserts-are-new": "true",
            "evolve-keys": "True",
            "delete-encoding": "Equality",
        }
    )

    assert options.keys == ("region", "the id", "a.b")
    assert options.sequence_by == ("file", "pos")
    assert options.sequence_scope == "batch"
    assert options.operation_column == "op"
    assert options.delete_when == "deleted = true"
    assert options.keys_not_enforced
    assert options.inserts_are_new
    assert options.evolve_keys


def test_write_without_keys_has_none_of_them() -> None:
    """An append would delete rows."""
    options = parse_options({"table": "db.t"})
    untouched = SinkOptions(table=("db", "t"))

    assert options.keys is None
    assert options == untouched


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("keys", "", "expected names of columns with commas between them"),
        ("keys", "id,", "expected names of columns with commas between them"),
        ("keys", "bucket(4, id)", "expected names of columns with commas between them"),
        ("keys", "id, id", "expected each column once"),
        ("sequence-scope", "epoch", "expected one of batch, table"),
        ("sequence-by", "lsn desc", "expected names of columns with commas between them"),
        ("operation-column", "op, kind", "expected the name of one column"),
        ("delete-when", "deleted is so", "expected a predicate"),
        ("keys-not-enforced", "yes", "expected true or false"),
        ("delete-encoding", "tombstones", "expected one of auto, equality, position, deletion-vector, copy-on-write"),
    ],
)
def test_malformed_value_is_named_with_what_is_expected(name: str, value: str, reason: str) -> None:
    """A user would not learn which option is wrong, or rows would be taken for others."""
    text = refusal({**KEYED, name: value})

    assert f"option '{name}' is {value!r}" in text
    assert reason in text


def test_deletion_vectors_are_an_encoding() -> None:
    """A user of version 3 could not say what the table gets."""
    assert parse_options({"table": "db.t", **KEYED, "delete-encoding": "Deletion-Vector"}).delete_encoding is not None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sequence-by", "lsn"),
        ("sequence-scope", "table"),
        ("operation-column", "op"),
        ("delete-when", "deleted = true"),
        ("keys-not-enforced", "true"),
        ("inserts-are-new", "true"),
        ("evolve-keys", "true"),
        ("delete-encoding", "auto"),
        ("soft-delete-column", "gone"),
        ("readers", "spark"),
        ("publish-converted", "true"),
    ],
)
def test_options_of_keys_are_refused_without_keys(option: str, value: str) -> None:
    """Rows that delete would be written as rows."""
    assert f"only a write with option 'keys' takes '{option}'" in refusal({"table": "db.t", option: value})


def test_new_inserts_need_a_column_that_tells_them_from_updates() -> None:
    """A user would believe that his upserts cost no deletes."""
    assert "'inserts-are-new' needs 'operation-column'" in refusal({**KEYED, "inserts-are-new": "true"})


def test_first_format_version_is_refused() -> None:
    """A table would be made that can never be written."""
    assert "deletes need version 2" in refusal({**KEYED, "format-version": "1"})


@pytest.mark.parametrize("told", ["_operation", "_diff, _epoch_id"])
def test_change_feeds_without_keys_tell_of_their_events(told: str) -> None:
    """A change feed could not be appended event by event."""
    feed = {"operation-column": "op", "delete-when": "gone = true", "metadata-columns": told}

    options = parse_options({"table": "db.t", **feed})

    assert (options.operation_column, options.delete_when) == ("op", "gone = true")
    assert options.metadata_columns == tuple(told.split(", "))
    text = refusal({"table": "db.t", **feed, "metadata-columns": "_epoch_id"})
    assert (
        "only a write with option 'keys' takes 'operation-column', 'delete-when': name the key columns, or ask for "
        "_operation" in text
    )


def test_metadata_columns_are_known_names() -> None:
    """A user would wait for a column that never comes."""
    text = refusal({"table": "db.t", "metadata-columns": "_extracted_at, _loaded_at"})

    assert "'_loaded_at' not known: expected some of _extracted_at, _epoch_id, _operation, _diff" in text
    assert "expected each name once" in refusal({"table": "db.t", "metadata-columns": "_epoch_id,_EPOCH_ID"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"keys": "id", "metadata-columns": "_diff", "operation-column": "op"},
            "'metadata-columns=_diff' and 'keys' contradict",
        ),
        ({"metadata-columns": "_diff"}, "'metadata-columns=_diff' needs 'operation-column' or 'delete-when'"),
        (
            {"keys": "id", "soft-delete-column": "gone"},
            "'soft-delete-column' needs 'operation-column' or 'delete-when'",
        ),
        (
            {"keys": "id", "soft-delete-column": "gone", "operation-column": "op", "inserts-are-new": "true"},
            "'soft-delete-column' and 'inserts-are-new' contradict each other",
        ),
        ({"keys": "id, GONE", "soft-delete-column": "gone"}, "'soft-delete-column' and 'keys' name one column"),
        ({"keys": "id", "soft-delete-column": "op", "operation-column": "op"}, "'operation-column' name one column"),
        (
            {"keys": "id", "soft-delete-column": "_epoch_id", "delete-when": "x = 1", "metadata-columns": "_epoch_id"},
            "'metadata-columns' name one column",
        ),
    ],
)
def test_columns_that_cannot_be_filled_in_are_refused(options: dict[str, str], reason: str) -> None:
    """Marks or differences would say what nobody knows."""
    assert reason in refusal({"table": "db.t", **options})


def test_readers_are_known_ones() -> None:
    """A misspelt reader would be taken for one that can read everything."""
    assert parse_options({**KEYED, "readers": "Spark,trino"}).readers == ("spark", "trino")
    assert "'oracle' not known: expected some of athena, bigquery" in refusal({**KEYED, "readers": "spark, oracle"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sequence-by": ""}, "'sequence-scope=table' needs 'sequence-by'"),
        ({"operation-column": "op", "inserts-are-new": "true"}, "'sequence-scope=table' and 'inserts-are-new' contra"),
        ({"delete-encoding": "copy-on-write"}, "'sequence-scope=table' and 'delete-encoding=copy-on-write' contra"),
        ({"keys": "ID, LSN"}, "'sequence-by' and 'keys' name one column, 'lsn'"),
        ({"operation-column": "lsn"}, "'sequence-by' and 'operation-column' name one column, 'lsn'"),
        ({"delete-when": "gone", "soft-delete-column": "Lsn"}, "'sequence-by' and 'soft-delete-column' name one"),
    ],
)
def test_scope_of_the_table_is_refused_where_nothing_tells_what_is_late(given: dict[str, str], reason: str) -> None:
    """Late rows would win, or be hidden where the user wants no deletes."""
    asked = {**KEYED, "sequence-by": "lsn", "sequence-scope": "table", **given}

    assert reason in refusal({name: value for name, value in asked.items() if value})
