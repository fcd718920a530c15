"""Step one of `plan_write`: what a write does with its table, as it is or is staged. Sends nothing, changes nothing.

Without an option the table's property counts, else the default: also for the branch that a write goes to, where that
branch is forked from, and where its rows are published to. Every refusal is made here, for the table as the changes
that the write asks for will leave it, and so before any change is made.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    AssertTableUUID,
    update_table_metadata,
)
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.alter import Propose
from iceberg_ds.commit.requests import check_replaceable
from iceberg_ds.commit.validate import WRITABLE_FORMAT_VERSIONS
from iceberg_ds.errors import OptionError, OverloadedTableError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.io.files import file_io
from iceberg_ds.io.places import misplaced
from iceberg_ds.options.file_settings import metrics_properties, new_write
from iceberg_ds.options.routes import RouteOptions
from iceberg_ds.options.rules import Kind
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.options.table_properties import wrong_values
from iceberg_ds.plan import (
    EVERY_ROW,
    NO_SPEC,
    AddedColumns,
    BadRowPolicy,
    DynamicOverwrite,
    Fingerprint,
    IsolationLevel,
    OnBadRow,
    Overwrite,
    OverwriteByFilter,
    Route,
    SchemaChange,
    StreamName,
    TxnId,
    WriteIdentity,
)
from iceberg_ds.planning.columns import WrittenColumns
from iceberg_ds.planning.keys import KeyedWrite
from iceberg_ds.planning.version_3 import why_not_upgraded, why_not_written
from iceberg_ds.snapshots.growth import least_small_files, small_below_bytes
from iceberg_ds.snapshots.refs import MAIN_BRANCH, base_branch, snapshots_since, why_not_writable, write_base
from iceberg_ds.snapshots.version_3 import VERSION_3, metadata_json, why_not_numbered
from iceberg_ds.table.encryption import evidence_of_encryption
from iceberg_ds.table.locations import PROVIDER, why_not_trusted
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.partitioning import PartitionSplitter, why_not_readable
from iceberg_ds.table.requests import CommitRequest, UpgradeFormatVersion, joined, spec_request
from iceberg_ds.table.schema_evolution import EvolutionPolicy, metadata_with, propose_request, propose_schema
from iceberg_ds.table.sort_order import RowOrder
from iceberg_ds.table.spark_types import iceberg_schema, json_schema
from iceberg_ds.table.specs import SortTerm, describes, describes_order, evolved_spec, new_sort_order, spec_text

# Suffix of a staging branch's name if no option names the branch.
_UNCONVERTED = "__unconverted"
_JAVA_LOCATION_PROVIDER = "write.location-provider.impl"
# Properties whose wrong values fail in the middle of a write, or send files to a place where no other engine looks. An
# empty value counts as not set.
_READ_WHILE_WRITING = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.enabled",
    "write.object-storage.partitioned-paths",
    "write.metadata.previous-versions-max",
)
_CREATE_IT = "Create it with create-branch=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a write asks for, no matter what its table is like.

    Attributes:
        options: Options of the write.
        kind: Kind of the write.
        written: The columns that the write writes.
        keyed: What the write asks for as a write by keys, or None if it names no keys.
        policy: What may change in the table's columns.
    """

    options: SinkOptions
    kind: Kind
    written: WrittenColumns
    keyed: KeyedWrite | None
    policy: EvolutionPolicy

    @classmethod
    def of(cls, options: SinkOptions, dataframe: StructType, kind: Kind) -> Wish:
        """Return what a write of a DataFrame's columns asks for.

        Raises:
            OptionError: An option names columns that are missing or do not fit.
            SchemaMismatchError: There are no columns, or two have one name.
        """
        if not dataframe.fields:
            raise SchemaMismatchError(
                f"Cannot write to {identifier_text(options.table)}: the DataFrame has no columns, so that nothing of "
                'its rows could be written. Select the columns to write, e.g. df.select("id").'
            )
        columns = json_schema(dataframe) if options.nested_as_json else dataframe
        written = WrittenColumns.of(options, columns)
        keyed = KeyedWrite.of(options, columns, written, looks_for_rows=Kind.UPSERT in kind)
        return cls(options=options, kind=kind, written=written, keyed=keyed, policy=_evolution_policy(options, kind))

    @property
    def name(self) -> str:
        """The table's identifier, for messages."""
        return identifier_text(self.options.table)

    def new_schema(self) -> Schema:
        """Return the columns of a table that is to be created.

        Raises:
            OptionError: The keys do not fit the columns.
            SchemaMismatchError: A column has no Iceberg type.
        """
        if self.keyed is not None:
            return self.keyed.new_schema()
        return iceberg_schema(
            self.written.columns(None),
            case_sensitive=self.options.case_sensitive,
            format_version=self.options.new_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table of a write.

    Attributes:
        metadata: The table as it was loaded or staged.
        io_properties: Properties that open its storage, in tasks too.
        table: Opens its files and takes changes; None if the commit of the write creates the table.
    """

    metadata: TableMetadata
    io_properties: Mapping[str, str] = field(repr=False)
    table: Table | None = None

    @classmethod
    def of(cls, catalog: CatalogClient, table: Table) -> Target:
        """Return a table that exists."""
        return cls(metadata=table.metadata, io_properties=catalog.plan_properties(table), table=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a write does with a table.

    Attributes:
        found: The table as it was looked at.
        change: What must change in the table first, or None.
        metadata: The table with that change, and with the columns that land together with the rows.
        write: What the tasks and the commit are told: the branch, what is replaced, how rows change keys.
        sort_order: Order of the rows within a file, or None for the order in which they come.
        delete_spec: Partition spec of files of equality deletes, as `WritePlan` has it.
        frame: The columns that option `delete-when` reads; None if the option is not given.
        added: The columns that tasks fill in, or None.
    """

    found: TableMetadata
    change: CommitRequest | None
    metadata: TableMetadata
    write: WriteIdentity
    sort_order: SortOrder | None
    delete_spec: PartitionSpec | None
    frame: Schema | None
    added: AddedColumns | None


def decide(wish: Wish, target: Target) -> Decision:
    """Return what a write does with a table.

    Raises:
        OptionError: Options and table contradict each other.
        SchemaMismatchError: A column does not fit.
        UnsupportedTableError: The table cannot be written without breaking it.
    """
    options, is_new = wish.options, target.table is None
    check_supported(target.metadata, wish.name, options.table_properties)
    with naming_action(f"write to {wish.name}"):
        metadata, change = foreseen(target.metadata, [] if is_new else _changes(wish))
    if change is not None:
        check_columns(metadata, wish.name)
    file_io(target.io_properties, metadata.location)  # refuses wrong properties of the store before any task runs
    sort_order = order_of_rows(options, metadata, is_new=is_new)
    route = plan_branches(options, metadata, is_new=is_new)
    check_load(options, metadata, route)
    fingerprint = None if is_new else Fingerprint.of(metadata)  # before columns are replaced
    schema_change = None if target.table is None else _replacing_columns(wish, metadata, target.table, route)
    if schema_change is not None:
        metadata = metadata_with(metadata, schema_change.schema, table_name=wish.name)
        check_columns(metadata, wish.name)
    feed, delete_spec = (None, None) if wish.keyed is None else wish.keyed.plan(metadata)
    write = replace(
        new_write(options, metadata, route, fingerprint),
        overwrite=_overwrite(options, metadata, route) if Kind.OVERWRITE in wish.kind else None,
        schema_change=schema_change,
        new_table=metadata_json(metadata) if is_new else None,
        txn=txn_of(options),
        stream=_stream_name(options),
        changes=feed,
        delete_spec_id=None if delete_spec in (None, NO_SPEC) else delete_spec.spec_id,
        bad_rows=_bad_rows(options),
    )
    return Decision(
        found=target.metadata,
        change=change,
        metadata=metadata,
        write=write,
        sort_order=sort_order,
        delete_spec=delete_spec,
        frame=wish.written.bound_columns(),
        added=wish.written.plan(metadata.schema(), options.txn_version),
    )


def check_supported(metadata: TableMetadata, name: str, asked: Mapping[str, str]) -> None:
    """Refuse a table that cannot be written without breaking it.

    Args:
        metadata: The table.
        name: Its identifier, for messages.
        asked: The table properties that the user's options name.

    Raises:
        UnsupportedTableError: Lists all reasons.
    """
    properties = metadata.properties
    problems = misplaced(metadata.location, properties)
    if metadata.format_version not in WRITABLE_FORMAT_VERSIONS:
        problems.append(f"its format version is {metadata.format_version}, and versions 1 to 3 can be written")
    if (evidence := evidence_of_encryption(metadata)) is not None:
        problems.append(f"it is encrypted ({evidence}), and this sink would write plain files")
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
    if (unnumbered := why_not_numbered(metadata)) is not None:
        problems.append(unnumbered)
    problems += why_not_written(metadata)
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


def check_columns(metadata: TableMetadata, name: str) -> None:
    """Refuse columns of types that are not written, such as a write would add; raises as `check_supported`."""
    if problems := why_not_written(metadata):
        raise UnsupportedTableError(f"Cannot write to {name}: {'; '.join(problems)}.")


def check_upgrade(options: SinkOptions, metadata: TableMetadata) -> None:
    """Refuse the upgrade that options ask for if the table could not be written afterwards: no upgrade can be undone.

    Raises:
        UnsupportedTableError: Lists all reasons.
    """
    wanted = int(options.format_version or 0)
    if not options.upgrade_format or not metadata.format_version < VERSION_3 <= wanted:
        return
    if problems := why_not_upgraded(metadata.schema()):
        raise UnsupportedTableError(
            f"Cannot upgrade {identifier_text(options.table)} to format version {wanted}, nothing was changed: it "
            f"could not be written afterwards, because {'; '.join(problems)}."
        )


def check_load(options: SinkOptions, metadata: TableMetadata, route: Route) -> None:
    """Refuse a write into a table that is in need of maintenance, by the limits that its options set.

    Raises:
        OverloadedTableError: The table has more snapshots, or the branch that the write builds on more small files.
    """
    problems = []
    if options.max_snapshots is not None and (count := len(metadata.snapshots)) > options.max_snapshots:
        problems.append(f"it has {count:,} snapshots, and option 'max-snapshots' is {options.max_snapshots:,}")
    if options.max_small_files is not None:
        branch = base_branch(metadata, route)
        if (count := least_small_files(metadata, branch)) > options.max_small_files:
            problems.append(
                f"its branch '{branch}' has at least {count:,} data files below {small_below_bytes(metadata):,} bytes, "
                f"and option 'max-small-files' is {options.max_small_files:,}"
            )
    if problems:
        name = identifier_text(options.table)
        raise OverloadedTableError(
            f"Cannot write to {name}, nothing was written: {'; '.join(problems)}. Run `iceberg-ds maintain "
            f"{shlex.quote(name)}` until it has fewer, or raise the limit; then write again."
        )


def check_rewritable(metadata: TableMetadata, options: SinkOptions, branch: str, action: str) -> None:
    """Refuse a table, or a branch, whose files cannot be rewritten without breaking it.

    Args:
        metadata: The table.
        options: The user's.
        branch: The branch whose files are to be rewritten.
        action: What is to be done, such as `rewrite manifests of db.t`.

    Raises:
        UnsupportedTableError: The table cannot be written; lists all reasons.
        OptionError: The branch cannot be written.
    """
    check_supported(metadata, identifier_text(options.table), options.table_properties)
    if (reason := why_not_writable(metadata, Route(branch=branch))) is not None:
        raise OptionError(f"Cannot {action}: {reason}.")


def foreseen(metadata: TableMetadata, changes: Sequence[Propose]) -> tuple[TableMetadata, CommitRequest | None]:
    """Return the table after changes, each proposed for the result of the one before, and one request for all of them.

    Raises:
        Exception: What a proposal raises; then no change may be made.
    """
    requests: list[CommitRequest] = []
    for propose in changes:
        if (request := propose(metadata)) is not None:
            metadata = update_table_metadata(metadata, request.updates)
            requests.append(request)
    return metadata, joined(requests)


def _changes(wish: Wish) -> list[Propose]:
    """Return the changes of an existing table, each built on those before."""
    options, keyed = wish.options, wish.keyed

    def columns(metadata: TableMetadata) -> CommitRequest | None:
        return propose_request(wish.written.columns(metadata.schema()), metadata, wish.policy, table_name=wish.name)

    return [
        lambda metadata: _upgrading(options, metadata),
        *([] if keyed is None else [keyed.rekeying]),
        *([] if wish.policy.replace_types else [columns]),  # columns that are replaced change with the rows
        lambda metadata: _repartitioning(options, metadata),
        *([] if keyed is None else [keyed.adding_delete_spec]),
        lambda metadata: _reordering(options, metadata),
    ]


def _upgrading(options: SinkOptions, metadata: TableMetadata) -> CommitRequest | None:
    """Return the request that upgrades the format of a table, None if it stays.

    Raises:
        UnsupportedTableError: As `check_upgrade`.
    """
    wanted = int(options.format_version or 0)
    if not options.upgrade_format or wanted <= metadata.format_version:
        return None
    check_upgrade(options, metadata)
    return CommitRequest(
        requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
        updates=(UpgradeFormatVersion(format_version=wanted),),
    )


def _replacing_columns(wish: Wish, metadata: TableMetadata, table: Table, route: Route) -> SchemaChange | None:
    """Return the change of columns that lands together with the rows, for a write that replaces all rows.

    So no reader sees the old rows without their columns.
    """
    if not wish.policy.replace_types:
        return None
    columns = wish.written.columns(metadata.schema())
    schema = propose_schema(columns, metadata, wish.policy, table_name=wish.name)
    if schema is None:
        return None
    change = SchemaChange(schema=schema, base_schema_id=metadata.current_schema_id)
    check_replaceable(metadata, table.io, change, route, table_name=wish.name)
    return change


def _repartitioning(options: SinkOptions, metadata: TableMetadata) -> CommitRequest | None:
    """Return the request that partitions the table as `partition-by` asks, or None if nothing is to change.

    Raises:
        OptionError: The table has another spec and `evolve-partitioning` is false.
        ValueError: The columns do not fit.
    """
    terms = options.partition_by
    if terms is None or describes(terms, metadata.spec(), metadata.schema()):
        return None
    if not options.evolve_partitioning:
        asked = ", ".join(map(str, terms)) or "empty"
        present = spec_text(metadata.spec(), metadata.schema()) or "nothing"
        raise OptionError(
            f"Cannot write to {identifier_text(options.table)}: option 'partition-by' is {asked}, and the table is "
            f"partitioned by {present}. Drop the option, or change the table with evolve-partitioning=true."
        )
    return spec_request(metadata, evolved_spec(terms, metadata))


def order_of_rows(options: SinkOptions, metadata: TableMetadata, *, is_new: bool) -> SortOrder | None:
    """Return the order of rows within a file, or None for no order.

    Args:
        options: The options of the write.
        metadata: The table as it was staged, or with the change that the write needs.
        is_new: Whether the commit of the write creates the table.
    """
    if not options.use_table_distribution_and_ordering:
        return None
    if is_new or options.sort_by is None:
        return _default_order(metadata)
    return _recorded_order(options.sort_by, metadata)


def _default_order(metadata: TableMetadata) -> SortOrder | None:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return None if order is None or order.is_unsorted else order


def _recorded_order(terms: Sequence[SortTerm], metadata: TableMetadata) -> SortOrder | None:
    schema = metadata.schema()
    return next((order for order in metadata.sort_orders if describes_order(terms, order, schema)), None)


def _reordering(options: SinkOptions, metadata: TableMetadata) -> CommitRequest | None:
    """Return the request that records the order of `sort-by`, or None if it is recorded or the option is not set.

    Raises:
        ValueError: The columns do not fit.
    """
    terms = options.sort_by if options.use_table_distribution_and_ordering else None
    if terms is None or _recorded_order(terms, metadata) is not None:
        return None
    highest = max((order.order_id for order in metadata.sort_orders), default=0)
    order = new_sort_order(terms, metadata.schema(), highest + 1)
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
        ),
        updates=(AddSortOrderUpdate(sort_order=order),),
    )


