"""`rewrite_manifests`: lists the files of a branch in manifests that each cover few partitions, while others commit.

A reader opens a manifest only if the bounds of its partitions meet the query. Manifests of commits list what came at
one time, so each covers many partitions; here their entries are sorted by partition and listed again in manifests
of `commit.manifest.target-size-bytes`. Each entry keeps its snapshot, its sequence numbers and all that it says of its
file, so the same deletes apply to the same rows. Data manifests and delete manifests are rewritten apart.

The new manifests are written once, before the commit, which lists them in place of their sources through the machinery
that merges manifests (`snapshots.manifest_merge`, `commit.producer`). Manifests whose entries went into the same new
manifests are a part of the work. A part can land as long as all its sources are listed; what other writers append
meanwhile is left as it is, and only parts that lost a source are planned again.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.overwrite import FilteredManifests, RewriteValidationError
from iceberg_ds.commit.write_files import Added
from iceberg_ds.error_hints import advice
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RowCountError,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.maintenance.clustered_entries import EntrySort, PartitionOrder
from iceberg_ds.metrics.commit_meter import CommitMeter, metered
from iceberg_ds.options.arguments import TEXT, ArgumentType, require_types
from iceberg_ds.options.file_settings import new_write
from iceberg_ds.options.parse import OF_COMMITS, options_of_call, parse_call
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import Fingerprint, Route, WriteIdentity
from iceberg_ds.planning.decide import check_rewritable
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.snapshots.manifest_merge import Merged, MergePolicy, sources_of
from iceberg_ds.snapshots.manifests import draft_merged, live_entries, live_manifests, metadata_path, write_manifests
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head
from iceberg_ds.snapshots.version_3 import with_settled_ids
from iceberg_ds.table.names import identifier_text

logger = logging.getLogger(__name__)

_NAMES = ArgumentType(list | tuple | None, "a list of names of partition fields, or None")
_READERS = 8
# The largest number of rounds: in each one, what others have replaced meanwhile is planned again.
_ROUNDS = 5
# Shares of the target size between which manifests are well sized, as Spark's rewrites have them for data files.
_LEAST, _MOST = 0.75, 1.8


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteManifestsResult:
    """What `rewrite_manifests` did to a branch; the counts have the names of Spark's procedure.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the committed snapshot; None if there was nothing to rewrite.
        rewritten_manifests_count: Number of manifests that were replaced.
        added_manifests_count: Number of manifests that took their place.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    rewritten_manifests_count: int = 0
    added_manifests_count: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.snapshot_id is None:
            return f"Nothing to rewrite: the manifests of {where} are clustered and of the right size."
        return (
            f"Rewrote {self.rewritten_manifests_count:,} manifests of {where} into {self.added_manifests_count:,}. "
            f"Snapshot {self.snapshot_id}, {self.seconds:.1f} s."
        )


