"""`SinkOptions`: every option of a write, declared once: a field with its type, default, parser and doc.

Parsing (`parse`), the rules on combinations (`rules`), the error texts and the table of docs/options.md follow from
these fields.
Precedence is applied when a write is planned: write option, then table property, then default; so an option whose
default is a property of the table is None if it is not given.
"""

# ruff: noqa: RUF009  # the functions that declare options return fields
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Literal

from iceberg_ds import parsing as values
from iceberg_ds.errors import IcebergSinkError, OptionError
from iceberg_ds.io import local_paths
from iceberg_ds.metrics.reporters import ReportSettings
from iceberg_ds.options.declaring import Option, group, option
from iceberg_ds.options.readers import READERS
from iceberg_ds.plan import METADATA_COLUMNS, IsolationLevel, ParquetEncodings, TxnId
from iceberg_ds.secrets import mask_properties
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.table.routes import parse_table_patterns
from iceberg_ds.table.schema_evolution import SchemaEvolution
from iceberg_ds.table.spec_parser import parse_column, parse_columns
from iceberg_ds.table.specs import PartitionTerm, SortTerm, parse_partition_by, parse_sort_by

DEFAULT_WAREHOUSE = Path("iceberg-warehouse")
CATALOG_PREFIX = "catalog."
ROUTE_COLUMNS_PREFIX, ROUTE_OPTIONS_PREFIX = "route-columns.", "route-options."
# Follows the name of a table in that of its quarantine table, unless an option names that.
QUARANTINE_SUFFIX = "__quarantine"
COMPRESSION_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")


def _parse_full_identifier(text: str) -> tuple[str, ...]:
    levels = parse_identifier(text)
    if len(levels) == 1:
        raise ValueError("expected a namespace and a table, such as meta.cuts")
    return levels


def _predicate(text: str) -> str:
    """Return `text`, the text of a predicate; it is parsed again wherever the predicate is needed."""
    from iceberg_ds.expressions.parser import predicate_text  # noqa: PLC0415  # most writes need no predicates

    return predicate_text(text)