def plan_branches(options: SinkOptions, metadata: TableMetadata, *, is_new: bool) -> Route:
    """Return the branch to write, and where it is forked from and published to.

    Args:
        options: The options of the write.
        metadata: The table.
        is_new: Whether the commit of the write creates the table.

    Raises:
        OptionError: A branch is missing, or the name is no branch, or it cannot be forked or published to.
    """
    name, target, staging = identifier_text(options.table), options.branch or MAIN_BRANCH, staging_branch(options)
    if staging is not None and options.publish_converted:
        _check_branch(options, metadata, Route(branch=target))
        route = Route(branch=staging, fork_from=target, publish_to=target, converts=True)
        _check_branch(options, metadata, route)
        return route
    # PyIceberg's catalogs refuse the first snapshot of a table on any branch but main.
    if not (is_new or metadata.snapshots) and target == MAIN_BRANCH:
        return Route(branch=MAIN_BRANCH)  # readers see nothing before the commit, and all rows after it
    if not (is_new or metadata.snapshots) and options.create_branch:
        raise OptionError(
            f"Cannot write to {name}: branch '{target}' cannot be forked, because the table has no snapshot yet. Write "
            "to main first."
        )
    if staging is not None:
        _check_branch(options, metadata, Route(branch=target))
        route = Route(branch=staging, fork_from=target, publish_to=target)
    else:
        forks = options.create_branch and target != MAIN_BRANCH
        route = Route(branch=target, fork_from=MAIN_BRANCH if forks else None)
    _check_branch(options, metadata, route)
    return route


