"""The one table of options: what each is called, how it is parsed, what it means, what it asks of other options.

Parsing, the README's table and the error texts all come from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iceberg_ds import parsing as values
from iceberg_ds.options.readers import READERS
from iceberg_ds.plan import DIFF, METADATA_COLUMNS, OPERATION
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.table.spec_parser import parse_column, parse_columns
from iceberg_ds.table.specs import parse_partition_by, parse_sort_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its key, its default as the README shows it, its parser and one sentence of doc."""

    name: str
    default: str
    parse: Callable[[str], object]
    doc: str


def predicate(text: str) -> str:
    """Return `text`, which states a predicate; it is parsed again wherever it is needed."""
    from iceberg_ds.expressions.parser import predicate_text  # noqa: PLC0415  # most writes need no predicates

    return predicate_text(text)


def time_zone(text: str) -> str:
    """Return the name of a time zone, checked."""
    from iceberg_ds.expressions.literals import time_zone as checked  # noqa: PLC0415  # most writes need no predicates

    return checked(text)


KEY_OPTIONS: tuple[Option, ...] = (
    Option(
        name="keys",
        default="none",
        parse=parse_columns,
        doc="Columns, such as `region, id`, that identify a row: rows written replace those of the same keys. They "
        "are the table's identifier fields, unless they are optional in a table that has none. See "
        "[rows with keys](docs/upserts.md).",
    ),
    Option(
        name="sequence-by",
        default="none",
        parse=parse_columns,
        doc="With `keys`: columns, the first counts most; of the rows of one key in an epoch or batch, the one with "
        "the highest values wins. Without it, a key that comes twice is an error.",
    ),
    Option(
        name="sequence-scope",
        default="`batch`",
        parse=values.one_of("batch", "table"),
        doc="With `keys` and `sequence-by`: whose sequences count. `batch`: those of the rows of one epoch or batch; "
        "between these the later one wins. `table`: that of the table's row as well, so that late rows lose; for "
        "`iceberg_ds.upsert` and `upsert_into`. See [late rows](docs/upserts.md#late-rows).",
    ),
    Option(
        name="operation-column",
        default="none",
        parse=parse_column,
        doc="With `keys`: column that says whether a row is inserted, updated or deleted, in the words of Debezium, "
        "Flink, Delta, Materialize and others. Not written, unless the table has a column of that name. Without `keys` "
        "it counts for `_operation` and `_diff` of `metadata-columns`.",
    ),
    Option(
        name="delete-when",
        default="none",
        parse=predicate,
        doc="With `keys`: a predicate on columns of the DataFrame, such as `deleted = true`; rows that satisfy it are "
        "deletes. Without `keys` as `operation-column`.",
    ),
    Option(
        name="keys-not-enforced",
        default="`false`",
        parse=values.boolean,
        doc="With `keys`: of rows of one key and one sequence any one wins, instead of an error.",
    ),
    Option(
        name="inserts-are-new",
        default="`false`",
        parse=values.boolean,
        doc="With `keys` and `operation-column`: the feed guarantees that the table has no row of an inserted key, "
        "so that inserts need no deletes.",
    ),
    Option(
        name="evolve-keys",
        default="`false`",
        parse=values.boolean,
        doc="With `keys`: let them take the place of the identifier fields of an existing table.",
    ),
    Option(
        name="soft-delete-column",
        default="none",
        parse=parse_column,
        doc="With `keys` and `operation-column` or `delete-when`: deletes do not take rows away, but mark them in this "
        "column: a boolean is `true`, a timestamp says when.",
    ),
    Option(
        name="delete-encoding",
        default="`auto`",
        parse=values.delete_encoding,
        doc="With `keys`: how old rows are deleted. `equality`: by files of keys, which all writes with "
        '`format("icebergsink")` make. `position` or `copy-on-write`: by marks, or by writing files again, which '
        "`iceberg_ds.upsert` and `upsert_into` do. `auto`: the first of these that counts there. Refused if not all "
        "`readers` can read them.",
    ),
    Option(
        name="readers",
        default="none",
        parse=values.names_among(*READERS),
        doc="With `keys`: who must be able to read the table, such as `spark, trino`. A write whose deletes one of "
        "them cannot read is refused. See [readers](docs/upserts.md#readers).",
    ),
    Option(
        name="publish-converted",
        default="`false`",
        parse=values.boolean,
        doc="With `keys`: rows land on `staging-branch` (unless given, `branch` with `__unconverted` behind it), their "
        "deletes are converted there, then `branch` is fast-forwarded: its readers never meet equality deletes. See "
        "[published when converted](docs/upserts.md#published-when-converted).",
    ),
)
# Counts in all writes, and is a part of the table of options by itself.
METADATA_OPTION = Option(
    name="metadata-columns",
    default="none",
    parse=values.names_among(*METADATA_COLUMNS),
    doc="Columns to fill in, such as `_extracted_at, _epoch_id`: when the epoch or batch was planned, its number, what "
    "each row does (`_operation`), and `+1` or `-1` (`_diff`, for change feeds without `keys`). See "
    "[columns that tell of the write](docs/upserts.md#columns-that-tell-of-the-write).",
)
_ONLY_WITH_KEYS = tuple(option.name for option in KEY_OPTIONS if option.name != "keys")
_SAY_DELETE = ("operation-column", "delete-when")
_TOLD_BY_FEED = (OPERATION, DIFF)


