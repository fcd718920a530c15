"""Merging of manifests: many small ones become one, so that commits and readers do not slow down with each commit.

The table's properties are those of Iceberg's Java library (`commit.manifest-merge.enabled`, `min-count-to-merge`,
`target-size-bytes`). Manifests with about as many files are merged with each other only, so that an entry is copied
once for each power of the minimum count, and not with each merge.

A stream merges after a commit has landed, beside what Spark does next: the merged manifest waits until the next commit
of this process to the branch, which lists it in place of its source manifests, if all of these are still listed. No
other process knows of it; if this process dies, it is an orphan file. A batch merges in its commit. Only whole
manifests are merged, data manifests with each other and delete manifests with each other, and each entry keeps its
snapshot and its sequence numbers.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.parsing import whole_number
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.manifests import draft_merged, live_entries, live_manifests, metadata_path, write_manifests
from iceberg_ds.snapshots.refs import branch_head
from iceberg_ds.snapshots.version_3 import manifest_first_row_id, with_settled_ids
from iceberg_ds.table.bin_packing import packed

logger = logging.getLogger(__name__)

# A manifest that waits longer may be taken for an orphan file, and be deleted by a clean-up.
_FRESH_S = 3600
# A stream's commit merges by itself only from this many times the manifests that are merged beside the stream.
_LATE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """When manifests are merged.

    Attributes:
        is_enabled: Whether the table asks for it.
        min_count: How many manifests of about one size there are before they are merged, at least 2.
        target_bytes: Manifests of this size are left alone, and those merged into one have no more bytes together.
    """

    is_enabled: bool = False
    min_count: int = 100
    target_bytes: int = 8 * 1024 * 1024

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MergePolicy:
        """Return the policy of a table; a property that is no whole number counts as not set."""
        default = cls()
        return cls(
            is_enabled=properties.get("commit.manifest-merge.enabled", "false").lower() == "true",
            min_count=max(2, whole_number(properties, "commit.manifest.min-count-to-merge", default.min_count)),
            target_bytes=whole_number(properties, "commit.manifest.target-size-bytes", default.target_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Manifests that can take the place of their source manifests.

    Attributes:
        files: Their entries in a manifest list, for any snapshot that lists them.
        sources: Path and first row id of each source manifest. Branches of a table that was upgraded may list one
            manifest with different row ids.
        format_version: The table format that they are written in.
    """

    files: tuple[ManifestFile, ...]
    sources: frozenset[tuple[str, int | None]]
    format_version: int

    @property
    def replaces(self) -> frozenset[str]:
        """Paths of the source manifests."""
        return frozenset(path for path, _ in self.sources)

    @property
    def paths(self) -> list[str]:
        """Paths of the manifests."""
        return [file.manifest_path for file in self.files]

    def can_stand_in(self, metadata: TableMetadata, listed: AbstractSet[tuple[str, int | None]]) -> bool:
        """Return whether a snapshot of the table may list them in place of some of those with these `sources_of`."""
        # Existing entries have no sequence numbers in manifests of version 1.
        return self.sources <= listed and self.format_version == metadata.format_version


def sources_of(manifests: Iterable[ManifestFile]) -> frozenset[tuple[str, int | None]]:
    """Return path and first row id of each manifest; None where its rows have no ids."""
    return frozenset((manifest.manifest_path, manifest_first_row_id(manifest)) for manifest in manifests)


