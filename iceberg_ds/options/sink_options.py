"""`parse_options`: what Spark hands over as options, as `SinkOptions`; and which of them count in which kind of write.

Option keys reach us in lower case because Spark lower-cases them; values arrive as strings. Precedence is applied when
a write is planned: write option, then table property, then default; so an option that was not given is None here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_ds.errors import IcebergSinkError, OptionError
from iceberg_ds.options.declarations import (
    CATALOG_PREFIX,
    OPTIONS,
    SNAPSHOT_PROPERTY_PREFIX,
    TABLE_PROPERTY_PREFIX,
    Option,
    contradictions_of_keys,
)
from iceberg_ds.options.other_writers import ALIASES, NOT_OURS, refusal_of_setting
from iceberg_ds.plan import IsolationLevel, ParquetEncodings
from iceberg_ds.secrets import has_password, is_credential, mask_properties, mask_url
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.schema_evolution import SchemaEvolution
from iceberg_ds.table.specs import PartitionTerm, SortTerm

DEFAULT_WAREHOUSE = Path("iceberg-warehouse")

# Spark itself puts these beside the user's options.
SPARK_KEYS = frozenset({"path", "checkpointlocation", "queryname"})


_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_USER_METADATA, _OVERWRITE_SCHEMA = "userMetadata", "overwriteSchema"
_PUBLIC_PREFIXES = (TABLE_PROPERTY_PREFIX, SNAPSHOT_PROPERTY_PREFIX)
_PREFIXES = (CATALOG_PREFIX, *_PUBLIC_PREFIXES)
_RESERVED_IN_SUMMARIES = frozenset(
    {
        "operation",
        "changed-partition-count",
        "partition-summaries-included",
        "engine-name",
        "engine-version",
        "source-snapshot-id",  # whose rows these are, by a cherry-pick: who repeats that write is told that it landed
        "self",  # by which PyIceberg cannot read a table any more
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one write, parsed; None means that the option was not given.

    `catalog_properties` may hold credentials: it is masked in `repr` and never leaves the driver.
    """

    table: tuple[str, ...]
    catalog: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str | None = None
    branch: str | None = None
    create_branch: bool = False
    staging_branch: str | None = None
    create_table: bool = True
    partition_by: tuple[PartitionTerm, ...] | None = None
    evolve_partitioning: bool = False
    sort_by: tuple[SortTerm, ...] | None = None
    use_table_distribution_and_ordering: bool = True
    table_properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    format_version: str | None = None
    overwrite_mode: str | None = None
    replace_where: str | None = None
    time_zone: str | None = None
    isolation_level: IsolationLevel | None = None
    validate_from_snapshot_id: int | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    stream_name: str | None = None
    accept_new_checkpoint: bool = False
    keys: tuple[str, ...] | None = None
    sequence_by: tuple[str, ...] = ()
    sequence_scope: str = "batch"
    operation_column: str | None = None
    delete_when: str | None = None
    keys_not_enforced: bool = False
    inserts_are_new: bool = False
    evolve_keys: bool = False
    delete_encoding: str = "auto"
    soft_delete_column: str | None = None
    readers: tuple[str, ...] = ()
    publish_converted: bool = False
    metadata_columns: tuple[str, ...] = ()
    schema_evolution: SchemaEvolution = "strict"
    drop_missing_columns: bool = False
    overwrite_schema: bool = False
    use_nullable_query_schema: bool = True
    check_nullability: bool = True
    check_ordering: bool = False
    case_sensitive: bool | None = None
    nested_as_json: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    target_file_size_bytes: int | None = None
    max_open_files: int | None = None
    small_task_size_bytes: int | None = None
    compression_codec: str | None = None
    compression_level: int | None = None
    parquet_encodings: ParquetEncodings = "auto"

    def __str__(self) -> str:
        return f"{self!r} with catalog properties {mask_properties(self.catalog_properties)}"


