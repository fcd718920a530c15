"""Pure: how fast a branch and its table grow, told from the snapshots of the last day.

A day is looked back, or as far as the branch has snapshots. Each commit writes the whole metadata file again, so what
one snapshot adds to it decides when commits become slow; expiry of snapshots bounds it, and nothing tells when the next
one comes. So a forecast says what happens without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import begins_a_table, branch_history
from iceberg_ds.snapshots.txn import is_number

DAY_MS = 86_400_000
# A shorter history, or one with fewer commits that is shorter than a day, tells no pace.
LEAST_MS = 3_600_000
LEAST_COMMITS = 3
# An entry of the snapshot log: `{"snapshot-id":...,"timestamp-ms":...}` and a comma.
_LOG_ENTRY_BYTES = 70
_KEEPS_FEW_FILES = "write.metadata.delete-after-commit.enabled"
_DAYS_SHOWN = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How fast a branch and its table grow, by the history of the last 24 hours, or of what there is.

    Attributes:
        hours: Hours of history that the figures rest on: 24, or fewer if the branch does not go back so far.
        commits_per_day: Commits to the branch in a day at this pace.
        files_per_day: Data files and delete files that they add; None if a summary does not tell.
        snapshots_per_day: Snapshots that the table gets in a day, on any branch.
        metadata_growth_bytes_per_day: Bytes by which the metadata file grows in a day while no snapshot expires; None
            if the size of the file is unknown.
        metadata_written_bytes_per_day: Bytes of the metadata files that commits write in a day, each of them whole, at
            the present size; None if that is unknown.
        old_metadata_is_deleted: Whether commits delete old metadata files, so that these do not add up
            (`write.metadata.delete-after-commit.enabled`).
        history_has_expired: Whether snapshots of the branch have expired before: if that happens again in time, the
            metadata file stays smaller than foreseen.
    """

    hours: float
    commits_per_day: float
    files_per_day: float | None
    snapshots_per_day: float
    metadata_growth_bytes_per_day: float | None
    metadata_written_bytes_per_day: float | None
    old_metadata_is_deleted: bool
    history_has_expired: bool

    def days_until(self, metadata_bytes: int | None, limit_bytes: int) -> float | None:
        """Return in how many days the metadata file passes a size while no snapshot expires.

        Args:
            metadata_bytes: Its size now; None if unknown.
            limit_bytes: The size to pass.

        Returns:
            0 if it is that large now; None if it does not grow, or that is unknown.
        """
        if metadata_bytes is None:
            return None
        if metadata_bytes > limit_bytes:
            return 0.0
        growth = self.metadata_growth_bytes_per_day
        return None if not growth else (limit_bytes - metadata_bytes) / growth


def outlook(forecast: Forecast | None, metadata_bytes: int | None, limit_bytes: int) -> str:
    """Return a forecast in words.

    Args:
        forecast: The forecast; None if the history is too short.
        metadata_bytes: Size of the metadata file; None if unknown.
        limit_bytes: Size that the metadata file should not pass.
    """
    if forecast is None:
        return "The history is too short for a forecast."
    pace = f"{_number(forecast.commits_per_day)} commits a day (by the last {forecast.hours:.3g} h)"
    files = "" if forecast.files_per_day is None else f"{_number(forecast.files_per_day)} files and "
    return f"{files}{pace}{_growth(forecast, metadata_bytes, limit_bytes)}{_old_files(forecast)}."


def _growth(forecast: Forecast, metadata_bytes: int | None, limit_bytes: int) -> str:
    limit, days = _size(limit_bytes), forecast.days_until(metadata_bytes, limit_bytes)
    if metadata_bytes is not None and metadata_bytes > limit_bytes:
        return f"; metadata has passed {limit}"
    if days is None:
        return ""
    if days > _DAYS_SHOWN:
        return f"; metadata stays below {limit} for years"
    again = " again" if forecast.history_has_expired else ""
    return f"; metadata passes {limit} in {_days(days)} unless snapshots expire{again}"


def _old_files(forecast: Forecast) -> str:
    written = forecast.metadata_written_bytes_per_day
    if not written or forecast.old_metadata_is_deleted:
        return ""
    return f"; {_size(written)} of old metadata files a day stay in the store"


def _days(days: float) -> str:
    if days < 1:
        hours = max(1, round(days * 24))
        return "1 hour" if hours == 1 else f"{hours} hours"
    return "1 day" if round(days) == 1 else f"{round(days):,} days"


def _number(number: float) -> str:
    """Return a pace with three digits below ten, so that one commit a week is not shown as none."""
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.2g}"  # noqa: PLR2004  # ten


def _size(number: float) -> str:
    """Return a number of bytes with three digits, in the unit in which it is below a thousand."""
    for unit in ("MB", "GB", "TB", "PB"):
        number /= 1e6 if unit == "MB" else 1e3
        if number < 999.5:  # noqa: PLR2004  # what is rounded to less than a thousand
            return f"{number:.3g} {unit}"
    return f"{number:,.0f} PB"


def forecast_of(metadata: TableMetadata, branch: str, metadata_bytes: int | None, now_ms: int) -> Forecast | None:
    """Return how fast a branch and its table grow.

    Args:
        metadata: The table.
        branch: The branch.
        metadata_bytes: Size of the metadata file; None if unknown.
        now_ms: The time, in milliseconds since 1970.

    Returns:
        None if the history is too short: below an hour, or below a day and with fewer than three commits after the
        first one that it shows.
    """
    history = list(branch_history(metadata, branch))
    if not history:
        return None
    since_ms = max(now_ms - DAY_MS, min(snapshot.timestamp_ms for snapshot in history))
    commits = [snapshot for snapshot in history if snapshot.timestamp_ms > since_ms]
    length_ms = now_ms - since_ms
    if length_ms < LEAST_MS or (length_ms < DAY_MS and len(commits) < LEAST_COMMITS):
        return None
    in_a_day = DAY_MS / length_ms
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.timestamp_ms > since_ms]
    files = _added_files(commits)
    written = None if metadata_bytes is None else metadata_bytes * len(snapshots) * in_a_day
    growth = None if metadata_bytes is None else _growth_bytes(metadata, snapshots, metadata_bytes) * in_a_day
    return Forecast(
        hours=round(length_ms / 3_600_000, 3),
        commits_per_day=len(commits) * in_a_day,
        files_per_day=None if files is None else files * in_a_day,
        snapshots_per_day=len(snapshots) * in_a_day,
        metadata_growth_bytes_per_day=growth,
        metadata_written_bytes_per_day=written,
        old_metadata_is_deleted=metadata.properties.get(_KEEPS_FEW_FILES, "false").lower() == "true",
        history_has_expired=not begins_a_table(history[-1]),
    )


def _added_files(commits: Iterable[Snapshot]) -> int | None:
    """Return how many files the commits added, or None if a summary is missing or malformed."""
    total = 0
    for snapshot in commits:
        if snapshot.summary is None:
            return None
        entries = summary_entries(snapshot)
        for key in ("added-data-files", "added-delete-files"):  # writers leave out zeros
            text = entries.get(key) or "0"
            if not is_number(text):
                return None
            total += int(text)
    return total


def _growth_bytes(metadata: TableMetadata, added: Sequence[Snapshot], metadata_bytes: int) -> float:
    """Return how many bytes of a metadata file are of these snapshots, as JSON; less if the file is compressed."""
    as_json = sum(len(snapshot.model_dump_json()) + 1 + _LOG_ENTRY_BYTES for snapshot in added)
    return min(float(as_json), metadata_bytes * len(added) / len(metadata.snapshots))
