"""Pure: transforms of partition fields and sort orders that PyIceberg does not know keep their names.

PyIceberg 0.12 writes `unknown` for each of them where a client writes the metadata, as for SQL catalogs, Hive and Glue:
the engine that knows the transform would not find it again. Source: Iceberg spec, "Partition Transforms".
"""

from __future__ import annotations

import ast
from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import UnknownTransform


class NamedTransform(UnknownTransform[Any, Any]):
    """A transform that is not known, under the name that it has."""

    root: str  # type: ignore[assignment]  # PyIceberg's is always "unknown"


def with_named_transforms(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with the names of all transforms; itself if all are known."""
    found: dict[str, list[Any]] = {"partition_specs": [], "sort_orders": []}
    changed = False
    for name, kept in found.items():
        for one in getattr(metadata, name):
            fields = type(one.fields)(_named(field) for field in one.fields)  # a list, or a tuple
            is_same = fields == one.fields
            changed = changed or not is_same
            kept.append(one if is_same else one.model_copy(update={"fields": fields}))
    return metadata.model_copy(update=found) if changed else metadata


def _named(field: PartitionField | SortField) -> PartitionField | SortField:
    transform = field.transform
    if not isinstance(transform, UnknownTransform) or isinstance(transform, NamedTransform):
        return field
    # What it prints is the one public place of its name.
    name = ast.literal_eval(repr(transform).removeprefix("UnknownTransform(transform=").removesuffix(")"))
    return field.model_copy(update={"transform": NamedTransform(transform=name, root=name)})
