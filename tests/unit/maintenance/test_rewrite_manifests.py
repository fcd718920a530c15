"""Rewrites of manifests: clustered by partition and of the right size, no entry lost or changed, whatever others do."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from support.catalogs.faulty_catalog import FaultyCatalog, connection_lost, refusal
from support.checks.invariants import check_clean, check_sound, stored_files, unreferenced_files
from support.checks.reader import rows_of
from support.keys.conversions import convert, meanwhile
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.regions import REGIONS, in_region, partitioned, run
from support.tables.rewrites import SMALL, entries_of, manifests_of, options_of, partitions_in, rewrite_manifests
from support.tables.sink import NAME, Sink, embedded_options, epoch, local

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.cli import main
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, DataFileError, OptionError, RowCountError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.maintenance import clustered_entries
from iceberg_ds.maintenance import rewrite_manifests as rewriting
from iceberg_ds.maintenance.rewrite_manifests import ManifestRewrite
from iceberg_ds.metrics.commit_meter import CommitMeter

pytestmark = pytest.mark.usefixtures("waits")

NAMES = ("EU", "US", "AS")
STEPS = (FaultPoint.PLANNED, FaultPoint.FILE_CLOSED, FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN)


def fill(sink: Sink, times: int = 4, *, by: str = "region", target: int | None = None) -> Sink:
    """Append a file to each of three regions so many times; return the sink."""
    properties = {} if target is None else {SMALL: str(target)}
    sink = partitioned(sink, by, table_properties=properties)
    for number in range(times):
        append(sink, 10 * number)
    return sink


def append(sink: Sink, first: int) -> None:
    """Append a row to each region."""
    run(sink, "append", [row for place, region in enumerate(NAMES) for row in in_region(region, first + place)])


def check_same(sink: Sink, before: Any, branch: str = "main") -> None:
    """Assert that the branch lists the same files in the same words, and that the table is whole."""
    table = sink.table()
    assert entries_of(table, branch) == before
    check_clean(table)
    result = iceberg_ds.verify(NAME, options=options_of(sink), deep=True)
    assert result.ok, str(result)


def statuses(sink: Sink) -> set[ManifestEntryStatus]:
    """Return the statuses of the entries of `main`."""
    return {entry.status for entry in entries(sink, live=False)}


def test_each_manifest_covers_few_partitions_afterwards(sink: Sink) -> None:
    """A query of one region would open every manifest of the table."""
    sink = fill(sink)
    before, rows = entries_of(sink.table()), sink.rows()
    size = sum(manifest.manifest_length for manifest in manifests_of(sink.table()))

    result = rewrite_manifests(replace_target(sink, -(-size // 3)))

    table = sink.table()
    listed = manifests_of(table)
    assert sorted(map(sorted, partitions_in(table, listed))) == [["('AS',)"], ["('EU',)"], ["('US',)"]]
    assert {manifest.partitions[0].lower_bound for manifest in listed} == {b"AS", b"EU", b"US"}
    assert (result.rewritten_manifests_count, result.added_manifests_count) == (4, 3)
    assert statuses(sink) == {ManifestEntryStatus.EXISTING}
    assert sink.rows() == rows
    check_same(sink, before)


def replace_target(sink: Sink, target: int) -> Sink:
    """Set the size that manifests are to have, and return the sink."""
    with sink.table().transaction() as change:
        change.set_properties(**{SMALL: str(target)})
    return sink


def test_snapshot_says_what_was_done(sink: Sink) -> None:
    """Streaming readers would take the files for new ones, and nobody see what a rewrite did."""
    sink = fill(sink)

    result = rewrite_manifests(sink)

    head = sink.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.snapshot_id == result.snapshot_id
    assert head.summary.operation is Operation.REPLACE
    assert {name: head.summary[name] for name in ("manifests-created", "manifests-kept", "manifests-replaced")} == {
        "manifests-created": "1",
        "manifests-kept": "0",
        "manifests-replaced": "4",
    }
    assert head.summary["total-data-files"] == "12"
    assert head.summary["total-records"] == "12"
    assert json.loads(result.to_json())["added_manifests_count"] == 1
    assert "4 manifests of branch 'main' of db.t into 1" in str(result)


@pytest.mark.parametrize("target", [None, 5_000, 9_000, 20_000, 1])
def test_second_rewrite_finds_nothing_to_do(sink: Sink, target: int | None) -> None:
    """A job that runs each night would add a snapshot each night."""
    sink = fill(sink, 7, target=target)

    # Manifests share what stands at the head of each, so few come out smaller than many.
    results = [rewrite_manifests(sink) for _ in range(4)]

    first, *_, last = results
    assert first.snapshot_id is not None
    assert last.snapshot_id is None
    assert last.rewritten_manifests_count == last.added_manifests_count == 0
    assert str(last).startswith("Nothing to rewrite")


def test_table_without_rows_has_nothing_to_rewrite(sink: Sink) -> None:
    """A new table would get a snapshot without any file."""
    fill(sink, 1)
    assert rewrite_manifests(sink).snapshot_id is None
    run(partitioned(sink), "static", [])

    assert rewrite_manifests(sink).snapshot_id is None


def test_few_manifests_that_mix_partitions_are_rewritten(sink: Sink) -> None:
    """Manifests of the right size would be left alone although every query opens all of them."""
    sink = fill(sink, 6)
    rewrite_manifests(sink)
    size = manifests_of(sink.table())[0].manifest_length
    replace_target(sink, -(-size // 2))

    rewrite_manifests(sink)

    table = sink.table()
    found = partitions_in(table, manifests_of(table))
    assert len(found) > 1
    assert all(len(one & other) <= 1 for one, other in itertools.combinations(found, 2))


def test_delete_manifests_are_rewritten_apart(sink: Sink) -> None:
    """A reader would take deletes for rows."""
    sink = fill(sink)
    for entry in entries(sink)[:3]:
        delete_positions(sink, entry.data_file.file_path, [0])
    before, rows = entries_of(sink.table()), rows_of(sink.table())

    result = rewrite_manifests(sink)

    listed = [manifest.content for manifest in manifests_of(sink.table())]
    assert listed == [ManifestContent.DATA, ManifestContent.DELETES]
    assert (result.rewritten_manifests_count, result.added_manifests_count) == (7, 2)
    assert rows_of(sink.table()) == rows
    check_same(sink, before)


def test_entries_keep_their_sequence_numbers_under_deletes(sink: Sink) -> None:
    """Deletes by key would reach rows that came after them, or miss those from before."""
    sink = fill(sink, 2)
    delete_ids(sink, 0, 1, 10)
    append(sink, 0)
    before = rows_of(sink.table())
    assert len(before) < 9

    rewrite_manifests(sink)

    assert rows_of(sink.table()) == before


def test_current_spec_is_rewritten_and_others_if_named(sink: Sink) -> None:
    """Manifests of two specs would be mixed, or those of an old one never be cleaned up."""
    sink = fill(sink, 3)
    with sink.table().update_spec() as change:
        change.add_field("id", BucketTransform(2), "bucket")
    sink = replace(sink, options=replace(sink.options, partition_by=None))
    append(sink, 100)
    append(sink, 110)
    before = entries_of(sink.table())
    old, new = sorted({manifest.partition_spec_id for manifest in manifests_of(sink.table())})

    result = rewrite_manifests(sink)

    by_spec = [manifest.partition_spec_id for manifest in manifests_of(sink.table())]
    assert (result.rewritten_manifests_count, sorted(by_spec)) == (2, [old, old, old, new])
    assert rewrite_manifests(sink, spec_id=old).rewritten_manifests_count == 3
    check_same(sink, before)


def test_fields_to_sort_by_come_first(sink: Sink) -> None:
    """A query by the second field would go on to open all manifests."""
    sink = fill(sink, 6, by="region, bucket(4, id)")
    size = sum(manifest.manifest_length for manifest in manifests_of(sink.table()))
    replace_target(sink, size // 4)

    rewrite_manifests(sink, sort_by=["id_bucket"])

    bounds = sorted(
        (manifest.partitions[1].lower_bound, manifest.partitions[1].upper_bound)
        for manifest in manifests_of(sink.table())
    )
    assert len(bounds) > 1
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(bounds))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sort_by": ["nothing"]}, "'nothing' is no partition field; spec 0 has 'region'"),
        ({"sort_by": ["region", "region"]}, "a field is named twice"),
        ({"sort_by": "region"}, "sort_by is 'region', expected a list of names"),
        ({"sort_by": 5, "branch": 5}, "branch is 5, expected a text or None; sort_by is 5, expected a list of names"),
        ({"spec_id": 7}, "spec_id is 7, and the table has the partition specs 0"),
        ({"branch": "nowhere"}, "it has no branch 'nowhere'"),
    ],
)
def test_wrong_arguments_are_refused(sink: Sink, arguments: dict[str, Any], words: str) -> None:
    """A user would believe that a rewrite was done as told."""
    sink = fill(sink)

    with pytest.raises(OptionError, match=words):
        rewrite_manifests(sink, **arguments)

    assert len(sink.table().metadata.snapshots) == 4


def test_branch_is_rewritten_and_main_stays(sink: Sink) -> None:
    """Readers of main would get rows that were not published."""
    sink = fill(sink, 3)
    table = sink.table()
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    append(replace(sink, options=replace(sink.options, branch="audit", partition_by=None)), 50)
    before = entries_of(sink.table(), "audit")

    result = rewrite_manifests(sink, branch="audit")

    table = sink.table()
    assert table.metadata.refs["audit"].snapshot_id == result.snapshot_id
    assert table.current_snapshot() == head
    assert len(manifests_of(table, "audit")) == 1
    check_same(sink, before, "audit")


@pytest.mark.parametrize("step", STEPS)
def test_rows_that_come_meanwhile_stay(sink: Sink, step: FaultPoint) -> None:
    """An append that lands while manifests are written would be lost, or force all to be written again."""
    sink = fill(sink)
    (path, *_) = [entry.data_file.file_path for entry in entries(sink)]
    after: list[Any] = []

    def act() -> None:
        append(sink, 90)
        delete_positions(sink, path, [0])
        after.extend(entries_of(sink.table()))

    with meanwhile(step, act) as done:
        result = rewrite_manifests(sink)

    assert done
    assert result.rewritten_manifests_count == 4
    check_same(sink, after)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("other", ["rewrite", "overwrite", "merge"])
def test_manifests_that_are_gone_are_planned_again(sink: Sink, step: FaultPoint, other: str) -> None:
    """Rows that others replaced would come back, or those that they wrote be lost."""
    sink = fill(sink)
    after: list[Any] = []

    def act() -> None:
        if other == "rewrite":
            rewrite_manifests(sink)
        elif other == "overwrite":
            run(sink, "where region = 'EU'", in_region("EU", 77))
        else:
            merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
            with sink.table().transaction() as change:
                change.set_properties(**merging)
            append(sink, 90)
        after.extend(entries_of(sink.table()))

    with meanwhile(step, act) as done:
        rewrite_manifests(sink)

    assert done
    check_same(sink, after)


def test_only_the_part_that_lost_a_source_is_written_again(sink: Sink) -> None:
    """A stream that merges now and then would keep a large table from ever being rewritten."""
    sink = partitioned(sink)
    for number in range(3):
        run(sink, "append", in_region("EU", number))
    for number in range(3):
        run(sink, "append", in_region("US", 10 + number))
    size = sum(manifest.manifest_length for manifest in manifests_of(sink.table()))
    replace_target(sink, -(-size // 2))
    written: list[set[str]] = []

    def act() -> None:
        written.append({path.name for path in stored_files(sink.table().location()) if "-rewritten-" in path.name})
        run(sink, "where region = 'US'", in_region("US", 99))

    with meanwhile(FaultPoint.COMMIT_BEGUN, act):
        result = rewrite_manifests(sink)

    listed = {manifest.manifest_path.rpartition("/")[2] for manifest in manifests_of(sink.table())}
    assert len(written[0]) == 2
    assert len(written[0] & listed) == 1
    assert result.rewritten_manifests_count >= 3
    assert [row["id"] for row in sink.rows()] == [0, 1, 2, 99]
    check_clean(sink.table())


def test_gives_up_with_nothing_changed_if_others_never_rest(sink: Sink) -> None:
    """A job would run for ever, or leave manifests behind that nobody needs."""
    sink = fill(sink)

    with (
        meanwhile(FaultPoint.COMMIT_BEGUN, lambda: run(sink, "where region = 'EU'", in_region("EU", 5)), times=99),
        pytest.raises(CommitConflictError, match="in 5 tries, nothing was committed"),
    ):
        rewrite_manifests(sink)

    assert unreferenced_files(sink.table()) == set()


@pytest.mark.parametrize("error", [connection_lost, refusal])
def test_catalog_that_never_answers_leaves_manifests_exactly_if_they_may_be_needed(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Any
) -> None:
    """A table would list manifests that are deleted; or those of refused rewrites pile up."""
    sink = fill(sink)
    before, stored = entries_of(sink.table()), stored_files(sink.table().location())
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError if error is connection_lost else CommitConflictError):
        ManifestRewrite(faulty_sink.catalog, faulty_sink.options, None, None).run(CommitMeter())

    left = stored_files(sink.table().location()) - stored
    assert bool(left) == (error is connection_lost)
    assert entries_of(sink.table()) == before
    check_sound(sink.table())


def test_manifest_that_cannot_be_read_changes_nothing(sink: Sink) -> None:
    """A rewrite would drop the rows of a manifest that it did not see."""
    sink = fill(sink)
    broken = manifests_of(sink.table())[1].manifest_path
    content = local(broken).read_bytes()
    local(broken).write_bytes(content[: len(content) // 2])

    with pytest.raises(DataFileError, match=r"Cannot rewrite manifests of db\.t, nothing was committed"):
        rewrite_manifests(sink)

    local(broken).write_bytes(content)
    check_clean(sink.table())
    assert len(sink.table().metadata.snapshots) == 4


def test_list_that_counts_other_rows_is_refused(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that a library loses would be gone for good."""
    sink = fill(sink)
    real = rewriting.live_entries
    monkeypatch.setattr(rewriting, "live_entries", lambda io, manifest: real(io, manifest)[:2])

    with pytest.raises(RowCountError, match="nothing was committed: the manifest list says"):
        rewrite_manifests(sink)

    check_clean(sink.table())


