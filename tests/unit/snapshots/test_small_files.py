"""How many small files a branch has at least, by summaries: never more than it has, and all in a stream's table."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from support.tables.metadata import metadata_of

from iceberg_ds.snapshots.growth import least_small_files

TARGET = {"write.target-file-size-bytes": "400"}  # below 100 bytes a file is small
SIZES = st.sampled_from([1, 10, 99, 100, 101, 350, 4000])


@dataclass
class Branch:
    """The files of a branch, and the snapshots that made it.

    Attributes:
        sizes: Sizes of the live files.
        snapshots: The history.
    """

    sizes: list[int] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)

    def commit(self, added: list[int], removed: int = 0) -> None:
        """Remove the first files, and add others."""
        self.sizes = [*self.sizes[removed:], *added]
        told = {
            "added-data-files": len(added),
            "added-files-size": sum(added),
            "deleted-data-files": removed,
            "total-data-files": len(self.sizes),
            "total-files-size": sum(self.sizes),
        }
        number = len(self.snapshots) + 1
        self.snapshots.append(
            Snapshot(
                snapshot_id=number,
                parent_snapshot_id=number - 1 or None,
                sequence_number=number,
                timestamp_ms=number,
                manifest_list=f"{number}.avro",
                summary=Summary(Operation.APPEND, **{name: str(value) for name, value in told.items() if value}),
            )
        )

    def metadata(self, expired: int = 0) -> TableMetadata:
        """Return the table, without its first snapshots."""
        ref = SnapshotRef(snapshot_id=len(self.snapshots), snapshot_ref_type=SnapshotRefType.BRANCH)
        return metadata_of(properties=TARGET).model_copy(
            update={"snapshots": self.snapshots[expired:], "refs": {"main": ref}}
        )


@given(
    commits=st.lists(st.tuples(st.lists(SIZES, max_size=5), st.integers(0, 5)), min_size=1, max_size=8),
    expired=st.integers(0, 4),
)
def test_number_is_never_too_high(commits: list[tuple[list[int], int]], expired: int) -> None:
    """A stream into a healthy table would be refused."""
    branch = Branch()
    for added, removed in commits:
        branch.commit(added, min(removed, len(branch.sizes)))

    found = least_small_files(branch.metadata(min(expired, len(commits) - 1)), "main")

    assert found <= sum(size < 100 for size in branch.sizes)


@pytest.mark.parametrize("expired", [0, 1, 20])
def test_small_files_of_a_stream_are_counted_beside_large_ones(expired: int) -> None:
    """The limit would never be reached in a large table, the one that needs it."""
    branch = Branch()
    branch.commit([4000] * 50)
    for _ in range(40):
        branch.commit([10])

    assert least_small_files(branch.metadata(expired), "main") == 40 - max(expired - 1, 0)


def test_rewritten_files_are_not_counted_any_more() -> None:
    """The stream would stay refused after its table was compacted."""
    branch = Branch()
    for _ in range(40):
        branch.commit([10])
    branch.commit([400], removed=40)

    assert least_small_files(branch.metadata(), "main") == 0
    branch.commit([10])
    assert least_small_files(branch.metadata(), "main") == 1


def test_summaries_that_tell_nothing_count_nothing() -> None:
    """A table of another writer would be refused for what is unknown."""
    branch = Branch()
    branch.commit([10])
    silent = branch.snapshots[0].model_copy(update={"summary": None})
    odd = Summary(Operation.APPEND, **{"added-data-files": "many", "total-data-files": "9", "total-files-size": "soon"})
    metadata = branch.metadata()

    for snapshot in (silent, branch.snapshots[0].model_copy(update={"summary": odd})):
        assert least_small_files(metadata.model_copy(update={"snapshots": [snapshot]}), "main") == 0
    assert least_small_files(metadata, "nothing") == 0