def staging_branch(options: SinkOptions) -> str | None:
    """Return the branch that rows are written to before they are published, or None if they are written directly."""
    if options.publish_converted and options.staging_branch is None:
        return f"{options.branch or MAIN_BRANCH}{_UNCONVERTED}"
    return options.staging_branch


def forks_at_once(options: SinkOptions) -> bool:
    """Return whether the first commit of a table goes to a fork of `main`, which must have a snapshot first."""
    return options.publish_converted and options.branch in (None, MAIN_BRANCH)


def _check_branch(options: SinkOptions, metadata: TableMetadata, route: Route) -> None:
    """Refuse a branch that rows cannot be added to, or be published to."""
    if (reason := why_not_writable(metadata, route)) is None:
        return
    hint = ""
    if route.branch not in metadata.refs:
        is_staged = staging_branch(options) not in (None, route.branch)
        step = "Create it first: a write creates no branch that it publishes to" if is_staged else _CREATE_IT
        hint = f" (known: {', '.join(sorted({MAIN_BRANCH, *metadata.refs}))}). {step}, or name another"
    raise OptionError(f"Cannot write to {identifier_text(options.table)}: {reason}{hint}.")


def _evolution_policy(options: SinkOptions, kind: Kind) -> EvolutionPolicy:
    is_replacing_all = Kind.OVERWRITE in kind and options.overwrite_mode != "dynamic" and options.replace_where is None
    return EvolutionPolicy(
        mode=options.schema_evolution,
        drop_missing_columns=options.drop_missing_columns,
        replace_types=is_replacing_all and options.schema_evolution == "full",
        case_sensitive=options.case_sensitive,
        check_ordering=options.check_ordering,
        # In a change feed a row that is a delete has nulls in all columns but its keys.
        is_nullability_known=Kind.STREAM not in kind and options.keys is None,
        use_nullable_query_schema=options.use_nullable_query_schema,
    )