def test_more_entries_than_fit_into_memory_are_sorted_on_disk(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with many files could not be rewritten on a small driver."""
    sink = fill(sink, 9, target=9_000)
    before = entries_of(sink.table())
    monkeypatch.setattr(clustered_entries, "RUN_BYTES", 12_000)
    monkeypatch.setattr(clustered_entries, "_CHUNKS", 3)

    result = rewrite_manifests(sink)

    table = sink.table()
    assert result.added_manifests_count > 2
    assert sum(len(found) for found in partitions_in(table, manifests_of(table))) < 3 * len(manifests_of(table))
    check_same(sink, before)


def test_replayed_epoch_is_recognised_afterwards(sink: Sink) -> None:
    """A stream would write an epoch twice after a rewrite."""
    sink = partitioned(sink)
    schema_rows = in_region("EU", 1)
    for number in range(3):
        run(sink, "append", in_region("US", 10 + number))
    sink.commit(sink.write(schema_rows, schema=REGIONS, of_epoch=epoch(0)))
    rewrite_manifests(sink)

    again = sink.commit(sink.write(schema_rows, schema=REGIONS, of_epoch=epoch(0)))

    assert again.was_replayed
    check_clean(sink.table())


def test_version_1_is_rewritten_too(sink: Sink) -> None:
    """Tables of the first version would keep their manifests for good."""
    sink = partitioned(sink, format_version="1")
    for number in range(4):
        append(sink, 10 * number)
    before = entries_of(sink.table())

    assert rewrite_manifests(sink).rewritten_manifests_count == 4
    check_same(sink, before)


def test_conversion_goes_on_after_a_rewrite_of_what_it_read(sink: Sink) -> None:
    """A conversion that is under way would lose its deletes, or bring rows back."""
    sink = fill(sink)
    delete_ids(sink, 0, 10)
    rows = rows_of(sink.table())

    with meanwhile(FaultPoint.COMMIT_BEGUN, lambda: rewrite_manifests(sink)) as done:
        convert(replace(sink, options=replace(sink.options, partition_by=None)))

    assert done
    assert rows_of(sink.table()) == rows
    check_clean(sink.table())


def test_command_rewrites_and_prints(sink: Sink) -> None:
    """A user could not run it from a shell, or a script not read what it did."""
    fill(sink)
    options = ["--option", f"warehouse={sink.options.warehouse}"]

    told = CliRunner().invoke(main, ["rewrite-manifests", NAME, "--json", "--sort-by", "region", *options])
    again = CliRunner().invoke(main, ["rewrite-manifests", NAME, *options])

    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["rewritten_manifests_count"] == 4
    assert again.output.startswith("Nothing to rewrite")
    wrong = CliRunner().invoke(main, ["rewrite-manifests", NAME, "--sort-by", "x", *options])
    assert wrong.exit_code == 2


def test_example_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who copies it would get an error."""
    page = Path(__file__).parents[3] / "docs" / "maintenance" / "manifests-and-deletes.md"
    options = embedded_options(tmp_path / "lake", table="shop.events")
    writer = Sink(catalog=connect(catalog_settings(options)), options=options)
    writer.append(1, 2, 3)
    writer.append(4)
    (code,) = re.findall(r"^```python\n(# example: .+?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)

    exec(code.replace("/lake", str(tmp_path / "lake")), {})  # noqa: S102  # the page's own

    told = capsys.readouterr().out
    assert "Rewrote 2 manifests of branch 'main' of shop.events into 1." in told
    assert "Nothing to rewrite: branch 'main' of shop.events has no position delete files" in told