def contradictions_of_keys(parsed: Mapping[str, object]) -> list[str]:
    """Return what is wrong with the options of a write by keys, taken together.

    Args:
        parsed: All options that were given, by name.
    """
    if parsed.get("keys") is None:
        return _contradictions_without_keys(parsed)
    problems = [*_contradictions_of_marks(parsed), *_contradictions_of_scope(parsed)]
    if DIFF in _metadata_columns(parsed):
        problems.append(
            f"options 'metadata-columns={DIFF}' and 'keys' contradict each other: '{DIFF}' is for change feeds that "
            "are appended event by event"
        )
    if parsed.get("inserts-are-new") and parsed.get("operation-column") is None:
        problems.append("option 'inserts-are-new' needs 'operation-column', which tells inserts from updates")
    if parsed.get("format-version") == "1":
        problems.append("options 'keys' and 'format-version=1' contradict each other: deletes need version 2")
    return problems


def _contradictions_without_keys(parsed: Mapping[str, object]) -> list[str]:
    problems = []
    is_told = any(name in _metadata_columns(parsed) for name in _TOLD_BY_FEED)
    idle = [name for name in _ONLY_WITH_KEYS if parsed.get(name) and not (is_told and name in _SAY_DELETE)]
    if idle:
        told = ", or ask for _operation or _diff in 'metadata-columns'" if set(idle) & set(_SAY_DELETE) else ""
        problems.append(f"options {', '.join(map(repr, idle))} only count with 'keys': name the key columns{told}")
    if DIFF in _metadata_columns(parsed) and not _says_delete(parsed):
        problems.append(
            f"option 'metadata-columns={DIFF}' needs 'operation-column' or 'delete-when', which tell deletes from rows"
        )
    return problems


def _contradictions_of_marks(parsed: Mapping[str, object]) -> list[str]:
    mark = parsed.get("soft-delete-column")
    if not isinstance(mark, str):
        return []
    problems = []
    if not _says_delete(parsed):
        problems.append("option 'soft-delete-column' needs 'operation-column' or 'delete-when', which tell deletes")
    if parsed.get("inserts-are-new"):
        problems.append(
            "options 'soft-delete-column' and 'inserts-are-new' contradict each other: a key that was deleted has a "
            "row, which its next insert replaces"
        )
    for option in ("keys", "operation-column", "metadata-columns"):
        given = parsed.get(option)
        names = given if isinstance(given, tuple) else (given,)
        if mark.lower() in (str(name).lower() for name in names):
            problems.append(f"options 'soft-delete-column' and '{option}' name one column: '{mark}'")
    return problems


def _contradictions_of_scope(parsed: Mapping[str, object]) -> list[str]:
    if parsed.get("sequence-scope") != "table":
        return []
    problems = []
    sequence = parsed.get("sequence-by")
    if not isinstance(sequence, tuple):
        problems.append("option 'sequence-scope=table' needs 'sequence-by', which says which row is newer")
        sequence = ()
    if parsed.get("inserts-are-new"):
        problems.append(
            "options 'sequence-scope=table' and 'inserts-are-new' contradict each other: what is late is only known of "
            "keys that are looked for"
        )
    if parsed.get("delete-encoding") == "copy-on-write":
        problems.append(
            "options 'sequence-scope=table' and 'delete-encoding=copy-on-write' contradict each other: late rows are "
            "hidden by position deletes"
        )
    taken = {name.lower() for name in map(str, sequence)}
    for option in ("keys", "operation-column", "soft-delete-column"):
        given = parsed.get(option)
        if both := taken & {str(name).lower() for name in (given if isinstance(given, tuple) else (given,))}:
            problems.append(
                f"options 'sequence-by' and '{option}' name one column, {', '.join(map(repr, sorted(both)))}, which "
                "cannot say which row is newer where 'sequence-scope' is table"
            )
    return problems


def _says_delete(parsed: Mapping[str, object]) -> bool:
    return any(parsed.get(name) for name in _SAY_DELETE)


def _metadata_columns(parsed: Mapping[str, object]) -> tuple[object, ...]:
    given = parsed.get("metadata-columns")
    return given if isinstance(given, tuple) else ()


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
        parse=predicate,
        doc='With `mode("overwrite")` or `outputMode("complete")`: a predicate, such as `day >= \'2026-11-01\' AND '
        "region = 'EU'`. The rows that satisfy it are replaced, and all rows written must satisfy it. Also "
        "`replaceWhere`.",
    ),
    Option(
        name="time-zone",
        default="none: a time without a zone is refused beside a timestamp with one",
        parse=time_zone,
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
