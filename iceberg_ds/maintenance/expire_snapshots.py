"""`expire_snapshots`: removes old snapshots of a table, and then the files that only they refer to.

The removal is one request, on condition that every branch and tag is where it was seen; it also records what the
removed history told (`resting`). Its answer counts for nothing: only when a fresh load shows the table without the
snapshots, files are looked for, and right before they are deleted another load, and the folder of the metadata, are
asked again. If the process dies in between, files stay that nothing refers to, which `verify` finds.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.errors import CommitConflictError, DataFileError, IcebergSinkError, OptionError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.inspect.checklist import CheckFailedError, NotTriedError
from iceberg_ds.inspect.contents import counted, file_key, read_lists
from iceberg_ds.inspect.neighbours import (
    refuse_shared_files,
    refuse_table_around,
    stored_beside,
    tables_around,
    what_others_have,
    why_partial,
)
from iceberg_ds.io.cleanup import Proof, delete_in_portions
from iceberg_ds.io.listing import is_metadata_file
from iceberg_ds.maintenance.arguments import checked_at_once, older_than_ms
from iceberg_ds.maintenance.expired_files import ExpiredFiles, FilesToGo, Kind
from iceberg_ds.maintenance.place_tasks import PlacePlan
from iceberg_ds.maintenance.places_on_spark import PlacesOnSpark, session_for
from iceberg_ds.maintenance.reports import reported
from iceberg_ds.maintenance.resting import ExpiryPlan, KeptSnapshot, plan_expiry
from iceberg_ds.maintenance.retention import Retention
from iceberg_ds.options.arguments import FLAG, require_types
from iceberg_ds.options.parse import options_of_call, parse_call
from iceberg_ds.reading.consumers import AssertNoOtherConsumers, names_of
from iceberg_ds.snapshots.manifests import live_entries, live_manifests
from iceberg_ds.snapshots.refs import last_sequence_number
from iceberg_ds.snapshots.version_3 import ManifestList
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import AssertNoOtherRefs, CommitRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# How often the files' other owners are looked for: a commit of another writer that is under way looks like one.
_LOOKS = 3
_WAIT_S = 1.0
_OF_OTHERS = "other tables, or another catalog with this table, may have them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireResult:
    """What `expire_snapshots` did, or would do. The names of the counts are those of Spark's procedure.

    Attributes:
        table: Identifier of the table.
        deleted_data_files_count: Number of data files that were deleted.
        deleted_position_delete_files_count: Number of files with position deletes, deletion vectors included.
        deleted_equality_delete_files_count: Number of files with equality deletes.
        deleted_manifest_files_count: Number of manifests.
        deleted_manifest_lists_count: Number of manifest lists.
        deleted_statistics_files_count: Number of statistics files, those of partitions included.
        snapshot_ids: Ids of the snapshots that were removed.
        refs: Names of the branches and tags that were dropped because of their age.
        schema_ids: Ids of the schemas that were removed.
        spec_ids: Ids of the partition specs that were removed.
        kept: The snapshots that stay although they are old enough, each with what rests on it.
        left_files: Number of files that only removed snapshots refer to and that were not deleted.
        why_left: Why files were left; None if none were.
        dry_run: Whether nothing was changed, and all these would be.
        seconds: Seconds from start to end.
    """

    table: str
    deleted_data_files_count: int = 0
    deleted_position_delete_files_count: int = 0
    deleted_equality_delete_files_count: int = 0
    deleted_manifest_files_count: int = 0
    deleted_manifest_lists_count: int = 0
    deleted_statistics_files_count: int = 0
    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()
    kept: tuple[KeptSnapshot, ...] = ()
    left_files: int = 0
    why_left: str | None = None
    dry_run: bool = False
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        parts = [self._removed(), *(f"{text} stay: {reason}." for reason, text in self._kept())]
        if self.left_files:
            parts.append(f"{counted(self.left_files, 'file')} left: {self.why_left}.")
        return " ".join(parts)

    def _removed(self) -> str:
        if not (self.snapshot_ids or self.refs or self.schema_ids or self.spec_ids):
            return f"Nothing to expire in {self.table}."
        things = [
            counted(len(self.snapshot_ids), "snapshot"),
            *([counted(len(self.refs), "ref")] if self.refs else []),
            *([counted(len(self.schema_ids), "schema")] if self.schema_ids else []),
            *([counted(len(self.spec_ids), "partition spec")] if self.spec_ids else []),
        ]
        counts = {
            Kind.DATA: self.deleted_data_files_count,
            Kind.POSITION_DELETES: self.deleted_position_delete_files_count,
            Kind.EQUALITY_DELETES: self.deleted_equality_delete_files_count,
            Kind.MANIFEST: self.deleted_manifest_files_count,
            Kind.MANIFEST_LIST: self.deleted_manifest_lists_count,
            Kind.STATISTICS: self.deleted_statistics_files_count,
        }
        files = ", ".join(f"{count:,} {kind.value}" for kind, count in counts.items())
        done, deleted = ("Would remove", "Would delete") if self.dry_run else ("Removed", "Deleted")
        return f"{done} {', '.join(things)} of {self.table}. {deleted} {files}; {self.seconds:.1f} s."

    def _kept(self) -> list[tuple[str, str]]:
        reasons: dict[str, int] = {}
        for one in self.kept:
            reasons[one.reason] = reasons.get(one.reason, 0) + 1
        return [(reason, counted(number, "snapshot")) for reason, number in reasons.items()]


def expire_snapshots(  # noqa: PLR0913  # the parameters of Spark's procedure
    table: str,
    older_than: datetime | int | str | None = None,
    retain_last: int | None = None,
    snapshot_ids: Iterable[int] | None = None,
    *,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    clean_expired_metadata: bool = False,
    dry_run: bool = False,
    max_concurrent_deletes: int | None = None,
    stream_results: bool = False,
) -> ExpireResult:
    """Remove old snapshots of a table and the files that only they refer to, as Spark's procedure of that name does.

    Streams, numbered batches, publications, cuts and `requeue` go on as before: what they read in the removed history
    is recorded in table properties, or the snapshots stay and `kept` says why. Writers may keep running.

    Args:
        table: Identifier of the table, such as `db.events`.
        older_than: Snapshots from before this time go: a time with a time zone, milliseconds since the Unix epoch, an
            age such as `7d`, `36h` or `90m`, or `now`. None for the age of `history.expire.max-snapshot-age-ms`, or
            5 days. Branches with an age of their own keep that.
        retain_last: How many snapshots each branch keeps, however old; None for the number of
            `history.expire.min-snapshots-to-keep`, or 1. Branches with a number of their own keep that.
        snapshot_ids: Ids of snapshots that go, however young; those that are not there are ignored. None for none.
        spark: The session whose executors read manifests and find the files that go; None for this process, or, if the
            table has half a million files or more, for the active session.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no options.
        clean_expired_metadata: Also remove the schemas and partition specs that no snapshot uses, except for the schema
            with the highest number, which no other one may get.
        dry_run: Change nothing, and return what would be removed and deleted.
        max_concurrent_deletes: How many requests delete files at once; None for one.
        stream_results: Take the paths that Spark has found in portions, so that this process never holds all of them;
            then the active session is used for tables of any size.

    Returns:
        What was removed, deleted, and kept. Once snapshots are removed, what keeps their files from being deleted is
        no error: `left_files` and `why_left` tell it, and `iceberg-ds verify --delete-orphans` finds these files.

    Raises:
        OptionError: The options or arguments are malformed, or name a snapshot that a branch, a tag or a writer needs.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: Others may have files of the table, or its history is not shown; nothing was removed.
        DataFileError: Manifests could not be read; nothing was removed.
        CommitConflictError: Others changed branches or tags each time; nothing was removed.
        CommitStateUnknownError: Snapshots may have been removed; no file was deleted. Calling it again finds out.
        CatalogError: The catalog could not be reached or refused; nothing was removed.
    """
    require_types(
        "expire snapshots",
        clean_expired_metadata=(clean_expired_metadata, FLAG),
        dry_run=(dry_run, FLAG),
        stream_results=(stream_results, FLAG),
    )
    parsed = parse_call("expire snapshots", options_of_call(table, options))
    wish = Wish.of(
        older_than,
        retain_last,
        snapshot_ids,
        clean_expired_metadata=clean_expired_metadata,
        max_concurrent_deletes=max_concurrent_deletes,
        stream_results=stream_results,
    )
    catalog = connect_to_existing(parsed)
    with (
        catalog.hiding_secrets(),
        reported(catalog.reporting, "expire_snapshots", identifier_text(parsed.table)) as note,
    ):
        result = note(Expiry(catalog, parsed.table, wish, spark).run(dry_run=dry_run))
    logger.log(logging.WARNING if result.left_files else logging.INFO, "%s", result)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The arguments of a call; the time is the same for all attempts.

    Attributes:
        now_ms: The time of the call, in milliseconds since the Unix epoch.
        older_than_ms: Snapshots from before this time go, in the same unit; None if the table says it.
        retain_last: How many snapshots each branch keeps; None if the table says it.
        snapshot_ids: Ids of snapshots that go, however young.
        cleans_metadata: Whether unused schemas and partition specs go, too.
        at_once: How many requests delete files at once; None for one.
        streams: Whether the paths that Spark finds come to the driver in portions.
    """

    now_ms: int
    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: frozenset[int] = frozenset()
    cleans_metadata: bool = False
    at_once: int | None = None
    streams: bool = False

    @classmethod
    def of(  # noqa: PLR0913  # those of the procedure
        cls,
        older_than: datetime | int | str | None = None,
        retain_last: int | None = None,
        snapshot_ids: Iterable[int] | None = None,
        *,
        clean_expired_metadata: bool = False,
        max_concurrent_deletes: int | None = None,
        stream_results: bool = False,
    ) -> Wish:
        """Return the arguments of `expire_snapshots`, checked.

        Raises:
            OptionError: One is malformed.
        """
        now_ms = time.time_ns() // 1_000_000
        return cls(
            now_ms=now_ms,
            older_than_ms=None if older_than is None else older_than_ms("expire snapshots", older_than, now_ms),
            retain_last=_retained(retain_last),
            snapshot_ids=_ids(snapshot_ids),
            cleans_metadata=clean_expired_metadata,
            at_once=checked_at_once("expire snapshots", max_concurrent_deletes),
            streams=stream_results,
        )


