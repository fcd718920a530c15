"""Orphan files of a large table, found by Spark: tasks list files, read manifests, and compare them.

The order is that of `inspect.orphans`, and so are the proofs: files are listed first, then the table is loaded, and
right before the deletion once more. Only the files that go come to the driver, in portions, which it deletes: a task
that Spark repeats deletes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.inspect.checklist import CheckFailedError, NotTriedError
from iceberg_ds.inspect.contents import forget_links
from iceberg_ds.inspect.neighbours import (
    State,
    has_one_meaning,
    refuse_shared_files,
    refuse_table_around,
    stored_beside,
    what_others_have,
    why_partial,
)
from iceberg_ds.inspect.orphan_rules import OrphanRules, refused
from iceberg_ds.inspect.orphans import (
    Orphan,
    folders_of_others,
    listed_folders,
    may_be_of_others,
    maybe_the_same,
    now_of_stores_ms,
    own_folders,
    require_same_folders,
    tell_of_outside,
    why_other_folders,
)
from iceberg_ds.io.cleanup import Proof, delete_in_portions
from iceberg_ds.io.listing import is_metadata_file
from iceberg_ds.maintenance.place_tasks import PlacePlan, Role
from iceberg_ds.maintenance.places_on_spark import (
    PlacesOnSpark,
    begins_with,
    lists_of,
    missing_files,
    undecided,
    unknown_files,
    why_unknown,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ACTION = "remove orphan files"
_ORPHAN_COLUMNS = ("path", "size_bytes", "modified_ms")
_UNCHANGED_STEP = "No file was deleted. Call it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSearch:
    """What to look for.

    Attributes:
        grace_ms: Lowest age of an orphan, in milliseconds.
        rules: Which files are looked at.
        at_once: How many requests delete files at once; None for one.
        streams: Whether paths come to the driver in portions.
        file_list: An inventory with the columns `path` and `modified_ms` in place of a listing, or None.
    """

    grace_ms: int
    rules: OrphanRules
    at_once: int | None = None
    streams: bool = False
    file_list: DataFrame | None = None


def inventory_of(files: DataFrame) -> DataFrame:
    """Return an inventory as the search takes it; files whose age it does not know count as new.

    Raises:
        OptionError: It has other columns.
    """
    types = dict(files.dtypes)
    if types.get("file_path") != "string" or types.get("last_modified") not in {"timestamp", "timestamp_ntz"}:
        found = ", ".join(f"{name} {kind}" for name, kind in files.dtypes)
        raise refused(f"file_list has the columns {found}, expected file_path string and last_modified timestamp")
    millis = F.unix_millis(F.col("last_modified").cast("timestamp"))
    never = F.lit(2**62)
    return files.where(F.col("file_path").isNotNull()).select(
        F.col("file_path").alias("path"), F.coalesce(millis, never).alias("modified_ms")
    )


class OrphansOnSpark:
    """One search for orphans, and their deletion.

    Args:
        spark: Runs the tasks.
        catalog: The catalog of the table; tasks see nothing of it.
        identifier: Levels of the table's identifier.
        search: What to look for.
    """

    def __init__(
        self, spark: SparkSession, catalog: CatalogClient, identifier: tuple[str, ...], search: OrphanSearch
    ) -> None:
        forget_links()
        self._load = partial(catalog.load_table, identifier)
        self._search = search
        self._rules = search.rules
        self._table = table = self._load()
        self._folders = listed_folders(table, search.rules)
        plan = PlacePlan(
            io_properties=catalog.plan_properties(table),
            location=table.metadata.location,
            rules=search.rules,
            own=frozenset(own_folders(table.metadata, search.rules)),
        )
        self._places = PlacesOnSpark(spark=spark, plan=plan, action=_ACTION, streams=search.streams)
        self._now_ms = 0
        self._telling: dict[str, str] = {}  # paths of the files that tell of others, by their keys
        self._lists: list[DataFrame] = []
        self.too_young = 0

    def found(self) -> Iterator[Orphan]:
        """Yield the orphans as one look shows them; nothing is deleted.

        Raises:
            NotTriedError: They cannot be told.
            CheckFailedError: A listed file may be one of the table by another path.
        """
        groups = self._look()
        self._refuse_other_spellings(groups)
        for portion in self._places.stream(self._orphans(groups).select(*_ORPHAN_COLUMNS)):
            yield from map(_orphan, portion)

    def delete(self) -> Iterator[Orphan]:
        """Yield the orphans that two looks show, each with whether it was deleted; they are deleted as they are taken.

        Raises:
            NotTriedError: They cannot be told; nothing was deleted.
            CheckFailedError: Deleting would not be safe; nothing was deleted.
        """
        groups = self._look_again(self._look())
        self._refuse_other_spellings(groups)
        orphans = self._places.keep(self._orphans(groups))
        number = self._places.count(orphans)
        if not number:
            return
        table, rules = self._table, self._rules
        own = rules.folder(table.metadata.location)
        refuse_shared_files(table, self._telling)
        refuse_table_around(table)
        states: list[State] = []
        metadata_files = [path for path in self._telling.values() if is_metadata_file(path)]
        others = what_others_have(table, metadata_files, self._has_files_in, partial(_noted, states))
        may_have = may_be_of_others(others, rules)

        def is_inside(orphan: Orphan) -> bool:
            return rules.key(orphan.path).startswith(own)

        def may_go(orphan: Orphan) -> bool:
            return is_inside(orphan) and has_one_meaning(orphan.path) and not may_have(orphan.path)

        outside = 0
        for portion in self._places.stream(self._with_others(orphans, states), number):
            every = [(_orphan(row), bool(row[-1])) for row in portion]
            mine = (orphan.path for orphan, stays in every if not stays and may_go(orphan))
            done = delete_in_portions(table.io, mine, Proof.UNREFERENCED, self._search.at_once)
            gone = {path for path, is_gone in done if is_gone}
            outside += sum(not is_inside(orphan) for orphan, _ in every)
            yield from (replace(orphan, deleted=orphan.path in gone) for orphan, _ in every)
        tell_of_outside(table, outside)

    def _look(self) -> DataFrame:
        """List the files, then load the table; return the groups of files that differ."""
        places, before = self._places, self._table
        self._now_ms = now_of_stores_ms(before.io.properties, self._folders, by_store_clock=True)
        # The rows have to be there before the table is loaded: this is the order of the proof.
        stored = places.keep(self._stored())
        telling = stored.where(F.col("role").isin(int(Role.TELLS), int(Role.PROBLEM)))
        for role, path in places.collect(telling.select("role", "path").distinct()):
            if role == int(Role.PROBLEM):
                raise NotTriedError(f"not looked for, because what is stored is not known: {path}")
            self._tell(str(path))
        self._table = table = self._load()
        require_same_folders(before.metadata, table.metadata)
        if (reason := why_partial(table)) is not None:
            raise NotTriedError(f"not looked for, because what the table refers to is not known: {reason}")
        found = stored.where(F.col("role") == int(Role.FOUND))
        groups = places.keep(places.differing(found, self._referred(table)))
        if (reason := why_unknown(places, groups)) is not None:
            raise NotTriedError(f"not looked for, because what the table refers to is not known: {reason}")
        if self._search.file_list is not None:
            self._look_around(groups)
        self.too_young = self._count_young(groups)
        return groups

    def _look_again(self, groups: DataFrame) -> DataFrame:
        """Load the table once more, and return the groups with what it refers to by now."""
        before, self._table = self._table, self._load()
        table = self._table
        if (reason := why_other_folders(before.metadata, table.metadata)) is not None:
            raise CheckFailedError(reason, _UNCHANGED_STEP)
        if (reason := why_partial(table)) is not None:
            raise CheckFailedError(f"what the table refers to is not known: {reason}", _UNCHANGED_STEP)
        if table.metadata_location == before.metadata_location:
            return groups
        places = self._places
        again = places.keep(undecided(places.merged(groups, places.grouped(self._referred(table, before)))))
        if (reason := why_unknown(places, again)) is not None:
            raise CheckFailedError(f"what the table refers to is not known: {reason}", _UNCHANGED_STEP)
        return again

    def _stored(self) -> DataFrame:
        inventory = self._search.file_list
        if inventory is None:
            return self._places.listing(self._folders)
        for path in stored_beside(self._table):  # an inventory may be old, or without them
            self._tell(path)
        return self._places.inventory(inventory)

    def _look_around(self, groups: DataFrame) -> None:
        """Look for others around the files that would go: an inventory may leave out what tells of them."""
        for (path,) in self._places.collect(self._places.around(self._orphans(groups)).select("path").distinct()):
            self._tell(str(path))

    def _tell(self, path: str) -> None:
        self._telling[self._rules.key(path)] = path

    def _referred(self, table: Table, before: Table | None = None) -> DataFrame:
        """Return rows about all files that a table refers to, without those that only older snapshots list."""
        metadata, places = table.metadata, self._places
        new = lists_of(metadata) - (lists_of(before.metadata) if before is not None else frozenset())
        lists = places.lists(new)
        for earlier in self._lists:
            lists = places.without(lists, earlier, "path")
        self._lists.append(places.keep(lists))
        named = (
            table.metadata_location,
            *(entry.metadata_file for entry in metadata.metadata_log),
            *(one.path for one in new),
            *(one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)),
        )
        return places.rows(Role.KNOWN, named).unionByName(places.listed(self._lists[-1]))

    def _orphans(self, groups: DataFrame) -> DataFrame:
        """Return the files of groups that are orphans; those of an inventory as they are stored now."""
        old = self._candidates(groups).where(self._age_ms >= self._search.grace_ms)
        if self._search.file_list is None:
            return old
        now = self._places.looked_up(old).select("place", "store", "modified_ms", "size_bytes", "path")
        return now.join(old.select("place", "store"), ["place", "store"], "left_semi").where(
            self._age_ms >= self._search.grace_ms
        )

    def _candidates(self, groups: DataFrame) -> DataFrame:
        found, rules = unknown_files(groups), self._rules
        key = F.concat("store", "place")
        if rules.location is not None:
            found = found.where(key.startswith(rules.folder(rules.location)))
        if foreign := folders_of_others(self._table, self._telling, rules):
            found = found.where(~begins_with(foreign)(key))
        return found.where(F.size("known") == 0) if rules.mismatch == "ignore" else found

    @property
    def _age_ms(self) -> Column:
        # A store's clock is less exact than the times of its files, so that an age could be negative.
        return F.greatest(F.lit(0), F.lit(self._now_ms) - F.col("modified_ms"))

    def _count_young(self, groups: DataFrame) -> int:
        young = self._candidates(groups).where(self._age_ms < self._search.grace_ms)
        return self._places.count(young)

    def _refuse_other_spellings(self, groups: DataFrame) -> None:
        """Raise if an orphan may be a file of the table by another path, as `inspect.orphans` says."""
        old = self._candidates(groups).where(self._age_ms >= self._search.grace_ms)
        if self._rules.mismatch == "error":
            for path, stores, place in self._places.collect(
                old.where(F.size("known") > 0).select("path", "known", "place").limit(1)
            ):
                raise maybe_the_same(str(path), f"{stores[0]}{place}")  # type: ignore[index]  # an array
        name = F.element_at(F.split("place", "/"), -1)
        moved = old.where(F.size("known") == 0).select("path", name.alias("name"))
        missing = missing_files(groups).select(name.alias("name"), F.concat("store", "place").alias("other"))
        for path, other in self._places.collect(moved.join(missing, "name").select("path", "other").limit(1)):
            raise maybe_the_same(str(path), str(other))

    def _has_files_in(self, folder: str) -> bool:
        """Return whether the table refers to a file below a folder."""
        rows = self._places.rows(Role.KNOWN, (one.path for one in lists_of(self._table.metadata)))
        for lists in self._lists:
            rows = rows.unionByName(self._places.listed(lists))
        key = F.concat("store", "place")
        return bool(self._places.collect(rows.where(key.startswith(self._rules.key(folder))).limit(1)))

    def _with_others(self, orphans: DataFrame, states: Sequence[State]) -> DataFrame:
        """Return orphans, each with whether a state of others refers to its place.

        Raises:
            CheckFailedError: What such a state refers to is not known.
        """
        columns = [F.col(name) for name in _ORPHAN_COLUMNS]
        if not states:
            return orphans.select(*columns, F.lit(False).alias("stays"))  # noqa: FBT003  # Spark's
        kept = self._places.of_states(states).select("place").distinct().withColumn("other", F.lit(True))  # noqa: FBT003
        joined = orphans.join(kept, "place", "left")
        return joined.select(*columns, F.col("other").isNotNull().alias("stays"))


def _noted(states: list[State], state: State) -> Iterable[str]:
    states.append(state)
    return ()


def _orphan(row: tuple[object, ...]) -> Orphan:
    path, size_bytes, modified_ms, *_ = row
    return Orphan(path=str(path), size_bytes=int(str(size_bytes)), modified_ms=int(str(modified_ms)))
