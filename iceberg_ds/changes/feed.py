"""Pure: from options and schemas to a `ChangeFeed`, or to all that is wrong with them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    UnknownType,
)

from iceberg_ds.changes.values import ChangeFeed
from iceberg_ds.schemas.names import AmbiguousNameError, find_position

_KEYED_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The options of a write by keys, as the user gave them.

    Attributes:
        keys: Names of the key columns.
        sequence_by: Names of the sequence columns.
        operation_column: Name of the column that says what a row does, None for none.
        delete_when: Predicate that marks deletes, None for none.
        keys_not_enforced: Whether any one of tied rows may win.
        trusts_inserts: Whether inserts tell of keys that the table does not have.
        evolve_keys: Whether the table's identifier fields may become the keys.
        keeps_deleted: Whether deletes leave rows, which are marked.
        case_sensitive: How names are matched, see `find_position`.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    operation_column: str | None = None
    delete_when: str | None = None
    keys_not_enforced: bool = False
    trusts_inserts: bool = False
    evolve_keys: bool = False
    keeps_deleted: bool = False
    case_sensitive: bool | None = None


def make_feed(options: FeedOptions, table: Schema, dataframe: Schema, *, format_version: int) -> ChangeFeed:
    """Return how rows of a DataFrame change a table.

    Args:
        options: What the user asks for.
        table: The table's schema, that of a new table with its keys as identifier fields already (`keyed_schema`).
        dataframe: The DataFrame's columns as Iceberg types, the operation column and all.
        format_version: The table's.

    Raises:
        ValueError: The options do not fit each other, the table or the DataFrame; says all reasons.
    """
    problems: list[str] = []
    if format_version < _KEYED_VERSION:
        problems.append(
            f"the table's format version is {format_version}, and deletes need version 2: upgrade it, in Spark with "
            "ALTER TABLE ... SET TBLPROPERTIES ('format-version'='2')"
        )
    keys = _find_keys(options, table, problems)
    _check_identifiers(options, table, keys, problems)
    for key in keys:
        _find(key.name, dataframe, "key column", options, problems)
    sequence = _find_sequence(options, dataframe, problems)
    operation = find_operation(options, dataframe, keys, problems)
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return ChangeFeed(
        key_ids=tuple(key.field_id for key in keys),
        sequence=tuple(sequence),
        operation_column=operation.name if operation is not None else None,
        delete_when=options.delete_when,
        is_enforced=not options.keys_not_enforced,
        trusts_inserts=options.trusts_inserts,
        keeps_deleted=options.keeps_deleted,
        are_identifiers=all(key.required for key in keys),
    )


def with_stored_sequence(feed: ChangeFeed, table: Schema, *, case_sensitive: bool | None) -> ChangeFeed:
    """Return a feed whose events lose to rows of a higher sequence that the table has.

    Raises:
        ValueError: The table lacks a sequence column.
    """
    options = FeedOptions(keys=(), case_sensitive=case_sensitive)
    problems: list[str] = []
    found = [_find(field.name, table, "sequence column", options, problems, place="table") for field in feed.sequence]
    if problems:
        raise ValueError("; ".join(problems))
    sequence = tuple(
        NestedField(stored.field_id, field.name, stored.field_type, required=False)
        for field, stored in zip(feed.sequence, found, strict=True)
        if stored is not None
    )
    return replace(feed, sequence=sequence, counts_stored=True)


def keyed_schema(schema: Schema, options: FeedOptions) -> Schema:
    """Return the schema of a new table with the keys as identifier fields, which are required.

    Raises:
        ValueError: A key is missing, or cannot be one; says all reasons.
    """
    problems: list[str] = []
    keys = [key.field_id for key in _find_keys(options, schema, problems)]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    fields = (
        field.model_copy(update={"required": True}) if field.field_id in keys else field for field in schema.fields
    )
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=keys)


def delete_spec(specs: Mapping[int, PartitionSpec], default: PartitionSpec, feed: ChangeFeed) -> PartitionSpec | None:
    """Return the partition spec to write equality deletes with, None if an unpartitioned one must be added.

    Deletes of one partition reach files of the same spec only. So they are written by partition where its values
    follow from the key and no file can be of another spec; else for the whole table.

    Args:
        specs: All specs of the table, by id.
        default: The one that new files are written with.
        feed: How rows are read.
    """
    unpartitioned = (spec for spec in specs.values() if spec.is_unpartitioned())
    sources = {field.source_id for field in default.fields if not isinstance(field.transform, VoidTransform)}
    if len(specs) == 1 and sources <= set(feed.key_ids):
        return default
    return next(unpartitioned, None)


def _find_keys(options: FeedOptions, table: Schema, problems: list[str]) -> list[NestedField]:
    found = [_find(name, table, "key column", options, problems, place="table") for name in options.keys]
    keys = [field for field in found if field is not None]
    if len({field.field_id for field in keys}) < len(keys):
        problems.append(f"option 'keys' names a column twice ({', '.join(options.keys)})")
    for field in keys:
        if isinstance(field.field_type, FloatType | DoubleType):
            problems.append(
                f"column '{field.name}' is {field.field_type} and cannot be a key, because NaN and -0 differ"
            )
        elif not isinstance(field.field_type, PrimitiveType) or isinstance(field.field_type, UnknownType):
            problems.append(
                f"column '{field.name}' is {field.field_type} and cannot be a key: name columns of one value"
            )
    return keys


def _check_identifiers(options: FeedOptions, table: Schema, keys: Iterable[NestedField], problems: list[str]) -> None:
    keys = list(keys)
    wanted, own = {key.field_id for key in keys}, set(table.identifier_field_ids)
    optional = [key.name for key in keys if not key.required]
    if optional and not own:
        return  # the keys of this write alone: nothing of the table changes
    if wanted != own and not options.evolve_keys and len(keys) == len(options.keys):
        names = ", ".join(sorted(str(table.find_column_name(field_id)) for field_id in own)) or "none"
        problems.append(
            f"option 'keys' is {', '.join(options.keys)}, and the table's identifier fields are {names}: give "
            "evolve-keys=true to change them, or the same keys"
        )
    if optional:
        problems.append(
            f"key columns {', '.join(map(repr, optional))} are optional in the table, and identifier fields, which the "
            "table has, must be required: make them required if they hold no null"
        )


def _find_sequence(options: FeedOptions, dataframe: Schema, problems: list[str]) -> list[NestedField]:
    found = [_find(name, dataframe, "sequence column", options, problems) for name in options.sequence_by]
    fields = [field for field in found if field is not None]
    problems += [
        f"sequence column '{field.name}' is {field.field_type}, whose values have no order"
        for field in fields
        if not isinstance(field.field_type, PrimitiveType) or isinstance(field.field_type, UnknownType)
    ]
    if len({field.field_id for field in fields}) < len(fields):
        problems.append(f"option 'sequence-by' names a column twice ({', '.join(options.sequence_by)})")
    return fields


def find_operation(
    options: FeedOptions, dataframe: Schema, keys: Iterable[NestedField], problems: list[str]
) -> NestedField | None:
    """Return the DataFrame's column that says what rows do, None if it has none; add what is wrong to `problems`."""
    if options.operation_column is None:
        return None
    field = _find(options.operation_column, dataframe, "operation column", options, problems)
    if field is None:
        return None
    if not isinstance(field.field_type, StringType | IntegerType | LongType):
        problems.append(f"operation column '{field.name}' is {field.field_type}: expected words, or 1 and -1")
    if field.name in {key.name for key in keys}:
        problems.append(f"operation column '{field.name}' is a key, too")
    return field


def _find(  # noqa: PLR0913  # each is another thing
    name: str,
    schema: Schema,
    role: str,
    options: FeedOptions,
    problems: list[str],
    *,
    place: str = "DataFrame",
) -> NestedField | None:
    names = [field.name for field in schema.fields]
    try:
        position = find_position(name, names, case_sensitive=options.case_sensitive)
    except AmbiguousNameError as problem:
        problems.append(f"{role} {problem}")
        return None
    if position is not None:
        return schema.fields[position]
    nested = {other.lower() for other in schema.column_names} - {other.lower() for other in names}
    if name.lower() in nested:
        problems.append(f"{role} '{name}' lies within a struct, and only whole columns are supported: copy it out")
    else:
        problems.append(f"{role} '{name}' is not in the {place} (columns: {', '.join(names)})")
    return None
