"""Pure: when a table's health is no longer good, and what to do about it.

Each default has its reason beside it. Whether a table is old or late only its user can tell, who knows how often it is
written: these two have no default.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from iceberg_ds.inspect.health import TableHealth, printable
from iceberg_ds.secrets import mask_properties
from iceberg_ds.snapshots.growth import MANY_MANIFESTS, MANY_SNAPSHOTS
from iceberg_ds.table.names import sql_text

# Fewer delete files are quickly read, however few data files they belong to: a table's first upserts are no finding.
FEW_DELETE_FILES = 10
# They say which table, which the command names itself.
_NAMED_OTHERWISE = frozenset({"table", "path", "namespace", "branch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The highest figures of a healthy table; None for no limit.

    Attributes:
        max_snapshots: Snapshots. From there on a commit takes several times as long as to a new table (measured).
        max_metadata_mb: Size of the metadata file in MB: each commit reads it and writes it whole, and most readers
            read it whole for each query.
        max_manifests: Manifests of the branch. From there on a commit takes several times as long (measured).
        max_small_files: Small data files: each costs every scan of it a few requests, however few rows it holds.
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


def exceeded(
    health: TableHealth, thresholds: Thresholds = DEFAULTS, options: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return which figures are above their thresholds; a figure that is equal, or unknown, is not.

    Args:
        health: How the table does.
        thresholds: The highest figures of a healthy table.
        options: Options that say where the table is; those without a secret stand in the commands of next steps.
    """
    return tuple(_findings(health, thresholds, options or {}))


def _findings(health: TableHealth, thresholds: Thresholds, options: Mapping[str, str]) -> Iterator[Finding]:
    branch = () if health.branch == "main" else ("--branch", health.branch)
    expire = f"Expire old snapshots: `{_command('expire-snapshots', health, options, '--older-than', '1d')}`."
    compact = _command("rewrite-data-files", health, options, *branch)
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
            "a metadata file of {} MB, more than {} MB",
            expire,
        ),
        (
            "max-manifests",
            manifests,
            thresholds.max_manifests,
            "{:,} manifests, more than {:,}",
            (
                f"Rewrite them: `{_command('rewrite-manifests', health, options, *branch)}`, or set the table's "
                "property commit.manifest-merge.enabled to true."
            ),
        ),
        (
            "max-small-files",
            health.small_files,
            thresholds.max_small_files,
            f"{least}{{:,}} data files below {health.small_below_bytes:,} bytes, more than {{:,}}",
            (
                f"Compact them: `{compact}`, or let iceberg-ds maintain do it; and let streams commit less often, with "
                "a longer trigger."
            ),
        ),
        (
            "max-deletes-per-file",
            deletes,
            thresholds.max_deletes_per_file,
            "{} delete files for each data file, more than {}",
            _after_deletes(health, options),
        ),
        (
            "max-age",
            age_s,
            thresholds.max_age_s,
            "the last commit was {} s ago, more than {} s",
            (
                f"See whether {_last_writer(health)} still runs, and what its log says; "
                f"`{_command('check', health, options)}` tries what it needs."
            ),
        ),
        (
            "max-lag",
            lag_s,
            thresholds.max_lag_s,
            "the newest row is of {} s ago, more than {} s",
            (
                f"See whether the source has newer rows; if so, whether {_last_writer(health)} runs and keeps up: its "
                "trigger, its executors, and how long commits take."
            ),
        ),
    )
    for name, value, limit, text, next_step in rows:
        if value is not None and limit is not None and value > limit:
            numbers = (value, limit) if "{:,}" in text else (_plain(value), _plain(limit))
            yield Finding(name=name, value=value, limit=limit, detail=text.format(*numbers), next_step=next_step)


def _plain(number: float) -> str:
    """Return a number without zeros at its end, so that it does not look like a limit that it is just above."""
    return f"{number:,.6f}".rstrip("0").rstrip(".")


def _command(name: str, health: TableHealth, options: Mapping[str, str], *more: str) -> str:
    """Return a command for the table, quoted for a shell, with the options that hold no secret."""
    plain = {
        key: value
        for key, value in options.items()
        if key not in _NAMED_OTHERWISE and mask_properties({key: value}) == {key: value}
    }
    if name == "check" and health.branch != "main":
        plain["branch"] = health.branch
    given = [word for key, value in plain.items() for word in ("--option", f"{key}={value}")]
    return shlex.join(["iceberg-ds", name, health.table, *more, *given])


def _after_deletes(health: TableHealth, options: Mapping[str, str]) -> str:
    if health.format_version > 2:  # noqa: PLR2004  # which is not rewritten here
        statement = (
            f"CALL system.rewrite_data_files(table => {sql_text(health.table)}, options => map("
            "'delete-file-threshold', '1')) in Spark with Iceberg's runtime"
        )
        return f"Apply them: {statement}."
    branch = () if health.branch == "main" else ("--branch", health.branch)
    more = (*branch, "--option", "delete-file-threshold=1")
    compact = f"`{_command('rewrite-data-files', health, options, *more)}`"
    if health.equality_delete_files == 0:
        return f"Apply them: {compact}."
    convert = _command("convert-deletes", health, options, *branch)
    return f"Convert them: `{convert}`; then apply them: {compact}."


def _last_writer(health: TableHealth) -> str:
    if not health.writers:
        return "its writer"
    return f"{health.writers[0].kind} {printable(health.writers[0].name)}"
