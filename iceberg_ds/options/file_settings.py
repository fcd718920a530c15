"""What a new write gets from its options, its table's properties and the defaults: identity, and settings of files.

Runs on the driver, before any task; refuses settings with which no file could be written. Reads neither catalog
nor storage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BooleanType, IcebergType

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.options.sink_options import COMPRESSION_CODECS, SinkOptions
from iceberg_ds.parsing import boolean
from iceberg_ds.plan import FileSettings, Fingerprint, Route, WriteIdentity, new_operation
from iceberg_ds.table.locations import trusted_provider
from iceberg_ds.table.metrics_config import METRICS_PREFIX
from iceberg_ds.table.names import identifier_text
from iceberg_ds.writers.parquet import BLOOM_FILTERS, PAGE_ROW_LIMIT, can_honour

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_BLOOM_FILTER = "write.parquet.bloom-filter-"
_BLOOM_FILTER_ENABLED = f"{TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX}."
_BLOOM_FILTER_FPP = f"{_BLOOM_FILTER}fpp.column."
_BLOOM_FILTER_NDV = f"{_BLOOM_FILTER}ndv.column."
_DEFAULT_FPP = 0.01
_MOST = 2**31 - 1  # Iceberg's own writers read these properties as 32-bit integers
_DELETE_FILE_SIZE = "write.delete.target-file-size-bytes"
_LEVELLED_CODECS = ("zstd", "gzip", "brotli")
_DELETE_FILE_SIZE_DEFAULT = 64 * 1024 * 1024


def new_write(
    options: SinkOptions, metadata: TableMetadata, route: Route, fingerprint: Fingerprint | None
) -> WriteIdentity:
    """Return the identity of a new write: it appends with the table's present schema, unless the caller changes that.

    Raises:
        OptionError, UnsupportedTableError: As `file_settings`.
    """
    name = identifier_text(options.table)
    operation_id, snapshot_id = new_operation()
    return WriteIdentity(
        table=name,
        table_uuid=str(metadata.table_uuid),
        route=route,
        operation_id=operation_id,
        snapshot_id=snapshot_id,
        schema_id=metadata.current_schema_id,
        files=file_settings(options, metadata, name),
        snapshot_properties=options.snapshot_properties,
        location_provider=trusted_provider(metadata.properties, options.table_properties),
        fingerprint=fingerprint,
    )


def file_settings(options: SinkOptions, metadata: TableMetadata, name: str) -> FileSettings:
    """Decide how the data files of a write are written.

    Args:
        options: The write's options, which win over the table's properties.
        metadata: The table.
        name: Its identifier, for messages.

    Raises:
        OptionError: An option cannot be honoured, or contradicts the table's properties.
        UnsupportedTableError: A property of the table cannot be honoured.
    """
    codec = _compression_codec(options, metadata, name)
    properties = _Properties(metadata.properties, name)
    filters = _bloom_filters(properties, metadata.schema())
    _warn_of_what_cannot_be_honoured(properties, filters)
    return FileSettings(
        target_file_size_bytes=options.target_file_size_bytes
        or properties.positive(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, most=None)
        or int(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT),
        compression_codec=codec,
        compression_level=_compression_level(options, metadata, codec, name),
        parquet_encodings=options.parquet_encodings,
        metrics_properties=metrics_properties(metadata),
        max_open_files=options.max_open_files,
        row_group_size_bytes=properties.positive(TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES),
        page_size_bytes=properties.positive(TableProperties.PARQUET_PAGE_SIZE_BYTES),
        page_row_limit=properties.positive(TableProperties.PARQUET_PAGE_ROW_LIMIT),
        dictionary_size_bytes=properties.positive(TableProperties.PARQUET_DICT_SIZE_BYTES),
        bloom_filter_fpp=filters,
        bloom_filter_ndv=_by_field_id(properties.of_columns(_BLOOM_FILTER_NDV, _positive), metadata.schema()),
        bloom_filter_max_bytes=properties.positive(TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES)
        or TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES_DEFAULT,
        delete_file_size_bytes=(properties.positive(_DELETE_FILE_SIZE, most=None) if options.keys else None)
        or _DELETE_FILE_SIZE_DEFAULT,
    )


class _Properties:
    """A table's properties, parsed.

    Args:
        properties: The properties.
        name: The table's identifier, for messages.
    """

    def __init__(self, properties: Mapping[str, str], name: str) -> None:
        self.name = name
        self._properties = properties

    def __contains__(self, key: str) -> bool:
        return key in self._properties

    def positive(self, key: str, most: int | None = _MOST) -> int | None:
        """Return a number above 0, or None if the table does not have the property."""
        return self._parsed(key, lambda text: _positive(text, most)) if key in self._properties else None

    def of_columns(self, prefix: str, parse: Callable[[str], _T]) -> dict[str, _T]:
        """Return the values of all properties with that prefix, by column name."""
        keys = [key for key in self._properties if key.startswith(prefix)]
        return {key.removeprefix(prefix): self._parsed(key, parse) for key in keys}

    def _parsed(self, key: str, parse: Callable[[str], _T]) -> _T:
        try:
            return parse(self._properties[key])
        except ValueError as problem:
            raise UnsupportedTableError(
                f"Cannot write to {self.name}: property {key} is {self._properties[key]!r}, {problem}."
            ) from None


def _positive(text: str, most: int | None = _MOST) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise ValueError("expected a number above 0")
    if most is not None and int(text) > most:
        raise ValueError(f"expected {most} at most")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ValueError("expected a number above 0 and below 1")
    return share


def _bloom_filters(properties: _Properties, schema: Schema) -> dict[int, float]:
    """Return the share of false positives of each column with a Bloom filter, by field id."""
    shares = properties.of_columns(_BLOOM_FILTER_FPP, _share)
    wanted = [column for column, value in properties.of_columns(_BLOOM_FILTER_ENABLED, boolean).items() if value]
    filters = _by_field_id({column: shares.get(column, _DEFAULT_FPP) for column in wanted}, schema)
    if len(filters) < len(wanted):
        logger.warning(
            "Not all of the columns %s get the Bloom filters that properties %s* of %s ask for: it lacks some, or "
            "they are of a type that has none (boolean, struct, list, map)",
            ", ".join(wanted),
            _BLOOM_FILTER_ENABLED,
            properties.name,
        )
    return filters


def _by_field_id(values: Mapping[str, _T], schema: Schema) -> dict[int, _T]:
    """Return the values of those columns of `schema` that can have a Bloom filter."""
    fields = {schema.find_column_name(field_id): field_id for field_id in schema.field_ids}
    return {
        fields[column]: value
        for column, value in values.items()
        if column in fields and _can_be_filtered(schema.find_type(fields[column]))
    }


def _can_be_filtered(field_type: IcebergType) -> bool:
    return field_type.is_primitive and not isinstance(field_type, BooleanType)


def _warn_of_what_cannot_be_honoured(properties: _Properties, filters: Mapping[int, float]) -> None:
    ignored = []
    if TableProperties.PARQUET_PAGE_ROW_LIMIT in properties and not can_honour(PAGE_ROW_LIMIT):
        ignored.append(TableProperties.PARQUET_PAGE_ROW_LIMIT)
    if filters and not can_honour(BLOOM_FILTERS):
        ignored.append(f"{_BLOOM_FILTER_ENABLED}*")
    if ignored:
        logger.warning(
            "Files of %s are written without regard to its properties %s: pyarrow %s cannot honour them, "
            "newer versions can",
            properties.name,
            ", ".join(ignored),
            pa.__version__,
        )


def metrics_properties(metadata: TableMetadata) -> dict[str, str]:
    """Return the table's `write.metadata.metrics.*` properties."""
    return {key: value for key, value in metadata.properties.items() if key.startswith(METRICS_PREFIX)}


