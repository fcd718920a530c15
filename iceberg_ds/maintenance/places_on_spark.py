"""What a table refers to, and what is stored, as DataFrames of Spark: the driver holds neither paths nor manifests.

Rows about one file, from whichever task, are grouped by its place within the store. A group that shows a file that may
go, and nothing that refers to it, is what a caller looks for. What tasks could not read comes in a group of its own: a
caller has to refuse then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import DataFileError, IcebergSinkError
from iceberg_ds.inspect.neighbours import State, unreadable_state
from iceberg_ds.io.listing import listing_parts
from iceberg_ds.io.local_paths import is_local, local_path
from iceberg_ds.maintenance.place_tasks import (
    COLUMNS,
    PlacePlan,
    Role,
    Row,
    Rows,
    folders_around,
    list_files,
    look_around,
    look_up,
    read_lists,
    read_manifests,
    take_inventory,
)
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.version_3 import ManifestList
from iceberg_ds.spark.arrow_job import in_tasks, work_frame
from iceberg_ds.spark.task_job import active_session, parallelism

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from iceberg_ds.spark.arrow_job import Task

logger = logging.getLogger(__name__)

# An active session is used from this number of data files on: a job takes longer than a small table here.
LARGE_TABLE_FILES = 500_000
# Tasks for each core, so that none waits long for the last one.
_TASKS_PER_CORE = 4
_PORTION = 10_000
_MOST_BROADCAST = 200_000  # places, of some 100 bytes

_Found = TypeVar("_Found")


def session_for(
    spark: SparkSession | None, metadata: Callable[[], TableMetadata], *, is_wanted: bool = False
) -> SparkSession | None:
    """Return the session to work on: the given one, or the active one if the table is large; None for this process.

    The active one is passed over where pandas is missing, without which it cannot do the work.

    Args:
        spark: The session that is given, or None.
        metadata: Returns the table.
        is_wanted: Whether the active session is to be used for tables of any size.
    """
    if spark is not None or (active := active_session()) is None:
        return spark
    if is_wanted:
        return active
    if find_spec("pandas") is None:  # Spark's mapInArrow needs it
        return None
    snapshot = metadata().current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    files = summary.additional_properties.get("total-data-files", "0") if summary is not None else "0"
    return active if files.isdigit() and int(files) >= LARGE_TABLE_FILES else None


@dataclass(slots=True, kw_only=True)
class PlacesOnSpark:
    """The rows about the files of one table, as `place_tasks` makes them.

    Attributes:
        spark: Runs the tasks.
        plan: What the tasks are told.
        action: What is being done, for errors.
        streams: Whether rows come to the driver in portions; else all at once, by one job.
    """

    spark: SparkSession
    plan: PlacePlan
    action: str
    streams: bool = False

    def rows(self, role: Role, paths: Iterable[str], kind: int = 0) -> DataFrame:
        """Return a row for each of these paths."""
        of = Rows(self.plan)
        return self._made([of.row(role, path, kind) for path in paths])

    def listing(self, folders: Sequence[str]) -> DataFrame:
        """Return rows about the files that are stored below these folders; missing local ones have none."""
        tasks = self._tasks
        there = [folder for folder in folders if not is_local(folder) or local_path(folder).is_dir()]
        parts = [part for folder in there for part in listing_parts(self.plan.io_properties, folder, tasks)]
        return self._task(work_frame(self.spark, parts, tasks), list_files)

    def inventory(self, files: DataFrame) -> DataFrame:
        """Return rows about the files of an inventory, with the columns `path` and `modified_ms`."""
        return self._task(files, take_inventory)

    def looked_up(self, found: DataFrame) -> DataFrame:
        """Return rows about files, which are in column `path`, as they are stored now, without those that are gone."""
        return self._task(self.spread(found.select("path"), "path"), look_up)

    def around(self, found: DataFrame) -> DataFrame:
        """Return rows about the files that tell of others in the folders around files, which are in column `path`."""
        folders = self._task(found.select("path"), folders_around).select("path").distinct()
        return self._task(self.spread(folders, "path"), look_around)

    def lists(self, snapshots: Iterable[ManifestList], *, may_miss: bool = False) -> DataFrame:
        """Return a row for each manifest that snapshots list, each once.

        Args:
            snapshots: The manifest list of each.
            may_miss: Whether a list may be missing.
        """
        plan = replace(self.plan, may_miss=may_miss)
        return self._task(work_frame(self.spark, list(snapshots), self._tasks), read_lists, plan).dropDuplicates(
            ["path"]
        )

    def listed(self, lists: DataFrame, role: Role = Role.KNOWN, *, may_miss: bool = False) -> DataFrame:
        """Return rows about the manifests of `lists`, about the live files in them, and about what is not known.

        Args:
            lists: Rows about manifests.
            role: What to say of the files.
            may_miss: Whether a manifest may be missing.
        """
        plan = replace(self.plan, role=role, may_miss=may_miss)
        manifests = self.spread(lists.where(_is(Role.MANIFEST)).select("path", "entries", "size_bytes"), "path")
        return self._task(manifests, read_manifests, plan).unionByName(themselves(lists, role))

    def of_states(self, states: Sequence[State]) -> DataFrame:
        """Return rows about the files that states of other tables, or of this one in other catalogs, refer to.

        Raises:
            CheckFailedError: What they refer to is not known.
        """
        named = {path: None for state in states for path in state.own_files}
        every = [snapshot for state in states for snapshot in state.snapshots]
        lists = {ManifestList(number, path, has_files) for number, path, has_files in every if path is not None}
        if any(path is None for _, path, _ in every):
            raise unreadable_state(states[0], "snapshots of it, or of another state, have no manifest list")
        # A missing manifest or manifest list has expired together with its files; nothing else tells what they were.
        manifests = self.keep(self.lists(sorted(lists), may_miss=True))
        rows = self.keep(self.rows(Role.KNOWN, named).unionByName(self.listed(manifests, may_miss=True)))
        if (reason := why_unknown(self, self.grouped(rows))) is not None:
            raise unreadable_state(states[0], reason)
        return rows.where(_is(Role.KNOWN))

    def collect(self, frame: DataFrame) -> list[tuple[object, ...]]:
        """Return the rows of a small DataFrame.

        Raises:
            DataFileError: The job failed.
        """
        return [tuple(row) for row in self._run(frame.collect)]

    def count(self, frame: DataFrame) -> int:
        """Return how many rows a DataFrame has.

        Raises:
            DataFileError: The job failed.
        """
        ((number,),) = self.collect(frame.agg(F.count(F.lit(1))))
        return int(str(number))

    def stream(self, frame: DataFrame, most: int | None = None) -> Iterator[list[tuple[object, ...]]]:
        """Yield the rows of a DataFrame in portions.

        Args:
            frame: The rows.
            most: How many there are at most, if that is known: few come at once, and none without a job.

        Raises:
            DataFileError: The job failed.
        """
        if most == 0:
            return
        is_long = self.streams and (most is None or most > _PORTION)  # each partition takes a job then
        rows = self._run(frame.toLocalIterator if is_long else lambda: iter(frame.collect()))
        while portion := self._run(lambda: [tuple(row) for row in islice(rows, _PORTION)]):
            yield portion

    def spread(self, frame: DataFrame, column: str) -> DataFrame:
        """Return a DataFrame in as many partitions as tasks may run, with equal values in one of them.

        Rows that are kept are not brought together by Spark, so its own number of partitions would be too many for a
        small table. Frames that are spread by one column meet without another exchange.
        """
        return frame.repartition(self._tasks, column)

    def grouped(self, rows: DataFrame) -> DataFrame:
        """Return a row for each place: the stores in which it is known and found, and what is not known.

        The columns are `place`, `known` (stores), `found` (structs of store, modified_ms, size_bytes, path and kind),
        `problem` and `missing` (texts, or null).
        """
        found = F.struct("store", "modified_ms", "size_bytes", "path", "kind")
        return (
            self.spread(rows, "place")
            .groupBy("place")
            .agg(
                F.collect_set(F.when(_is(Role.KNOWN), F.col("store"))).alias("known"),
                F.collect_set(F.when(_is(Role.FOUND), found)).alias("found"),
                F.max(F.when(_is(Role.PROBLEM), F.col("path"))).alias("problem"),
                F.max(F.when(_is(Role.MISSING), F.col("path"))).alias("missing"),
            )
        )

    def differing(self, found: DataFrame, known: DataFrame) -> DataFrame:
        """Return groups, as `grouped` does, of the places whose files are not all both found and known.

        Nearly all are. So places are first compared by their stores alone, and only what is told of the others is
        brought together.

        Args:
            found: Rows about files that may go; they are read twice.
            known: Rows about what refers to files, and about what is not known.
        """
        problem = F.when(_is(Role.PROBLEM) | _is(Role.MISSING), F.col("path")).alias("path")
        told = F.min(F.when(~_is(Role.FOUND), F.col("role"))).alias("role")
        rows = self.spread(found.unionByName(known).select("role", "place", "store", problem), "place")
        pairs = rows.groupBy("place", "store", "path").agg(F.max(_is(Role.FOUND)).alias("is_found"), told)
        pairs = self.keep(pairs)
        is_both = F.col("is_found") & F.coalesce(_is(Role.KNOWN), F.lit(False))  # noqa: FBT003  # Spark's
        places = pairs.groupBy("place").agg(F.min(is_both).alias("is_decided")).where("NOT is_decided")
        places = self.keep(places.select("place"))
        wanted = F.broadcast(places) if self.count(places) <= _MOST_BROADCAST else places
        told_of = pairs.where("role IS NOT NULL").drop("is_found").unionByName(found, allowMissingColumns=True)
        return self.grouped(told_of.join(wanted, "place", "left_semi"))

    def merged(self, groups: DataFrame, others: DataFrame) -> DataFrame:
        """Return the groups of two DataFrames of groups as one."""
        return (
            self.spread(groups.unionByName(others), "place")
            .groupBy("place")
            .agg(
                F.array_distinct(F.flatten(F.collect_list("known"))).alias("known"),
                F.array_distinct(F.flatten(F.collect_list("found"))).alias("found"),
                F.max("problem").alias("problem"),
                F.max("missing").alias("missing"),
            )
        )

    def without(self, frame: DataFrame, others: DataFrame, column: str) -> DataFrame:
        """Return the rows of a DataFrame whose value in a column no row of another one has."""
        left, right = self.spread(frame, column), self.spread(others.select(column), column)
        return left.join(right, column, "left_anti").select(*frame.columns)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return a DataFrame whose rows stay where they were computed, as long as it lives.

        It is not only persisted: its plan would hold the plans of all that it was made from, with adaptive execution
        each of them twice, and Spark keeps the texts of a thousand plans.

        Raises:
            DataFileError: The job failed.
        """
        return self._run(lambda: frame.localCheckpoint(eager=False))

    def _run(self, action: Callable[[], _Found]) -> _Found:
        try:
            return action()
        except IcebergSinkError:
            raise
        except Exception as error:  # Spark's own
            text = mask_text(str(error), self.plan.io_properties)
            raise DataFileError(
                f"Cannot {self.action}: Spark's job failed: {text}"
            ) from None  # it may show credentials

    def _task(self, frame: DataFrame, task: Task[PlacePlan], plan: PlacePlan | None = None) -> DataFrame:
        return in_tasks(frame, task, plan or self.plan, COLUMNS, self.action)

    def _made(self, rows: Sequence[Row]) -> DataFrame:
        return self.spark.createDataFrame([(int(role), *rest) for role, *rest in rows], COLUMNS)

    @property
    def _tasks(self) -> int:
        return _TASKS_PER_CORE * parallelism(self.spark)


