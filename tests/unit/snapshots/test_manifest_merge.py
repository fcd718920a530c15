"""Manifests that are merged: as many as the table says, no entry lost or changed, and no file too many or too few."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.transforms import BucketTransform
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, false_refusal, forbidden, refusal
from support.checks.invariants import check_clean, check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.tables.delete_files import delete_positions, entries
from support.tables.sink import IDENTIFIER, NAME, Sink, embedded_options, epoch, rows

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CatalogError, CommitStateUnknownError, IcebergSinkError
from iceberg_ds.plan import EVERY_ROW
from iceberg_ds.snapshots import manifest_merge, version_3
from iceberg_ds.snapshots.manifest_merge import MergePolicy, groups_to_merge, sources_of
from iceberg_ds.snapshots.manifests import live_manifests

pytestmark = pytest.mark.usefixtures("waits")

MIN_COUNT = 4
FEW = {"commit.manifest.min-count-to-merge": str(MIN_COUNT)}


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """Let each test begin as a process does that has committed nothing."""
    manifest_merge._process = manifest_merge._Process()
    yield
    settle()


def settle() -> None:
    """Wait until everything that was begun beside commits is done."""
    concurrent.futures.wait([prepared.future for prepared in manifest_merge._process.prepared.values()])


@pytest.fixture
def merged(sink: Sink) -> Sink:
    """Return the sink whose new table merges four manifests."""
    return replace(sink, options=replace(sink.options, table_properties=FEW))


@pytest.fixture
def merged_faulty(merged: Sink, faulty_sink: Sink) -> Sink:
    """Return the same table through a catalog that fails on demand."""
    return replace(merged, catalog=faulty_sink.catalog)


def stream(sink: Sink, first: int, last: int) -> None:
    """Commit these epochs, each with a row, and wait after each for what goes on beside it."""
    for number in range(first, last):
        sink.append(number, of_epoch=epoch(number))
        settle()


def listed(sink: Sink) -> list[ManifestFile]:
    """Return the manifests of the newest snapshot."""
    table = sink.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.manifests(table.io)


def are_merged(sink: Sink) -> bool:
    """Return whether the newest snapshot lists a merged manifest."""
    return any("-merged-" in manifest.manifest_path for manifest in listed(sink))


def waiting(sink: Sink) -> set[Path]:
    """Return the merged manifests that no snapshot lists."""
    return unreferenced_files(sink.table())


def numbers(sink: Sink) -> dict[int, tuple[int, int]]:
    """Return snapshot and sequence number of each row's file, by the row's id."""
    table = sink.table()
    found = {}
    for entry in table.inspect.entries().to_pylist():
        if entry["status"] != 2:
            lower = entry["readable_metrics"]["id"]["lower_bound"]
            found[lower] = (entry["snapshot_id"], entry["sequence_number"])
    return found


def test_stream_merges_beside_its_commits(merged: Sink) -> None:
    """A busy stream would slow down with each commit, or stop for each merge."""
    stream(merged, 0, 4)
    assert len(listed(merged)) == 4
    assert len(waiting(merged)) == 1

    merged.append(4, of_epoch=epoch(4))

    assert are_merged(merged)
    assert len(listed(merged)) == 2
    assert merged.ids() == list(range(5))
    settle()
    check_clean(merged.table())


def test_list_stays_short_and_each_entry_keeps_its_numbers(merged: Sink) -> None:
    """Deletes of other engines would apply to other rows, incremental readers see rows again, or the list grow."""
    for number in range(40):
        stream(merged, number, number + 1)
        assert len(listed(merged)) <= 2 * MIN_COUNT + 4

    table = merged.table()
    in_order = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
    assert numbers(merged) == {
        number: (snapshot.snapshot_id, snapshot.sequence_number) for number, snapshot in enumerate(in_order)
    }
    assert merged.ids() == list(range(40))
    check_sound(table)
    result = iceberg_ds.verify(NAME, options={"warehouse": str(merged.options.warehouse)})
    assert result.ok, str(result)


def test_summary_tells_of_the_merge_and_totals_stay(merged: Sink) -> None:
    """A user could not tell why manifests went, or later totals be wrong for good."""
    stream(merged, 0, 5)

    summary = merged.table().current_snapshot().summary
    assert summary.operation.value == "append"
    told = {name: summary[name] for name in ("manifests-created", "manifests-kept", "manifests-replaced")}
    assert told == {"manifests-created": "2", "manifests-kept": "0", "manifests-replaced": "4"}
    assert (summary["added-data-files"], summary["total-data-files"], summary["total-records"]) == ("1", "5", "5")


def test_batch_merges_in_its_commit(merged: Sink) -> None:
    """A table that only batches write would never be merged."""
    for number in range(6):
        merged.append(number)

    assert are_merged(merged)
    assert len(listed(merged)) == 3
    assert merged.ids() == list(range(6))
    check_clean(merged.table())


@pytest.mark.parametrize("enabled", ["false", None])
def test_table_that_does_not_ask_for_it_is_left_alone(merged: Sink, enabled: str | None) -> None:
    """An existing table would be maintained in a way that its owner has not chosen."""
    merged.append(0)
    with merged.table().transaction() as change:
        if enabled is None:
            change.remove_properties("commit.manifest-merge.enabled")
        else:
            change.set_properties({"commit.manifest-merge.enabled": enabled})

    for number in range(1, 7):
        merged.append(number)
    stream(merged, 7, 12)

    assert not are_merged(merged)
    assert len(listed(merged)) == 12


def test_process_that_commits_once_prepares_nothing(merged: Sink) -> None:
    """Where Python workers are not reused, each epoch would leave a file behind."""
    for number in range(3 * MIN_COUNT):
        manifest_merge._process = manifest_merge._Process()
        stream(merged, number, number + 1)

    assert len(listed(merged)) <= 2 * MIN_COUNT + 1
    assert merged.ids() == list(range(3 * MIN_COUNT))
    check_clean(merged.table())


def test_what_waited_too_long_is_not_used(merged: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that a clean-up of orphans has deleted would be listed: a broken table."""
    stream(merged, 0, 4)
    (old,) = waiting(merged)
    monkeypatch.setattr(manifest_merge, "_FRESH_S", 0)

    merged.append(4, of_epoch=epoch(4))

    assert not old.exists()
    assert merged.ids() == list(range(5))
    check_sound(merged.table())


