"""What a write by keys asks of its table, on the driver, before any row is written.

The keys must be the table's identifier fields, and the table needs a partition spec for the deletes. A new table is
staged that way; the changes of an existing one are proposed, if options allow them (`prepare`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, UnknownType
from pyspark.sql.types import StructType

from iceberg_ds.options.readers import DeleteEncoding, describe, pick_encoding, unable_readers
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.plan import NO_SPEC, ChangeFeed
from iceberg_ds.planning.columns import WrittenColumns, find_column, find_operation
from iceberg_ds.table.defaults import why_not_searched
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest, spec_request
from iceberg_ds.table.schema_evolution import schema_request
from iceberg_ds.table.spark_types import iceberg_schema, variant_schema
from iceberg_ds.table.specs import describes

logger = logging.getLogger(__name__)

_KEYED_VERSION = 2
# Deletes by position: format versions in which they are written.
_OF_VERSIONS = {"position": (2,), "deletion-vector": (3,)}


def make_feed(options: SinkOptions, table: Schema, dataframe: Schema, *, format_version: int) -> ChangeFeed:
    """Return how rows of a DataFrame change a table.

    Args:
        options: The options of the write, which name keys.
        table: The table's schema; that of a new table has the keys as identifier fields already (`keyed_schema`).
        dataframe: The DataFrame's columns as Iceberg types, including the operation column.
        format_version: The table's format version.

    Raises:
        ValueError: The options do not fit each other, the table or the DataFrame; lists all reasons.
    """
    problems: list[str] = []
    if format_version < _KEYED_VERSION:
        problems.append(
            f"the table's format version is {format_version}, and deletes need version 2: upgrade it, in Spark with "
            "ALTER TABLE ... SET TBLPROPERTIES ('format-version'='2')"
        )
    if options.delete_encoding in _OF_VERSIONS and format_version not in _OF_VERSIONS[options.delete_encoding]:
        fitting = [encoding for encoding, versions in _OF_VERSIONS.items() if format_version in versions]
        problems.append(
            f"option 'delete-encoding' is {options.delete_encoding}, which is not in format version {format_version}, "
            f"the table's: give {' or '.join(fitting) or 'auto'}"
        )
    keys = _find_keys(options, table, problems)
    _check_identifiers(options, table, keys, problems)
    for key in keys:
        find_column(key.name, dataframe, "key column", problems, case_sensitive=options.case_sensitive)
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
        trusts_inserts=options.inserts_are_new,
        keeps_deleted=options.soft_delete_column is not None,
        are_identifiers=all(key.required for key in keys),
    )


def with_stored_sequence(feed: ChangeFeed, table: Schema, *, case_sensitive: bool | None) -> ChangeFeed:
    """Return a feed whose events lose to the table's rows of a higher sequence.

    Raises:
        ValueError: The table lacks a sequence column, or its rows are not compared by it.
    """
    problems: list[str] = []
    found = [
        find_column(field.name, table, "sequence column", problems, case_sensitive=case_sensitive, place="table")
        for field in feed.sequence
    ]
    problems += [reason for field in found if field is not None and (reason := why_not_searched(field)) is not None]
    if problems:
        raise ValueError("; ".join(problems))
    sequence = tuple(
        NestedField(stored.field_id, field.name, stored.field_type, required=False)
        for field, stored in zip(feed.sequence, found, strict=True)
        if stored is not None
    )
    return replace(feed, sequence=sequence, counts_stored=True)


def keyed_schema(schema: Schema, options: SinkOptions) -> Schema:
    """Return the schema of a new table with the keys as identifier fields, which are required.

    Raises:
        ValueError: A key is missing, or cannot be a key; lists all reasons.
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
    """Return the partition spec to write equality deletes with, or None if an unpartitioned one must be added.

    Deletes of one partition reach files of the same spec only. So deletes are written by partition if the key
    determines its values and no file can be of another spec; else for the whole table.

    Args:
        specs: All specs of the table, by id.
        default: The spec that new files are written with.
        feed: How rows are read.
    """
    unpartitioned = (spec for spec in specs.values() if spec.is_unpartitioned())
    sources = {field.source_id for field in default.fields if not isinstance(field.transform, VoidTransform)}
    if len(specs) == 1 and sources <= set(feed.key_ids):
        return default
    return next(unpartitioned, None)