def _overwrite(options: SinkOptions, metadata: TableMetadata, route: Route) -> Overwrite:
    base = write_base(metadata, route)
    base_id = base.snapshot_id if base is not None else None
    name = identifier_text(options.table)
    if (asked := options.validate_from_snapshot_id) is not None:
        if snapshots_since(metadata, base, asked) is None:
            raise OptionError(
                f"Cannot write to {name}: option 'validate-from-snapshot-id' is {asked}, which does not lie behind "
                f"branch '{route.branch}', or has expired."
            )
        base_id = asked
    isolation_level: IsolationLevel = options.isolation_level or "serializable"
    if options.overwrite_mode == "dynamic":
        return DynamicOverwrite(isolation_level=isolation_level, base_snapshot_id=base_id)
    from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415  # appends need no predicates

    overwrite = OverwriteByFilter(
        predicate=options.replace_where or EVERY_ROW,
        case_sensitive=bool(options.case_sensitive),
        time_zone=options.time_zone,
        isolation_level=isolation_level,
        base_snapshot_id=base_id,
    )
    try:
        row_filter = RowFilter.of(overwrite, metadata.schema())
    except ValueError as problem:
        raise OptionError(f"Cannot write to {name}: option 'replace-where': {problem}.") from problem
    return replace(overwrite, columns=row_filter.columns)