def groups_to_merge(manifests: Sequence[ManifestFile], policy: MergePolicy) -> Iterator[list[ManifestFile]]:
    """Yield groups of manifests, each to be merged into one; no group if the policy disables merging."""
    alike: dict[tuple[ManifestContent, int, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests if policy.is_enabled else ():
        if manifest.key_metadata is None and manifest.manifest_length < policy.target_bytes:
            files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            content = ManifestContent(manifest.content)  # in version 1 it is a plain number
            alike[content, manifest.partition_spec_id, _power(files, policy.min_count)].append(manifest)
    for members in alike.values():
        if len(members) >= policy.min_count:
            parts = packed(members, policy.target_bytes, attrgetter("manifest_length"))
            yield from (part for part in parts if len(part) > 1)


def _power(number: int, base: int) -> int:
    power = 0
    while number >= base:
        number, power = number // base, power + 1
    return power


def merge(
    io: FileIO,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    write: WriteIdentity,
    policy: MergePolicy | None = None,
) -> list[Merged]:
    """Write manifests that can replace some of `manifests`; one that fails is logged, deleted and left out.

    Args:
        io: Opens the table's storage.
        metadata: The table.
        manifests: The manifests that a snapshot of the branch lists.
        write: The write that names the new manifests.
        policy: When to merge; None for the table's policy.
    """
    made = []
    for group in groups_to_merge(with_settled_ids(metadata, manifests), policy or MergePolicy.of(metadata.properties)):
        path = metadata_path(metadata, f"{write.operation_id}-merged-{uuid.uuid4()}.avro")
        try:
            made.append(_merge(io, metadata, group, path, write))
        except Exception as problem:  # of any storage library; a commit does without
            reason = mask_text(f"{type(problem).__name__}: {problem}", io.properties)
            logger.warning("Cannot merge %d manifests of %s: %s", len(group), write.table, reason)
            delete_files(io, [path], Proof.NEVER_SENT)
    return made


def _merge(
    io: FileIO, metadata: TableMetadata, group: Sequence[ManifestFile], path: str, write: WriteIdentity
) -> Merged:
    entries = [entry for read in in_parallel(partial(live_entries, io), group) for entry in read]
    draft = draft_merged(path, group[0], entries)
    (file,) = write_manifests(io, metadata, [draft], write)
    files = sum((found.added_files_count or 0) + (found.existing_files_count or 0) for found in group)
    rows = sum((found.added_rows_count or 0) + (found.existing_rows_count or 0) for found in group)
    if (file.existing_files_count, file.existing_rows_count) != (files, rows):
        raise ValueError(
            f"they list {file.existing_files_count} files with {file.existing_rows_count} rows, and the manifest list "
            f"says {files} with {rows}"
        )
    return Merged(files=(file,), sources=sources_of(group), format_version=metadata.format_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    future: Future[list[Merged]]
    begun_s: tuple[float, float]

    @property
    def is_fresh(self) -> bool:
        """Whether no clean-up can have taken it; the monotonic clock stands still while a machine sleeps."""
        return all(0 <= now_s - begun_s < _FRESH_S for now_s, begun_s in zip(_clocks_s(), self.begun_s, strict=True))


def _clocks_s() -> tuple[float, float]:
    return time.monotonic(), time.time()


@dataclass(slots=True)
class _Process:
    """What this process has merged, or is about to, for the next commit to each branch."""

    pool: ThreadPoolExecutor | None = None
    committed: set[tuple[str, str]] = field(default_factory=set)
    prepared: dict[tuple[str, str], _Prepared] = field(default_factory=dict)


_process = _Process()


def merge_for_next_commit(
    io: FileIO, metadata: TableMetadata, listed: Sequence[ManifestFile], write: WriteIdentity
) -> None:
    """Start to merge the manifests that the branch lists after `write` has landed, if there are many; return at once.

    The first commit of a process to a branch starts no merge, because it may be the last; none starts while one waits.

    Args:
        io: Opens the table's storage.
        metadata: The table with `write`.
        listed: The manifests that the branch's newest snapshot lists.
        write: The write.
    """
    key, head = (str(metadata.table_uuid), write.branch), branch_head(metadata, write.branch)
    is_first = key not in _process.committed
    _process.committed.add(key)
    if is_first or key in _process.prepared or head is None:
        return
    if next(groups_to_merge(listed, MergePolicy.of(metadata.properties)), None) is None:
        return
    if _process.pool is None:
        _process.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="iceberg-ds-merge")
    # The thread reads the list: only the list has the sequence numbers of what was just added.
    future = _process.pool.submit(lambda: merge(io, metadata, live_manifests(io, head), write))
    _process.prepared[key] = _Prepared(future=future, begun_s=_clocks_s())


def merged_for(
    io: FileIO, metadata: TableMetadata, listed: Sequence[ManifestFile], write: WriteIdentity
) -> list[Merged]:
    """Return merged manifests that can replace some of those that a commit would list; each is returned only once.

    A stream gets the merged manifests that wait for it; its commit merges by itself, as that of a batch does, only at
    twice the number of manifests that are merged beside the stream.

    Args:
        io: Opens the table's storage.
        metadata: The table.
        listed: The manifests that the branch lists.
        write: The write that commits.
    """
    policy = MergePolicy.of(metadata.properties)
    if write.epoch is None:
        return merge(io, metadata, listed, write, policy)
    key = str(metadata.table_uuid), write.branch
    prepared = _process.prepared.get(key)
    if prepared is not None:
        if not prepared.future.done() or _process.prepared.pop(key, None) is not prepared:
            return []
        made = prepared.future.result() if prepared.future.exception() is None else []
        if prepared.is_fresh:
            return made
        delete_files(io, [path for merged in made for path in merged.paths], Proof.NEVER_SENT)
    return merge(io, metadata, listed, write, replace(policy, min_count=_LATE * policy.min_count))