class KeyedWrite:
    """A write by keys, as its options describe it.

    Args:
        options: The options of the write; they name keys.
        dataframe: All columns of the DataFrame, including those that are not written.
        written: The columns that are written.
        looks_for_rows: Whether the write searches for old rows, so that the table gets no deletes by keys.

    Raises:
        SchemaMismatchError: Two columns have one name.
    """

    def __init__(
        self, options: SinkOptions, dataframe: StructType, written: WrittenColumns, *, looks_for_rows: bool = False
    ) -> None:
        self._looks_for_rows = looks_for_rows
        self._offered = _offered(options, looks_for_rows=looks_for_rows)
        self._name = identifier_text(options.table)
        self._dataframe = dataframe
        self._written = written
        self._options = options
        self._frame = written.frame

    @classmethod
    def of(
        cls, options: SinkOptions, dataframe: StructType, written: WrittenColumns, *, looks_for_rows: bool = False
    ) -> KeyedWrite | None:
        """Return the write by keys, or None if the options name no keys; arguments as above."""
        looks_for_rows = looks_for_rows or options.looks_for_rows
        return None if options.keys is None else cls(options, dataframe, written, looks_for_rows=looks_for_rows)

    def new_schema(self) -> Schema:
        """Return the columns of a new table, whose keys are required and are its identifier fields.

        Raises:
            OptionError: The options do not fit each other or the DataFrame; lists all reasons.
            SchemaMismatchError: A column has no Iceberg type.
        """
        case_sensitive = self._options.case_sensitive
        version = self._options.new_version
        columns = variant_schema(self._dataframe) if self._options.nested_as_variant else self._dataframe
        sent = iceberg_schema(columns, case_sensitive=case_sensitive, format_version=version)
        required = Schema(*(field.model_copy(update={"required": True}) for field in sent.fields))
        with self._naming():
            # What version 1 lacks is said of the staged table.
            self._check(replace(self._options, evolve_keys=True), required, max(version, _KEYED_VERSION))
            return keyed_schema(
                iceberg_schema(self._written.columns(None), case_sensitive=case_sensitive, format_version=version),
                self._options,
            )

    def staged(self, metadata: TableMetadata) -> TableMetadata:
        """Return the metadata of a table to create, with a spec for its deletes."""
        spec = self._missing_spec(metadata)
        with self._naming():
            self._pick(metadata)
        if spec is None:
            return metadata
        return metadata.model_copy(update={"partition_specs": [*metadata.partition_specs, spec]})

    def rekeying(self, metadata: TableMetadata) -> CommitRequest | None:
        """Return the request that makes the keys the table's identifier fields, or None if they already are.

        Raises:
            OptionError: The options do not fit each other, the table or the DataFrame, or `evolve-keys` is false; lists
                all reasons.
        """
        with self._naming():
            schema = self._rekeyed(metadata)
            self._pick(metadata)
        return None if schema is None else schema_request(metadata, schema, table_name=self._name)

    def _rekeyed(self, metadata: TableMetadata) -> Schema | None:
        """Return the schema with the keys as identifier fields, None if they are, or are optional and cannot be."""
        feed, schema = self._feed(metadata), metadata.schema()
        if not feed.are_identifiers or set(feed.key_ids) == set(schema.identifier_field_ids):
            return None
        return Schema(*schema.fields, schema_id=schema.schema_id, identifier_field_ids=list(feed.key_ids))

    def adding_delete_spec(self, metadata: TableMetadata) -> CommitRequest | None:
        """Return the request for a spec for deletes, which does not become the default, or None if the table has one.

        Raises:
            OptionError: The options do not fit the table.
        """
        spec = self._missing_spec(metadata)
        return None if spec is None else spec_request(metadata, spec, is_default=False)

    def _missing_spec(self, metadata: TableMetadata) -> PartitionSpec | None:
        """Return the spec that the table needs for deletes, or None if it has one."""
        with self._naming():
            feed = self._feed(metadata)
        if self._looks_for_rows or delete_spec(metadata.specs(), metadata.spec(), feed) is not None:
            return None
        return PartitionSpec(spec_id=1 + max(metadata.specs()))

    def plan(self, metadata: TableMetadata) -> tuple[ChangeFeed, PartitionSpec]:
        """Return how tasks read rows, and the spec of equality deletes, `NO_SPEC` if the table gets none.

        Args:
            metadata: The table as `staged`, or `rekeying` and `adding_delete_spec`, leave it.

        Raises:
            OptionError: The options do not fit the table.
        """
        with self._naming():
            feed = self._feed(metadata)
            if self._options.sequence_scope == "table":
                feed = with_stored_sequence(feed, metadata.schema(), case_sensitive=self._options.case_sensitive)
            self._pick(metadata)
        spec = delete_spec(metadata.specs(), metadata.spec(), feed)
        return feed, NO_SPEC if spec is None else spec

    def foresee(self, metadata: TableMetadata) -> str:
        """Return, in words, what the write does to an existing table because of its keys; changes nothing.

        Raises:
            OptionError: As `rekeying`.
        """
        with self._naming():
            schema = self._rekeyed(metadata)
            picked = self._pick(metadata)
        keys = f"rows are written by key ({', '.join(self._options.keys or ())})"
        changes = [
            *(["they become the table's identifier fields"] if schema is not None else []),
            *(["it gets an unpartitioned spec for deletes"] if self._missing_spec(metadata) is not None else []),
        ]
        return "; ".join([", and ".join([keys, *changes]), *self._published, *([picked] if picked else [])])

    def foresee_new(self) -> str:
        """Return, in words, how a new table is written, as `foresee`."""
        keys = {key.lower() for key in self._options.keys or ()}
        terms = self._options.partition_by or ()
        with self._naming():
            are_global = any(term.source.lower() not in keys for term in terms)
            version = self._options.new_version
            picked = _pick_for(self._options.readers, self._offered, format_version=version, are_global=are_global)
        return "; ".join(
            [f"by key ({', '.join(self._options.keys or ())})", *self._published, *([picked] if picked else [])]
        )

    @property
    def _published(self) -> list[str]:
        return ["readers get them with their deletes converted"] if self._options.publish_converted else []

    def _pick(self, metadata: TableMetadata) -> str:
        return _pick(self._options, metadata, self._feed(metadata), self._offered) if self._options.readers else ""

    def announce(self, metadata: TableMetadata) -> None:
        """Say in the log which deletes the named readers will meet."""
        if picked := self._pick(metadata):
            logger.info("Writing to %s: %s", self._name, picked)

    def _feed(self, metadata: TableMetadata) -> ChangeFeed:
        return self._check(self._options, metadata.schema(), metadata.format_version)

    def _check(self, options: SinkOptions, table: Schema, format_version: int) -> ChangeFeed:
        """Return the feed; raise ValueError for all that is wrong with it."""
        problems = []
        try:
            self._written.bound_columns()
        except ValueError as problem:
            problems.append(f"option 'delete-when': {problem}")
        try:
            feed = make_feed(options, table, self._frame, format_version=format_version)
        except ValueError as problem:
            problems.append(str(problem))
        if problems:
            raise ValueError("; ".join(problems))
        return feed

    def _naming(self) -> AbstractContextManager[None]:
        return naming_action(f"write to {self._name}")


