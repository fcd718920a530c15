"""The files that only removed snapshots refer to, found by Spark: the driver holds neither paths nor manifests.

The rules are those of `expired_files`, and so is what callers see of them. Each file is told by its place within its
store; manifests are read only if they can decide about a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import DataFileError
from iceberg_ds.inspect.contents import folder_key, forget_links
from iceberg_ds.inspect.neighbours import OfOthers, State, has_one_meaning, named_folders
from iceberg_ds.maintenance.expired_files import KIND_OF_CONTENT, Kind, named_by
from iceberg_ds.maintenance.place_tasks import Role
from iceberg_ds.maintenance.places_on_spark import (
    PlacesOnSpark,
    begins_with,
    lists_of,
    themselves,
    why_unknown,
)
from iceberg_ds.snapshots.version_3 import ManifestList

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KINDS = list(Kind)
_COLUMNS = ("place", "store", "path", "kind")


class ExpiredOnSpark:
    """The files that only removed snapshots refer to.

    Attributes:
        left: Number of files that were left out because others may have them.

    Args:
        places: Tells of the table's files.
        gone: The snapshots that are, or are to be, removed.
        statistics: The paths of their statistics files.
        after: The table without them, as it is or will be.

    Raises:
        DataFileError: What the snapshots list is not known.
    """

    def __init__(
        self, places: PlacesOnSpark, gone: Sequence[Snapshot], statistics: Iterable[str], after: TableMetadata
    ) -> None:
        forget_links()
        self.left = 0
        self._places = places
        self._states: list[State] = []
        self._named: set[str] = set()
        self._counts: dict[Kind, int] | None = None
        self._seen = lists_of(after)
        self._kept = places.keep(places.lists(self._seen))
        lists = places.lists(map(ManifestList.of, gone), may_miss=True)
        manifests = places.without(lists, self._kept, "place")
        manifests = places.keep(manifests.withColumn("kind", F.lit(_KINDS.index(Kind.MANIFEST))))
        found = (
            places.listed(manifests, Role.FOUND, may_miss=True)
            .unionByName(places.rows(Role.FOUND, [one.manifest_list for one in gone], _KINDS.index(Kind.MANIFEST_LIST)))
            .unionByName(places.rows(Role.FOUND, statistics, _KINDS.index(Kind.STATISTICS)))
        )
        groups = places.keep(places.grouped(found))
        self._check(groups)
        # Of two paths for one place, in two stores, only one is known to go.
        one = groups.where(F.size("found") > 0).select("place", F.array_min("found").alias("one"))
        files = one.select("place", "one.store", "one.path", "one.kind")
        self._set(files.where(F.udf(has_one_meaning, "boolean", useArrow=False)("path")))
        self._drop(after, self._kept)

    def keep(self, table: TableMetadata) -> None:
        """Leave out what the snapshots of the table refer to.

        Args:
            table: The table, freshly loaded, without the removed snapshots.

        Raises:
            DataFileError: What the snapshots refer to is not known.
        """
        if not (unseen := lists_of(table) - self._seen):
            self._drop(table)
            return
        self._seen |= unseen
        new = self._places.keep(self._places.without(self._places.lists(unseen), self._kept, "path"))
        self._drop(table, new)
        self._kept = self._kept.unionByName(new)

    def has_files_in(self, folder: str) -> bool:
        """Return whether one of the files is below the folder with a key."""
        below = self._files.where(F.concat("store", "place").startswith(folder))
        return bool(self._places.collect(below.limit(1)))

    def referred(self, state: State) -> Iterable[str]:
        """Note a state of others, whose files stay; return no keys, because tasks look for them."""
        self._states.append(state)
        return ()

    def outside(self, metadata: TableMetadata) -> Iterator[str]:
        """Yield the paths of the files that are in none of the folders that a table names."""
        own = tuple(map(folder_key, named_folders(metadata)))
        yield from self._paths(self._files.where(~begins_with(own)(F.concat("store", "place"))), len(self))

    def leave(self, others: OfOthers, around: tuple[str, ...]) -> None:
        """Leave out the files that others may have, and those below folders of other tables."""
        if not (others.folders or around or self._states):
            return
        stay = self._files.where(begins_with((*others.folders, *around))(F.concat("store", "place")))
        stay = stay.select("place")
        if self._states:
            stay = stay.unionByName(self._places.of_states(self._states).select("place"))
        before = len(self)
        self._set(self._places.without(self._files, stay, "place"))
        self.left += before - len(self)

    def paths(self, kind: Kind) -> Iterator[str]:
        """Yield the paths of the files of a kind."""
        yield from self._paths(self._files.where(F.col("kind") == _KINDS.index(kind)), self.count(kind))

    def count(self, kind: Kind) -> int:
        """Return how many files of a kind there are."""
        if self._counts is None:
            by_kind = self._places.collect(self._files.groupBy("kind").count())
            self._counts = {_KINDS[int(str(number))]: int(str(count)) for number, count in by_kind}
        return self._counts.get(kind, 0)

    def __len__(self) -> int:
        return sum(map(self.count, Kind))

    def _paths(self, files: DataFrame, most: int) -> Iterator[str]:
        for portion in self._places.stream(files.select("path"), most):
            yield from (str(path) for (path,) in portion)

    def _drop(self, table: TableMetadata, lists: DataFrame | None = None) -> None:
        """Leave out what a table names, the manifests in lists, and what these list if it can concern a file.

        Raises:
            DataFileError: What they list is not known.
        """
        places = self._places
        new = set(named_by(table)) - self._named
        self._named |= new
        known = places.rows(Role.KNOWN, new)
        if lists is not None:
            concerns = any(self.count(kind) for kind in KIND_OF_CONTENT.values())
            listed = places.listed(lists) if concerns else themselves(lists, Role.KNOWN)
            groups = places.keep(places.grouped(known.unionByName(listed)))
            self._check(groups)
            known = groups.where(F.size("known") > 0)
        elif not new:
            return
        self._set(places.without(self._files, known, "place"))

    def _set(self, files: DataFrame) -> None:
        self._files, self._counts = self._places.keep(files.select(*_COLUMNS)), None

    def _check(self, groups: DataFrame) -> None:
        if (problem := why_unknown(self._places, groups)) is not None:
            raise DataFileError(f"what the table refers to is not known: {problem}")