def parse_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse the options of one write.

    Args:
        raw: Options as Spark hands them over: lower-case keys, string values.

    Raises:
        OptionError: Names every unknown, malformed, missing or contradicting option at once.
    """
    parsed: dict[str, object] = {}
    groups: dict[str, dict[str, str]] = {prefix: {} for prefix in _PREFIXES}
    problems: list[str] = []
    for key, text in raw.items():
        name = ALIASES.get(key, key)
        if (prefix := _prefix(key)) is not None:
            groups[prefix][key.removeprefix(prefix)] = text
        elif name in _BY_NAME:
            _parse_into(parsed, _BY_NAME[name], text, problems)
        elif key in NOT_OURS:
            problems += filter(None, [NOT_OURS[key].refusal(text)])
        elif key not in SPARK_KEYS:
            problems.append(refusal_of_setting(key) or _unknown(key))
    _take_table(parsed, raw.get("path"), problems)
    _take_merge_schema(parsed, problems)
    _take_overwrite_schema(parsed, problems)
    problems += _contradictions(raw, parsed, groups)
    if problems:
        raise OptionError("Cannot write with these options:\n" + "\n".join(f"  - {problem}" for problem in problems))
    parsed.pop("write-format", None)  # it has one meaning
    if (note := parsed.pop(_USER_METADATA, None)) is not None:
        groups[SNAPSHOT_PROPERTY_PREFIX][_USER_METADATA] = str(note)
    parsed["overwrite-schema"] = parsed.pop(_OVERWRITE_SCHEMA, False)
    return SinkOptions(
        **{name.replace("-", "_"): value for name, value in parsed.items()},  # type: ignore[arg-type]  # parsers give the types
        catalog_properties=groups[CATALOG_PREFIX],
        table_properties=groups[TABLE_PROPERTY_PREFIX],
        snapshot_properties=groups[SNAPSHOT_PROPERTY_PREFIX],
    )


def given_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options that a function of the package is given, in the form in which Spark hands them over."""
    return {key.lower(): str(value) for key, value in (options or {}).items()}


