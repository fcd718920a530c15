"""The one table of options of other writers: Iceberg's Spark runtime and Delta.

Each option is accepted with its meaning there, or refused with what takes its place here. Parsing, the errors and a
table of the docs come from this table. Options that have the same name here stand in `sink_options` alone.
Sources: `SparkWriteOptions` and `SparkSQLProperties` of apache/iceberg, `DeltaOptions` of delta-io/delta.
"""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_ds.secrets import refused_value

_ICEBERG, _DELTA = "Iceberg's runtime", "Delta"
_BOOLEAN = ("true", "false")
_READING = "it is an option of reading: drop it"
_INNER = "it is set by procedures of the runtime alone: drop it"
_VARIANTS = "variants are written unshredded: drop it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignOption:
    """An option of another writer.

    Attributes:
        name: The option's name, as the other writer spells it.
        writer: The writer that has the option.
        alias: The option of this sink that it is another name for, or None.
        accepts: The values, in lower case, that ask for what the sink does anyway; they change nothing.
        meaning: What the sink does for the accepted values; empty if no value is accepted.
        instead: What to use instead of all other values; empty if all allowed values are accepted.
    """

    name: str
    writer: str
    alias: str | None = None
    accepts: tuple[str, ...] = ()
    meaning: str = ""
    instead: str = ""

    @property
    def key(self) -> str:
        """The key as Spark hands it over."""
        return self.name.lower()

    def refusal(self, text: str) -> str | None:
        """Return why a value is refused, or None if it is accepted."""
        if text.lower() in self.accepts:
            return None
        instead = self.instead or f"expected one of {', '.join(self.accepts)}"
        shown = f"is {refused_value(text, instead)}" if self.accepts else f"is not one of this sink: {instead}"
        return f"option '{self.name}' of {self.writer} {shown}"