def lists_of(metadata: TableMetadata) -> frozenset[ManifestList]:
    """Return the manifest lists of the snapshots of a table."""
    return frozenset(map(ManifestList.of, metadata.snapshots))


def themselves(lists: DataFrame, role: Role) -> DataFrame:
    """Return rows about the manifests of `lists` as files, without what they list, and about what is not known."""
    return lists.withColumn("role", F.when(_is(Role.MANIFEST), F.lit(int(role))).otherwise(F.col("role")))


def begins_with(prefixes: tuple[str, ...]) -> Callable[[Column], Column]:
    """Return a function of Spark that says whether a key begins with one of these."""
    return F.udf(lambda key: key.startswith(prefixes), "boolean", useArrow=False)


def undecided(groups: DataFrame) -> DataFrame:
    """Return the groups without those whose files are all found and known: these are as they should be."""
    stores = F.transform("found", lambda one: one["store"])
    differs = (F.size(F.array_except("known", stores)) > 0) | (F.size(F.array_except(stores, F.col("known"))) > 0)
    return groups.where(differs | F.col("problem").isNotNull() | F.col("missing").isNotNull())


def unknown_files(groups: DataFrame) -> DataFrame:
    """Return the found files that nothing refers to by their own store, each once as it was found last.

    The columns are `place`, `store`, `modified_ms`, `size_bytes`, `path`, `kind` and `known`, the stores in which
    something refers to their place.
    """
    one = groups.select("place", "known", F.explode("found").alias("one")).select("place", "known", "one.*")
    newest = F.max(F.struct("modified_ms", "size_bytes", "path", "kind", "known")).alias("newest")
    unknown = one.where(~F.array_contains("known", F.col("store")))
    return unknown.groupBy("place", "store").agg(newest).select("place", "store", "newest.*")


def missing_files(groups: DataFrame) -> DataFrame:
    """Return place and store of the files that something refers to and that were not found by their own store."""
    stores = F.transform("found", lambda one: one["store"])
    return groups.select("place", F.explode(F.array_except("known", stores)).alias("store"))


def why_unknown(places: PlacesOnSpark, groups: DataFrame) -> str | None:
    """Return why it is not known what refers to files, or None; what may be missing, and is, is logged."""
    ((problem, missing),) = places.collect(groups.agg(F.max("problem"), F.max("missing")))
    if missing is not None:
        logger.warning("Files that it names are not known, and stay: %s", missing)
    return None if problem is None else str(problem)


def _is(role: Role) -> Column:
    return F.col("role") == int(role)
