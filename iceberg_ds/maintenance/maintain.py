"""`maintain` and `maintaining`: do for a table what its policy makes due, once, or beside streams as long as they run.

Each step is one of the other functions of this package, with the same safety beside writers. After each step the table
is looked at again: what a step leaves decides what is due next.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Protocol

from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.deletes.convert import convert_deletes
from iceberg_ds.errors import IcebergSinkError, OptionError, TableNotFoundError
from iceberg_ds.inspect.health import TableHealth, count_text, size_text, table_health
from iceberg_ds.maintenance.expire_snapshots import expire_snapshots
from iceberg_ds.maintenance.lease import leased
from iceberg_ds.maintenance.policy import Due, MaintenancePolicy, Step, due_steps
from iceberg_ds.maintenance.rewrite_data_files import rewrite_data_files
from iceberg_ds.maintenance.rewrite_manifests import rewrite_manifests
from iceberg_ds.maintenance.rewrite_position_deletes import rewrite_position_delete_files
from iceberg_ds.options.arguments import FLAG, TEXT, ArgumentType, require_types
from iceberg_ds.options.parse import OF_REWRITES, options_of_call, options_of_calls, parse_call, parse_options
from iceberg_ds.spark.task_job import active_session
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# How long the lease of a maintainer that died keeps others from the table.
_LEASE_S = 120.0
_POOL = "spark.scheduler.pool"
_POLICY = ArgumentType(MaintenancePolicy | None, "a MaintenancePolicy or None")
_POLICIES = ArgumentType(Mapping, "a mapping of tables to policies")
_SECONDS = ArgumentType(int | float, "a number of seconds")


class _StepResult(Protocol):
    def to_json(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTaken:
    """A step of maintenance.

    Attributes:
        step: Name of the function that took it, such as `rewrite_data_files`.
        reason: Why it was due.
        result: What it did, as its function returned it; None if it was not taken, or failed.
        problem: Why it failed, or why it was not taken; None if it was taken.
        has_failed: Whether it failed; a step that is left to the next run has not.
    """

    step: str
    reason: str
    result: Any = None
    problem: str | None = None
    has_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """What `maintain` did.

    Attributes:
        table: Identifier of the table.
        steps: The steps that were due, in the order in which they were taken.
        held_by: The other maintainer that has the lease on the table, so that nothing was done; None if none has.
        before: How the table did before; None if another maintainer has the lease.
        after: How it does now; None as `before`.
        dry_run: Whether nothing was done, and all steps would be.
        seconds: Seconds from start to end.
    """

    table: str
    steps: tuple[StepTaken, ...] = ()
    held_by: str | None = None
    before: TableHealth | None = None
    after: TableHealth | None = None
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no step has failed."""
        return not any(taken.has_failed for taken in self.steps)

    def to_json(self) -> str:
        """Return the attributes as a JSON object, with those of the steps' results."""
        return json.dumps({**asdict(self), "ok": self.ok}, indent=2)

    def __str__(self) -> str:
        if self.held_by is not None:
            return f"{self.table}: another maintainer, {self.held_by}, is at work."
        if not self.steps:
            return f"{self.table}: nothing is due."
        lines = [f"{self.table}: {'these steps are due' if self.dry_run else f'{self.seconds:.1f} s'}"]
        for taken in self.steps:
            told = taken.problem or ("" if taken.result is None else str(taken.result))
            lines.append(f"  {taken.step}, because of {taken.reason}{f': {told}' if told else ''}")
        if self.before is not None and self.after is not None and not self.dry_run:
            lines.append(f"  {_change(self.before, self.after)}")
        return "\n".join(lines)


def _change(before: TableHealth, after: TableHealth) -> str:
    """Return in words how a table did before and after."""
    rows = (
        ("data files", count_text(before.data_files), count_text(after.data_files)),
        ("small ones", count_text(before.small_files), count_text(after.small_files)),
        ("delete files", count_text(before.delete_files), count_text(after.delete_files)),
        ("bytes", size_text(before.bytes), size_text(after.bytes)),
        ("snapshots", count_text(before.snapshots), count_text(after.snapshots)),
    )
    return "before and after: " + ", ".join(f"{name} {old} -> {new}" for name, old, new in rows)