def test_what_waited_while_the_machine_slept_is_not_used(merged: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean-up from another machine has deleted it meanwhile, and the monotonic clock stood still: a broken table."""
    stream(merged, 0, 4)
    (old,) = waiting(merged)
    old.unlink()
    awake = time.time
    monkeypatch.setattr(time, "time", lambda: awake() + 5 * 86_400)

    merged.append(4, of_epoch=epoch(4))

    assert merged.ids() == list(range(5))
    check_sound(merged.table())


def test_commits_of_others_in_between_are_kept(
    merged: Sink, merged_faulty: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows of another writer would be lost."""
    stream(merged, 0, 4)
    faulty_catalog.before_commit(1, lambda: merged.append(100))
    faulty_catalog.before_commit(2, lambda: merged.append(101))

    merged_faulty.append(4, of_epoch=epoch(4))
    settle()

    assert are_merged(merged)
    assert merged.ids() == [*range(5), 100, 101]
    check_clean(merged.table())


def test_what_was_rewritten_in_between_is_not_replaced(
    merged: Sink, merged_faulty: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows that another writer removed would come back."""
    stream(merged, 0, 4)
    (prepared,) = waiting(merged)
    faulty_catalog.before_commit(1, lambda: merged.overwrite(rows(50), replace_where="id = 50 or id = 2"))

    merged_faulty.append(4, of_epoch=epoch(4))
    settle()

    assert merged.ids() == [0, 1, 3, 4, 50]
    assert not prepared.exists()
    check_sound(merged.table())


def test_overwrite_of_everything_leaves_what_waits(merged: Sink) -> None:
    """Replaced rows would come back with the next commit."""
    stream(merged, 0, 4)

    merged.overwrite(rows(50), replace_where=EVERY_ROW)
    merged.append(4, of_epoch=epoch(4))

    assert merged.ids() == [4, 50]
    assert waiting(merged) == set()
    check_sound(merged.table())


@pytest.mark.parametrize("when", When)
def test_lost_answer_ends_with_each_row_once(
    merged: Sink, merged_faulty: Sink, faulty_catalog: FaultyCatalog, when: When
) -> None:
    """The merged manifest, and with it most of the table, would be deleted."""
    stream(merged, 0, 4)
    faulty_catalog.fail_next(1, connection_lost, when=when)

    merged_faulty.append(4, of_epoch=epoch(4))
    settle()

    assert are_merged(merged)
    assert merged.ids() == list(range(5))
    check_clean(merged.table())


def test_unknown_outcome_deletes_nothing(merged: Sink, merged_faulty: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A request that arrives late would bring a deleted manifest into the table: a broken table."""
    stream(merged, 0, 4)
    with merged.table().transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    (prepared,) = waiting(merged)
    faulty_catalog.fail_next(9, connection_lost)

    with pytest.raises(CommitStateUnknownError):
        merged_faulty.append(4, of_epoch=epoch(4))

    assert prepared.exists()


def test_refused_commit_deletes_what_it_merged_and_nothing_else(
    merged: Sink, merged_faulty: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Each failure would leave a file behind, or what was merged be gone from the table."""
    stream(merged, 0, 4)
    faulty_catalog.fail_next(9, forbidden)

    with pytest.raises(CatalogError):
        merged_faulty.append(4, of_epoch=epoch(4))

    assert merged.ids() == list(range(4))
    check_clean(merged.table())


def test_merge_that_fails_is_logged_and_costs_nothing(
    merged: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream would stop because of a convenience, or leave files behind."""
    original = manifest_merge.write_manifests

    def broken(*given: Any) -> None:
        original(*given)
        raise OSError("disk full")

    monkeypatch.setattr(manifest_merge, "write_manifests", broken)
    with caplog.at_level(logging.WARNING):
        stream(merged, 0, 7)

    assert "Cannot merge 5 manifests of db.t: OSError: disk full" in caplog.text
    assert merged.ids() == list(range(7))
    check_clean(merged.table())


def test_manifest_that_lacks_entries_is_not_merged(
    merged: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A manifest that was read in part would lose rows for good."""
    original = manifest_merge.live_entries
    monkeypatch.setattr(manifest_merge, "live_entries", lambda *given: original(*given)[:0])

    with caplog.at_level(logging.WARNING):
        stream(merged, 0, 7)

    assert "the manifest list says" in caplog.text
    assert not are_merged(merged)
    assert merged.ids() == list(range(7))
    check_clean(merged.table())


def test_each_partition_spec_is_merged_by_itself(merged: Sink) -> None:
    """Point look-ups would miss rows, because files would be read under another partitioning."""
    stream(merged, 0, 4)
    with merged.table().update_spec() as update:
        update.add_field("id", BucketTransform(16), "bucket")
    stream(merged, 4, 10)

    assert {manifest.partition_spec_id for manifest in listed(merged) if "-merged-" in manifest.manifest_path} == {0, 1}
    for number in range(10):
        assert merged.table().scan(f"id = {number}").to_arrow().num_rows == 1
    check_sound(merged.table())


def test_version_1_table_is_merged(merged: Sink) -> None:
    """Old tables would slow down, or not be read any more."""
    inner = merged.catalog._catalog
    inner.create_namespace("db")
    properties = {"format-version": "1", "commit.manifest-merge.enabled": "true", **FEW}
    inner.create_table(IDENTIFIER, merged.plan().schema, properties=properties)

    stream(merged, 0, 7)

    assert are_merged(merged)
    assert merged.ids() == list(range(7))
    check_sound(merged.table())


def test_table_that_was_upgraded_meanwhile_does_not_get_what_waits(merged: Sink) -> None:
    """Rows would have no sequence numbers, and deletes of other engines miss them."""
    inner = merged.catalog._catalog
    inner.create_namespace("db")
    properties = {"format-version": "1", "commit.manifest-merge.enabled": "true", **FEW}
    inner.create_table(IDENTIFIER, merged.plan().schema, properties=properties)
    stream(merged, 0, 4)
    (prepared,) = waiting(merged)
    with merged.table().transaction() as change:
        change.upgrade_table_version(2)

    merged.append(4, of_epoch=epoch(4))

    assert not prepared.exists()
    assert sorted(number for _, number in numbers(merged).values()) == [0, 0, 0, 0, 1]
    check_sound(merged.table())


def test_manifests_whose_rows_have_other_ids_are_not_replaced(merged: Sink) -> None:
    """Rows of a branch that was set to another line of an upgraded table would get the ids of the line before."""
    third = replace(merged, options=replace(merged.options, format_version="3"))
    stream(third, 0, 4)
    (made,) = next(iter(manifest_merge._process.prepared.values())).future.result()
    table, manifests = third.table(), live_manifests(third.table().io, third.table().current_snapshot())
    assert made.can_stand_in(table.metadata, sources_of(manifests))

    manifests[-1][version_3._LIST_FIRST_ROW_ID] += 100

    assert not made.can_stand_in(table.metadata, sources_of(manifests))


def test_delete_manifests_stay_as_they_are(merged: Sink) -> None:
    """Deleted rows would come back, or others go."""
    stream(merged, 0, 3)
    delete_positions(merged, entries(merged)[0].data_file.file_path, [0])
    (deletes,) = [found.manifest_path for found in listed(merged) if found.content == ManifestContent.DELETES]
    before = merged.ids()

    stream(merged, 3, 8)

    assert are_merged(merged)
    assert deletes in {manifest.manifest_path for manifest in listed(merged)}
    assert merged.ids() == [*before, *range(3, 8)]
    check_sound(merged.table())


def test_manifests_of_deletes_are_merged_with_each_other_alone(merged: Sink) -> None:
    """The list of a stream by keys would grow with each epoch; or readers take deletes for rows, or miss some."""
    merged.create(KEYED_SCHEMA)
    with merged.table().transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", **FEW})
    for number in range(12):
        events: list[Event] = [("U", key, "EU", number, number) for key in (100 + number, number % 3)]
        merged.commit(keyed_tasks(plan_by_keys(merged), events[:1], events[1:], of_epoch=epoch(number)))
        settle()
        assert len(listed(merged)) <= 2 * (2 * MIN_COUNT)

    is_merged = [found.content for found in listed(merged) if "-merged-" in found.manifest_path]
    assert set(is_merged) == {ManifestContent.DATA, ManifestContent.DELETES}
    kinds = [found.content for found in listed(merged)]
    assert kinds == sorted(kinds)
    last = {key: number for number in range(12) for key in (100 + number, number % 3)}
    assert [(row["id"], row["amount"]) for row in rows_of(merged.table())] == sorted(last.items(), key=str)
    check_sound(merged.table())
    result = iceberg_ds.verify(NAME, options={"warehouse": str(merged.options.warehouse)})
    assert result.ok, str(result)


def manifest(number: int, length: int, files: int, spec: int, *, content: ManifestContent) -> ManifestFile:
    """Return the entry of a manifest in a list."""
    return ManifestFile.from_args(
        manifest_path=f"m{number}",
        manifest_length=length,
        partition_spec_id=spec,
        content=content,
        added_files_count=files,
        existing_files_count=0,
        key_metadata=None,
    )


@given(
    lengths=st.lists(st.tuples(st.integers(1, 150), st.integers(0, 40), st.integers(0, 1), st.booleans()), max_size=40),
    min_count=st.integers(2, 6),
)
def test_groups_are_alike_small_and_disjoint(lengths: list[tuple[int, int, int, bool]], min_count: int) -> None:
    """A manifest would be listed twice, or what is large be copied again and again."""
    manifests = [
        manifest(number, length, files, spec, content=ManifestContent.DATA if is_data else ManifestContent.DELETES)
        for number, (length, files, spec, is_data) in enumerate(lengths)
    ]
    policy = MergePolicy(is_enabled=True, min_count=min_count, target_bytes=100)

    groups = list(groups_to_merge(manifests, policy))

    paths = [found.manifest_path for group in groups for found in group]
    assert len(paths) == len(set(paths))
    for group in groups:
        assert len(group) > 1
        assert len({(found.content, found.partition_spec_id) for found in group}) == 1
        assert sum(found.manifest_length for found in group) <= 100
    assert not list(groups_to_merge(manifests, replace(policy, is_enabled=False)))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, MergePolicy()),
        ({"commit.manifest-merge.enabled": "TRUE"}, MergePolicy(is_enabled=True)),
        ({"commit.manifest.min-count-to-merge": "0"}, MergePolicy(min_count=2)),
        ({"commit.manifest.min-count-to-merge": "many"}, MergePolicy()),
        ({"commit.manifest.target-size-bytes": "5"}, MergePolicy(target_bytes=5)),
    ],
)
def test_policy_is_that_of_the_table(properties: dict[str, str], expected: MergePolicy) -> None:
    """A table's owner could not say what is merged."""
    assert MergePolicy.of(properties) == expected


ERRORS: dict[str, Callable[[], Exception]] = {
    "refused": refusal,
    "lost": connection_lost,
    "falsely refused": false_refusal,
}
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["epoch", "batch", "other process", "overwrite", "replace", "new process"]), st.none()),
    st.tuples(st.sampled_from(["race append", "race replace"]), st.none()),
    st.tuples(st.sampled_from(sorted(ERRORS)), st.sampled_from(When)),
)


class History:
    """A table that a stream and others write, and the ids that it must have."""

    def __init__(self, folder: str) -> None:
        options = embedded_options(Path(folder))
        options = replace(options, table_properties={"commit.manifest.min-count-to-merge": "2"})
        self.other = Sink(catalog=connect(catalog_settings(options)), options=options)
        self.catalog = FaultyCatalog(connect(catalog_settings(options)).raw)
        client: Any = CatalogClient(self.catalog, catalog_settings(options))  # type: ignore[arg-type]  # has what is called
        self.stream = replace(self.other, catalog=client)
        self.ids: set[int] = set()
        self.number = 0

    def act(self, kind: str, when: Any) -> None:
        """Do one thing to the table."""
        self.number += 1
        ours, theirs = self.number, 1000 + self.number
        if kind == "new process":
            settle()
            manifest_merge._process = manifest_merge._Process()
        elif kind in {"batch", "other process"}:
            self.other.append(theirs)
            self.ids.add(theirs)
        elif kind == "overwrite":
            self._replace(0, 10**6, theirs)
        elif kind == "replace":
            self._replace(ours - 3, ours, theirs)
        else:
            self._fault(kind, when, theirs)
            for _ in range(2):  # the second finds what became of the first
                with suppress(IcebergSinkError):
                    self.stream.append(ours, of_epoch=epoch(ours))
            self.ids.add(ours)

    def _fault(self, kind: str, when: Any, theirs: int) -> None:
        self.catalog.forget()
        if kind in ERRORS:
            self.catalog.fail_next(1, ERRORS[kind], when=when)
        elif kind == "race append":
            self.catalog.before_commit(self.catalog.commits + 1, lambda: self.act("batch", None))
        elif kind == "race replace":
            self.catalog.before_commit(
                self.catalog.commits + 1, lambda: self._replace(theirs - 1003, theirs - 1000, theirs)
            )

    def _replace(self, low: int, high: int, new: int) -> None:
        self.ids = {number for number in self.ids if not low <= number < high and number != new} | {new}
        self.other.overwrite(rows(new), replace_where=f"(id >= {low} and id < {high}) or id = {new}")


@settings(max_examples=12)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=12), waits=st.booleans())
def test_no_history_loses_or_brings_back_a_row(actions: list[tuple[str, Any]], waits: bool) -> None:  # noqa: FBT001  # drawn
    """Rows would be lost, come twice or come back, in some order of commits, merges, overwrites, races and faults."""
    manifest_merge._process = manifest_merge._Process()
    with TemporaryDirectory() as folder:
        history = History(folder)
        history.act("epoch", None)
        for kind, when in actions:
            history.act(kind, when)
            if waits:
                settle()
            assert history.other.ids() == sorted(history.ids)
        settle()
        table = history.other.table()
        check_sound(table)
        # What waits for the next commit of a process stays when there is none.
        assert not {path for path in unreferenced_files(table) if "-merged-" not in path.name}
