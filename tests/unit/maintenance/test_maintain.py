"""What is due for a table, who of several maintainers does it, and what becomes of what fails."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyspark.sql.types import LongType, StructField, StructType
from support import reporters
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.tables.data_rewrites import data_paths
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds
from iceberg_ds import cli
from iceberg_ds.cli import main
from iceberg_ds.errors import DataFileError, OptionError
from iceberg_ds.inspect import health as health_module
from iceberg_ds.inspect.health import table_health
from iceberg_ds.maintenance import maintain as maintaining_module
from iceberg_ds.maintenance.lease import LEASE_KEY, Holder, holder_of, leased
from iceberg_ds.maintenance.policy import MaintenancePolicy, Step, due_steps, policies_of
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.table.spec_parser import parse_partition_by

EAGER = MaintenancePolicy(
    max_small_files=3,
    max_equality_delete_files=0,
    max_position_delete_files=1,
    max_manifests=3,
    max_snapshots=4,
    min_snapshot_age_s=0,
)


PARTED = StructType([StructField("id", LongType()), StructField("part", LongType())])


def options_of(sink: Sink) -> dict[str, str]:
    """Return the options that lead to the sink's catalog."""
    return {"warehouse": str(sink.options.warehouse)}


def maintain(sink: Sink, policy: MaintenancePolicy = EAGER, **more: Any) -> iceberg_ds.MaintenanceResult:
    """Maintain the table in this process."""
    return iceberg_ds.maintain(NAME, options=options_of(sink), policy=policy, **more)


def ids(sink: Sink) -> list[int]:
    """Return the ids of all rows, read without any library."""
    return sorted(row["id"] for row in rows_of(sink.table()))


def neglect(sink: Sink) -> list[int]:
    """Write a table with all that piles up; return the ids of its rows."""
    for number in range(8):
        sink.append(10 * number, 10 * number + 1, of_epoch=epoch(number))
    delete_ids(sink, 0, 11)
    delete_positions(sink, data_paths(sink)[3], [0])
    delete_positions(sink, data_paths(sink)[4], [1])
    return ids(sink)


def test_all_that_piles_up_is_taken_care_of_in_order(sink: Sink) -> None:
    """Tables would get slower each day, or each step leave work for one before it."""
    expected = neglect(sink)

    result = maintain(sink)

    assert result.ok
    assert [taken.step for taken in result.steps] == ["convert_deletes", "rewrite_data_files", "expire_snapshots"]
    assert ids(sink) == expected
    health = result.after
    assert health is not None
    assert (health.data_files, health.delete_files, health.snapshots) == (1, 0, 4)
    assert due_steps(health, EAGER) == []
    assert "  before and after: data files 8 -> 1, small ones 8 -> 1, delete files 3 -> 0, bytes " in str(result)
    assert ", snapshots 11 -> 4" in str(result)
    check_clean(sink.table())


def test_files_with_many_deletes_are_rewritten_though_they_are_large(sink: Sink) -> None:
    """Readers would apply the same deletes again and again, as long as no small file is there."""
    sink.append(*range(200))
    (path,) = data_paths(sink)
    for number in range(3):
        delete_positions(sink, path, [number])
    policy = MaintenancePolicy(max_small_files=None, max_deletes_per_file=2, max_manifests=None)

    result = maintain(sink, policy)

    assert [(taken.step, taken.reason) for taken in result.steps] == [
        ("rewrite_data_files", "3.0 delete files for each data file, more than 2")
    ]
    assert ids(sink) == list(range(3, 200))
    assert result.after is not None
    assert result.after.delete_files == 0
    assert maintain(sink, policy).steps == ()
    check_clean(sink.table())


