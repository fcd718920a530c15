"""Pure: the options of writes by keys, a part of the table of options, and what they ask of one another."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_ds import option_values as values
from iceberg_ds.layouts.terms import parse_column, parse_columns
from iceberg_ds.option import Option
from iceberg_ds.predicates.predicates import predicate_text

KEY_OPTIONS: tuple[Option, ...] = (
    Option(
        name="keys",
        default="none",
        parse=parse_columns,
        doc="Columns, such as `region, id`, that identify a row: rows written replace those of the same keys. They "
        "become the table's identifier fields, and are required. See [rows with keys](docs/upserts.md).",
    ),
    Option(
        name="sequence-by",
        default="none",
        parse=parse_columns,
        doc="With `keys`: columns, the first counts most; of the rows of one key in an epoch or batch, the one with "
        "the highest values wins. Without it, a key that comes twice is an error.",
    ),
    Option(
        name="operation-column",
        default="none",
        parse=parse_column,
        doc="With `keys`: column that says whether a row is inserted, updated or deleted, in the words of Debezium, "
        "Flink, Delta, Materialize and others. Not written, unless the table has a column of that name.",
    ),
    Option(
        name="delete-when",
        default="none",
        parse=predicate_text,
        doc="With `keys`: a predicate on columns of the DataFrame, such as `deleted = true`; rows that satisfy it are "
        "deletes.",
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
        name="delete-encoding",
        default="`auto`",
        parse=values.delete_encoding,
        doc="With `keys`: how old rows are deleted: `equality`, by files of keys; `auto` is the same.",
    ),
)
_ONLY_WITH_KEYS = tuple(option.name for option in KEY_OPTIONS if option.name != "keys")


def contradictions_of_keys(parsed: Mapping[str, object]) -> list[str]:
    """Return what is wrong with the options of a write by keys, taken together.

    Args:
        parsed: All options that were given, by name.
    """
    if parsed.get("keys") is None:
        idle = [name for name in _ONLY_WITH_KEYS if parsed.get(name)]
        return [f"options {', '.join(map(repr, idle))} only count with 'keys': name the key columns"] if idle else []
    problems = []
    if parsed.get("inserts-are-new") and parsed.get("operation-column") is None:
        problems.append("option 'inserts-are-new' needs 'operation-column', which tells inserts from updates")
    if parsed.get("format-version") == "1":
        problems.append("options 'keys' and 'format-version=1' contradict each other: deletes need version 2")
    return problems