def maintain(  # noqa: PLR0913  # all but two by name
    table: str,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    policy: MaintenancePolicy | None = None,
    dry_run: bool = False,
) -> MaintenanceResult:
    """Do what is due for a table: convert deletes, rewrite files and manifests, expire snapshots, in this order.

    Writers may go on meanwhile. Of several maintainers of one table one does the work at a time. A step that fails is
    told in the result, and the remaining steps are taken.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: The session whose executors read and write files; None for the active session, or for this process if no
            session is active.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no options.
        branch: The branch whose files are looked after; None for the branch of option `branch`, or `main`.
        policy: When what is due; None for the defaults.
        dry_run: Do nothing, and return what is due.

    Returns:
        The steps that were taken.

    Raises:
        OptionError: The options or the policy are malformed, or name another table.
        TableNotFoundError: The table does not exist.
        CatalogError: The catalog could not be reached or refused.
        CommitConflictError: The lease could not be taken, because others kept changing the table.
        CommitStateUnknownError: Whether the lease was taken is unknown; it ends by itself.
        DataFileError: Manifests cannot be read.
    """
    require_types(
        "maintain the table",
        branch=(branch, TEXT),
        policy=(policy, _POLICY),
        dry_run=(dry_run, FLAG),
    )
    given = options_of_call(table, options)
    if branch is not None:
        given["branch"] = branch
    parsed = parse_call("maintain the table", given, OF_REWRITES)
    keeper = _Keeper(given, spark or active_session(), policy or MaintenancePolicy())
    name = identifier_text(parsed.table)
    started = time.monotonic()
    if dry_run:
        health = keeper.look()
        due = [StepTaken(step=one.step.value, reason=one.reason) for one in due_steps(health, keeper.policy)]
        return MaintenanceResult(table=name, steps=tuple(due), before=health, after=health, dry_run=True)
    catalog = connect_to_existing(parsed)
    with catalog.hiding_secrets():
        if not due_steps(health := keeper.look(), keeper.policy):  # a table in good health gets no commit
            return MaintenanceResult(table=name, before=health, after=health, seconds=time.monotonic() - started)
        with leased(catalog, parsed.table, _LEASE_S) as other:
            if other is not None:
                return MaintenanceResult(table=name, held_by=other.owner)
            result = keeper.run(name)
    result = replace(result, seconds=time.monotonic() - started)
    logger.info("%s", result)
    return result


class _Keeper:
    """Takes the steps for one table.

    Args:
        given: The options of the call, with the table among them.
        spark: Runs tasks; None to run them in this process.
        policy: When what is due.
    """

    def __init__(self, given: Mapping[str, str], spark: SparkSession | None, policy: MaintenancePolicy) -> None:
        self.policy = policy
        self._given = dict(given)
        self._table = given["table"]
        self._branch = given.get("branch")
        self._spark = spark
        self._started = time.monotonic()

    def look(self) -> TableHealth:
        """Return how the table does."""
        return table_health(self._table, options=self._given, branch=self._branch)

    def run(self, name: str) -> MaintenanceResult:
        """Take each step that is due once, in order; what one step makes due for an earlier one waits."""
        before = health = self.look()
        taken: list[StepTaken] = []
        left = list(Step)
        while due := next((one for one in due_steps(health, self.policy) if one.step in left), None):
            left = left[left.index(due.step) + 1 :]
            taken.append(self._take(due, health))
            health = self.look()
        return MaintenanceResult(table=name, steps=tuple(taken), before=before, after=health)

    def _take(self, due: Due, health: TableHealth) -> StepTaken:
        most = self.policy.max_seconds
        if most is not None and time.monotonic() - self._started > most:
            return StepTaken(step=due.step.value, reason=due.reason, problem="the time of this run is over")
        try:
            result = self._work(due.step, health)
        except IcebergSinkError as failure:
            logger.warning("Step %s of the maintenance of %s failed: %s", due.step.value, self._table, failure)
            return StepTaken(step=due.step.value, reason=due.reason, problem=str(failure), has_failed=True)
        return StepTaken(step=due.step.value, reason=due.reason, result=result)

    def _work(self, step: Step, health: TableHealth) -> _StepResult:
        table, options, branch = self._table, self._given, self._branch
        match step:
            case Step.CONVERT_DELETES:
                return convert_deletes(table, self._spark, options=options, branch=branch)
            case Step.REWRITE_DATA_FILES:
                return rewrite_data_files(
                    table, self._spark, options={**options, **self._of_rewrite(health)}, branch=branch
                )
            case Step.REWRITE_POSITION_DELETE_FILES:
                return rewrite_position_delete_files(
                    table, self._spark, options={**options, "min-input-files": "2"}, branch=branch
                )
            case Step.REWRITE_MANIFESTS:
                return rewrite_manifests(table, options=options, branch=branch)
            case Step.EXPIRE_SNAPSHOTS:
                return self._expire(health)

    def _of_rewrite(self, health: TableHealth) -> dict[str, str]:
        """Return the options of a rewrite of small files, within the budget."""
        options = {
            "min-file-size-bytes": str(health.small_below_bytes),
            "min-input-files": "2",
            "remove-dangling-deletes": "true",
            "partial-progress.enabled": "true",
            "rewrite-job-order": "cold-first",
        }
        if (most := self.policy.max_deletes_per_file) is not None:
            options["delete-file-threshold"] = str(floor(most) + 1)
        if self.policy.max_bytes is not None and health.average_file_bytes:
            options["max-files-to-rewrite"] = str(max(2, ceil(self.policy.max_bytes / health.average_file_bytes)))
        return options

    def _expire(self, health: TableHealth) -> _StepResult:
        """Let the snapshots expire that are too old, and the oldest above the number, if they are old enough."""
        given = options_of_calls(self._given)
        parsed = parse_options(given)
        catalog = connect_to_existing(parsed)
        times = sorted(one.timestamp_ms for one in catalog.load_table(parsed.table).metadata.snapshots)
        youngest_ms = health.at_ms - int(self.policy.min_snapshot_age_s * 1000)
        surplus = len(times) - self._most_snapshots(health)
        limits = [times[surplus]] if 0 <= surplus < len(times) else []
        if (longest_s := self.policy.max_snapshot_age_s) is not None:
            limits.append(health.at_ms - int(longest_s * 1000))
        older_than_ms = min(youngest_ms, max(limits, default=youngest_ms))
        return expire_snapshots(self._table, older_than=older_than_ms, options=given)

    def _most_snapshots(self, health: TableHealth) -> int:
        """Return how many snapshots the policy leaves of a table."""
        most, size = self.policy.max_metadata_bytes, health.metadata_bytes
        by_size = health.snapshots if most is None or not size else health.snapshots * most // size
        by_number = health.snapshots if self.policy.max_snapshots is None else self.policy.max_snapshots
        return min(by_size, by_number)