def test_snapshots_expire_that_make_metadata_large(sink: Sink) -> None:
    """Metadata would grow with each commit, until commits are slow."""
    for number in range(30):
        sink.append(number, of_epoch=epoch(number))
    health = table_health(NAME, options=options_of(sink))
    assert health.metadata_bytes is not None
    policy = MaintenancePolicy(
        max_small_files=None, max_manifests=None, max_metadata_bytes=health.metadata_bytes // 2, min_snapshot_age_s=0
    )

    result = maintain(sink, policy)

    assert [taken.step for taken in result.steps] == ["expire_snapshots"]
    assert result.steps[0].reason.endswith(f" bytes of metadata, more than {health.metadata_bytes // 2:,}")
    assert result.after is not None
    assert 10 < result.after.snapshots <= 15
    assert ids(sink) == list(range(30))


def test_snapshots_expire_that_are_too_old(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose rows may be looked back at for a week would keep its first day for ever."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    second = sink.table().metadata.snapshots[1]
    now_ms = second.timestamp_ms + 7 * 24 * 3_600_000
    monkeypatch.setattr(health_module, "_now_ms", lambda: now_ms)
    policy = MaintenancePolicy(max_small_files=None, max_snapshot_age_s=7 * 24 * 3_600)
    too_young = replace(policy, min_snapshot_age_s=8 * 24 * 3_600)

    assert [taken.step for taken in maintain(sink, too_young).steps] == ["expire_snapshots"]
    assert len(sink.table().metadata.snapshots) == 3
    result = maintain(sink, policy)

    assert result.steps[0].reason.endswith(" seconds of age of the oldest snapshot, more than 604,800")
    assert sink.table().metadata.snapshots[0] == second
    assert maintain(sink, policy).steps == ()
    now_ms += 30 * 24 * 3_600_000
    maintain(sink, policy)
    assert len(sink.table().metadata.snapshots) == 1
    assert maintain(sink, policy).steps == ()
    assert ids(sink) == [0, 1, 2]


def test_files_are_merged_after_so_many_commits(sink: Sink) -> None:
    """A quiet table would keep its small files for as long as they are few."""
    policy = MaintenancePolicy(max_commits=2)
    for number in range(2):
        sink.append(number, of_epoch=epoch(number))
    assert maintain(sink, policy).steps == ()
    sink.append(2, of_epoch=epoch(2))

    result = maintain(sink, policy)

    assert [(one.step, one.reason) for one in result.steps] == [
        ("rewrite_data_files", "3 commits since data files were rewritten, more than 2")
    ]
    assert result.after is not None
    assert (result.after.small_files, result.after.commits_since_rewrite) == (1, 0)
    for number in range(3, 6):
        sink.append(of_epoch=epoch(number))
    assert maintain(sink, policy).steps == ()
    assert ids(sink) == [0, 1, 2]


@pytest.mark.parametrize("snapshots", [10, 11])
def test_few_snapshots_do_not_make_metadata_large(snapshots: int, sink: Sink) -> None:
    """Each look would take the lease, and find nothing to do."""
    for number in range(snapshots):
        sink.append(number, of_epoch=epoch(number))
    policy = MaintenancePolicy(max_small_files=None, max_manifests=None, max_metadata_bytes=1, min_snapshot_age_s=0)

    assert len(maintain(sink, policy, dry_run=True).steps) == snapshots - 10


def test_expiry_and_rewrite_report_what_they_did(sink: Sink) -> None:
    """A user's metrics would not tell whether tables are looked after."""
    neglect(sink)
    reporters.kept.clear()
    named = {**options_of(sink), "metrics-reporter": "support.reporters:keep"}

    result = iceberg_ds.maintain(NAME, options=named, policy=EAGER)

    told = {report.operation: report for report in reporters.kept if report.outcome == "maintained"}
    assert result.ok
    assert set(told) == {"rewrite_data_files", "expire_snapshots"}
    rewritten, expired = told["rewrite_data_files"], told["expire_snapshots"]
    assert (rewritten.counts["rewritten-data-files"], rewritten.counts["added-data-files"]) == (8, 1)
    gone = next(taken.result for taken in result.steps if taken.step == "expire_snapshots")
    assert expired.counts["expired-snapshots"] == len(gone.snapshot_ids) > 0
    assert expired.counts["deleted-data-files"] == gone.deleted_data_files_count
    assert (expired.table, expired.branch, expired.error) == ("db.t", "main", None)
    assert expired.duration_ms > 0
    assert CommitReport.from_json(expired.to_json()) == expired
    reporters.kept.clear()
    iceberg_ds.rewrite_data_files(NAME, options=named)
    iceberg_ds.expire_snapshots(NAME, "now", options=named, dry_run=True)
    assert reporters.kept == []
    iceberg_ds.expire_snapshots(NAME, "now", options=named)
    assert [(report.operation, report.counts["expired-snapshots"]) for report in reporters.kept] == [
        ("expire_snapshots", 3)
    ]


def test_failed_rewrite_reports_its_error(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert could not tell that a table is not looked after."""
    neglect(sink)
    reporters.kept.clear()

    def fail(*_: Any) -> None:
        raise DataFileError("no disk")

    monkeypatch.setattr("iceberg_ds.maintenance.rewrite_data_files.Rewrite.run", fail)
    with pytest.raises(DataFileError):
        iceberg_ds.rewrite_data_files(
            NAME, options={**options_of(sink), "metrics-reporter": "support.reporters:keep"}, branch="main"
        )

    assert [(one.operation, one.outcome, one.error) for one in reporters.kept] == [
        ("rewrite_data_files", "maintained", "DataFileError")
    ]


def test_table_in_good_health_gets_no_commit(sink: Sink) -> None:
    """A table would get a commit with each look."""
    neglect(sink)
    maintain(sink)
    before = sink.table().metadata_location

    assert maintain(sink).steps == ()
    assert sink.table().metadata_location == before


def test_dry_run_says_what_is_due_and_does_nothing(sink: Sink) -> None:
    """A user could not see what a policy does before it does it."""
    neglect(sink)
    before = sink.table().metadata_location

    result = maintain(sink, dry_run=True)

    assert [(taken.step, taken.reason) for taken in result.steps] == [
        ("convert_deletes", "1 equality delete files, more than 0"),
        ("rewrite_data_files", "8 small data files, more than 3"),
        ("rewrite_position_delete_files", "2 position delete files, more than 1"),
        ("rewrite_manifests", "11 manifests, more than 3"),
        ("expire_snapshots", "11 snapshots, more than 4"),
    ]
    assert sink.table().metadata_location == before


def test_young_snapshots_stay(sink: Sink) -> None:
    """Readers would lose the files that they read."""
    neglect(sink)

    result = maintain(sink, replace(EAGER, min_snapshot_age_s=3600))

    assert result.after is not None
    assert result.after.snapshots == 13


def test_step_that_fails_is_told_and_the_others_are_taken(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad file would keep a table from ever being looked after."""
    neglect(sink)

    def fail(*_: Any, **__: Any) -> None:
        raise DataFileError("no disk")

    monkeypatch.setattr(maintaining_module, "rewrite_data_files", fail)
    result = maintain(sink)

    assert not result.ok
    assert [taken.problem for taken in result.steps if taken.step == "rewrite_data_files"] == ["no disk"]
    assert result.steps[-1].step == "expire_snapshots"
    assert result.steps[-1].problem is None
    assert json.loads(result.to_json())["ok"] is False


def test_steps_wait_for_the_next_run_once_time_is_over(sink: Sink) -> None:
    """A nightly window would be overdrawn."""
    neglect(sink)

    result = maintain(sink, replace(EAGER, max_seconds=0))

    assert {taken.problem for taken in result.steps} == {"the time of this run is over"}
    assert result.ok


def test_budget_bounds_the_files_of_a_run(sink: Sink) -> None:
    """One run would write a whole lake anew."""
    for number in range(12):
        sink.append(number)
    size = table_health(NAME, options=options_of(sink)).average_file_bytes
    assert size is not None

    maintain(sink, replace(EAGER, max_bytes=int(size * 4), max_snapshots=None))

    assert len(data_paths(sink)) == 9
    maintain(sink, replace(EAGER, max_bytes=int(size * 20), max_snapshots=None))
    assert len(data_paths(sink)) == 1


def test_partition_that_a_stream_writes_waits_for_the_others(sink: Sink) -> None:
    """A small budget would be spent where the stream makes more small files at once."""
    for part in (2, 1, 0, 2):
        plan = sink.plan(PARTED, partition_by=parse_partition_by("part"))
        for _ in range(3):
            sink.commit(sink.write([{"id": 1, "part": part}], schema=PARTED, plan=plan))
            plan = sink.plan(PARTED, partition_by=None)
    size = table_health(NAME, options=options_of(sink)).average_file_bytes
    assert size is not None

    maintain(sink, replace(EAGER, max_bytes=int(size * 6), max_snapshots=None))

    files = Counter(entry.data_file.partition[0] for entry in entries(sink))
    assert files == {0: 1, 1: 1, 2: 6}


def test_other_maintainer_is_left_to_its_work(sink: Sink) -> None:
    """Two would do the same work, and one of them for nothing."""
    neglect(sink)

    with leased(sink.catalog, sink.options.table, 60) as other:
        assert other is None
        result = maintain(sink)

    assert result.held_by is not None
    assert result.steps == ()
    assert LEASE_KEY not in sink.table().properties
    assert maintain(sink).steps


def test_lease_of_a_dead_maintainer_is_taken_over(sink: Sink) -> None:
    """Nobody would look after the table any more."""
    neglect(sink)
    ended = Holder(owner="dead", until_ms=time.time_ns() // 1_000_000 - 1)
    table = sink.table()
    sink.catalog.send(
        table,
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
        (SetPropertiesUpdate(updates={LEASE_KEY: ended.to_text()}),),
    )

    assert maintain(sink).steps


def test_lease_is_renewed_while_its_owner_works(sink: Sink) -> None:
    """Another maintainer would begin in the middle of a long rewrite."""
    sink.append(1)
    with leased(sink.catalog, sink.options.table, 0.6):
        time.sleep(1.5)
        holder = holder_of(sink.table().metadata, time.time_ns() // 1_000_000)

    assert holder is not None


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"owner": 1}', '{"owner": "a", "until-ms": "soon"}'])
def test_property_that_is_no_lease_counts_as_none(sink: Sink, text: str) -> None:
    """A typing error would keep a table from maintenance for ever."""
    neglect(sink)
    table = sink.table()
    sink.catalog.send(
        table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (SetPropertiesUpdate(updates={LEASE_KEY: text}),)
    )

    assert maintain(sink).ok


@pytest.mark.parametrize("value", [-1, float("nan"), True, "many", 2.5, float("inf"), 2**63])
def test_policy_of_wrong_numbers_is_refused(value: Any) -> None:
    """A table would be maintained at each look, or never, or its maintenance fail in the middle of the night."""
    with pytest.raises(
        OptionError, match=r"max_small_files is .*, expected a whole number from 0 to 9223372036854775807"
    ):
        MaintenancePolicy(max_small_files=value)


@pytest.mark.parametrize("value", [-0.5, float("nan"), float("inf"), 1e308, False])
def test_policy_without_end_is_refused(value: Any) -> None:
    """Maintenance would fail once a snapshot's age is compared with it; None stands for no limit."""
    with pytest.raises(
        OptionError, match=r"max_snapshot_age_s is .*, expected a number from 0 to .*; min_snapshot_age_s is"
    ):
        MaintenancePolicy(max_snapshot_age_s=value, min_snapshot_age_s=value)
    assert MaintenancePolicy(max_snapshot_age_s=0.5, max_deletes_per_file=1.5, max_seconds=None)


@pytest.mark.parametrize("policy", [{"max_snapshots": 3}, "policy.toml", 5])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    """A user would have to find out from a traceback that a policy is no mapping."""
    with pytest.raises(OptionError, match=r"policy is .*, expected a MaintenancePolicy or None; dry_run is 'no'"):
        iceberg_ds.maintain(NAME, policy=policy, dry_run="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"policies": [NAME]}, r"policies is \['db.t'\], expected a mapping of tables to policies"),
        ({"policies": {NAME: {"max_snapshots": 3}}}, r"policies\['db.t'\] is {'max_snapshots': 3}, expected a Maint"),
        ({"policies": {5: None}}, "The table is a int, expected its identifier"),
        ({"policies": {}, "every_s": "60"}, "every_s is '60', expected a number of seconds"),
        ({"policies": {}, "every_s": float("inf")}, "every_s is inf, expected finite seconds above 0"),
    ],
)
def test_what_a_thread_cannot_do_is_refused_before_it_starts(arguments: dict[str, Any], problem: str) -> None:
    """Only the log would tell, beside streams that run for days, that no table is maintained."""
    with (
        pytest.raises(OptionError, match=problem),
        iceberg_ds.maintaining(None, **arguments),  # type: ignore[arg-type]
    ):
        pass


def test_policy_file_is_for_all_tables_and_for_one(tmp_path: Path) -> None:
    """Each table would need a command of its own."""
    file = tmp_path / "policy.toml"
    file.write_text('max-snapshots = 7\n["db.u"]\nmax-small-files = 3\n')
    tomllib = pytest.importorskip("tomllib")
    assert tomllib

    policies = policies_of(str(file), ["db.t", "db.u"])

    assert policies == {
        "db.t": MaintenancePolicy(max_snapshots=7),
        "db.u": MaintenancePolicy(max_snapshots=7, max_small_files=3),
    }
    with pytest.raises(OptionError, match=r"it speaks of .*db\.u"):
        policies_of(str(file), ["db.t"])
    file.write_text("max-snapshot = 7")
    with pytest.raises(OptionError, match="max_snapshot is not known"):
        policies_of(str(file), ["db.t"])
    file.write_text("max-snapshots is 7")
    with pytest.raises(OptionError, match="Cannot read the policy in"):
        policies_of(str(file), ["db.t"])


def test_every_step_has_its_place() -> None:
    """A step would be planned and never taken."""
    assert [step.value for step in Step] == [
        "convert_deletes",
        "rewrite_data_files",
        "rewrite_position_delete_files",
        "rewrite_manifests",
        "expire_snapshots",
    ]


def test_command_does_what_is_due_and_tells_a_scheduler(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler could not maintain tables, or not see whether it did."""
    pytest.importorskip("tomllib")
    expected = neglect(sink)
    monkeypatch.setattr(cli, "_session", lambda *_: nullcontext())
    file = tmp_path / "policy.toml"
    file.write_text("max-small-files = 3\nmax-snapshots = 4\nmin-snapshot-age-s = 0\n")
    arguments = ["maintain", NAME, "--option", f"warehouse={sink.options.warehouse}", "--policy", str(file)]

    looked = CliRunner().invoke(main, [*arguments, "--dry-run"])
    done = CliRunner().invoke(main, [*arguments, "--json"])

    assert (looked.exit_code, done.exit_code) == (0, 0), done.output
    assert "rewrite_data_files, because of 8 small data files, more than 3" in looked.output
    assert [taken["step"] for taken in json.loads(done.stdout)["steps"]] == ["rewrite_data_files", "expire_snapshots"]
    assert ids(sink) == expected


def test_two_maintainers_at_once_leave_the_rows(sink: Sink) -> None:
    """Rows would be lost where both work, as clocks may let them."""
    expected = neglect(sink)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            maintain(sink)
        except BaseException as problem:  # shown below
            failed.append(problem)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert ids(sink) == expected