def _bad_rows(options: SinkOptions) -> BadRowPolicy | None:
    mode = options.on_bad_row
    if mode == "fail":
        return None
    target = options.quarantine
    if target == options.table:
        raise OptionError(
            f"Cannot write to {identifier_text(options.table)}: option 'quarantine-table' names the table itself. Name "
            "another one."
        )
    return _policy(options, mode, target)


def unrouted_rows(options: RouteOptions) -> BadRowPolicy | None:
    """Return what happens to rows that name no table which may be written; None if they fail the write.

    None of their values could become null.
    """
    if options.of_all.on_bad_row == "drop":
        return _policy(options.of_all, "drop", None)
    target = options.unrouted_quarantine
    return None if target is None else _policy(options.of_all, "quarantine", target)


def _policy(options: SinkOptions, mode: OnBadRow, target: tuple[str, ...] | None) -> BadRowPolicy:
    most = options.max_bad_rows
    return BadRowPolicy(
        mode=mode,
        quarantine=None if target is None else identifier_text(target),
        most_rows=most if isinstance(most, int) else None,
        most_share=most if isinstance(most, Decimal) else None,
    )


def txn_of(options: SinkOptions) -> TxnId | None:
    """Return the number of a batch, or None if it has none."""
    if options.txn_app_id is None or options.txn_version is None:
        return None
    return TxnId(app_id=options.txn_app_id, version=options.txn_version)


def _stream_name(options: SinkOptions) -> StreamName | None:
    if options.stream_name is None:
        return None
    return StreamName(name=options.stream_name, accepts_new_checkpoint=options.accept_new_checkpoint)