def rewrite_manifests(
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    spec_id: int | None = None,
    sort_by: Sequence[str] | None = None,
) -> RewriteManifestsResult:
    """List the files of a branch in manifests that each cover few partitions, so that readers open fewer of them.

    The branch gets one more snapshot, with the same files and rows. Writers may go on meanwhile. Manifests that are
    clustered and of about `commit.manifest.target-size-bytes` already stay as they are; if all are, nothing is
    committed.

    Args:
        table: Identifier of the table, such as `db.events`.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no options.
        branch: The branch; None for the branch of option `branch`, or `main`.
        spec_id: Id of the partition spec whose manifests are rewritten; None for the current spec.
        sort_by: Names of the partition fields to cluster by, the most significant first; the rest follow. None for
            the order in which the spec has them.

    Returns:
        How many manifests were replaced by how many; its `snapshot_id` is None if there was nothing to rewrite.

    Raises:
        OptionError: The options or arguments are malformed, or name another table.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table cannot be written; nothing was committed.
        DataFileError: Manifests could not be read or written; nothing was committed.
        RowCountError: The manifest list counts other rows than the manifests have; nothing was committed.
        CommitConflictError: Others kept replacing the same manifests; nothing was committed.
        CommitStateUnknownError: It may have been committed; nothing was deleted.
        CatalogError: The catalog could not be reached or refused; nothing was committed.
    """
    require_types("rewrite manifests", branch=(branch, TEXT), sort_by=(sort_by, _NAMES))
    given = options_of_call(table, options)
    parsed = parse_call("rewrite manifests", given if branch is None else {**given, "branch": branch}, OF_COMMITS)
    catalog = connect_to_existing(parsed)
    with catalog.hiding_secrets(), metered(catalog.reporting) as meter:
        return ManifestRewrite(catalog, parsed, spec_id, sort_by).run(meter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """How large manifests are to be.

    Attributes:
        target_bytes: The size that a manifest is to have.
        count: Number of manifests.
        total_bytes: Size of all manifests.
        largest_bytes: Size of the largest manifest that could be split.
    """

    target_bytes: int
    count: int
    total_bytes: int
    largest_bytes: int

    @property
    def wanted(self) -> int:
        """How many manifests there are to be."""
        return max(1, math.ceil(self.total_bytes / self.target_bytes))

    @property
    def are_right(self) -> bool:
        """Whether the manifests are neither many small ones nor too large."""
        is_few = self.count <= self.wanted or self.total_bytes >= _LEAST * self.count * self.target_bytes
        return is_few and self.largest_bytes <= _MOST * self.target_bytes


def are_clustered(ranges: Iterable[tuple[PartitionOrder, PartitionOrder]]) -> bool:
    """Return whether manifests share no more than the partitions at which one ends and the next begins.

    Args:
        ranges: The lowest and the highest partition of each manifest, in any order.
    """
    return all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(ranges)))


@dataclass(slots=True)
class _Part:
    """Manifests whose entries went into the same new manifests.

    Attributes:
        sources: Numbers of the manifests.
        files: The new manifests.
    """

    sources: set[int]
    files: list[ManifestFile] = field(default_factory=list)


class _Parts:
    """Finds the parts: two sources are of one part if a new manifest has entries of both."""

    def __init__(self) -> None:
        self._of: dict[int, _Part] = {}

    def take(self, sources: Iterable[int], file: ManifestFile) -> None:
        """Note a new manifest, and the numbers of the manifests whose entries it lists."""
        met = {id(part): part for part in (self._of.get(source) for source in sources) if part is not None}
        joined = _Part(set(sources).union(*(part.sources for part in met.values())))
        joined.files = [*(old for part in met.values() for old in part.files), file]
        self._of.update(dict.fromkeys(joined.sources, joined))

    def all(self) -> list[_Part]:
        """Return the parts."""
        return list({id(part): part for part in self._of.values()}.values())


