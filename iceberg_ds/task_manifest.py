"""`TaskManifest`: a manifest that a task wrote, and all that the commit needs to know of the files in it.

Imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What data files sum up to.

    Attributes:
        files: How many they are.
        rows: How many rows they have.
        size_bytes: Their size.
        partitions: The same three figures for each partition, by its path; empty for an unpartitioned spec.
    """

    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManifest:
    """A manifest that adds the data files of one task.

    Attributes:
        file: Its entry in a manifest list.
        format_version: The table format that it is written in.
        totals: What its files sum up to.
        example: Path and size in bytes of one of its files.
    """

    file: ManifestFile
    format_version: int
    totals: Totals
    example: tuple[str, int]

    @property
    def path(self) -> str:
        """Where the manifest is."""
        return self.file.manifest_path
