"""Options of other writers: each means what it means there, or is refused with the next step."""

from __future__ import annotations

import pytest
from support.tables.sink import Sink

from iceberg_ds.errors import OptionError
from iceberg_ds.options.other_writers import FOREIGN_OPTIONS, SESSION_SETTINGS, ForeignOption
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.rules import Kind, check_kind
from iceberg_ds.options.sink_options import OPTIONS, SinkOptions
from iceberg_ds.planning.plan_write import WriteMode

# All of them, as of Iceberg 1.12 and Delta 4.1, but for the ones that are options here under the same name.
ICEBERG = [
    "write-format",
    "target-file-size-bytes",
    "delete-format",
    "target-delete-file-size-bytes",
    "check-nullability",
    "fanout-enabled",
    "check-ordering",
    "rewritten-file-scan-task-set-id",
    "output-spec-id",
    "output-sort-order-id",
    "overwrite-mode",
    "distribution-mode",
    "use-table-distribution-and-ordering",
    "merge-schema",
    "mergeSchema",
    "validate-from-snapshot-id",
    "isolation-level",
    "compression-codec",
    "compression-level",
    "compression-strategy",
    "advisory-partition-size",
    "delete-granularity",
    "shred-variants",
    "variant-inference-buffer-size",
    "use-merge-append-for-streaming",
    "use-nullable-query-schema",
    "branch",
    "spark.wap.branch",
    "spark.wap.id",
]
DELTA = [
    "replaceOn",
    "replaceUsing",
    "targetAlias",
    "replaceWhere",
    "mergeSchema",
    "overwriteSchema",
    "userMetadata",
    "optimizeWrite",
    "dataChange",
    "useNullIntolerantEqualityWithDPO",
    "partitionOverwriteMode",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "excludeRegex",
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
    "compression",
    "maxRecordsPerFile",
    "txnAppId",
    "txnVersion",
    "schemaTrackingLocation",
    "schemaLocation",
    "streamingSourceTrackingId",
    "allowSourceColumnDrop",
    "allowSourceColumnRename",
    "allowSourceColumnTypeChange",
    "writePartitionColumns",
]


def parsed(**options: str) -> SinkOptions:
    """Return the options of a write into `db.t`, keys as Spark hands them over."""
    return parse_options({"path": "db.t", **{key.replace("_", "-").lower(): text for key, text in options.items()}})


def refusal(key: str, text: str) -> str:
    """Return the text of the error that an option raises."""
    with pytest.raises(OptionError) as raised:
        parse_options({"path": "db.t", key.lower(): text})
    return str(raised.value)


@pytest.mark.parametrize("name", [*ICEBERG, *DELTA])
def test_every_option_of_the_others_is_known(name: str) -> None:
    """A user would be told of an option whose name is alike by chance."""
    known = {option.name.lower() for option in OPTIONS} | {option.key for option in FOREIGN_OPTIONS}

    assert name.lower() in known


@pytest.mark.parametrize("option", FOREIGN_OPTIONS, ids=lambda option: option.name)
def test_what_is_accepted_changes_nothing_and_the_rest_is_refused(option: ForeignOption) -> None:
    """An option would be passed over in silence though it means something, or a job fail that need not."""
    if option.alias is not None:
        return
    for text in (*option.accepts, *map(str.upper, option.accepts)):
        assert parse_options({"path": "db.t", option.key: text}) == parsed()
    text = refusal(option.name, "surprise")
    assert f"option '{option.name}' of {option.writer}" in text
    assert (option.instead or "expected one of") in text
    assert "did you mean" not in text


@pytest.mark.parametrize("option", [option for option in FOREIGN_OPTIONS if option.alias], ids=lambda o: o.name)
def test_another_name_is_one_of_an_option(option: ForeignOption) -> None:
    """The option would be parsed and go nowhere."""
    assert option.alias in {known.name for known in OPTIONS}


@pytest.mark.parametrize("name", SESSION_SETTINGS)
def test_setting_of_a_session_is_refused_with_the_option(name: str) -> None:
    """A user who makes an option of a setting would be told of a name that is alike by chance."""
    text = refusal(name, "true")

    assert f"option '{name}' is a setting of the session elsewhere" in text
    assert "did you mean" not in text


