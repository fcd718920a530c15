"""How data files are written: the options, else the table's properties, else the defaults, as `FileSettings`.

Runs on the driver, before any task; refuses what no file could be written with. Reads neither catalog
nor storage.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.leaves import METRICS_PREFIX
from iceberg_ds.option_table import COMPRESSION_CODECS
from iceberg_ds.options import SinkOptions
from iceberg_ds.plan import FileSettings

_LEVELLED_CODECS = ("zstd", "gzip", "brotli")
_DEFAULTS = FileSettings(
    target_file_size_bytes=int(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT),
    compression_codec=TableProperties.PARQUET_COMPRESSION_DEFAULT,
    compression_level=None,
    metrics_properties={},
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
    return FileSettings(
        target_file_size_bytes=options.target_file_size_bytes
        or _positive(
            metadata.properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            _DEFAULTS.target_file_size_bytes,
            name,
        ),
        compression_codec=codec,
        compression_level=_compression_level(options, metadata, codec, name),
        metrics_properties=metrics_properties(metadata),
        max_open_files=options.max_open_files or _DEFAULTS.max_open_files,
    )


def metrics_properties(metadata: TableMetadata) -> dict[str, str]:
    """Return the table's `write.metadata.metrics.*` properties."""
    return {key: value for key, value in metadata.properties.items() if key.startswith(METRICS_PREFIX)}


def _positive(properties: dict[str, str], key: str, default: int, name: str) -> int:
    text = properties.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise UnsupportedTableError(f"Cannot write to {name}: property {key} is {text!r}, expected a number above 0.")
    return int(text)


def _compression_codec(options: SinkOptions, metadata: TableMetadata, name: str) -> str:
    codec = (
        options.compression_codec
        or metadata.properties.get(TableProperties.PARQUET_COMPRESSION, _DEFAULTS.compression_codec).lower()
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
