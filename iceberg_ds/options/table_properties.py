"""Pure: which values Iceberg accepts for each table property, and what is wrong with the properties of a new table.

`TYPES` has a line for every property of Java's `TableProperties`, `COLUMN_TYPES` one for each family of properties that
are set for a column. A property that neither names is the user's own and may be any text. Iceberg's runtime parses most
of them when a table is loaded or written, and refuses the table, even to read it, if one does not parse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json

from iceberg_ds.options.sink_options import COMPRESSION_CODECS
from iceberg_ds.parsing import boolean, location, one_of
from iceberg_ds.secrets import refused_value
from iceberg_ds.table.metrics_config import METRICS_PREFIX, parse_mode
from iceberg_ds.table.names import AmbiguousNameError, find_position

Check: TypeAlias = Callable[[str], object]
"""Raises ValueError, with what it expects, for a value that is none of the property's."""

# Iceberg shows these beside a table's properties, and refuses a new table that sets one.
RESERVED = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)

_METRICS_OF_COLUMN = f"{METRICS_PREFIX}column."
_INT, _LONG = 2**31 - 1, 2**63 - 1
_BROTLI, _GZIP = "brotli", "gzip"
_GZIP_LEVELS = range(-1, 10)
# How many rows Parquet's own writer takes before it checks the size of a row group, unless a table says otherwise.
_FEWEST_ROWS, _MOST_ROWS = 100, 10_000


