"""The one table of options: what each is called, how it is parsed, what it means.

Parsing, the README's table and the error texts all come from it.
"""

from __future__ import annotations

from iceberg_ds import option_values as values
from iceberg_ds.identifiers import parse_identifier
from iceberg_ds.key_options import KEY_OPTIONS, METADATA_OPTION
from iceberg_ds.layouts.layout import parse_partition_by, parse_sort_by
from iceberg_ds.option import Option

CATALOG_PREFIX = "catalog."
TABLE_PROPERTY_PREFIX = "table-property."
SNAPSHOT_PROPERTY_PREFIX = "snapshot-property."
COMPRESSION_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")


OPTIONS: tuple[Option, ...] = (
    Option(
        name="table",
        default='required, or `save("db.t")` / `start("db.t")`',
        parse=parse_identifier,
        doc="Identifier of the table, levels separated by dots; backticks keep what is more than letters and digits, "
        "such as ``db.`my.table` ``.",
    ),
    Option(
        name="namespace",
        default="none",
        parse=parse_identifier,
        doc="Namespace of a table whose name has no dot.",
    ),
    Option(
        name="catalog",
        default="`default`",
        parse=values.name,
        doc="Name of a catalog that PyIceberg's configuration file or environment knows, or the name to give the "
        "one that `catalog.*` describes.",
    ),
    Option(
        name="catalog.*",
        default="none",
        parse=str,
        doc="Any PyIceberg catalog or storage property, for example `catalog.uri`, `catalog.warehouse`, "
        "`catalog.s3.endpoint`.",
    ),
    Option(
        name="warehouse",
        default="`./iceberg-warehouse`",
        parse=values.warehouse,
        doc="Local folder of the embedded catalog (SQLite and files), which is used when no catalog is configured.",
    ),
    Option(
        name="branch",
        default="`main`",
        parse=values.name,
        doc="Branch that is written; it must exist, unless `create-branch` is `true`.",
    ),
    Option(
        name="create-branch",
        default="`false`",
        parse=values.boolean,
        doc="Fork a missing branch from the table's current snapshot, in the same commit as the rows.",
    ),
    Option(
        name="staging-branch",
        default="none",
        parse=values.name,
        doc="Write to this branch, made from `branch` if it is missing, then fast-forward `branch` to it. Refused if "
        "`branch` has moved on. In streams only with `publish-converted`.",
    ),
    Option(
        name="create-table",
        default="`true`",
        parse=values.boolean,
        doc="Create namespace and table on the first write; `false` refuses to write to a missing table.",
    ),
    Option(
        name="partition-by",
        default="none",
        parse=parse_partition_by,
        doc="Partitioning of a new table, such as `day(ts), bucket(16, id) as shard, truncate(4, name), region`; empty "
        "for none. On an existing table it must equal the table's own, the names that it gives among it.",
    ),
    Option(
        name="evolve-partitioning",
        default="`false`",
        parse=values.boolean,
        doc="Let a differing `partition-by` change the table's partition spec, from this write on.",
    ),
    Option(
        name="sort-by",
        default="the table's sort order",
        parse=parse_sort_by,
        doc="Rows are sorted so within each file, such as `ts desc nulls last, id`, and the order is recorded. On "
        "a new table it becomes the table's sort order.",
    ),
    Option(
        name="use-table-distribution-and-ordering",
        default="`true`",
        parse=values.boolean,
        doc="`false`: rows are not sorted by the table's sort order. A write never distributes them.",
    ),
    Option(
        name="table-property.*",
        default="none",
        parse=str,
        doc="Properties of a new table, such as `table-property.write.summary.partition-limit`. It also gets "
        "`write.metadata.delete-after-commit.enabled=true` and `commit.manifest-merge.enabled=true`, unless this says "
        "`false`. Values that Iceberg does not take are refused; see [properties](docs/properties.md). An existing "
        "table keeps its own.",
    ),
    Option(
        name="location",
        default="the catalog's choice",
        parse=values.location,
        doc="Location of a new table, which holds no other table. An existing table keeps its own.",
    ),
    Option(
        name="format-version",
        default="`2`",
        parse=values.one_of("1", "2"),
        doc="Format version of a new table: 1 or 2. An existing table keeps its own.",
    ),
    Option(
        name="overwrite-mode",
        default="`static`",
        parse=values.one_of("static", "dynamic"),
        doc='With `mode("overwrite")` or `outputMode("complete")`: `static` replaces all rows of the branch, or '
        "those of `replace-where`; `dynamic` replaces the partitions that the data has.",
    ),
    Option(
        name="replace-where",
        default="none",
        parse=values.predicate,
        doc='With `mode("overwrite")` or `outputMode("complete")`: a predicate, such as `day >= \'2026-11-01\' AND '
        "region = 'EU'`. The rows that satisfy it are replaced, and all rows written must satisfy it. Also "
        "`replaceWhere`.",
    ),
    Option(
        name="time-zone",
        default="none: a time without a zone is refused beside a timestamp with one",
        parse=values.time_zone,
        doc="Where times without a zone are in `replace-where` and `delete-when`, such as `Europe/Paris`: give it "
        'the session\'s, `spark.conf.get("spark.sql.session.timeZone")`, which Spark does not tell data sources.',
    ),
    Option(
        name="isolation-level",
        default="`serializable`",
        parse=values.one_of("serializable", "snapshot", "none"),
        doc="When replacing: `serializable` refuses the commit if rows came into the replaced range since the "
        "write began; `snapshot` keeps those rows; `none` replaces them, too: all that is there when the write lands.",
    ),
    Option(
        name="validate-from-snapshot-id",
        default="the snapshot when the write began",
        parse=values.integer,
        doc="When replacing: the snapshot from which changes of others are looked for.",
    ),
    Option(
        name="txn-app-id",
        default="none",
        parse=values.writer_name,
        doc="Batches, those in `foreachBatch` too: name of the application that numbers its writes with `txn-version`. "
        "Also `txnAppId`.",
    ),
    Option(
        name="txn-version",
        default="none",
        parse=values.version,
        doc="Number of this write. If it is not above the last one of `txn-app-id` on the branch, the write is "
        "skipped. Also `txnVersion`.",
    ),
    Option(
        name="stream-name",
        default="none",
        parse=values.writer_name,
        doc="Streams: a name that outlives the checkpoint. A query with a new checkpoint is refused under the name "
        "of another one.",
    ),
    Option(
        name="accept-new-checkpoint",
        default="`false`",
        parse=values.boolean,
        doc="With `stream-name`: let a query with a new checkpoint take the name over, once.",
    ),
    *KEY_OPTIONS,
    METADATA_OPTION,
    Option(
        name="schema-evolution",
        default="`strict`",
        parse=values.one_of("strict", "add-columns", "full"),
        doc="What may change in the table's schema to fit the DataFrame: nothing, new columns, or all that keeps "
        "old rows readable. Optional columns that the DataFrame lacks get nulls. See [columns](docs/columns.md).",
    ),
    Option(
        name="merge-schema",
        default="`false`",
        parse=values.boolean,
        doc="`true` is `schema-evolution=add-columns`. Also `mergeSchema`.",
    ),
    Option(
        name="overwriteSchema",
        default="`false`",
        parse=values.boolean,
        doc='Delta\'s: with `mode("overwrite")` of all rows `true` is `schema-evolution=full` with '
        "`drop-missing-columns=true`, so that the table gets the columns of the DataFrame. Its partitioning stays.",
    ),
    Option(
        name="drop-missing-columns",
        default="`false`",
        parse=values.boolean,
        doc="With `schema-evolution=full`: drop columns of the table that the DataFrame does not have, instead of "
        "writing nulls.",
    ),
    Option(
        name="use-nullable-query-schema",
        default="`true`",
        parse=values.boolean,
        doc="All columns of a new table are optional but its keys, and so is all that is nested in columns that are "
        "added later. `false`: columns that Spark calls non-nullable are required.",
    ),
    Option(
        name="check-nullability",
        default="`true`",
        parse=values.always_checked,
        doc="Nulls in required columns are refused; `false` is refused, because such a table could not be read.",
    ),
    Option(
        name="check-ordering",
        default="`false`",
        parse=values.boolean,
        doc="Refuse a DataFrame whose columns are in another order than the table's. Columns are always matched "
        "by name.",
    ),
    Option(
        name="case-sensitive",
        default="exact name first, else the only one that differs in case",
        parse=values.boolean,
        doc="`true`: names must be equal, and names that differ in case alone are different columns. `false`: "
        "case never counts.",
    ),
    Option(
        name="nested-as-json",
        default="`false`",
        parse=values.boolean,
        doc="Write structs, arrays and maps as JSON strings.",
    ),
    Option(
        name="snapshot-property.*",
        default="none",
        parse=str,
        doc="Added to the summary of the snapshot, such as `snapshot-property.team`.",
    ),
    Option(
        name="userMetadata",
        default="none",
        parse=str,
        doc="Delta's: text that is added to the summary of the snapshot under this name.",
    ),
    Option(
        name="target-file-size-bytes",
        default="table property `write.target-file-size-bytes`, then 536870912",
        parse=values.positive_integer,
        doc="Size in bytes of compressed data at which a task starts its next file.",
    ),
    Option(
        name="max-open-files",
        default="`16`",
        parse=values.positive_integer,
        doc="Files that a task has open at once at most. Rows of further partitions wait in a temporary file, so "
        "that each gets one file. Input that is clustered by partition needs one: with `1` the open file is "
        "finished when another is begun, and nothing waits on disk.",
    ),
    Option(
        name="small-task-size-bytes",
        default="`262144`",
        parse=values.count,
        doc="Size in bytes, in memory, of rows that a task hands over to the driver, which writes one file for all "
        "such tasks, or one for each table partition; `0`: every task writes its own files.",
    ),
    Option(
        name="compression-codec",
        default="table property `write.parquet.compression-codec`, then `zstd`",
        parse=values.one_of(*COMPRESSION_CODECS),
        doc="Parquet compression: zstd, snappy, gzip, lz4, brotli, uncompressed.",
    ),
    Option(
        name="compression-level",
        default="table property `write.parquet.compression-level`, then the codec's own",
        parse=values.integer,
        doc="Level of `zstd`, `gzip` or `brotli`.",
    ),
    Option(
        name="parquet-encodings",
        default="`auto`",
        parse=values.one_of("auto", "classic"),
        doc="`auto`: each column is encoded as its values take the least space, delta encodings among the choices. "
        "`classic`: dictionary and plain only, for old readers.",
    ),
    Option(
        name="write-format",
        default="`parquet`",
        parse=values.one_of("parquet"),
        doc="File format of the data files; anything but `parquet` is refused.",
    ),
)


def options_table() -> str:
    """Return the options as the Markdown table that stands in the README."""
    rows = [f"| `{option.name}` | {option.default} | {option.doc} |" for option in OPTIONS]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])