class ManifestRewrite:
    """The rewrite of the manifests of one branch.

    Args:
        catalog: The catalog of the table.
        options: The table and the branch.
        spec_id: The partition spec; None for the current one.
        sort_by: The partition fields to cluster by first; None for the spec's own order.
    """

    def __init__(
        self, catalog: CatalogClient, options: SinkOptions, spec_id: int | None, sort_by: Sequence[str] | None
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._spec_id = spec_id
        self._sort_by = sort_by
        self._name = identifier_text(options.table)
        self._branch = options.branch or MAIN_BRANCH
        self._merged: list[Merged] = []
        self._started = time.monotonic()

    @property
    def keeps_rows(self) -> bool:
        """Return True: no file is added or dropped."""
        return True

    @property
    def added(self) -> Added:
        """The new manifests; they add no file."""
        return Added((), merged=tuple(self._merged))

    @property
    def sequence_numbers(self) -> Mapping[str, int]:
        """No sequence number: no file is added."""
        return {}

    def filtered(self, table: Table) -> FilteredManifests:
        """Return all manifests of the current branch: the commit lists the new ones in place of their sources.

        Raises:
            RewriteValidationError: Manifests that were rewritten are gone.
        """
        listed = self._live(table)
        stale = self._stale(table, listed)
        if stale:
            paths = {manifest.manifest_path for manifest in listed}
            gone = sorted(path for merged in stale for path in merged.replaces if path not in paths)
            what = gone[0] if gone else "the format of the table, or the ids of its rows"
            raise RewriteValidationError(f"another writer has replaced {what}")
        return FilteredManifests(untouched=tuple(listed))

    def run(self, meter: CommitMeter) -> RewriteManifestsResult:
        """Plan, write and commit, until nothing that was rewritten has been replaced meanwhile.

        Args:
            meter: Notes what the commit takes.
        """
        table = self._catalog.load_table(self._options.table)
        for number in itertools.count(1):
            try:
                table = table if number == 1 else self._catalog.load_table(self._options.table)
                write = self._plan(table)
            except BaseException:
                self._discard(table.io, self._merged)
                raise
            if not self._merged:
                return RewriteManifestsResult(table=self._name, branch=self._branch, seconds=self._seconds)
            meter.begin(write)
            try:
                committed = commit_rewrite(self._catalog, write, self, meter)
            except RewriteValidationError as stale:
                if number == _ROUNDS:
                    self._discard(table.io, self._merged)
                    raise CommitConflictError(
                        f"Cannot rewrite manifests of {self._name} in {_ROUNDS} tries, nothing was committed: {stale}. "
                        "Run it again while no other rewrite runs."
                    ) from stale
                logger.info("Planning some manifests of %s again: %s", self._name, stale)
            except (CatalogError, DataFileError):
                self._discard(table.io, self._merged)
                raise
            else:
                return self._result(committed.snapshot_id)
        raise AssertionError("unreachable: the rounds end")

    def _live(self, table: Table) -> list[ManifestFile]:
        return live_manifests(table.io, branch_head(table.metadata, self._branch))

    def _stale(self, table: Table, listed: Sequence[ManifestFile]) -> list[Merged]:
        sources = sources_of(listed)
        return [merged for merged in self._merged if not merged.can_stand_in(table.metadata, sources)]

    def _plan(self, table: Table) -> WriteIdentity:
        """Drop what is stale, write new manifests for all that no other part covers, and return the write."""
        metadata = table.metadata
        check_rewritable(metadata, self._options, self._branch, f"rewrite manifests of {self._name}")
        spec = self._spec(table)
        positions = self._positions(spec)
        write = new_write(self._options, metadata, Route(branch=self._branch), Fingerprint.of(metadata))
        fault_point(FaultPoint.PLANNED)
        try:
            listed = self._live(table)
            stale = self._stale(table, listed)
            self._merged = [merged for merged in self._merged if merged not in stale]
            self._discard_files(table.io, stale)
            covered = frozenset[str]().union(*(merged.replaces for merged in self._merged))
            for content in (ManifestContent.DATA, ManifestContent.DELETES):
                sources = [
                    manifest
                    for manifest in with_settled_ids(metadata, listed)
                    # equal, not identical: in version 1 it is a plain number
                    if manifest.content == content
                    and manifest.partition_spec_id == spec.spec_id
                    and manifest.key_metadata is None
                    and manifest.manifest_path not in covered
                ]
                self._rewrite(table, sources, positions, write)
        except IcebergSinkError:
            raise
        except Exception as error:  # of any storage library
            reason = mask_text(f"{type(error).__name__}: {error}", table.io.properties)
            raise DataFileError(
                f"Cannot rewrite manifests of {self._name}, nothing was committed: {reason}. {advice(error)}".rstrip()
            ) from masked_cause(error, table.io.properties)
        return write

    def _spec(self, table: Table) -> PartitionSpec:
        specs = table.metadata.specs()
        number = table.metadata.default_spec_id if self._spec_id is None else self._spec_id
        if number not in specs:
            known = ", ".join(map(str, sorted(specs)))
            raise OptionError(
                f"Cannot rewrite manifests of {self._name}: spec_id is {number}, and the table has the partition specs "
                f"{known}. Name one of them, or none for the current one."
            )
        return specs[number]

    def _positions(self, spec: PartitionSpec) -> list[int]:
        """Return the positions of the spec's fields, in the order in which they count."""
        names = [part.name for part in spec.fields]
        wrong = [name for name in self._sort_by or () if name not in names]
        if wrong or len(set(self._sort_by or ())) < len(self._sort_by or ()):
            problem = f"{', '.join(map(repr, wrong))} is no partition field" if wrong else "a field is named twice"
            raise OptionError(
                f"Cannot rewrite manifests of {self._name}: in sort_by, {problem}; spec {spec.spec_id} has "
                f"{', '.join(map(repr, names)) or 'no fields'}. Name fields of the spec, each once."
            )
        first = [names.index(name) for name in self._sort_by or ()]
        return [*first, *(position for position in range(len(names)) if position not in first)]

    def _rewrite(
        self, table: Table, sources: Sequence[ManifestFile], positions: Sequence[int], write: WriteIdentity
    ) -> None:
        """Write new manifests for some of the sources, unless they are clustered and of the right size."""
        sizes = _Sizes(
            target_bytes=max(1, MergePolicy.of(table.metadata.properties).target_bytes),
            count=len(sources),
            total_bytes=sum(manifest.manifest_length for manifest in sources),
            largest_bytes=max((manifest.manifest_length for manifest in sources if _files(manifest) > 1), default=0),
        )
        if sizes.count <= 1 and sizes.are_right:
            return
        entries = EntrySort(positions)
        try:
            counts, ranges = [], []
            for source, read in enumerate(_read(table.io, sources)):
                found = entries.add(source, read, sources[source].manifest_length)
                counts.append(len(read))
                ranges += [] if found is None else [found]
            if not (sizes.are_right and are_clustered(ranges)):
                self._write(table, entries, sources, counts, sizes.wanted, write)
        finally:
            entries.close()

    def _write(  # noqa: PLR0913, PLR0917  # what one content and spec has
        self,
        table: Table,
        entries: EntrySort,
        sources: Sequence[ManifestFile],
        counts: Sequence[int],
        wanted: int,
        write: WriteIdentity,
    ) -> None:
        """Write the entries, in their order, into so many manifests; a manifest that would not change stays."""
        parts, kept = _Parts(), 0
        in_order = entries.sorted()
        paths: list[str] = []
        try:
            while some := list(itertools.islice(in_order, math.ceil(entries.count / wanted))):
                met = {found.source for found in some}
                if len(met) == 1 and len(some) == counts[some[0].source]:
                    kept += len(some)
                    continue
                paths.append(metadata_path(table.metadata, f"{write.operation_id}-rewritten-{uuid.uuid4()}.avro"))
                draft = draft_merged(paths[-1], sources[some[0].source], [found.entry for found in some])
                (file,) = write_manifests(table.io, table.metadata, [draft], write)
                parts.take(met, file)
                fault_point(FaultPoint.FILE_CLOSED)
            self._check_files(entries.count, kept + sum(_files(file) for part in parts.all() for file in part.files))
        except BaseException:
            delete_files(table.io, paths, Proof.NEVER_SENT)
            raise
        self._merged += [
            Merged(
                files=tuple(part.files),
                sources=sources_of(sources[source] for source in part.sources),
                format_version=table.metadata.format_version,
            )
            for part in parts.all()
        ]

    def _check_files(self, count: int, listed: int) -> None:
        if listed != count:
            raise RowCountError(
                f"Cannot rewrite manifests of {self._name}, nothing was committed: the manifests list {count:,} files, "
                f"and the new ones {listed:,}. This is a defect of iceberg_ds or of a library below it: please report "
                "it with these numbers."
            )

    def _discard(self, io: FileIO, merged: Sequence[Merged]) -> None:
        """Delete new manifests; no commit that names them has landed, and none can land any more."""
        self._discard_files(io, merged)
        self._merged = []

    def _discard_files(self, io: FileIO, merged: Sequence[Merged]) -> None:
        delete_files(io, [path for found in merged for path in found.paths], Proof.REFUSED)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _result(self, snapshot_id: int | None) -> RewriteManifestsResult:
        result = RewriteManifestsResult(
            table=self._name,
            branch=self._branch,
            snapshot_id=snapshot_id,
            rewritten_manifests_count=sum(len(merged.replaces) for merged in self._merged),
            added_manifests_count=sum(len(merged.files) for merged in self._merged),
            seconds=self._seconds,
        )
        logger.info("%s", result)
        return result


def _files(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _read(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterator[list[ManifestEntry]]:
    """Yield the live entries of each manifest, in order; few manifests are read at once."""
    return in_parallel(partial(live_entries, io), manifests, _READERS, waiting=_READERS)