def _compression_codec(options: SinkOptions, metadata: TableMetadata, name: str) -> str:
    codec = (
        options.compression_codec
        or metadata.properties.get(
            TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT
        ).lower()
    )
    if codec not in COMPRESSION_CODECS:
        raise UnsupportedTableError(
            f"Cannot write to {name}: property {TableProperties.PARQUET_COMPRESSION} is {codec!r}, "
            f"expected one of {', '.join(COMPRESSION_CODECS)}. Option 'compression-codec' overrides it."
        )
    return codec


def _compression_level(options: SinkOptions, metadata: TableMetadata, codec: str, name: str) -> int | None:
    """Return the level for `codec`; the table's level only counts for the table's codec."""
    if options.compression_level is not None:
        level, source = options.compression_level, "option 'compression-level'"
    else:
        text = metadata.properties.get(TableProperties.PARQUET_COMPRESSION_LEVEL)
        if text is None or options.compression_codec is not None or codec not in _LEVELLED_CODECS:
            return None
        source = f"property {TableProperties.PARQUET_COMPRESSION_LEVEL}"
        try:
            level = int(text)
        except ValueError:
            raise UnsupportedTableError(f"Cannot write to {name}: {source} is {text!r}, expected a number.") from None
    if codec not in _LEVELLED_CODECS:
        raise OptionError(f"Cannot write to {name}: codec {codec} has no levels, and {source} is {level}: drop it.")
    lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    if not lowest <= level <= highest:
        raise OptionError(
            f"Cannot write to {name}: {source} is {level}, and codec {codec} takes {lowest} to {highest}."
        )
    return level
