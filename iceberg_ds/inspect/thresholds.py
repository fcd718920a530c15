"""Pure: when a table's health is no longer good, and what to do about it.

Each default has its reason beside it. Whether a table is old or late only its user can tell, who knows how often it is
written: these two have no default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from iceberg_ds.snapshots.history import MANY_MANIFESTS, MANY_SNAPSHOTS

if TYPE_CHECKING:
    from iceberg_ds.inspect.health import TableHealth

# Fewer delete files are quickly read, however few data files they belong to: a table's first upserts are no finding.
FEW_DELETE_FILES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The highest figures of a healthy table; None for no limit.

    Attributes:
        max_snapshots: Snapshots. From there on a commit takes several times as long as to a new table (measured).
        max_metadata_mb: Size of the metadata file in MB: each commit reads it and writes it whole, and most readers
            read it whole for each query.
        max_manifests: Manifests of the branch. From there on a commit takes several times as long (measured).
        max_small_files: Small data files: each costs every scan of it a few requests, whatever it holds.
        max_deletes_per_file: Delete files for each data file. A stream by keys stands at 1 if nothing converts its
            deletes, and every scan opens them all. Does not count below ten delete files.
        max_age_s: Seconds since the last commit of the branch.
        max_lag_s: Seconds since the event time of the newest row.
    """

    max_snapshots: int | None = MANY_SNAPSHOTS
    max_metadata_mb: float | None = 5.0
    max_manifests: int | None = MANY_MANIFESTS
    max_small_files: int | None = 1000
    max_deletes_per_file: float | None = 0.5
    max_age_s: float | None = None
    max_lag_s: float | None = None


DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A figure that is above its threshold.

    Attributes:
        name: Which one, as the command's option names it, such as `max-snapshots`.
        value: The figure.
        limit: The threshold.
        detail: What was found, in words.
        next_step: What to do about it.
    """

    name: str
    value: float
    limit: float
    detail: str
    next_step: str

    def __str__(self) -> str:
        return f"{self.detail}. {self.next_step}"


def exceeded(health: TableHealth, thresholds: Thresholds = DEFAULTS) -> tuple[Finding, ...]:
    """Return which figures are above their thresholds; a figure that is equal, or unknown, is not."""
    return tuple(_findings(health, thresholds))


def _findings(health: TableHealth, thresholds: Thresholds) -> Iterator[Finding]:
    a_day_ago = datetime.fromtimestamp(health.at_ms / 1000, timezone.utc) - timedelta(days=1)
    expire = (
        f"Expire old snapshots: CALL system.expire_snapshots(table => '{health.table}', older_than => TIMESTAMP "
        f"'{a_day_ago:%Y-%m-%d %H:%M}') in Spark with Iceberg's runtime, or table.maintenance.expire_snapshots() of "
        "PyIceberg."
    )
    metadata_mb = None if health.metadata_bytes is None else health.metadata_bytes / 1e6
    manifests = health.data_manifests + health.delete_manifests
    counted = health.delete_files is not None and health.delete_files >= FEW_DELETE_FILES
    deletes = health.deletes_per_file if counted else None
    age_s, lag_s = health.last_commit_age_s, health.lag_s
    least = "" if health.is_complete else "at least "
    rows: tuple[tuple[str, float | None, float | None, str, str], ...] = (
        ("max-snapshots", health.snapshots, thresholds.max_snapshots, "{:,} snapshots, more than {:,}", expire),
        (
            "max-metadata-mb",
            metadata_mb,
            thresholds.max_metadata_mb,
            "a metadata file of {:,.2f} MB, more than {:g} MB",
            expire,
        ),
        (
            "max-manifests",
            manifests,
            thresholds.max_manifests,
            "{:,} manifests, more than {:,}",
            (
                f"Rewrite them: CALL system.rewrite_manifests('{health.table}') in Spark with Iceberg's runtime, or "
                "set the table's property commit.manifest-merge.enabled to true."
            ),
        ),
        (
            "max-small-files",
            health.small_files,
            thresholds.max_small_files,
            f"{least}{{:,}} data files below {health.small_below_bytes:,} bytes, more than {{:,}}",
            (
                f"Compact them: CALL system.rewrite_data_files(table => '{health.table}') in Spark with Iceberg's "
                "runtime; and let streams commit less often, with a longer trigger."
            ),
        ),
        (
            "max-deletes-per-file",
            deletes,
            thresholds.max_deletes_per_file,
            "{:,.2f} delete files for each data file, more than {:g}",
            _after_deletes(health),
        ),
        (
            "max-age",
            age_s,
            thresholds.max_age_s,
            "the last commit was {:,.0f} s ago, more than {:,.0f} s",
            (
                f"See whether {_last_writer(health)} still runs, and what its log says; "
                f"`iceberg-ds check {health.table}` tries what it needs."
            ),
        ),
        (
            "max-lag",
            lag_s,
            thresholds.max_lag_s,
            "the newest row is of {:,.0f} s ago, more than {:,.0f} s",
            (
                f"See whether the source has newer rows; if so, whether {_last_writer(health)} runs and keeps up: its "
                "trigger, its executors, and how long commits take."
            ),
        ),
    )
    for name, value, limit, text, next_step in rows:
        if value is not None and limit is not None and value > limit:
            yield Finding(name=name, value=value, limit=limit, detail=text.format(value, limit), next_step=next_step)


def _after_deletes(health: TableHealth) -> str:
    compact = (
        f"CALL system.rewrite_data_files(table => '{health.table}', options => map('delete-file-threshold', '1')) in "
        "Spark with Iceberg's runtime"
    )
    if health.equality_delete_files == 0 or health.format_version > 2:  # noqa: PLR2004  # where it cannot convert
        return f"Apply them: {compact}."
    branch = "" if health.branch == "main" else f" --branch {health.branch}"
    return f"Convert them: `iceberg-ds convert-deletes {health.table}{branch}`; then apply them: {compact}."


def _last_writer(health: TableHealth) -> str:
    if not health.writers:
        return "its writer"
    return f"{health.writers[0].kind} {health.writers[0].name}"
