"""Pure: the options of writes by keys, a part of the table of options, and what they ask of one another."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_ds import option_values as values
from iceberg_ds.changes.values import DIFF, METADATA_COLUMNS, OPERATION
from iceberg_ds.layouts.terms import parse_column, parse_columns
from iceberg_ds.option import Option
from iceberg_ds.readers import READERS

KEY_OPTIONS: tuple[Option, ...] = (
    Option(
        name="keys",
        default="none",
        parse=parse_columns,
        doc="Columns, such as `region, id`, that identify a row: rows written replace those of the same keys. They "
        "are the table's identifier fields, unless they are optional in a table that has none. See "
        "[rows with keys](docs/upserts.md).",
    ),
    Option(
        name="sequence-by",
        default="none",
        parse=parse_columns,
        doc="With `keys`: columns, the first counts most; of the rows of one key in an epoch or batch, the one with "
        "the highest values wins. Without it, a key that comes twice is an error.",
    ),
    Option(
        name="sequence-scope",
        default="`batch`",
        parse=values.one_of("batch", "table"),
        doc="With `keys` and `sequence-by`: whose sequences count. `batch`: those of the rows of one epoch or batch; "
        "between these the later one wins. `table`: that of the table's row as well, so that late rows lose; for "
        "`iceberg_ds.upsert` and `upsert_into`. See [late rows](docs/upserts.md#late-rows).",
    ),
    Option(
        name="operation-column",
        default="none",
        parse=parse_column,
        doc="With `keys`: column that says whether a row is inserted, updated or deleted, in the words of Debezium, "
        "Flink, Delta, Materialize and others. Not written, unless the table has a column of that name. Without `keys` "
        "it counts for `_operation` and `_diff` of `metadata-columns`.",
    ),
    Option(
        name="delete-when",
        default="none",
        parse=values.predicate,
        doc="With `keys`: a predicate on columns of the DataFrame, such as `deleted = true`; rows that satisfy it are "
        "deletes. Without `keys` as `operation-column`.",
    ),
    Option(
        name="keys-not-enforced",
        default="`false`",
        parse=values.boolean,
        doc="With `keys`: of rows of one key and one sequence any one wins, instead of an error.",
    ),
    Option(
        name="inserts-are-new",
        default="`false`",
        parse=values.boolean,
        doc="With `keys` and `operation-column`: the feed guarantees that the table has no row of an inserted key, "
        "so that inserts need no deletes.",
    ),
    Option(
        name="evolve-keys",
        default="`false`",
        parse=values.boolean,
        doc="With `keys`: let them take the place of the identifier fields of an existing table.",
    ),
    Option(
        name="soft-delete-column",
        default="none",
        parse=parse_column,
        doc="With `keys` and `operation-column` or `delete-when`: deletes do not take rows away, but mark them in this "
        "column: a boolean is `true`, a timestamp says when.",
    ),
    Option(
        name="delete-encoding",
        default="`auto`",
        parse=values.delete_encoding,
        doc="With `keys`: how old rows are deleted. `equality`: by files of keys, which all writes with "
        '`format("icebergsink")` make. `position` or `copy-on-write`: by marks, or by writing files again, which '
        "`iceberg_ds.upsert` and `upsert_into` do. `auto`: the first of these that counts there. Refused if not all "
        "`readers` can read them.",
    ),
    Option(
        name="readers",
        default="none",
        parse=values.names_among(*READERS),
        doc="With `keys`: who must be able to read the table, such as `spark, trino`. A write whose deletes one of "
        "them cannot read is refused. See [readers](docs/upserts.md#readers).",
    ),
    Option(
        name="publish-converted",
        default="`false`",
        parse=values.boolean,
        doc="With `keys`: rows land on `staging-branch` (unless given, `branch` with `__unconverted` behind it), their "
        "deletes are converted there, then `branch` is fast-forwarded: its readers never meet equality deletes. See "
        "[published when converted](docs/upserts.md#published-when-converted).",
    ),
)
# Counts in all writes, and is a part of the table of options by itself.
METADATA_OPTION = Option(
    name="metadata-columns",
    default="none",
    parse=values.names_among(*METADATA_COLUMNS),
    doc="Columns to fill in, such as `_extracted_at, _epoch_id`: when the epoch or batch was planned, its number, what "
    "each row does (`_operation`), and `+1` or `-1` (`_diff`, for change feeds without `keys`). See "
    "[columns that tell of the write](docs/upserts.md#columns-that-tell-of-the-write).",
)
_ONLY_WITH_KEYS = tuple(option.name for option in KEY_OPTIONS if option.name != "keys")
_SAY_DELETE = ("operation-column", "delete-when")
_TOLD_BY_FEED = (OPERATION, DIFF)


def contradictions_of_keys(parsed: Mapping[str, object]) -> list[str]:
    """Return what is wrong with the options of a write by keys, taken together.

    Args:
        parsed: All options that were given, by name.
    """
    if parsed.get("keys") is None:
        return _contradictions_without_keys(parsed)
    problems = [*_contradictions_of_marks(parsed), *_contradictions_of_scope(parsed)]
    if DIFF in _metadata_columns(parsed):
        problems.append(
            f"options 'metadata-columns={DIFF}' and 'keys' contradict each other: '{DIFF}' is for change feeds that "
            "are appended event by event"
        )
    if parsed.get("inserts-are-new") and parsed.get("operation-column") is None:
        problems.append("option 'inserts-are-new' needs 'operation-column', which tells inserts from updates")
    if parsed.get("format-version") == "1":
        problems.append("options 'keys' and 'format-version=1' contradict each other: deletes need version 2")
    return problems


def _contradictions_without_keys(parsed: Mapping[str, object]) -> list[str]:
    problems = []
    is_told = any(name in _metadata_columns(parsed) for name in _TOLD_BY_FEED)
    idle = [name for name in _ONLY_WITH_KEYS if parsed.get(name) and not (is_told and name in _SAY_DELETE)]
    if idle:
        told = ", or ask for _operation or _diff in 'metadata-columns'" if set(idle) & set(_SAY_DELETE) else ""
        problems.append(f"options {', '.join(map(repr, idle))} only count with 'keys': name the key columns{told}")
    if DIFF in _metadata_columns(parsed) and not _says_delete(parsed):
        problems.append(
            f"option 'metadata-columns={DIFF}' needs 'operation-column' or 'delete-when', which tell deletes from rows"
        )
    return problems


def _contradictions_of_marks(parsed: Mapping[str, object]) -> list[str]:
    mark = parsed.get("soft-delete-column")
    if not isinstance(mark, str):
        return []
    problems = []
    if not _says_delete(parsed):
        problems.append("option 'soft-delete-column' needs 'operation-column' or 'delete-when', which tell deletes")
    if parsed.get("inserts-are-new"):
        problems.append(
            "options 'soft-delete-column' and 'inserts-are-new' contradict each other: a key that was deleted has a "
            "row, which its next insert replaces"
        )
    for option in ("keys", "operation-column", "metadata-columns"):
        given = parsed.get(option)
        names = given if isinstance(given, tuple) else (given,)
        if mark.lower() in (str(name).lower() for name in names):
            problems.append(f"options 'soft-delete-column' and '{option}' name one column: '{mark}'")
    return problems


def _contradictions_of_scope(parsed: Mapping[str, object]) -> list[str]:
    if parsed.get("sequence-scope") != "table":
        return []
    problems = []
    sequence = parsed.get("sequence-by")
    if not isinstance(sequence, tuple):
        problems.append("option 'sequence-scope=table' needs 'sequence-by', which says which row is newer")
        sequence = ()
    if parsed.get("inserts-are-new"):
        problems.append(
            "options 'sequence-scope=table' and 'inserts-are-new' contradict each other: what is late is only known of "
            "keys that are looked for"
        )
    if parsed.get("delete-encoding") == "copy-on-write":
        problems.append(
            "options 'sequence-scope=table' and 'delete-encoding=copy-on-write' contradict each other: late rows are "
            "hidden by position deletes"
        )
    taken = {name.lower() for name in map(str, sequence)}
    for option in ("keys", "operation-column", "soft-delete-column"):
        given = parsed.get(option)
        if both := taken & {str(name).lower() for name in (given if isinstance(given, tuple) else (given,))}:
            problems.append(
                f"options 'sequence-by' and '{option}' name one column, {', '.join(map(repr, sorted(both)))}, which "
                "cannot say which row is newer where 'sequence-scope' is table"
            )
    return problems


def _says_delete(parsed: Mapping[str, object]) -> bool:
    return any(parsed.get(name) for name in _SAY_DELETE)


def _metadata_columns(parsed: Mapping[str, object]) -> tuple[object, ...]:
    given = parsed.get("metadata-columns")
    return given if isinstance(given, tuple) else ()