def _find_keys(options: SinkOptions, table: Schema, problems: list[str]) -> list[NestedField]:
    found = [
        find_column(name, table, "key column", problems, case_sensitive=options.case_sensitive, place="table")
        for name in options.keys or ()
    ]
    keys = [field for field in found if field is not None]
    if len({field.field_id for field in keys}) < len(keys):
        problems.append(f"option 'keys' names a column twice ({', '.join(options.keys or ())})")
    for field in keys:
        if isinstance(field.field_type, FloatType | DoubleType):
            problems.append(
                f"column '{field.name}' is {field.field_type} and cannot be a key, because NaN and -0 differ"
            )
        elif not field.field_type.is_primitive or isinstance(field.field_type, UnknownType):
            problems.append(
                f"column '{field.name}' is {field.field_type} and cannot be a key: name columns of one value"
            )
        elif (reason := why_not_searched(field)) is not None:
            problems.append(f"{reason}: name other keys")
    return keys


def _check_identifiers(options: SinkOptions, table: Schema, keys: Iterable[NestedField], problems: list[str]) -> None:
    keys = list(keys)
    wanted, own = {key.field_id for key in keys}, set(table.identifier_field_ids)
    optional = [key.name for key in keys if not key.required]
    if optional and not own:
        return  # the keys of this write alone: nothing of the table changes
    if wanted != own and not options.evolve_keys and len(keys) == len(options.keys or ()):
        names = ", ".join(sorted(str(table.find_column_name(field_id)) for field_id in own)) or "none"
        problems.append(
            f"option 'keys' is {', '.join(options.keys or ())}, and the table's identifier fields are {names}: give "
            "evolve-keys=true to change them, or the same keys"
        )
    if optional:
        problems.append(
            f"key columns {', '.join(map(repr, optional))} are optional in the table, and identifier fields, which the "
            "table has, must be required: make them required if they hold no null"
        )