def _retained(number: int | None) -> int | None:
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
        raise OptionError(f"Cannot expire snapshots: retain_last is {number!r}, expected a whole number from 1.")
    return number


def _ids(snapshot_ids: Iterable[int] | None) -> frozenset[int]:
    if isinstance(snapshot_ids, str | bytes) or not isinstance(snapshot_ids, Iterable | None):
        raise OptionError(f"Cannot expire snapshots: snapshot_ids is {snapshot_ids!r}, expected a list of ids.")
    found = list(snapshot_ids or ())
    if wrong := [one for one in found if not isinstance(one, int) or isinstance(one, bool)]:
        raise OptionError(f"Cannot expire snapshots: snapshot_ids has {wrong[0]!r}, expected ids of snapshots.")
    return frozenset(found)


def _schemas_of_keys(io: FileIO, metadata: TableMetadata, manifests: Iterable[ManifestFile]) -> set[int]:
    """Return the schemas that tell the types of the columns by which live files delete rows, the last one of each."""
    deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    entries = (entry for manifest in deletes for entry in live_entries(io, manifest))
    numbers = {number for entry in entries for number in entry.data_file.equality_ids or ()}
    return set(
        {number: one.schema_id for one in metadata.schemas for number in numbers.intersection(one.field_ids)}.values()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What one request is to do, and the table that it was planned for."""

    table: TableMetadata
    plan: ExpiryPlan
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        expired = self.plan.expired
        return not (expired.snapshot_ids or expired.refs or self.schema_ids or self.spec_ids)

    def gone(self, metadata: TableMetadata) -> list[Snapshot]:
        """Return the snapshots that were to be removed and that a table shows to be removed.

        A table that does not have one yet, as a cache may show it, says nothing of it.
        """
        present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        return [
            snapshot
            for snapshot in self.table.snapshots
            if snapshot.snapshot_id in self.plan.expired.snapshot_ids - present and self._had(metadata, snapshot)
        ]

    def _had(self, metadata: TableMetadata, snapshot: Snapshot) -> bool:
        """Return whether a table has, or once had, this snapshot."""
        if metadata.format_version > 1 and snapshot.sequence_number:
            return last_sequence_number(metadata) >= snapshot.sequence_number
        # Without numbers, only the log of metadata files tells that it is not from before the planned table.
        last = [entry.metadata_file for entry in self.table.metadata_log[-1:]]
        log = {entry.metadata_file for entry in metadata.metadata_log}
        return metadata is self.plan.after or bool(log.intersection(last))

    def statistics(self, metadata: TableMetadata) -> list[str]:
        """Return the paths of the statistics files of these snapshots."""
        gone = {snapshot.snapshot_id for snapshot in self.gone(metadata)}
        known = (*self.table.statistics, *self.table.partition_statistics)
        return [one.statistics_path for one in known if one.snapshot_id in gone]

    def is_gone_from(self, seen: TableMetadata, metadata: TableMetadata) -> bool:
        """Return whether a table shows the removal of all that an earlier look showed to be removed."""
        return {one.snapshot_id for one in self.gone(seen)} <= {one.snapshot_id for one in self.gone(metadata)}

    def request(self, *, knows_all_refs: bool) -> CommitRequest:
        """Return the request that removes it, unless a branch or tag has moved.

        Args:
            knows_all_refs: Whether the catalog takes the conditions that no branch or tag was created meanwhile, and
                that no stream has taken a name.
        """
        table, expired = self.table, self.plan.expired
        required: list[TableRequirement] = [AssertTableUUID(uuid=table.table_uuid)]
        if knows_all_refs:
            required += [
                AssertNoOtherRefs(uuid=table.table_uuid, names=frozenset(table.refs)),
                AssertNoOtherConsumers(uuid=table.table_uuid, names=names_of(table)),
            ]
        required += [
            AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in sorted(table.refs.items())
        ]
        if self.schema_ids or self.spec_ids:  # a writer could go back to what is removed
            required += [
                AssertCurrentSchemaId(current_schema_id=table.current_schema_id),
                AssertDefaultSpecId(default_spec_id=table.default_spec_id),
            ]
        statistics = {one.snapshot_id for one in table.partition_statistics} & expired.snapshot_ids
        updates: list[TableUpdate] = [
            *self.plan.records.updates,
            # PyIceberg removes those of snapshots, and not those of partitions, with the snapshot.
            *(RemovePartitionStatisticsUpdate(snapshot_id=number) for number in sorted(statistics)),
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in sorted(expired.refs)),
        ]
        if expired.snapshot_ids:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=sorted(expired.snapshot_ids)))
        if self.spec_ids:
            updates.append(RemovePartitionSpecsUpdate(spec_ids=list(self.spec_ids)))
        if self.schema_ids:
            updates.append(RemoveSchemasUpdate(schema_ids=list(self.schema_ids)))
        return CommitRequest(requirements=tuple(required), updates=tuple(updates))

    def comes_after(self, metadata: TableMetadata) -> bool:
        """Return whether a table is from before a snapshot that is to be removed."""
        expired = (one for one in self.table.snapshots if one.snapshot_id in self.plan.expired.snapshot_ids)
        present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        return any(not self._had(metadata, one) for one in expired if one.snapshot_id not in present)

    def is_done_in(self, metadata: TableMetadata) -> bool:
        """Return whether a table has nothing left of what was to be removed."""
        return not (
            self.plan.expired.snapshot_ids - {snapshot.snapshot_id for snapshot in self.gone(metadata)}
            or self.plan.expired.refs & metadata.refs.keys()
            or set(self.schema_ids) & {schema.schema_id for schema in metadata.schemas}
            or set(self.spec_ids) & {spec.spec_id for spec in metadata.partition_specs}
        )


class Expiry:
    """One call of `expire_snapshots`.

    Args:
        catalog: The catalog of the table.
        identifier: Levels of the table's identifier.
        wish: The arguments of the call.
        spark: Its executors read manifests and compare files; None for this process, or for the active session if the
            table is large.
    """

    def __init__(
        self, catalog: CatalogClient, identifier: tuple[str, ...], wish: Wish, spark: SparkSession | None = None
    ) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._name = identifier_text(identifier)
        self._wish = wish
        self._planned: _Work | None = None  # by the last look before the request
        self._sent: list[_Work] = []
        self._table = catalog.load_table(identifier)
        self._started = time.monotonic()
        session = session_for(spark, lambda: self._table.metadata, is_wanted=wish.streams)
        if wish.streams and session is None:
            raise OptionError(
                f"Cannot expire snapshots of {self._name} with stream_results: it needs Spark, and no session is given "
                "or active. Give one, or leave stream_results out."
            )
        self._places = None if session is None else self._places_on(session)

    def run(self, *, dry_run: bool) -> ExpireResult:
        """Remove the snapshots, then their files."""
        self._check_catalog()
        table, files = self._looked(self._files_to_go, f"{self._refusal}, nothing was removed")
        work = self._planned
        assert work is not None  # noqa: S101  # planned with the files
        if dry_run or work.is_empty:
            result = self._result([work], work.plan.after, {kind: files.count(kind) for kind in Kind})
            return replace(result, left_files=files.left, why_left=_OF_OTHERS if files.left else None, dry_run=dry_run)
        after = alter_table(self._catalog, self._identifier, self._propose, loaded=table)
        fault_point(FaultPoint.SNAPSHOTS_EXPIRED)
        return self._delete(work, files, after)

    def _check_catalog(self) -> None:
        if not self._catalog.holds_branches:
            reason = "other branches of this catalog may refer to what this one does not. Let its own clean-up do it"
        elif self._catalog.is_s3_tables:
            reason = "Amazon S3 Tables expires snapshots and deletes files by itself"
        else:
            return
        raise UnsupportedTableError(f"{self._refusal}, nothing was removed: {reason}.")

    def _places_on(self, session: SparkSession) -> PlacesOnSpark:
        location, properties = self._table.metadata.location, self._catalog.plan_properties(self._table)
        plan = PlacePlan(io_properties=properties, location=location)
        return PlacesOnSpark(spark=session, plan=plan, action="expire snapshots", streams=self._wish.streams)

    @property
    def _refusal(self) -> str:
        return f"Cannot expire snapshots of {self._name}"

    def _looked(self, files_of: Callable[[Table], FilesToGo], failed: str) -> tuple[Table, FilesToGo]:
        """Load the table, and return it and files that may be deleted, without those that others may have.

        Metadata files are listed before the load: what is committed in between is in the table then. A commit that is
        under way leaves a metadata file that looks like that of another catalog, so the look is repeated.

        Args:
            files_of: Returns the files to look for.
            failed: Begins the text of errors.

        Raises:
            IcebergSinkError: The files, or their other owners, are not known.
        """
        for look in range(1, _LOOKS + 1):
            try:
                return self._look(files_of)
            except CheckFailedError as problem:
                if look == _LOOKS:
                    raise UnsupportedTableError(f"{failed}: {problem}. {problem.next_step}") from problem
                time.sleep(_WAIT_S)
            except NotTriedError as problem:
                raise UnsupportedTableError(f"{failed}: {problem}.") from problem
            except (OptionError, UnsupportedTableError, DataFileError, CommitConflictError) as problem:
                raise type(problem)(f"{failed}: {str(problem).rstrip('.')}.") from problem
            except IcebergSinkError:
                raise
            except Exception as error:  # any error of a storage library
                raise DataFileError(f"{failed}: {self._catalog.describe(error)}.") from None  # it may show credentials
        raise AssertionError  # the last look has returned or raised

    def _look(self, files_of: Callable[[Table], FilesToGo]) -> tuple[Table, FilesToGo]:
        stored = stored_beside(self._table)
        self._table = table = self._catalog.load_table(self._identifier)
        if (reason := why_partial(table)) is not None:
            raise UnsupportedTableError(reason)
        refuse_shared_files(table, map(file_key, stored))
        files = files_of(table)
        _leave_to_others(table, stored, files)
        return table, files

    def _files_to_go(self, table: Table) -> FilesToGo:
        self._planned = work = self._plan(table.metadata)
        after = work.plan.after
        return self._files_of(table, work.gone(after), work.statistics(after), after)

    def _plan(self, metadata: TableMetadata) -> _Work:
        wish, io = self._wish, self._table.io

        def added_live(snapshot: Snapshot) -> set[int]:
            manifests = live_manifests(io, snapshot)
            entries = (entry for manifest in manifests for entry in live_entries(io, manifest))
            return {entry.snapshot_id for entry in entries if entry.snapshot_id is not None}

        retention = Retention.of(
            metadata.properties,
            wish.now_ms,
            older_than_ms=wish.older_than_ms,
            retain_last=wish.retain_last,
            snapshot_ids=wish.snapshot_ids,
        )
        plan = plan_expiry(metadata, retention, added_live)
        if not wish.cleans_metadata:
            return _Work(table=metadata, plan=plan)
        after = plan.after
        # The highest number stays taken, or the next schema would have it: readers see by gaps that some are unknown.
        newest = max(schema.schema_id for schema in metadata.schemas)
        schemas = {metadata.current_schema_id, newest, *(snapshot.schema_id for snapshot in after.snapshots)}
        specs = {metadata.default_spec_id}
        if len(metadata.partition_specs) > 1 or len(metadata.schemas) > len(schemas):
            lists, problems = read_lists(io, map(ManifestList.of, after.snapshots), {})
            for problem in problems.values():
                raise DataFileError(f"it is not known which schemas and partition specs are used: {problem}")
            used = {manifest.manifest_path: manifest for listed in lists.values() for manifest in listed}
            specs |= {manifest.partition_spec_id for manifest in used.values()}
            schemas |= _schemas_of_keys(io, metadata, used.values())
        return _Work(
            table=metadata,
            plan=plan,
            schema_ids=tuple(one.schema_id for one in metadata.schemas if one.schema_id not in schemas),
            spec_ids=tuple(one.spec_id for one in metadata.partition_specs if one.spec_id not in specs),
        )

    def _propose(self, metadata: TableMetadata) -> CommitRequest | None:
        self._check_same(metadata)
        if self._sent and self._sent[-1].is_done_in(metadata):
            return None
        try:
            work = self._plan(metadata)
        except (OptionError, UnsupportedTableError, DataFileError) as problem:
            raise type(problem)(f"{self._refusal}, nothing was removed: {problem}.") from problem
        if work.is_empty:
            if not self._sent or not self._sent[-1].comes_after(metadata):
                return None
            work = self._sent[-1]  # the catalog answers from an older state: it refuses what is done
        self._sent.append(work)
        return work.request(knows_all_refs=self._catalog.places_tables)

    def _check_same(self, metadata: TableMetadata) -> None:
        if self._planned is not None and metadata.table_uuid != self._planned.table.table_uuid:
            raise CommitConflictError(
                f"{self._refusal}: another table (UUID {metadata.table_uuid}) has its name by now. No file was "
                "deleted. Look for the table under its other name."
            )

    def _delete(self, planned: _Work, files: FilesToGo, after: Table) -> ExpireResult:
        """Delete the files of the removed snapshots, and return what was done; errors become part of that."""
        counts = dict.fromkeys(Kind, 0)

        def confirmed(table: Table) -> FilesToGo:
            nonlocal files
            self._check_same(table.metadata)
            if any(not work.is_gone_from(after.metadata, table.metadata) for work in self._sent):
                raise CheckFailedError("the catalog answers from an older state", "Delete orphans later")
            if {work.plan.expired for work in self._sent} != {planned.plan.expired}:
                gone = {one.snapshot_id: one for work in self._sent for one in work.gone(after.metadata)}
                statistics = {path for work in self._sent for path in work.statistics(after.metadata)}
                files = self._files_of(table, [*gone.values()], statistics, after.metadata)
            files.keep(after.metadata)
            files.keep(table.metadata)
            return files

        why: str | None
        try:
            table, files = self._looked(confirmed, "it is not known which files may be deleted")
        except IcebergSinkError as problem:
            left, why = files.left + len(files), str(problem).rstrip(".")
        else:
            left, why = files.left, _OF_OTHERS if files.left else None
            for kind in Kind:
                failed = files.count(kind) - self._deleted(table, files, kind)
                counts[kind] = files.count(kind) - failed
                left += failed
                why = "some could not be deleted, see the log" if failed else why
        return replace(self._result(self._sent, after.metadata, counts), left_files=left, why_left=why)

    def _deleted(self, table: Table, files: FilesToGo, kind: Kind) -> int:
        """Delete the files of a kind, and return how many are gone."""
        gone = 0
        try:
            for _, is_gone in delete_in_portions(table.io, files.paths(kind), Proof.EXPIRED, self._wish.at_once):
                gone += is_gone
        except DataFileError as problem:  # of Spark's job, which knows the paths
            logger.warning("Left behind %s of %s: %s", kind.value, self._name, problem)
        return gone

    def _files_of(
        self, table: Table, gone: Sequence[Snapshot], statistics: Iterable[str], after: TableMetadata
    ) -> FilesToGo:
        if self._places is None:
            return ExpiredFiles(table.io, gone, statistics, after)
        from iceberg_ds.maintenance.expired_on_spark import ExpiredOnSpark  # noqa: PLC0415  # needs Spark

        return ExpiredOnSpark(self._places, gone, statistics, after)

    def _result(self, works: Sequence[_Work], after: TableMetadata, counts: Mapping[Kind, int]) -> ExpireResult:
        gone = sorted({one.snapshot_id for work in works for one in work.gone(after)})
        schemas = {schema.schema_id for schema in after.schemas} if self._sent else set()
        specs = {spec.spec_id for spec in after.partition_specs} if self._sent else set()
        return ExpireResult(
            table=self._name,
            snapshot_ids=tuple(gone),
            refs=tuple(sorted({name for work in works for name in work.plan.expired.refs - after.refs.keys()})),
            schema_ids=tuple(sorted({one for work in works for one in work.schema_ids if one not in schemas})),
            spec_ids=tuple(sorted({one for work in works for one in work.spec_ids if one not in specs})),
            kept=works[-1].plan.kept if works else (),
            seconds=time.monotonic() - self._started,
            deleted_data_files_count=counts[Kind.DATA],
            deleted_position_delete_files_count=counts[Kind.POSITION_DELETES],
            deleted_equality_delete_files_count=counts[Kind.EQUALITY_DELETES],
            deleted_manifest_files_count=counts[Kind.MANIFEST],
            deleted_manifest_lists_count=counts[Kind.MANIFEST_LIST],
            deleted_statistics_files_count=counts[Kind.STATISTICS],
        )


def _leave_to_others(table: Table, stored: Sequence[str], files: FilesToGo) -> None:
    """Leave out files that other tables or catalogs may have.

    Raises:
        CheckFailedError: Others may have any of them.
    """
    if not len(files):
        return
    refuse_table_around(table)
    metadata_files = [path for path in stored if is_metadata_file(path)]
    others = what_others_have(table, metadata_files, files.has_files_in, files.referred)
    files.leave(others, tables_around(table, files.outside(table.metadata)))
