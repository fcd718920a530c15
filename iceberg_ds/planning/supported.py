"""Which tables can be written at all, whatever the write."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.io.places import misplaced
from iceberg_ds.options.file_settings import metrics_properties
from iceberg_ds.options.table_properties import wrong_values
from iceberg_ds.table.locations import PROVIDER, why_not_trusted
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.table.partitioning import PartitionSplitter, why_not_readable
from iceberg_ds.table.sort_order import RowOrder

_SUPPORTED_FORMAT_VERSIONS = (1, 2)
_JAVA_LOCATION_PROVIDER = "write.location-provider.impl"
# What a wrong value of fails in the middle of a write, or sends files to a place that nobody else finds. An empty one
# counts as not set.
_READ_WHILE_WRITING = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.enabled",
    "write.object-storage.partitioned-paths",
    "write.metadata.previous-versions-max",
)
_ENCRYPTION_KEY = "encryption.key-id"


def check_supported(metadata: TableMetadata, name: str, asked: Mapping[str, str]) -> None:
    """Refuse a table that cannot be written without breaking it.

    Args:
        metadata: The table.
        name: Its identifier, for messages.
        asked: The properties of tables that the user's options name.

    Raises:
        UnsupportedTableError: Says all reasons.
    """
    properties = metadata.properties
    problems = misplaced(metadata.location, properties)
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
            f"which cannot be run here: PyIceberg's {PROVIDER} can"
        )
    if (distrust := why_not_trusted(properties, asked)) is not None:
        problems.append(distrust)
    problems += wrong_values({name: properties[name] for name in _READ_WHILE_WRITING if properties.get(name)})
    try:
        problems += why_not_readable(metadata.spec(), metadata.schema())
        PartitionSplitter(metadata.spec(), metadata.schema())
        RowOrder(metadata.sort_order(), metadata.schema())
        leaf_columns(metadata.schema(), metrics_properties(metadata))
    except ValueError as problem:
        problems.append(str(problem))
    if problems:
        raise UnsupportedTableError(f"Cannot write to {name}: {'; '.join(problems)}.")