def _find_sequence(options: SinkOptions, dataframe: Schema, problems: list[str]) -> list[NestedField]:
    found = [
        find_column(name, dataframe, "sequence column", problems, case_sensitive=options.case_sensitive)
        for name in options.sequence_by
    ]
    fields = [field for field in found if field is not None]
    problems += [
        f"sequence column '{field.name}' is {field.field_type}, whose values have no order"
        for field in fields
        if not field.field_type.is_primitive or isinstance(field.field_type, UnknownType)
    ]
    if len({field.field_id for field in fields}) < len(fields):
        problems.append(f"option 'sequence-by' names a column twice ({', '.join(options.sequence_by)})")
    return fields


def why_not_keyed(options: SinkOptions, metadata: TableMetadata) -> str | None:
    """Return why no DataFrame can be written to a table by the keys of `options`, or None if one can."""
    if options.keys is None:
        return None
    asked = SinkOptions(  # only options that read no column of the DataFrame
        table=options.table,
        keys=options.keys,
        evolve_keys=options.evolve_keys,
        case_sensitive=options.case_sensitive,
    )
    try:
        feed = make_feed(asked, metadata.schema(), metadata.schema(), format_version=metadata.format_version)
        _pick(options, metadata, feed, _offered(options, looks_for_rows=False))
    except ValueError as problem:
        return str(problem)
    return None


def _offered(options: SinkOptions, *, looks_for_rows: bool) -> tuple[DeleteEncoding, ...]:
    """Return the encodings in which old rows may be deleted, the best one first."""
    by_position: tuple[DeleteEncoding, ...] = ("position", "deletion-vector")  # a table takes one of them
    if options.publish_converted:
        return by_position  # what readers meet
    if not looks_for_rows:
        return ("equality",)
    return ("copy-on-write",) if options.delete_encoding == "copy-on-write" else by_position


def _pick(options: SinkOptions, metadata: TableMetadata, feed: ChangeFeed, offered: Sequence[DeleteEncoding]) -> str:
    """Return in words which deletes the named readers will meet; raise ValueError if one of them cannot read them."""
    spec = delete_spec(metadata.specs(), metadata.spec(), feed)
    is_by_partition = spec is not None and (not spec.is_unpartitioned() or len(metadata.specs()) == 1)
    # Deletes of one partition reach files of the same spec only.
    will_evolve = options.evolve_partitioning and not describes(
        options.partition_by or (), metadata.spec(), metadata.schema()
    )
    are_global = not is_by_partition or will_evolve
    return _pick_for(options.readers, offered, format_version=metadata.format_version, are_global=are_global)


def _pick_for(
    readers: Sequence[str], offered: Sequence[DeleteEncoding], *, format_version: int, are_global: bool
) -> str:
    if not readers:
        return ""
    names = ", ".join(readers)
    try:
        encoding = pick_encoding(readers, format_version=format_version, are_global=are_global, offered=offered)
    except ValueError as problem:
        by_partition = unable_readers(readers, "equality", format_version=format_version, are_global=False)
        remedy = "" if by_partition or not are_global else "let all partition columns be keys, or "
        raise ValueError(
            f"option 'readers' is {names}, and {problem}: {remedy}give publish-converted=true, or write with "
            "iceberg_ds.upsert(df, table, ...) or foreachBatch(iceberg_ds.upsert_into(...)), which need no such "
            "deletes, or let others read what iceberg_ds.convert_deletes makes of them, without this option"
        ) from None
    return f"delete-encoding={encoding}: {describe(encoding, are_global=are_global)}, which {names} can read"
