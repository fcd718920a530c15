"""What the tasks of a write added: files that they name one by one, and manifests that name further data files."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from iceberg_ds.commits.manifest_reader import live_entries
from iceberg_ds.messages import TaskCommit
from iceberg_ds.secrets import mask_text
from iceberg_ds.task_manifest import TaskManifest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Added:
    """The files of one write.

    Attributes:
        data_files: Those of rows that messages name.
        manifests: Manifests that name the others of rows.
        delete_files: Those of deletes, by keys or by position.
    """

    data_files: tuple[DataFile, ...]
    manifests: tuple[TaskManifest, ...] = ()
    delete_files: tuple[DataFile, ...] = ()

    @classmethod
    def of(cls, commits: Sequence[TaskCommit]) -> Added:
        """Return what the tasks report."""
        return cls(
            tuple(itertools.chain.from_iterable(commit.data_files for commit in commits)),
            tuple(itertools.chain.from_iterable(commit.manifests for commit in commits)),
            tuple(itertools.chain.from_iterable(commit.delete_files for commit in commits)),
        )

    def with_files(self, data_files: Iterable[DataFile] = (), delete_files: Iterable[DataFile] = ()) -> Added:
        """Return these and further files of rows, and of deletes."""
        return replace(
            self,
            data_files=(*self.data_files, *data_files),
            delete_files=(*self.delete_files, *delete_files),
        )

    def without(self, data_files: Iterable[DataFile]) -> Added:
        """Return all but these files of rows."""
        paths = {data_file.file_path for data_file in data_files}
        return replace(self, data_files=tuple(found for found in self.data_files if found.file_path not in paths))

    def __bool__(self) -> bool:
        return bool(self.files or self.manifests)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files that messages name, of rows and of deletes."""
        return (*self.data_files, *self.delete_files)

    @cached_property
    def file_count(self) -> int:
        """How many files of rows and of deletes these are."""
        return len(self.files) + sum(manifest.totals.files for manifest in self.manifests)

    @cached_property
    def record_count(self) -> int:
        """How many rows they have; deletes are none."""
        named = sum(data_file.record_count for data_file in self.data_files)
        return named + sum(manifest.totals.rows for manifest in self.manifests)

    @cached_property
    def size_bytes(self) -> int:
        """Their size, without the manifests'."""
        named = sum(data_file.file_size_in_bytes for data_file in self.files)
        return named + sum(manifest.totals.size_bytes for manifest in self.manifests)

    @cached_property
    def spec_ids(self) -> set[int]:
        """Their partition specs."""
        named = {data_file.spec_id for data_file in self.files}
        return named | {manifest.file.partition_spec_id for manifest in self.manifests}

    @property
    def manifest_paths(self) -> list[str]:
        """Where the manifests are."""
        return [manifest.path for manifest in self.manifests]

    def any_path(self) -> str | None:
        """Return where one of the files is, None if there is none."""
        return next((path for path, _ in self.told_sizes()), None)

    def told_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield path and size of each file that messages name, the manifests and a data file of each among them."""
        for data_file in self.files:
            yield data_file.file_path, data_file.file_size_in_bytes
        for manifest in self.manifests:
            yield manifest.path, manifest.file.manifest_length
            yield manifest.example

    def every_path(self, io: FileIO) -> list[str]:
        """Return every file to delete if the write is given up: the named ones, and the manifests after them.

        A manifest that cannot be read stays, because nothing else tells what it names; that is logged.
        """
        paths = [data_file.file_path for data_file in self.files]
        read = []
        for manifest in self.manifests:
            try:
                paths += [data_file.file_path for data_file in _files_in(io, manifest)]
            except Exception as problem:  # of whatever storage library; the caller has its own outcome to report
                reason = mask_text(f"{type(problem).__name__}: {problem}", io.properties)
                logger.warning(
                    "Left behind %s and the %d files that it names, which no table refers to: it cannot be read: %s",
                    manifest.path,
                    manifest.totals.files,
                    reason,
                )
            else:
                read.append(manifest.path)
        return [*paths, *read]

    def one_by_one(self, io: FileIO) -> Added:
        """Return the same files without manifests, those that the manifests name read from there."""
        read = (found for manifest in self.manifests for found in _files_in(io, manifest))
        return replace(self.with_files(read), manifests=())


def _files_in(io: FileIO, manifest: TaskManifest) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(io, manifest.file)]