@contextmanager
def maintaining(
    spark: SparkSession,
    policies: Mapping[str, MaintenancePolicy | None],
    *,
    options: Mapping[str, str] | None = None,
    every_s: float = 60.0,
    pool: str = "maintenance",
) -> Iterator[None]:
    """Maintain tables beside the streams of a session, as long as the block lasts.

    A thread looks at each table and does what is due, again and again. Nothing that fails there ends the block or a
    stream; the log tells it. At the end of the block the step that is under way is waited for.

    Args:
        spark: The session of the streams; its executors read and write files.
        policies: A policy for each table, by its identifier; None for the defaults.
        options: Catalog options, as for a write. None for no options.
        every_s: Seconds from one look to the next.
        pool: The pool of Spark's fair scheduler that jobs of maintenance run in, so that they do not hold up those of
            streams; counts only where `spark.scheduler.mode` is `FAIR`.

    Raises:
        OptionError: The options or arguments are malformed, or a time is not above 0.
    """
    action = "maintain tables"
    require_types(action, policies=(policies, _POLICIES), every_s=(every_s, _SECONDS))
    require_types(action, **{f"policies[{table!r}]": (policy, _POLICY) for table, policy in policies.items()})
    if not 0 < every_s <= threading.TIMEOUT_MAX:
        raise OptionError(f"Cannot {action}: every_s is {every_s!r}, expected finite seconds above 0.")
    for table in policies:
        parse_call(action, options_of_call(table, options), OF_REWRITES)
    ended = threading.Event()

    def work() -> None:
        _choose_pool(spark, pool)
        while not ended.is_set():
            for table, policy in policies.items():
                if ended.is_set():
                    return
                try:
                    maintain(table, spark, options=options, policy=policy)
                except TableNotFoundError:  # the first epoch makes it
                    logger.debug("Table %s is not there yet", table)
                except Exception as failure:  # of any library: the streams go on
                    logger.warning("Table %s is not maintained this time: %s", table, failure)
            ended.wait(every_s)

    thread = threading.Thread(target=work, name="iceberg-ds-maintenance", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _choose_pool(spark: SparkSession, pool: str) -> None:
    """Let the jobs of this thread run in a pool; Spark Connect has none."""
    try:
        spark.sparkContext.setLocalProperty(_POOL, pool)
    except Exception:  # Spark Connect has no SparkContext
        logger.debug("Jobs of maintenance run in the default pool")