def _time_zone(text: str) -> str:
    """Return the name of a time zone, checked."""
    from iceberg_ds.expressions.literals import time_zone  # noqa: PLC0415  # most writes need no predicates

    return time_zone(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one write, parsed; None means that the option was not given.

    `catalog_properties` may hold credentials: it is masked in `repr` and never leaves the driver.
    """

    table: tuple[str, ...] = option(
        parse_identifier,
        "Identifier of the table, levels separated by dots; a level of more than letters and digits stands in "
        "backticks, such as ``db.`my.table` ``.",
        default=(),
        shown='required, or `save("db.t")` / `start("db.t")`',
    )
    namespace: tuple[str, ...] | None = option(parse_identifier, "Namespace of a table whose name has no dot.")
    catalog: str | None = option(
        values.name,
        "Name of a catalog in PyIceberg's configuration file or environment, or a name for the one that `catalog.*` "
        "describes.",
        shown="`default`",
    )
    catalog_properties: Mapping[str, str] = group(
        CATALOG_PREFIX,
        "Any PyIceberg catalog or storage property, for example `catalog.uri`, `catalog.warehouse`, "
        "`catalog.s3.endpoint`.",
        is_shown=False,
    )
    warehouse: str | None = option(
        local_paths.warehouse,
        "Local folder of the embedded catalog (SQLite and files), which is used when no catalog is configured.",
        shown=f"`./{DEFAULT_WAREHOUSE}`",
    )
    route_by: str | None = option(
        parse_column,
        "Column whose value names the table of each row, such as `db.events`; not written, unless a table has it. A "
        "write with this option names no table. See [many tables](many-tables.md).",
    )
    route_tables: tuple[str, ...] = option(
        parse_table_patterns,
        "With `route-by`: the tables that may be written and created, such as `shop.orders, raw.*`; `*` stands for any "
        "characters of a level, but for no dot in a namespace. Rows that name another one are refused, or go to "
        "`quarantine-table`.",
        default=(),
        shown="all tables of `route-namespace`",
    )
    route_namespace: tuple[str, ...] | None = option(
        parse_identifier,
        "With `route-by`: namespace of tables whose names have no dot.",
    )
    route_table_template: str = option(
        values.template,
        "With `route-by`: the name of the table, such as `raw_{value}`.",
        default=values.VALUE,
    )
    route_columns: Mapping[str, str] = group(
        ROUTE_COLUMNS_PREFIX,
        "With `route-by`: columns that a table gets, such as `route-columns.shop.orders` = `id, total`. Otherwise a "
        "table gets the columns that it has and, as far as `schema-evolution` allows it, those in which its rows have "
        "values.",
    )
    route_options: Mapping[str, str] = group(
        ROUTE_OPTIONS_PREFIX,
        "With `route-by`: an option for one table, such as `route-options.shop.orders.keys` = `id`.",
    )
    branch: str | None = option(
        values.name,
        "Branch to write to; it must exist, unless `create-branch` is `true`.",
        shown="`main`",
    )
    create_branch: bool = option(
        values.boolean,
        "Fork a missing branch from the table's current snapshot, in the same commit as the rows.",
        default=False,
    )
    staging_branch: str | None = option(
        values.name,
        "Write to this branch, made from `branch` if it is missing, then fast-forward `branch` to it. Refused if "
        "`branch` has moved on. In streams only with `publish-converted`.",
    )
    create_table: bool = option(
        values.boolean,
        "Create namespace and table on the first write; `false` refuses to write to a missing table.",
        default=True,
    )
    partition_by: tuple[PartitionTerm, ...] | None = option(
        parse_partition_by,
        "Partitioning of a new table, such as `day(ts), bucket(16, id) as shard, truncate(4, name), region`; empty "
        "for none. On an existing table it must equal the table's own spec, names that it gives included.",
    )
    evolve_partitioning: bool = option(
        values.boolean,
        "Let a differing `partition-by` change the table's partition spec, from this write on.",
        default=False,
    )
    sort_by: tuple[SortTerm, ...] | None = option(
        parse_sort_by,
        "Sort order of the rows within each file, such as `ts desc nulls last, id`; it is recorded. On a new table it "
        "becomes the table's sort order.",
        shown="the table's sort order",
    )
    use_table_distribution_and_ordering: bool = option(
        values.boolean,
        "`false`: rows are not sorted by the table's sort order. A write never distributes them.",
        default=True,
    )
    table_properties: Mapping[str, str] = group(
        "table-property.",
        "Properties of a new table, such as `table-property.write.summary.partition-limit`. It also gets "
        "`write.metadata.delete-after-commit.enabled=true` and `commit.manifest-merge.enabled=true`, unless this says "
        "`false`. Values that Iceberg does not take are refused; see [properties](properties.md). An existing "
        "table keeps its own.",
    )
    location: str | None = option(
        values.location,
        "Location of a new table, which holds no other table. An existing table keeps its own.",
        shown="the catalog's choice",
    )
    format_version: str | None = option(
        values.one_of("1", "2", "3"),
        "Format version of a new table: 1, 2 or 3. An existing table keeps its own, unless `upgrade-format` is given. "
        "See [version 3](version-3.md).",
        shown="`2`",
    )
    upgrade_format: bool = option(
        values.boolean,
        "Upgrade an existing table to `format-version`, before this write. Nobody can take it back; the log says which "
        "readers are not known to read the newer one. See [version 3](version-3.md).",
        default=False,
    )
    overwrite_mode: Literal["static", "dynamic"] | None = option(
        values.one_of("static", "dynamic"),
        'With `mode("overwrite")` or `outputMode("complete")`: `static` replaces all rows of the branch, or those of '
        "`replace-where`; `dynamic` replaces the partitions that the data has.",
        shown="`static`",
    )
    replace_where: str | None = option(
        _predicate,
        'With `mode("overwrite")` or `outputMode("complete")`: a predicate, such as `day >= \'2026-11-01\' AND region '
        "= 'EU'`. The rows that satisfy it are replaced, and all rows written must satisfy it. Also `replaceWhere`.",
    )
    time_zone: str | None = option(
        _time_zone,
        "Time zone of times without a zone in `replace-where` and `delete-when`, such as `Europe/Paris`. Give the "
        'session\'s, `spark.conf.get("spark.sql.session.timeZone")`: Spark does not tell it to data sources.',
        shown="none: a time without a zone is refused beside a timestamp with one",
    )
    isolation_level: IsolationLevel | None = option(
        values.one_of("serializable", "snapshot", "none"),
        "When replacing: `serializable` refuses the commit if rows came into the replaced range since the write began; "
        "`snapshot` keeps those rows; `none` replaces them, too: all rows that are there when the write lands.",
        shown="`serializable`",
    )
    validate_from_snapshot_id: int | None = option(
        values.integer,
        "When replacing: the snapshot from which changes of others count.",
        shown="the snapshot when the write began",
    )
    consistent_cut: tuple[str, ...] | None = option(
        _parse_full_identifier,
        "Writes into several tables: the table, such as `meta.cuts`, that keeps which snapshots of all of them belong "
        "together, for `iceberg_ds.last_complete`; created if it does not exist. See "
        "[a cut of all tables](atomic.md#a-cut-of-all-tables).",
    )
    txn_app_id: str | None = option(
        values.writer_name,
        "Batches, those in `foreachBatch` too: name of the application that numbers its writes with `txn-version`. "
        "Also `txnAppId`.",
    )
    txn_version: int | None = option(
        values.version,
        "Number of this write. If it is not above the last one of `txn-app-id` on the branch, the write is skipped. "
        "Also `txnVersion`.",
    )
    stream_name: str | None = option(
        values.writer_name,
        "Streams: a name that outlives the checkpoint. A query with a new checkpoint is refused under the name of "
        "another query.",
    )
    accept_new_checkpoint: bool = option(
        values.boolean,
        "With `stream-name`: let one query with a new checkpoint take over the name.",
        default=False,
    )
    keys: tuple[str, ...] | None = option(
        parse_columns,
        "Columns, such as `region, id`, that identify a row: rows written replace those of the same keys. They are the "
        "table's identifier fields, unless they are optional in a table that has none. See "
        "[rows with keys](keys/index.md).",
    )
    sequence_by: tuple[str, ...] = option(
        parse_columns,
        "With `keys`: columns, the first counts most. Among the rows of one key in an epoch or batch, the row with the "
        "highest values wins. Without it, a key that comes twice is an error.",
        default=(),
    )
    sequence_scope: Literal["batch", "table"] | None = option(
        values.one_of("batch", "table"),
        "With `keys` and `sequence-by`: whose sequences count. `batch`: those of the rows of one epoch or batch; "
        "between these the later one wins. `table`: that of the table's row as well, so that late rows lose; for "
        "`iceberg_ds.upsert` and `upsert_into`. See [late rows](keys/late-rows.md).",
        shown="`batch`",
    )
    operation_column: str | None = option(
        parse_column,
        "With `keys`: column that says whether a row is inserted, updated or deleted, in the words of Debezium, Flink, "
        "Delta, Materialize and others. Not written, unless the table has a column of that name. Without `keys` it "
        "counts for `_operation` and `_diff` of `metadata-columns`.",
    )
    delete_when: str | None = option(
        _predicate,
        "With `keys`: a predicate on columns of the DataFrame, such as `deleted = true`; rows that satisfy it are "
        "deletes. Without `keys` it counts as `operation-column` does.",
    )
    keys_not_enforced: bool = option(
        values.boolean,
        "With `keys`: among rows of one key and one sequence any one wins, instead of an error.",
        default=False,
    )
    inserts_are_new: bool = option(
        values.boolean,
        "With `keys` and `operation-column`: the feed guarantees that the table has no row of an inserted key, so that "
        "inserts need no deletes.",
        default=False,
    )
    evolve_keys: bool = option(
        values.boolean,
        "With `keys`: let them replace the identifier fields of an existing table.",
        default=False,
    )
    soft_delete_column: str | None = option(
        parse_column,
        "With `keys` and `operation-column` or `delete-when`: deletes do not take rows away, but set this column: "
        "a boolean is `true`, a timestamp says when.",
    )
    delete_encoding: str | None = option(
        values.delete_encoding,
        "With `keys`: how old rows are deleted. `equality`: by equality deletes, as writes with "
        '`format("icebergsink")` do if not told otherwise. By streams, `iceberg_ds.upsert` and `upsert_into`: '
        "`position`, `deletion-vector`; by the last two also `copy-on-write`, which writes files again. `auto`: "
        "`equality` in the former; in `upsert` and `upsert_into` `position` in tables of format version 2, "
        "`deletion-vector` in those of version 3. Refused if not all `readers` can read them.",
        shown="`auto`",
    )
    key_index_folder: str | None = option(
        str,
        "Streams with `delete-encoding` `position` or `deletion-vector`: a folder of the driver for what is known of "
        "the table's keys. None: one of the user's own, in that of temporary files.",
    )
    readers: tuple[str, ...] = option(
        values.names_among(*READERS),
        "With `keys`: who must be able to read the table, such as `spark, trino`. A write whose deletes one of them "
        "cannot read is refused. See [readers](keys/readers.md).",
        default=(),
    )
    publish_converted: bool = option(
        values.boolean,
        "With `keys`: rows land on `staging-branch` (by default `branch` with the suffix `__unconverted`), their "
        "deletes are converted there, then `branch` is fast-forwarded: its readers never meet equality deletes. See "
        "[published when converted](keys/published.md).",
        default=False,
    )
    metadata_columns: tuple[str, ...] = option(
        values.names_among(*METADATA_COLUMNS),
        "Columns that the sink fills in, such as `_extracted_at, _epoch_id`: when the epoch or batch was planned, its "
        "number, what each row does (`_operation`), and `+1` or `-1` (`_diff`, for change feeds without `keys`). See "
        "[columns that tell of the write](metadata-columns.md).",
        default=(),
    )
    schema_evolution: SchemaEvolution = option(
        values.one_of("strict", "add-columns", "full"),
        "What may change in the table's schema to fit the DataFrame: nothing, new columns, or all that keeps old rows "
        "readable. Optional columns that the DataFrame lacks get nulls. See [columns](columns.md).",
        default="strict",
    )
    merge_schema: bool = option(
        values.boolean,
        "`true` is `schema-evolution=add-columns`. Also `mergeSchema`.",
        default=False,
    )
    overwrite_schema: bool = option(
        values.boolean,
        'Delta\'s: with `mode("overwrite")` of all rows `true` is `schema-evolution=full` with '
        "`drop-missing-columns=true`, so that the table gets the columns of the DataFrame. Its partitioning stays.",
        default=False,
        name="overwriteSchema",
    )
    drop_missing_columns: bool = option(
        values.boolean,
        "With `schema-evolution=full`: drop columns of the table that the DataFrame does not have, instead of writing "
        "nulls.",
        default=False,
    )
    use_nullable_query_schema: bool = option(
        values.boolean,
        "All columns of a new table but its keys are optional, and so is all that is nested in columns that are added "
        "later. `false`: columns that Spark calls non-nullable are required.",
        default=True,
    )
    check_nullability: bool = option(
        values.always_checked,
        "Nulls in required columns are refused; `false` is refused, because such a table could not be read.",
        default=True,
    )
    check_ordering: bool = option(
        values.boolean,
        "Refuse a DataFrame whose columns are in another order than the table's. Columns are always matched by name.",
        default=False,
    )
    case_sensitive: bool | None = option(
        values.boolean,
        "`true`: names must be equal, and names that differ in case alone are different columns. `false`: case never "
        "counts.",
        shown="exact name first, else the only one that differs in case",
    )
    nested_as_json: bool = option(
        values.boolean,
        "Write structs, arrays and maps as JSON strings.",
        default=False,
    )
    nested_as_variant: bool = option(
        values.boolean,
        "Write structs, arrays and maps as variants, into columns that are new or are variants already, of tables of "
        "format version 3. See [variant](version-3.md#variant).",
        default=False,
    )
    on_bad_row: Literal["fail", "null", "quarantine", "drop"] = option(
        values.one_of("fail", "null", "quarantine", "drop"),
        "What happens to a row that cannot be written: the write fails; its bad values become `null`, and column "
        "`_errors` says why; it goes to `quarantine-table`; or it is lost. Other than with `fail`, values are cast one "
        "by one into the table's types. See [rows that cannot be written](bad-rows.md).",
        default="fail",
    )
    quarantine_table: tuple[str, ...] | None = option(
        parse_identifier,
        "With `on-bad-row=quarantine`: the table for rows that cannot be written; a name without a dot is one in the "
        "table's own namespace. With `route-by` it also gets rows that name no table, if it is given.",
        shown="the table's name with the suffix `__quarantine`",
    )
    max_bad_rows: int | Decimal | None = option(
        values.count_or_share,
        "With another `on-bad-row` than `fail`: the most such rows of an epoch or batch, as a number or as a share of "
        "its rows, such as `1%`. More of them fail the write, and nothing is committed.",
        shown="no limit",
    )
    accept_lost_rows: bool = option(
        values.boolean,
        "`on-bad-row=drop` needs `true`, because such rows are lost.",
        default=False,
    )
    snapshot_properties: Mapping[str, str] = group(
        "snapshot-property.",
        "Added to the summary of the snapshot, such as `snapshot-property.team`.",
    )
    maintenance: Literal["off", "auto"] = option(
        values.one_of("off", "auto"),
        "`auto`: after a commit that landed, the committer expires old snapshots and rewrites manifests once many are "
        "due, in bounded time; a failure of it fails no write. See "
        "[maintenance](maintenance/index.md#within-the-write-itself).",
        default="off",
    )
    max_snapshots: int | None = option(
        values.count,
        "Refuse the write, before a task starts, if the table has more snapshots than this. See "
        "[back-pressure](maintenance/index.md#back-pressure).",
        shown="no limit",
    )
    max_small_files: int | None = option(
        values.count,
        "Refuse the write, before a task starts, if the branch is sure to have more data files than this that are "
        "below a quarter of `write.target-file-size-bytes`, as the summaries of its snapshots tell it.",
        shown="no limit",
    )
    metrics_file: str | None = option(
        local_paths.local_file,
        "File on the driver's machine to which each commit appends its report, a line of JSON; see "
        "[metrics](metrics/index.md).",
    )
    metrics_reporter: tuple[str, ...] = option(
        values.names,
        "What else gets the report on each commit: `log`, functions as `module:function`, names of entry points.",
        default=(),
    )
    snapshot_metrics: bool = option(
        values.boolean,
        "Add what the tasks took to the summary of the snapshot, under `icebergsink.metrics.*`.",
        default=False,
    )
    event_time_column: str | None = option(
        parse_column,
        "Timestamp of the DataFrame that tells how fresh rows are: the report on a commit has the newest.",
        shown="the column of the stream's watermark",
    )
    user_metadata: str | None = option(
        str,
        "Delta's: text that is added to the summary of the snapshot under this name.",
        name="userMetadata",
    )
    target_file_size_bytes: int | None = option(
        values.positive_integer,
        "Size in bytes of compressed data at which a task starts its next file.",
        shown="table property `write.target-file-size-bytes`, then 536870912",
    )
    max_open_files: int = option(
        values.positive_integer,
        "The most files that a task has open at once. Rows of further partitions wait in a temporary file, so that "
        "each partition gets one file. Input that is clustered by partition needs one open file: with `1` it is "
        "finished when another is begun, and nothing waits on disk.",
        default=16,  # each holds one to two megabytes, and a part of an upload
    )
    small_task_size_bytes: int = option(
        values.count,
        "Size in bytes, in memory, of rows that a task hands over to the driver, which writes one file for all such "
        "tasks, or one for each table partition; `0`: every task writes its own files.",
        default=256 * 1024,
    )
    compression_codec: str | None = option(
        values.one_of(*COMPRESSION_CODECS),
        f"Parquet compression: {', '.join(COMPRESSION_CODECS)}.",
        shown="table property `write.parquet.compression-codec`, then `zstd`",
    )
    compression_level: int | None = option(
        values.integer,
        "Level of `zstd`, `gzip` or `brotli`.",
        shown="table property `write.parquet.compression-level`, then the codec's own",
    )
    parquet_encodings: ParquetEncodings = option(
        values.one_of("auto", "classic"),
        "`auto`: each column is encoded as its values take the least space, delta encodings among the choices. "
        "`classic`: dictionary and plain only, for old readers.",
        default="auto",
    )
    write_format: str = option(
        values.one_of("parquet"),
        "File format of the data files; anything but `parquet` is refused.",
        default="parquet",
    )

    def __str__(self) -> str:
        return f"{self!r} with catalog properties {mask_properties(self.catalog_properties)}"

    @property
    def reports(self) -> ReportSettings:
        """Where reports on the commits of the write go."""
        return ReportSettings(
            file=self.metrics_file, reporters=self.metrics_reporter, is_in_summary=self.snapshot_metrics
        )

    def beside(self, table: tuple[str, ...], txn: TxnId | None) -> SinkOptions:
        """Return the options of a write into a table that the sink keeps beside the one that is written.

        Args:
            table: Identifier of that table.
            txn: The number of the write there; None for an epoch, and for a write without a number.
        """
        return SinkOptions(
            table=table,
            catalog=self.catalog,
            catalog_properties=self.catalog_properties,
            warehouse=self.warehouse,
            txn_app_id=None if txn is None else txn.app_id,
            txn_version=None if txn is None else txn.version,
            metrics_file=self.metrics_file,
            metrics_reporter=self.metrics_reporter,
            snapshot_metrics=self.snapshot_metrics,
        )

    @property
    def quarantine(self) -> tuple[str, ...] | None:
        """Identifier of the table for rows of `table` that cannot be written, or None if there is no such table."""
        if self.on_bad_row != "quarantine":
            return None
        named, (*namespace, name) = self.quarantine_table, self.table
        if named is None:
            return (*namespace, f"{name}{QUARANTINE_SUFFIX}")
        return named if len(named) > 1 else (*namespace, *named)

    @property
    def looks_for_rows(self) -> bool:
        """Whether a stream by keys looks for the old rows, so that the table gets no equality deletes."""
        return self.delete_encoding in {"position", "deletion-vector"}

    @property
    def new_version(self) -> int:
        """Format version of a table that the write creates."""
        return int(self.format_version or 2)

    def asks(self, term: str) -> bool:
        """Return whether an option differs from its default (`keys`), or has or includes a value (`keys=id`)."""
        name, _, wanted = term.partition("=")
        if not wanted:
            declared = _FIELDS[name]
            default = declared.default if declared.default_factory is MISSING else declared.default_factory()
            return bool(getattr(self, declared.name) != default)
        return wanted in self.words_of(name)

    def words_of(self, name: str) -> tuple[str, ...]:
        """Return the value of an option as words: several if it names several things, none without a value."""
        value = getattr(self, _FIELDS[name].name)
        words = value if isinstance(value, tuple) else () if value is None else (value,)
        return tuple(str(word).lower() if isinstance(word, bool) else str(word) for word in words)


OPTIONS = tuple(map(Option.of, fields(SinkOptions)))
_FIELDS = {option.name: declared for option, declared in zip(OPTIONS, fields(SinkOptions), strict=True)}


@contextmanager
def naming_action(action: str) -> Iterator[None]:
    """Turn an error in the terms of `partition-by` or `sort-by` into an OptionError.

    Args:
        action: What cannot be done because of the error, such as `write to db.events`.
    """
    try:
        yield
    except IcebergSinkError:
        raise
    except ValueError as problem:
        raise OptionError(f"Cannot {action}: {problem}.") from problem
