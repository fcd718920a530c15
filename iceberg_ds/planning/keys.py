"""What a write by keys asks of its table, on the driver, before any row is written.

The keys are the table's identifier fields, and there is a partition spec that its deletes can be written with. A new
table is staged so; what is to change in an existing one is proposed, if options allow it (`prepare`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.types import StructType

from iceberg_ds.options.readers import DeleteEncoding, describe, pick_encoding, unable_readers
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.plan import NO_SPEC, ChangeFeed
from iceberg_ds.planning.columns import (
    FeedOptions,
    WrittenColumns,
    delete_spec,
    keyed_schema,
    make_feed,
    with_stored_sequence,
)
from iceberg_ds.planning.prepare import spec_request
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.schema_evolution import schema_request
from iceberg_ds.table.spark_types import iceberg_schema
from iceberg_ds.table.specs import describes

logger = logging.getLogger(__name__)

_KEYED_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKeys:
    """What tasks are told of keys: the entries of `WritePlan` of the same names."""

    changes: ChangeFeed
    delete_spec: PartitionSpec


class KeyedWrite:
    """A write by keys, as its options describe it.

    Args:
        options: The options of the write; they name keys.
        dataframe: All columns of the DataFrame, those too that are not written.
        written: The columns that are written.
        looks_for_rows: Whether old rows are looked for, so that the table gets no deletes by keys.

    Raises:
        SchemaMismatchError: Two columns have one name.
    """

    def __init__(
        self, options: SinkOptions, dataframe: StructType, written: WrittenColumns, *, looks_for_rows: bool = False
    ) -> None:
        self._table = options.table
        self._looks_for_rows = looks_for_rows
        self._offered = _offered(options, looks_for_rows=looks_for_rows)
        self._name = identifier_text(options.table)
        self._dataframe = dataframe
        self._written = written
        self._sink = options
        self._frame = written.frame
        self._options = FeedOptions(
            keys=options.keys or (),
            sequence_by=options.sequence_by,
            operation_column=options.operation_column,
            delete_when=options.delete_when,
            keys_not_enforced=options.keys_not_enforced,
            trusts_inserts=options.inserts_are_new,
            evolve_keys=options.evolve_keys,
            keeps_deleted=options.soft_delete_column is not None,
            case_sensitive=options.case_sensitive,
        )

    @classmethod
    def of(
        cls, options: SinkOptions, dataframe: StructType, written: WrittenColumns, *, looks_for_rows: bool = False
    ) -> KeyedWrite | None:
        """Return the write by keys, None if the options name none; arguments as above."""
        return None if options.keys is None else cls(options, dataframe, written, looks_for_rows=looks_for_rows)

    def new_schema(self) -> Schema:
        """Return the columns of a new table, the keys among them required and its identifier fields.

        Raises:
            OptionError: The options do not fit each other or the DataFrame; says all reasons.
            SchemaMismatchError: A column has no Iceberg type.
        """
        case_sensitive = self._options.case_sensitive
        sent = iceberg_schema(self._dataframe, case_sensitive=case_sensitive)
        required = Schema(*(field.model_copy(update={"required": True}) for field in sent.fields))
        with self._naming():
            self._check(replace(self._options, evolve_keys=True), required, _KEYED_VERSION)
            return keyed_schema(
                iceberg_schema(self._written.columns(None), case_sensitive=case_sensitive), self._options
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
        """Return the request that makes the keys the table's identifier fields, or None if they are.

        Raises:
            OptionError: The options do not fit each other, the table or the DataFrame, or `evolve-keys` is false; says
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
        """Return the request for a spec for deletes, which does not become the default, or None if there is one.

        Raises:
            OptionError: The options do not fit the table.
        """
        spec = self._missing_spec(metadata)
        return None if spec is None else spec_request(metadata, spec, is_default=False)

    def _missing_spec(self, metadata: TableMetadata) -> PartitionSpec | None:
        """Return the spec that the table needs for deletes, None if it has one."""
        with self._naming():
            feed = self._feed(metadata)
        if self._looks_for_rows or delete_spec(metadata.specs(), metadata.spec(), feed) is not None:
            return None
        return PartitionSpec(spec_id=1 + max(metadata.specs()))

    def plan(self, metadata: TableMetadata) -> PlannedKeys:
        """Return what tasks are told.

        Args:
            metadata: The table as `staged`, or `rekeying` and `adding_delete_spec`, leave it.

        Raises:
            OptionError: The options do not fit the table.
        """
        with self._naming():
            feed = self._feed(metadata)
            if self._sink.sequence_scope == "table":
                feed = with_stored_sequence(feed, metadata.schema(), case_sensitive=self._options.case_sensitive)
            self._pick(metadata)
        spec = delete_spec(metadata.specs(), metadata.spec(), feed)
        return PlannedKeys(changes=feed, delete_spec=NO_SPEC if spec is None else spec)

    def foresee(self, metadata: TableMetadata) -> str:
        """Return, in words, what the write does to an existing table because of its keys; changes nothing.

        Raises:
            OptionError: As `rekeying`.
        """
        with self._naming():
            schema = self._rekeyed(metadata)
            picked = self._pick(metadata)
        keys = f"rows are written by key ({', '.join(self._options.keys)})"
        changes = [
            *(["they become the table's identifier fields"] if schema is not None else []),
            *(["it gets an unpartitioned spec for deletes"] if self._missing_spec(metadata) is not None else []),
        ]
        return "; ".join([", and ".join([keys, *changes]), *self._published, *([picked] if picked else [])])

    def foresee_new(self) -> str:
        """Return, in words, how a new table is written, as `foresee`."""
        keys = {key.lower() for key in self._options.keys}
        terms = self._sink.partition_by or ()
        with self._naming():
            are_global = any(term.source.lower() not in keys for term in terms)
            picked = _pick_for(self._sink.readers, self._offered, are_global=are_global)
        return "; ".join([f"by key ({', '.join(self._options.keys)})", *self._published, *([picked] if picked else [])])

    @property
    def _published(self) -> list[str]:
        return ["readers get them with their deletes converted"] if self._sink.publish_converted else []

    def _pick(self, metadata: TableMetadata) -> str:
        return _pick(self._sink, metadata, self._feed(metadata), self._offered) if self._sink.readers else ""

    def announce(self, metadata: TableMetadata) -> None:
        """Say in the log which deletes the named readers will meet."""
        if picked := self._pick(metadata):
            logger.info("Writing to %s: %s", self._name, picked)

    def _feed(self, metadata: TableMetadata) -> ChangeFeed:
        return self._check(self._options, metadata.schema(), metadata.format_version)

    def _check(self, options: FeedOptions, table: Schema, format_version: int) -> ChangeFeed:
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