FOREIGN_OPTIONS: tuple[ForeignOption, ...] = (
    ForeignOption(
        name="mergeSchema",
        writer=f"{_ICEBERG} and {_DELTA}",
        alias="merge-schema",
        meaning="`merge-schema`",
    ),
    ForeignOption(
        name="fanout-enabled",
        writer=_ICEBERG,
        accepts=_BOOLEAN,
        meaning="nothing: rows come in any order, and each partition gets one file a task, with at most "
        "`max-open-files` open",
    ),
    ForeignOption(
        name="distribution-mode",
        writer=_ICEBERG,
        accepts=("none",),
        meaning="nothing: a write moves no rows",
        instead="Spark moves no rows for a Python data source: write iceberg_ds.distribute(df, table, mode=...), and "
        "drop the option or give none",
    ),
    ForeignOption(
        name="compression-strategy",
        writer=_ICEBERG,
        accepts=("speed", "compression"),
        meaning="nothing: it counts for ORC alone, and Parquet is written",
    ),
    ForeignOption(
        name="delete-format",
        writer=_ICEBERG,
        accepts=("parquet",),
        meaning="nothing: deletes are written as Parquet",
        instead="deletes are written as Parquet: give parquet, or drop it",
    ),
    ForeignOption(
        name="target-delete-file-size-bytes",
        writer=_ICEBERG,
        instead="set the table's property write.delete.target-file-size-bytes",
    ),
    ForeignOption(
        name="advisory-partition-size",
        writer=_ICEBERG,
        instead="a write moves no rows; with iceberg_ds.distribute, Spark's setting "
        "spark.sql.adaptive.advisoryPartitionSizeInBytes counts",
    ),
    ForeignOption(
        name="delete-granularity",
        writer=_ICEBERG,
        instead="position deletes are written by iceberg_ds.upsert and iceberg_ds.convert_deletes, as they need: drop "
        "it",
    ),
    ForeignOption(
        name="output-spec-id",
        writer=_ICEBERG,
        instead="files get the table's current partition spec: drop it, or change the spec with partition-by and "
        "evolve-partitioning=true",
    ),
    ForeignOption(
        name="output-sort-order-id",
        writer=_ICEBERG,
        instead="say the order itself with sort-by",
    ),
    ForeignOption(
        name="use-merge-append-for-streaming",
        writer=_ICEBERG,
        instead="whether manifests are merged says the table's property commit.manifest-merge.enabled",
    ),
    ForeignOption(name="rewritten-file-scan-task-set-id", writer=_ICEBERG, instead=_INNER),
    ForeignOption(name="shred-variants", writer=_ICEBERG, accepts=("false",), meaning="nothing", instead=_VARIANTS),
    ForeignOption(name="variant-inference-buffer-size", writer=_ICEBERG, instead=_VARIANTS),
    ForeignOption(
        name="spark.wap.branch",
        writer=_ICEBERG,
        instead="it is a setting of the session there: give option branch, with create-branch=true if it is new",
    ),
    ForeignOption(
        name="spark.wap.id",
        writer=_ICEBERG,
        instead="snapshots that belong to no branch are not made: give option branch, with create-branch=true, and "
        "publish it with iceberg_ds.publish",
    ),
    ForeignOption(name="replaceWhere", writer=_DELTA, alias="replace-where", meaning="`replace-where`"),
    ForeignOption(name="txnAppId", writer=_DELTA, alias="txn-app-id", meaning="`txn-app-id`"),
    ForeignOption(name="txnVersion", writer=_DELTA, alias="txn-version", meaning="`txn-version`"),
    ForeignOption(
        name="partitionOverwriteMode", writer=_DELTA, alias="overwrite-mode", meaning="`overwrite-mode`, same values"
    ),
    ForeignOption(
        name="compression",
        writer=f"{_DELTA} and Spark's files",
        alias="compression-codec",
        meaning="`compression-codec`",
    ),
    ForeignOption(
        name="optimizeWrite",
        writer=_DELTA,
        accepts=("false",),
        meaning="nothing: a write moves no rows",
        instead="Spark moves no rows for a Python data source: write iceberg_ds.distribute(df, table)",
    ),
    ForeignOption(
        name="dataChange",
        writer=_DELTA,
        accepts=("true",),
        meaning="nothing: rows that are written are a change",
        instead="rows that are written are a change; iceberg_ds.rewrite_data_files compacts files",
    ),
    ForeignOption(
        name="writePartitionColumns",
        writer=_DELTA,
        accepts=("true",),
        meaning="nothing: files have all columns",
        instead="Iceberg's files have all columns: drop it",
    ),
    ForeignOption(
        name="maxRecordsPerFile",
        writer=f"{_DELTA} and Spark's files",
        instead="files are cut by size: give target-file-size-bytes",
    ),
    ForeignOption(
        name="replaceOn",
        writer=_DELTA,
        instead="rows are replaced by key with iceberg_ds.upsert or keys, by predicate with replace-where",
    ),
    ForeignOption(
        name="replaceUsing",
        writer=_DELTA,
        instead="rows are replaced by key with iceberg_ds.upsert or keys, by partition with overwrite-mode=dynamic",
    ),
    ForeignOption(name="targetAlias", writer=_DELTA, instead="name columns of replace-where without an alias"),
    ForeignOption(
        name="useNullIntolerantEqualityWithDPO",
        writer=_DELTA,
        accepts=("false",),
        meaning="nothing: null is a partition of its own",
        instead="null is a partition of its own, which overwrite-mode=dynamic replaces if rows come for it",
    ),
    *(
        ForeignOption(name=name, writer=_DELTA, instead=_READING)
        for name in (
            "excludeRegex",
            "maxFilesPerTrigger",
            "maxBytesPerTrigger",
            "ignoreFileDeletion",
            "ignoreChanges",
            "ignoreDeletes",
            "skipChangeCommits",
            "failOnDataLoss",
            "startingVersion",
            "startingTimestamp",
            "endingVersion",
            "endingTimestamp",
            "readChangeFeed",
            "readChangeData",
            "versionAsOf",
            "timestampAsOf",
            "schemaTrackingLocation",
            "schemaLocation",
            "streamingSourceTrackingId",
            "allowSourceColumnDrop",
            "allowSourceColumnRename",
            "allowSourceColumnTypeChange",
        )
    ),
)
ALIASES = {option.key: option.alias for option in FOREIGN_OPTIONS if option.alias is not None}
NOT_OURS = {option.key: option for option in FOREIGN_OPTIONS if option.alias is None}
# Settings of a session that Iceberg's runtime reads when it writes, and options of the same meaning here.
SESSION_SETTINGS = {
    "spark.sql.iceberg.check-nullability": "check-nullability, which must be true",
    "spark.sql.iceberg.check-ordering": "check-ordering",
    "spark.sql.iceberg.compression-codec": "compression-codec",
    "spark.sql.iceberg.compression-level": "compression-level",
    "spark.sql.iceberg.compression-strategy": "none: it counts for ORC alone",
    "spark.sql.iceberg.distribution-mode": "none: use iceberg_ds.distribute(df, table, mode=...)",
    "spark.sql.iceberg.advisory-partition-size": "none: use iceberg_ds.distribute",
    "spark.sql.iceberg.merge-schema": "merge-schema",
    "spark.sql.iceberg.shred-variants": "none: variants are written unshredded",
    "spark.sql.iceberg.variant-inference-buffer-size": "none: variants are written unshredded",
    "spark.sql.iceberg.use-nullable-query-schema": "use-nullable-query-schema",
    "spark.sql.sources.partitionOverwriteMode": "overwrite-mode",
}


def refusal_of_setting(key: str) -> str | None:
    """Return why `key`, a setting of Spark's session, is no option, or None if it is no known setting."""
    for name, option in SESSION_SETTINGS.items():
        if key == name.lower():
            return f"option '{name}' is a setting of the session elsewhere: the option here is {option}"
    return None


def foreign_table() -> str:
    """Return the options of other writers as the Markdown table that stands in the docs."""
    rows = [f"| `{option.name}` | {option.writer} | {_answer(option)} |" for option in FOREIGN_OPTIONS]
    return "\n".join(["| option | of | here |", "|---|---|---|", *rows])


def _answer(option: ForeignOption) -> str:
    if option.alias is not None:
        return f"another name of {option.meaning}"
    refused = f"refused: {option.instead}" if option.instead else ""
    if not option.accepts:
        return refused
    accepted = f"{', '.join(f'`{value}`' for value in option.accepts)} means {option.meaning}"
    return f"{accepted}; else {refused}" if refused else accepted
