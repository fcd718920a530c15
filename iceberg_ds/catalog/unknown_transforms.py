"""Pure: transforms of partition fields and sort orders that PyIceberg does not know keep their names.

PyIceberg 0.12 writes `unknown` for each of them where a client writes the metadata, as for SQL catalogs, Hive and Glue:
the engine that knows the transform would not find it again. Source: Iceberg spec, "Partition Transforms".
"""

from __future__ import annotations

import ast
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import UnknownTransform


class NamedTransform(UnknownTransform[Any, Any]):
    """A transform that is not known, under the name that it has."""

    root: str  # type: ignore[assignment]  # PyIceberg's is always "unknown"


def with_named_transforms(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with the names of all transforms; itself if all are known."""
    having: tuple[PartitionSpec | SortOrder, ...] = (*metadata.partition_specs, *metadata.sort_orders)
    if not any(isinstance(field.transform, UnknownTransform) for one in having for field in one.fields):
        return metadata
    found = {name: [_with_names(one) for one in getattr(metadata, name)] for name in ("partition_specs", "sort_orders")}
    return metadata.model_copy(update=found)


def _with_names(one: Any) -> Any:  # noqa: ANN401  # a partition spec, or a sort order
    return one.model_copy(update={"fields": type(one.fields)(map(_named, one.fields))})  # a list, or a tuple


def _named(field: PartitionField | SortField) -> PartitionField | SortField:
    transform = field.transform
    if not isinstance(transform, UnknownTransform):
        return field
    # What it prints is the one public place of its name.
    name = ast.literal_eval(repr(transform).removeprefix("UnknownTransform(transform=").removesuffix(")"))
    return field.model_copy(update={"transform": NamedTransform(transform=name, root=name)})
