"""`plan_write`: every decision and every refusal, on the driver, before any task runs.

What an option does not say, the table's property says, else the default. Loads the table once; the
result is a frozen value that tasks get.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.types import StructType

from iceberg_ds.catalog import CatalogClient
from iceberg_ds.errors import OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.leaves import METRICS_PREFIX, leaf_columns
from iceberg_ds.options import COMPRESSION_CODECS, SinkOptions
from iceberg_ds.partitioning import PartitionSplitter
from iceberg_ds.plan import FileSettings, WritePlan
from iceberg_ds.schema import check_fits, iceberg_schema
from iceberg_ds.secrets import storage_properties

MAIN_BRANCH = "main"
_SUPPORTED_FORMAT_VERSIONS = (1, 2)
_LEVELLED_CODECS = ("zstd", "gzip", "brotli")
_JAVA_LOCATION_PROVIDER = "write.location-provider.impl"
_ENCRYPTION_KEY = "encryption.key-id"
_SIGNED_64_BIT = 0x7FFF_FFFF_FFFF_FFFF


def plan_write(catalog: CatalogClient, options: SinkOptions, dataframe: StructType) -> WritePlan:
    """Decide how `dataframe` is written, and refuse what cannot be.

    Raises:
        OptionError: Options and table properties contradict each other.
        SchemaMismatchError: A column does not fit.
        TableNotFoundError: The table is missing and `create-table` is false.
        UnsupportedTableError: The table cannot be written without breaking it.
        CatalogError: The catalog could not be reached.
    """
    name = ".".join(options.table)
    table = catalog.find_table(options.table)
    if table is not None:
        metadata = table.metadata
        io_properties = storage_properties(table.io.properties)
        _check_supported(metadata, name)
        check_fits(dataframe, metadata.schema(), table_name=name)
    else:
        metadata = _stage(catalog, options, dataframe)
        io_properties = catalog.io_properties
    operation_id = uuid.uuid4()
    return WritePlan(
        table=name,
        table_uuid=str(metadata.table_uuid),
        branch=MAIN_BRANCH,
        schema=metadata.schema(),
        spec=metadata.spec(),
        location=metadata.location,
        properties={key: value for key, value in metadata.properties.items() if key.startswith("write.")},
        io_properties=io_properties,
        operation_id=str(operation_id),
        snapshot_id=(operation_id.int & _SIGNED_64_BIT) or 1,
        files=_file_settings(options, metadata, name),
        new_table=metadata.model_dump_json() if table is None else None,
    )


def _stage(catalog: CatalogClient, options: SinkOptions, dataframe: StructType) -> TableMetadata:
    if not options.create_table:
        raise TableNotFoundError(
            f"Table {'.'.join(options.table)} does not exist in {catalog!r}, and option 'create-table' is false: "
            "create it, or allow its creation with create-table=true."
        )
    return catalog.stage_table(options.table, iceberg_schema(dataframe))


def _check_supported(metadata: TableMetadata, name: str) -> None:
    properties = metadata.properties
    problems = []
    if metadata.format_version not in _SUPPORTED_FORMAT_VERSIONS:
        problems.append(f"its format version is {metadata.format_version}, and versions 1 and 2 can be written")
    if _ENCRYPTION_KEY in properties:
        problems.append(f"it is encrypted (property {_ENCRYPTION_KEY}), and this sink would write plain files")
    file_format = properties.get("write.format.default", "parquet")
    if file_format.lower() != "parquet":
        problems.append(f"property write.format.default asks for {file_format}, and only parquet can be written")
    if _JAVA_LOCATION_PROVIDER in properties:
        problems.append(
            f"property {_JAVA_LOCATION_PROVIDER} names the Java class {properties[_JAVA_LOCATION_PROVIDER]}, "
            "which cannot be run here: PyIceberg's write.py-location-provider.impl can"
        )
    try:
        PartitionSplitter(metadata.spec(), metadata.schema())
        leaf_columns(metadata.schema(), _metrics_properties(metadata))
    except ValueError as problem:
        problems.append(str(problem))
    if problems:
        raise UnsupportedTableError(f"Cannot write to {name}: {'; '.join(problems)}.")


def _file_settings(options: SinkOptions, metadata: TableMetadata, name: str) -> FileSettings:
    properties = metadata.properties
    codec = (
        options.compression_codec
        or properties.get(TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT).lower()
    )
    if codec not in COMPRESSION_CODECS:
        raise UnsupportedTableError(
            f"Cannot write to {name}: property {TableProperties.PARQUET_COMPRESSION} is {codec!r}, "
            f"expected one of {', '.join(COMPRESSION_CODECS)}. Option 'compression-codec' overrides it."
        )
    return FileSettings(
        target_file_size_bytes=options.target_file_size_bytes
        or _positive(properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, _default_target_file_size(), name),
        compression_codec=codec,
        compression_level=_compression_level(options, metadata, codec, name),
        metrics_properties=_metrics_properties(metadata),
    )


def _default_target_file_size() -> int:
    return int(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)


def _positive(properties: dict[str, str], key: str, default: int, name: str) -> int:
    text = properties.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise UnsupportedTableError(f"Cannot write to {name}: property {key} is {text!r}, expected a number above 0.")
    return int(text)


def _metrics_properties(metadata: TableMetadata) -> dict[str, str]:
    return {key: value for key, value in metadata.properties.items() if key.startswith(METRICS_PREFIX)}


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