def _number(least: int, most: int) -> Check:
    """Return the check of a whole number in digits of ASCII, without spaces around them."""

    def check(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or not least <= int(text) <= most:
            raise ValueError(f"expected a whole number{f' from {least} to {most}' if least >= 0 else ''}")
        return int(text)

    return check


_COUNT, _AMOUNT = _number(0, _INT), _number(1, _INT)
_BUFFER = _number(64, _INT)  # those of Parquet's own writer begin with 64 bytes
_BLOOM_FILTER = _number(32, _INT)  # Parquet's have no fewer bytes
_LONG_COUNT, _LONG_AMOUNT = _number(0, _LONG), _number(1, _LONG)
_INTEGER = _number(-_INT - 1, _INT)


def _share(text: str) -> float:
    """Return a share of false positives."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1 or text != text.strip() or "_" in text or not text.isascii():
        raise ValueError("expected a number above 0 and below 1")
    return share


def _any(text: str) -> str:
    return text


def _name_mapping(text: str) -> object:
    try:
        mapping = parse_mapping_from_json(text)
    except ValueError:
        raise ValueError(
            'expected a name mapping in JSON, such as [{"field-id": 1, "names": ["id"]}]; drop it for a table whose '
            "files all have field ids, as those of this sink"
        ) from None
    for kind, found in (("field id", _mapped_ids(mapping.root)), ("name", _mapped_names(mapping.root))):
        if several := sorted(str(one) for one, count in Counter(found).items() if count > 1):
            raise ValueError(f"expected each {kind} once in the name mapping, and {', '.join(several)} is there again")
    return mapping


def _mapped_ids(fields: Iterable[MappedField]) -> Iterator[int | None]:
    for field in fields:
        yield from (field.field_id, *_mapped_ids(field.fields))


def _mapped_names(fields: Iterable[MappedField]) -> Iterator[str]:
    """Yield the whole names of the fields, such as `place.city`."""
    for field in fields:
        # PyIceberg's default for a field without names is no list.
        for name in set(field.names) if isinstance(field.names, list) else ():
            yield from (name, *(f"{name}.{inner}" for inner in _mapped_names(field.fields)))


def _metrics_mode(text: str) -> object:
    if text != text.strip():
        raise ValueError("expected none, counts, truncate(n) or full, without spaces")
    return parse_mode(text)


def _page_version(text: str) -> str:
    """Return a version of pages; its case counts."""
    if text not in ("v1", "v2"):
        raise ValueError("expected v1 or v2")
    return text


def _parquet_codec(text: str) -> str:
    if text.lower() == _BROTLI:
        raise ValueError(
            "Iceberg's Spark runtime neither reads nor writes it: take zstd, or give option 'compression-codec' to "
            "each write if all readers know it"
        )
    return one_of(*(codec for codec in COMPRESSION_CODECS if codec != _BROTLI))(text)


def _not_of_new_tables(reason: str) -> Check:
    """Return the check of a property that a new table may not have, no matter its value."""

    def check(_text: str) -> object:
        raise ValueError(reason)

    return check


_FORMAT = one_of("parquet", "avro", "orc")
_AVRO_CODEC = one_of("uncompressed", "snappy", "gzip", "zstd")
_ORC_CODEC = one_of("none", "zlib", "snappy", "lzo", "lz4", "zstd", "brotli")
_STRATEGY = one_of("speed", "compression")
_DISTRIBUTION = one_of("none", "hash", "range")
_ISOLATION = one_of("serializable", "snapshot")
_MODE = one_of("copy-on-write", "merge-on-read")
_PLANNING = one_of("auto", "local", "distributed")

_OLD_PLACE = _not_of_new_tables(
    "Iceberg's Spark runtime refuses to write into a table with it, and this sink pays no heed to it: set "
    "write.data.path"
)
NOT_OF_NEW_TABLES: Mapping[str, Check] = {
    "write.object-storage.path": _OLD_PLACE,
    "write.folder-storage.path": _OLD_PLACE,
    "encryption.data-key-length": _not_of_new_tables(
        "it is for encrypted tables of format version 3, which this sink does not write, and Iceberg's Spark runtime "
        "makes no other table with it: drop the option"
    ),
}

TYPES: Mapping[str, Check] = {
    **NOT_OF_NEW_TABLES,
    "comment": _any,
    "commit.retry.num-retries": _COUNT,
    "commit.retry.min-wait-ms": _COUNT,
    "commit.retry.max-wait-ms": _COUNT,
    "commit.retry.total-timeout-ms": _COUNT,
    "commit.status-check.num-retries": _COUNT,
    "commit.status-check.min-wait-ms": _LONG_COUNT,
    "commit.status-check.max-wait-ms": _LONG_COUNT,
    "commit.status-check.total-timeout-ms": _LONG_COUNT,
    "commit.manifest.target-size-bytes": _LONG_AMOUNT,
    "commit.manifest.min-count-to-merge": _COUNT,
    "commit.manifest-merge.enabled": boolean,
    "write.format.default": _FORMAT,
    "write.delete.format.default": _FORMAT,
    "write.parquet.row-group-size-bytes": _AMOUNT,
    "write.delete.parquet.row-group-size-bytes": _AMOUNT,
    "write.parquet.page-size-bytes": _BUFFER,
    "write.delete.parquet.page-size-bytes": _BUFFER,
    "write.parquet.page-version": _page_version,
    "write.delete.parquet.page-version": _page_version,
    "write.parquet.page-row-limit": _AMOUNT,
    "write.delete.parquet.page-row-limit": _AMOUNT,
    "write.parquet.dict-size-bytes": _BUFFER,
    "write.delete.parquet.dict-size-bytes": _BUFFER,
    "write.parquet.compression-codec": _parquet_codec,
    "write.delete.parquet.compression-codec": _parquet_codec,
    "write.parquet.compression-level": _INTEGER,
    "write.delete.parquet.compression-level": _INTEGER,
    "write.parquet.shred-variants": boolean,
    "write.parquet.variant-inference-buffer-size": _AMOUNT,
    "write.parquet.row-group-check-min-record-count": _AMOUNT,
    "write.delete.parquet.row-group-check-min-record-count": _AMOUNT,
    "write.parquet.row-group-check-max-record-count": _AMOUNT,
    "write.delete.parquet.row-group-check-max-record-count": _AMOUNT,
    "write.parquet.row-group-size-track-uncompressed": boolean,
    "write.parquet.bloom-filter-max-bytes": _BLOOM_FILTER,
    "write.parquet.bloom-filter-adaptive-enabled": boolean,
    "write.avro.compression-codec": _AVRO_CODEC,
    "write.delete.avro.compression-codec": _AVRO_CODEC,
    "write.avro.compression-level": _INTEGER,
    "write.delete.avro.compression-level": _INTEGER,
    "write.manifest.compression-codec": _AVRO_CODEC,
    "write.manifest.compression-level": _INTEGER,
    "write.orc.stripe-size-bytes": _LONG_AMOUNT,
    "write.delete.orc.stripe-size-bytes": _LONG_AMOUNT,
    "write.orc.bloom.filter.columns": _any,
    "write.orc.bloom.filter.fpp": _share,
    "write.orc.block-size-bytes": _LONG_AMOUNT,
    "write.delete.orc.block-size-bytes": _LONG_AMOUNT,
    "write.orc.vectorized.batch-size": _AMOUNT,
    "write.delete.orc.vectorized.batch-size": _AMOUNT,
    "write.orc.compression-codec": _ORC_CODEC,
    "write.delete.orc.compression-codec": _ORC_CODEC,
    "write.orc.compression-strategy": _STRATEGY,
    "write.delete.orc.compression-strategy": _STRATEGY,
    "read.split.target-size": _LONG_AMOUNT,
    "read.split.metadata-target-size": _LONG_AMOUNT,
    "read.split.planning-lookback": _AMOUNT,
    "read.split.open-file-cost": _LONG_COUNT,
    "read.split.adaptive-size.enabled": boolean,
    "read.parquet.vectorization.enabled": boolean,
    "read.parquet.vectorization.batch-size": _AMOUNT,
    "read.orc.vectorization.enabled": boolean,
    "read.orc.vectorization.batch-size": _AMOUNT,
    "read.data-planning-mode": _PLANNING,
    "read.delete-planning-mode": _PLANNING,
    "identifier-fields.rely": boolean,
    "write.object-storage.enabled": boolean,
    "write.object-storage.partitioned-paths": boolean,
    "write.location-provider.impl": _any,
    "write.data.path": location,
    "write.metadata.path": location,
    "write.summary.partition-limit": _COUNT,
    "write.metadata.compression-codec": one_of("none", "gzip"),
    "write.metadata.previous-versions-max": _INTEGER,
    "write.metadata.delete-after-commit.enabled": boolean,
    "write.metadata.metrics.max-inferred-column-defaults": _COUNT,
    "write.metadata.metrics.default": _metrics_mode,
    "schema.name-mapping.default": _name_mapping,
    "write.wap.enabled": boolean,
    "write.target-file-size-bytes": _LONG_AMOUNT,
    "write.delete.target-file-size-bytes": _LONG_AMOUNT,
    "write.spark.fanout.enabled": boolean,
    "write.spark.accept-any-schema": boolean,
    "write.spark.auto-schema-evolution.enabled": boolean,
    "write.spark.advisory-partition-size-bytes": _LONG_AMOUNT,
    "compatibility.snapshot-id-inheritance.enabled": boolean,
    "engine.hive.enabled": boolean,
    "engine.hive.lock-enabled": boolean,
    "write.distribution-mode": _DISTRIBUTION,
    "gc.enabled": boolean,
    "history.expire.max-snapshot-age-ms": _LONG_COUNT,
    "history.expire.min-snapshots-to-keep": _AMOUNT,
    "history.expire.max-ref-age-ms": _LONG_COUNT,
    "write.delete.granularity": one_of("file", "partition"),
    "write.delete.isolation-level": _ISOLATION,
    "write.delete.mode": _MODE,
    "write.delete.distribution-mode": _DISTRIBUTION,
    "write.update.isolation-level": _ISOLATION,
    "write.update.mode": _MODE,
    "write.update.distribution-mode": _DISTRIBUTION,
    "write.merge.isolation-level": _ISOLATION,
    "write.merge.mode": _MODE,
    "write.merge.distribution-mode": _DISTRIBUTION,
    "write.upsert.enabled": boolean,
    "encryption.key-id": _any,
}

COLUMN_TYPES: Mapping[str, Check] = {
    _METRICS_OF_COLUMN: _metrics_mode,
    "write.parquet.bloom-filter-enabled.column.": boolean,
    "write.parquet.bloom-filter-fpp.column.": _share,
    "write.parquet.bloom-filter-ndv.column.": _LONG_AMOUNT,
    "write.parquet.stats-enabled.column.": boolean,
    "write.parquet.dict-encoding-enabled.column.": boolean,
}


def new_table_properties(given: Mapping[str, str], schema: Schema) -> dict[str, str]:
    """Return properties for a new table, with column names spelled as in the table.

    Args:
        given: Properties from the options of a write; Spark has put their names into lower case.
        schema: The new table's columns.

    Raises:
        ValueError: Iceberg could not use the table with one of them; lists all reasons.
    """
    problems: list[str] = []
    properties: dict[str, str] = {}
    for name, value in given.items():
        try:
            properties[_checked(name, value, schema)] = value
        except ValueError as problem:
            problems.append(f"option 'table-property.{name}' is {refused_value(value, str(problem))}")
    problems += [*_levels_of_gzip(properties), *_levels_in_avro(properties), *_checks_of_row_groups(properties)]
    if problems:
        raise ValueError("; ".join(problems))
    return properties


def _levels_of_gzip(properties: Mapping[str, str]) -> list[str]:
    """Return what is wrong with gzip levels, which Iceberg's runtime takes as words that no other library knows."""
    of_data, of_deletes = "write.parquet.compression-", "write.delete.parquet.compression-"
    codec = properties.get(f"{of_data}codec", _GZIP)  # Iceberg's default
    codecs = {of_data: codec, of_deletes: properties.get(f"{of_deletes}codec", codec)}
    return [
        f"option 'table-property.{kind}level' is {properties[f'{kind}level']!r}: Iceberg's Spark runtime takes no "
        f"number as the level of gzip, the codec of a table that names none: give table-property.{kind}codec=zstd "
        "beside it, or option 'compression-level' to each write"
        for kind, codec in codecs.items()
        if f"{kind}level" in properties and codec.lower() == _GZIP
    ]


def _levels_in_avro(properties: Mapping[str, str]) -> list[str]:
    """Return what is wrong with gzip levels of Avro files, manifests among them; Avro knows levels up to 9."""
    of_data = properties.get("write.avro.compression-codec", _GZIP)  # Iceberg's default
    codecs = {
        "write.avro.compression-": of_data,
        "write.delete.avro.compression-": properties.get("write.delete.avro.compression-codec", of_data),
        "write.manifest.compression-": properties.get("write.manifest.compression-codec", _GZIP),
    }
    return [
        f"option 'table-property.{kind}level' is {properties[f'{kind}level']!r}: expected one from {_GZIP_LEVELS[0]} "
        f"to {_GZIP_LEVELS[-1]}, which gzip has, the codec of a table that names none"
        for kind, codec in codecs.items()
        if codec.lower() == _GZIP and int(properties.get(f"{kind}level", "0")) not in _GZIP_LEVELS
    ]


def _checks_of_row_groups(properties: Mapping[str, str]) -> list[str]:
    """Return where the first size check of a row group comes after more rows than any check may."""
    problems = []
    least, most = _FEWEST_ROWS, _MOST_ROWS
    for kind in ("write.parquet.", "write.delete.parquet."):
        keys = [f"{kind}row-group-check-{end}-record-count" for end in ("max", "min")]
        most, least = (int(properties.get(key, text)) for key, text in zip(keys, (most, least), strict=True))
        named = next((key for key in keys if key in properties), None)
        if named is not None and least > most:
            problems.append(
                f"option 'table-property.{named}' is {properties[named]!r}: Parquet's own writer asks after {least} "
                f"rows at first and {most} at most how large a row group is: set the other one beside it"
            )
    return problems


def wrong_values(properties: Mapping[str, str]) -> list[str]:
    """Return what is wrong with table properties, a sentence for each that Iceberg does not accept."""
    problems = []
    for name, value in properties.items():
        try:
            TYPES.get(name, _any)(value)
        except ValueError as problem:
            problems.append(f"property {name} is {refused_value(value, str(problem))}")
    return problems


def _checked(name: str, value: str, schema: Schema) -> str:
    """Return the property's name; raise ValueError if it may not be set, or not to this value."""
    if name in RESERVED:
        raise ValueError("Iceberg keeps that name for what it tells of a table, and sets it itself: drop the option")
    prefix = next((prefix for prefix in COLUMN_TYPES if name.startswith(prefix)), None)
    if prefix is not None:
        COLUMN_TYPES[prefix](value)
        return prefix + _column(name.removeprefix(prefix), schema, must_exist=prefix == _METRICS_OF_COLUMN)
    TYPES.get(name, _any)(value)
    return name


def _column(name: str, schema: Schema, *, must_exist: bool) -> str:
    """Return the table's spelling of a column, nested ones too; raise ValueError if a required column is missing."""
    names = schema.column_names
    try:
        position = find_position(name, names)
    except AmbiguousNameError as several:
        raise ValueError(f"{several}: set the property in the table's catalog instead") from None
    if position is None and must_exist:
        raise ValueError(f"the table has no column '{name}', and Iceberg refuses such a table: correct or drop it")
    return name if position is None else names[position]
