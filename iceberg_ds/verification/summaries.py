"""Pure: whether the totals in a snapshot's summary are what its manifests list."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.verification.contents import Contents, Entry

_DELETES = {DataFileContent.POSITION_DELETES: "position", DataFileContent.EQUALITY_DELETES: "equality"}
_OF_ROWS = ("data-files", "records")


def summary_problems(contents: Contents) -> Iterator[str]:
    """Yield the entries of summaries that do not say what the manifests do; those that are absent say nothing."""
    for snapshot, listed in _tallied(contents):
        if snapshot.summary is None:
            continue
        for key, actual in expected_summary(snapshot.snapshot_id, listed).items():
            said = snapshot.summary[key]
            if said is not None and (not said.isdigit() or int(said) != actual):
                yield (
                    f"the summary of snapshot {snapshot.snapshot_id} says {key}={said}, its manifests come to {actual}"
                )


def continuity_problems(contents: Contents) -> Iterator[str]:
    """Yield the snapshots that do not have what their parent had, with what they added and without what they dropped.

    Files that a commit leaves out without saying so are lost rows, although all that is listed is whole.
    """
    expected = {
        snapshot.snapshot_id: (snapshot, expected_summary(snapshot.snapshot_id, listed))
        for snapshot, listed in _tallied(contents)
    }
    for snapshot, now in expected.values():
        if snapshot.parent_snapshot_id is None or snapshot.parent_snapshot_id not in expected:
            continue
        _, before = expected[snapshot.parent_snapshot_id]
        for thing in _OF_ROWS:
            total, added, dropped = (now[f"{verb}-{thing}"] for verb in ("total", "added", "deleted"))
            had = before[f"total-{thing}"]
            if had + added - dropped != total:
                yield (
                    f"snapshot {snapshot.snapshot_id} has {total} {thing.replace('-', ' ')}: its parent had {had}, it "
                    f"adds {added} and says that it drops {dropped}"
                )


def _tallied(contents: Contents) -> Iterator[tuple[Snapshot, list[ManifestTally]]]:
    """Yield each snapshot that could be read, and what its manifests come to."""
    tallies = {path: ManifestTally(manifest.entries) for path, manifest in contents.manifests.items()}
    for snapshot in contents.read_snapshots():
        yield snapshot, [tallies[used.manifest_path] for used in contents.lists[snapshot.snapshot_id]]


class ManifestTally:
    """What a manifest comes to, counted once for all snapshots that list it.

    Args:
        entries: Its entries.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.live: Counter[str] = Counter()
        self.added: dict[int | None, Counter[str]] = defaultdict(Counter)
        self.removed: dict[int | None, Counter[str]] = defaultdict(Counter)
        for entry in entries:
            numbers = _numbers(entry)
            if entry.is_live:
                self.live.update(numbers)
            if entry.status is ManifestEntryStatus.ADDED:
                self.added[entry.snapshot_id].update(numbers)
            elif entry.status is ManifestEntryStatus.DELETED:
                self.removed[entry.snapshot_id].update(numbers)


def expected_summary(snapshot_id: int, listed: Sequence[ManifestTally]) -> dict[str, int]:
    """Return the numbers that the summary of a snapshot has that lists these manifests."""
    nothing: Counter[str] = Counter()
    total, added, removed = Counter[str](), Counter[str](), Counter[str]()
    for tally in listed:
        total.update(tally.live)
        added.update(tally.added.get(snapshot_id, nothing))
        removed.update(tally.removed.get(snapshot_id, nothing))
    return {
        **_named(total, "total", "total"),
        **_named(added, "added", "added"),
        **_named(removed, "removed", "deleted"),
    }


def _numbers(entry: Entry) -> dict[str, int]:
    file = entry.file
    if file.content is DataFileContent.DATA:
        return {"data-files": 1, "records": file.record_count, "files-size": file.own_bytes}
    return {
        "delete-files": 1,
        f"{_DELETES[file.content]}-deletes": file.record_count,
        "files-size": file.own_bytes,
    }


def _named(numbers: Counter[str], verb: str, of_rows: str) -> dict[str, int]:
    """Return the numbers by the keys of summaries, whose words for what is dropped differ."""
    return {
        f"{of_rows if thing in _OF_ROWS else verb}-{thing}": numbers[thing]
        for thing in (*_OF_ROWS, "delete-files", "position-deletes", "equality-deletes", "files-size")
    }