def why_not_keyed(options: SinkOptions, metadata: TableMetadata) -> str | None:
    """Return why a table cannot be written by the keys of `options`, whatever the DataFrame; None if it can."""
    if options.keys is None:
        return None
    asked = FeedOptions(keys=options.keys, evolve_keys=options.evolve_keys, case_sensitive=options.case_sensitive)
    try:
        feed = make_feed(asked, metadata.schema(), metadata.schema(), format_version=metadata.format_version)
        _pick(options, metadata, feed, _offered(options, looks_for_rows=False))
    except ValueError as problem:
        return str(problem)
    return None


def _offered(options: SinkOptions, *, looks_for_rows: bool) -> tuple[DeleteEncoding, ...]:
    """Return how old rows may be taken away, the best way first."""
    if options.publish_converted:
        return ("position",)  # is what readers meet
    if not looks_for_rows:
        return ("equality",)
    return ("copy-on-write",) if options.delete_encoding == "copy-on-write" else ("position",)


def _pick(options: SinkOptions, metadata: TableMetadata, feed: ChangeFeed, offered: Sequence[DeleteEncoding]) -> str:
    """Return in words which deletes the named readers will meet; raise ValueError if one of them cannot read them."""
    spec = delete_spec(metadata.specs(), metadata.spec(), feed)
    is_by_partition = spec is not None and (not spec.is_unpartitioned() or len(metadata.specs()) == 1)
    # Deletes of one partition reach files of the same spec only.
    will_evolve = options.evolve_partitioning and not describes(
        options.partition_by or (), metadata.spec(), metadata.schema()
    )
    return _pick_for(options.readers, offered, are_global=not is_by_partition or will_evolve)


def _pick_for(readers: Sequence[str], offered: Sequence[DeleteEncoding], *, are_global: bool) -> str:
    if not readers:
        return ""
    names = ", ".join(readers)
    try:
        encoding = pick_encoding(readers, format_version=_KEYED_VERSION, are_global=are_global, offered=offered)
    except ValueError as problem:
        by_partition = unable_readers(readers, "equality", format_version=_KEYED_VERSION, are_global=False)
        remedy = "" if by_partition or not are_global else "let all partition columns be keys, or "
        raise ValueError(
            f"option 'readers' is {names}, and {problem}: {remedy}give publish-converted=true, or write with "
            "iceberg_ds.upsert(df, table, ...) or foreachBatch(iceberg_ds.upsert_into(...)), which need no such "
            "deletes, or let others read what iceberg_ds.convert_deletes makes of them, without this option"
        ) from None
    return f"delete-encoding={encoding}: {describe(encoding, are_global=are_global)}, which {names} can read"