def test_options_with_values_of_their_own_become_ours() -> None:
    """A job of Delta would replace all rows where it replaced partitions, or lose its notes."""
    options = parsed(partitionOverwriteMode="DYNAMIC", userMetadata="by Ann", compression="ZSTD")

    assert options.overwrite_mode == "dynamic"
    assert options.snapshot_properties == {"userMetadata": "by Ann"}
    assert options.compression_codec == "zstd"


def test_two_names_of_one_option_with_different_values_are_refused() -> None:
    """One of two values would win by luck."""
    with pytest.raises(OptionError, match="option 'overwrite-mode' is given twice"):
        parsed(partitionOverwriteMode="static", overwrite_mode="dynamic")


def test_refused_value_shows_no_password() -> None:
    """A password that stands in the wrong option would be in the driver's log."""
    with pytest.raises(OptionError, match=r"'http://\*\*\*@h'") as raised:
        parsed(**{"distribution-mode": "http://u:SECRET@h"})

    assert "SECRET" not in str(raised.value)


def test_note_of_the_user_stands_in_the_snapshot(sink: Sink) -> None:
    """Who wrote a snapshot, and why, would not be known."""
    noted = Sink(catalog=sink.catalog, options=sink.options)
    properties = parsed(userMetadata="by Ann").snapshot_properties

    noted.commit(noted.write([{"id": 1, "name": "a"}], plan=noted.plan(snapshot_properties=properties)))

    assert sink.table().current_snapshot().summary["userMetadata"] == "by Ann"  # type: ignore[union-attr,index]


@pytest.mark.parametrize("level", ["snapshot", "serializable"])
def test_append_takes_the_isolation_level_that_every_append_has(level: str) -> None:
    """A job of the runtime that names it would be refused, or another level be ignored in silence."""
    check_kind(parsed(**{"isolation-level": "none"}), Kind.APPEND | Kind.BATCH)
    with pytest.raises(OptionError, match=f"takes isolation-level={level}"):
        check_kind(parsed(**{"isolation-level": level}), Kind.APPEND | Kind.BATCH)


def test_overwrite_schema_is_a_full_evolution_that_drops_columns() -> None:
    """A table would keep columns that the job that makes it anew does not know."""
    options = parsed(overwriteSchema="true")

    assert (options.schema_evolution, options.drop_missing_columns) == ("full", True)
    check_kind(options, Kind.OVERWRITE | Kind.BATCH)
    with pytest.raises(OptionError, match="takes overwriteSchema"):
        check_kind(options, Kind.APPEND | Kind.BATCH)
    assert parsed(overwriteSchema="false") == parsed()


@pytest.mark.parametrize(
    ("other", "fragment"),
    [
        ({"replaceWhere": "id = 1"}, "is for overwrites of all rows"),
        ({"partitionOverwriteMode": "dynamic"}, "is for overwrites of all rows"),
        ({"schema_evolution": "strict"}, "'overwriteSchema' and 'schema-evolution' contradict"),
        ({"drop_missing_columns": "false"}, "'overwriteSchema' and 'drop-missing-columns' contradict"),
    ],
)
def test_overwrite_schema_that_contradicts_other_options_is_refused(other: dict[str, str], fragment: str) -> None:
    """Columns would be dropped from rows that stay."""
    with pytest.raises(OptionError, match=fragment):
        parsed(overwriteSchema="true", **other)


def test_table_order_does_not_count_if_that_is_said(sink: Sink) -> None:
    """Rows would be sorted at a price that was declined."""
    with pytest.raises(OptionError, match="'sort-by' and 'use-table-distribution-and-ordering=false' contradict"):
        parsed(use_table_distribution_and_ordering="false", sort_by="id")
    options = parsed(sort_by="id desc")
    sink.commit(sink.write([{"id": 1, "name": "a"}], plan=sink.plan(sort_by=options.sort_by)))

    plan = sink.plan(use_table_distribution_and_ordering=False)

    assert sink.plan().sort_order is not None
    assert plan.sort_order is None
    assert sink.plan(mode=WriteMode.OVERWRITE, use_table_distribution_and_ordering=False).sort_order is None