def options_of_call(table: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of a function that takes the table as an argument, with the table among them.

    Raises:
        OptionError: Option `table` names another table.
    """
    given = given_options(options)
    named, namespace = given.get("table", table), given.get("namespace")
    if _full_identifier(named, namespace) != _full_identifier(table, namespace):
        raise OptionError(
            f"Cannot tell which table is meant: the argument is {table!r}, and option 'table' is {named!r}. Drop the "
            "option."
        )
    return {**given, "table": table}


def _full_identifier(text: str, namespace: str | None) -> tuple[str, ...]:
    """Return the levels of an identifier, completed by option `namespace`; malformed text is one level."""
    try:
        levels = parse_identifier(text)
        return levels if namespace is None or len(levels) > 1 else (*parse_identifier(namespace), *levels)
    except ValueError:  # `parse_options` says why
        return (text,)


@contextmanager
def naming_action(action: str) -> Iterator[None]:
    """Turn what is wrong with the terms of `partition-by` or `sort-by` into an error of the options.

    Args:
        action: What cannot be done then, such as `write to db.events`.
    """
    try:
        yield
    except IcebergSinkError:
        raise
    except ValueError as problem:
        raise OptionError(f"Cannot {action}: {problem}.") from problem


def _prefix(key: str) -> str | None:
    """Return the prefix of an option that stands for a whole group, None for any other."""
    return next((prefix for prefix in _PREFIXES if key.startswith(prefix) and key != prefix), None)


def _parse_into(parsed: dict[str, object], option: Option, text: str, problems: list[str]) -> None:
    try:
        value = option.parse(text)
    except ValueError as problem:
        problems.append(f"option '{option.name}' is {mask_url(text)!r}: {problem}")
        return
    if parsed.setdefault(option.name, value) != value:
        problems.append(f"option '{option.name}' is given twice, by two of its names: give one of them")


def _unknown(key: str) -> str:
    known = [option.name for option in OPTIONS if not option.name.endswith("*")]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    groups = ", ".join(f"{prefix}*" for prefix in _PREFIXES)
    hint = f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(known)}, {groups}"
    return f"unknown option '{key}': {hint}"


def _take_table(parsed: dict[str, object], path: str | None, problems: list[str]) -> None:
    """Find the table's full identifier: `save("db.t")` arrives as `path`, and `namespace` completes a bare name."""
    if path is not None:
        try:
            from_path = parse_identifier(path)
        except ValueError as problem:
            problems.append(f"the table in save() or start() is {path!r}: {problem}")
            return
        if parsed.setdefault("table", from_path) != from_path:
            problems.append(f"option 'table' and the table in save() or start() differ ({path!r}): give one of them")
    namespace, table = parsed.pop("namespace", None), parsed.get("table")
    place = "option 'table'" if path is None else "the table in save() or start()"
    if isinstance(table, tuple) and len(table) == 1:
        if not isinstance(namespace, tuple):
            problems.append(
                f"{place} is {table[0]!r}: expected namespace and table separated by a dot, such as db.events, "
                "or option 'namespace'"
            )
        else:
            parsed["table"] = (*namespace, *table)
    elif table is None and not any("option 'table'" in problem for problem in problems):
        problems.append('no table is named: use save("db.t"), start("db.t") or option("table", "db.t")')


def _take_merge_schema(parsed: dict[str, object], problems: list[str]) -> None:
    if parsed.pop("merge-schema", False) and parsed.setdefault("schema-evolution", "add-columns") == "strict":
        problems.append("options 'merge-schema' and 'schema-evolution' contradict each other: drop one of them")


def _take_overwrite_schema(parsed: dict[str, object], problems: list[str]) -> None:
    if not parsed.get(_OVERWRITE_SCHEMA):
        return
    for name, value in (("schema-evolution", "full"), ("drop-missing-columns", True)):
        if parsed.setdefault(name, value) != value:
            problems.append(f"options '{_OVERWRITE_SCHEMA}' and '{name}' contradict each other: drop one of them")
    if parsed.get("replace-where") is not None or parsed.get("overwrite-mode") == "dynamic":
        problems.append(
            f"option '{_OVERWRITE_SCHEMA}' is for overwrites of all rows, and this one replaces some of them: drop it, "
            "and say what may change with 'schema-evolution'"
        )


def _contradictions(
    raw: Mapping[str, str], parsed: Mapping[str, object], groups: Mapping[str, Mapping[str, str]]
) -> list[str]:
    problems = []
    if parsed.get("replace-where") is not None and parsed.get("overwrite-mode") == "dynamic":
        problems.append(
            "options 'replace-where' and 'overwrite-mode=dynamic' name the rows to replace in two ways: "
            "drop one of them"
        )
    if parsed.get("drop-missing-columns") and parsed.get("schema-evolution") != "full":
        problems.append("option 'drop-missing-columns' needs 'schema-evolution=full'")
    problems += _contradictions_of_layout(raw, parsed)
    if parsed.get("staging-branch") is not None and parsed["staging-branch"] == parsed.get("branch", "main"):
        problems.append("options 'staging-branch' and 'branch' are the same: readers would see the rows at once")
    if (parsed.get("txn-app-id") is None) != (parsed.get("txn-version") is None):
        problems.append(
            "options 'txn-app-id' and 'txn-version' need each other: name the application, and number its writes"
        )
    if parsed.get("accept-new-checkpoint") and parsed.get("stream-name") is None:
        problems.append("option 'accept-new-checkpoint' needs 'stream-name'")
    problems += contradictions_of_keys(parsed)
    public = [
        f"{prefix}{key}"
        for prefix in _PUBLIC_PREFIXES
        for key, value in groups[prefix].items()
        if is_credential(key) or has_password(value)
    ]
    public += ["location"] if has_password(raw.get("location", "")) else []
    if public:
        problems.append(
            f"options {', '.join(public)} would write secrets into the table's metadata, which all of its readers can "
            f"see: a secret belongs below '{CATALOG_PREFIX}', or better into the configuration of PyIceberg"
        )
    reserved = sorted(key for key in groups[SNAPSHOT_PROPERTY_PREFIX] if _is_reserved(key))
    if reserved:
        problems.append(
            "options 'snapshot-property.*' would replace what the commit itself records, or what readers go by: "
            + ", ".join(reserved)
        )
    if "format-version" in groups[TABLE_PROPERTY_PREFIX]:
        problems.append("option 'table-property.format-version' has an option of its own: 'format-version'")
    return problems


def _contradictions_of_layout(raw: Mapping[str, str], parsed: Mapping[str, object]) -> list[str]:
    problems = []
    if parsed.get("evolve-partitioning") and "partition-by" not in raw:
        problems.append("option 'evolve-partitioning' needs 'partition-by'")
    if parsed.get("sort-by") is not None and parsed.get("use-table-distribution-and-ordering") is False:
        problems.append(
            "options 'sort-by' and 'use-table-distribution-and-ordering=false' contradict each other: drop one of them"
        )
    return problems


def _is_reserved(key: str) -> bool:
    """Return whether a key of a snapshot's summary has a meaning to Iceberg, Spark or this sink."""
    return key in _RESERVED_IN_SUMMARIES or key.startswith(
        (
            "added-",
            "deleted-",
            "removed-",
            "total-",
            "manifests-",
            "partitions.",
            "icebergsink.",
            "spark.sql.streaming.",
        )
    )


def check_scope(options: SinkOptions, *, is_overwrite: bool, is_stream: bool, is_upsert: bool = False) -> None:
    """Refuse options that do not count in this kind of write.

    Raises:
        OptionError: Names them, and where they count.
    """
    name = identifier_text(options.table)
    if not is_overwrite:
        given = {
            "overwrite-mode": options.overwrite_mode,
            "replace-where": options.replace_where,
            "isolation-level": options.isolation_level,
            "validate-from-snapshot-id": options.validate_from_snapshot_id,
            "overwriteSchema": options.overwrite_schema or None,
        }
        if idle := [option for option, value in given.items() if value is not None]:
            overwrite = 'outputMode("complete")' if is_stream else 'mode("overwrite")'
            raise OptionError(
                f"Cannot write to {name}: {', '.join(idle)} only count with {overwrite}, and this write appends. "
                "Drop them, or overwrite."
            )
    if is_overwrite and options.keys is not None:
        raise OptionError(
            f"Cannot write to {name}: option 'keys' is for appending, where rows replace those of their keys alone, "
            "and this write replaces all rows of a range. Append, or drop 'keys' and the options that belong to it."
        )
    if is_overwrite and (options.operation_column is not None or options.delete_when is not None):
        raise OptionError(
            f"Cannot write to {name}: options 'operation-column' and 'delete-when' are for change feeds, which are "
            "appended, and this write replaces rows. Append, or drop them."
        )
    _check_encoding(options, name, is_upsert=is_upsert)
    if options.sequence_scope == "table" and not is_upsert:
        raise OptionError(
            f"Cannot write to {name}: option 'sequence-scope' is table, and this write does not look at the table's "
            "rows. Write with iceberg_ds.upsert(df, table, ...), or a stream with "
            "foreachBatch(iceberg_ds.upsert_into(table, ...))."
        )
    if is_stream and options.staging_branch is not None and not options.publish_converted:
        raise OptionError(
            f"Cannot write to {name}: option 'staging-branch' is for batches, and for streams with "
            "'publish-converted'. Stream to a branch with option 'branch', and publish it with iceberg_ds.publish."
        )
    if is_stream and options.txn_app_id is not None:
        raise OptionError(
            f"Cannot write to {name}: options 'txn-app-id' and 'txn-version' are for batches. A stream numbers its "
            "epochs itself, and none lands twice. Drop them, or write batches in foreachBatch, with the number of the "
            "micro-batch as txn-version."
        )
    if not is_stream and options.stream_name is not None:
        raise OptionError(
            f"Cannot write to {name}: option 'stream-name' is for writeStream.format(\"icebergsink\"), and this is a "
            "batch. In foreachBatch, 'txn-app-id' and 'txn-version' take its place."
        )


def _check_encoding(options: SinkOptions, name: str, *, is_upsert: bool) -> None:
    encoding = options.delete_encoding
    if is_upsert and options.keys is None:
        raise OptionError(f"Cannot upsert into {name}: name the key columns, by argument 'keys' or the option.")
    if is_upsert and encoding == "equality":
        raise OptionError(
            f"Cannot upsert into {name}: option 'delete-encoding' is equality, which format(\"icebergsink\") writes. "
            "Expected position or copy-on-write."
        )
    if is_upsert and options.publish_converted:
        raise OptionError(
            f"Cannot upsert into {name}: option 'publish-converted' is for writes that make equality deletes, and an "
            "upsert makes none: its readers meet none without it. Drop the option."
        )
    if not is_upsert and encoding in ("position", "copy-on-write"):
        raise OptionError(
            f"Cannot write to {name}: option 'delete-encoding' is {encoding}, for which old rows must be looked for by "
            "a job of Spark. Write with iceberg_ds.upsert(df, table, ...), or a stream with "
            "foreachBatch(iceberg_ds.upsert_into(table, ...))."
        )
