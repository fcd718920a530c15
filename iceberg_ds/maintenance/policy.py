"""When a table is due for which maintenance, and in which order: a policy, its file, and what it makes due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.health import TableHealth
from iceberg_ds.secrets import mask_name, mask_value
from iceberg_ds.snapshots.version_3 import VERSION_3


class Step(Enum):
    """A kind of maintenance, in the order in which steps are taken: each makes less work for those after it."""

    CONVERT_DELETES = "convert_deletes"
    REWRITE_DATA_FILES = "rewrite_data_files"
    REWRITE_POSITION_DELETE_FILES = "rewrite_position_delete_files"
    REWRITE_MANIFESTS = "rewrite_manifests"
    EXPIRE_SNAPSHOTS = "expire_snapshots"


# Of so few snapshots metadata is not large.
_FEW_SNAPSHOTS = 10
# A single small file cannot be merged with another one.
_MERGED_FILES = 2
# The largest number of 64 bits; a float beyond it has no milliseconds.
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """When a table is due for what. A figure above its limit makes the step due; None for never.

    Attributes:
        max_small_files: Data files below a quarter of `write.target-file-size-bytes`. Only such files, and those of
            whose rows 30 % are deleted, are rewritten: a file that was compacted is not written again for each new one.
        max_commits: Commits to the branch since data files were last rewritten: small files are, if there are two.
        max_deletes_per_file: Delete files for each data file, on average: data files with more are rewritten.
        max_equality_delete_files: Equality delete files: they are converted.
        max_position_delete_files: Position delete files: they are rewritten into few, those without rows are dropped.
        max_manifests: Manifests of the branch.
        max_snapshots: Snapshots of the table. The oldest above that number expire.
        max_metadata_bytes: Size of the metadata file. As many of the oldest snapshots expire as make up the rest, if
            there are more than ten.
        max_snapshot_age_s: Age in seconds. Older snapshots expire, unless a branch or tag is at them.
        min_snapshot_age_s: No snapshot younger than this many seconds expires: readers may still use it.
        max_bytes: About how many bytes of data files a run rewrites, at most; None for no limit.
        max_seconds: No step begins later than this many seconds after the run; None for no limit.
    """

    max_small_files: int | None = 100
    max_commits: int | None = None
    max_deletes_per_file: float | None = None
    max_equality_delete_files: int | None = 20
    max_position_delete_files: int | None = 100
    max_manifests: int | None = 100
    max_snapshots: int | None = 1000
    max_metadata_bytes: int | None = None
    max_snapshot_age_s: float | None = None
    min_snapshot_age_s: float = 3600
    max_bytes: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {value!r}, expected a {'whole number' if kind is int else 'number'} from 0 to {_HIGHEST}"
            for name, value, kind in self._given()
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value <= _HIGHEST
        ]
        if wrong:
            raise OptionError(f"Cannot maintain tables by this policy: {'; '.join(wrong)}.")

    def _given(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name of each attribute that says something, its value, and the types that it may have."""
        for one in fields(self):
            if (value := getattr(self, one.name)) is not None or one.name == "min_snapshot_age_s":
                yield one.name, value, int if str(one.type).startswith("int") else int | float

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> MaintenancePolicy:
        """Return the policy that a mapping says, such as a TOML document; names may have hyphens.

        Raises:
            OptionError: A name is unknown, or a value is no number, or no whole one where that is needed.
        """
        named = {str(key).replace("-", "_"): value for key, value in given.items()}
        known = [one.name for one in fields(cls)]
        if unknown := sorted(named.keys() - set(known)):
            raise OptionError(
                f"Cannot maintain tables by this policy: {', '.join(map(mask_name, unknown))} is not known. Known are "
                f"{', '.join(known)}."
            )
        return cls(**named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A step that is due.

    Attributes:
        step: The step.
        reason: Why, such as `120 small data files, more than 100`.
    """

    step: Step
    reason: str


def due_steps(health: TableHealth, policy: MaintenancePolicy) -> list[Due]:
    """Return the steps that are due for a table, in the order in which they are to be taken.

    A figure that is unknown makes no step due. Deletion vectors are not rewritten: a data file has only one.
    """
    manifests = health.data_manifests + health.delete_manifests
    by_position = health.position_delete_files if health.format_version < VERSION_3 else None
    metadata_bytes = health.metadata_bytes if health.snapshots > _FEW_SNAPSHOTS else None
    commits = health.commits_since_rewrite if health.small_files >= _MERGED_FILES else None
    rows: tuple[tuple[Step, float | None, float | None, str], ...] = (
        (Step.CONVERT_DELETES, health.equality_delete_files, policy.max_equality_delete_files, "equality delete files"),
        (Step.REWRITE_DATA_FILES, health.small_files, policy.max_small_files, "small data files"),
        (Step.REWRITE_DATA_FILES, commits, policy.max_commits, "commits since data files were rewritten"),
        (
            Step.REWRITE_DATA_FILES,
            health.deletes_per_file,
            policy.max_deletes_per_file,
            "delete files for each data file",
        ),
        (
            Step.REWRITE_POSITION_DELETE_FILES,
            by_position,
            policy.max_position_delete_files,
            "position delete files",
        ),
        (Step.REWRITE_MANIFESTS, manifests, policy.max_manifests, "manifests"),
        (Step.EXPIRE_SNAPSHOTS, health.snapshots, policy.max_snapshots, "snapshots"),
        (Step.EXPIRE_SNAPSHOTS, metadata_bytes, policy.max_metadata_bytes, "bytes of metadata"),
        (
            Step.EXPIRE_SNAPSHOTS,
            health.oldest_snapshot_age_s,
            policy.max_snapshot_age_s,
            "seconds of age of the oldest snapshot",
        ),
    )
    return [
        Due(step=step, reason=f"{round(figure, 2):,} {things}, more than {limit:,}")
        for step, figure, limit, things in rows
        if figure is not None and limit is not None and figure > limit
    ]


def policies_of(file: str | None, tables: Sequence[str]) -> dict[str, MaintenancePolicy]:
    """Return the policy of each table that a TOML file says.

    What stands at the top of the file is for all tables, and what stands below the name of a table, such as
    `["db.events"]`, for that one.

    Args:
        file: Path of the file; None for the defaults.
        tables: Identifiers of the tables.

    Raises:
        OptionError: The file is no TOML document, or says what no policy knows, or a table that is not maintained.
    """
    document = {} if file is None else _read(file)
    general = {key: value for key, value in document.items() if not isinstance(value, dict)}
    own = {key: value for key, value in document.items() if isinstance(value, dict)}
    if others := sorted(own.keys() - set(tables)):
        raise OptionError(
            f"Cannot maintain tables by {file}: it speaks of {', '.join(map(mask_value, others))}, and the tables are "
            f"{', '.join(map(mask_value, tables))}. Drop what it says of others, or maintain them, too."
        )
    return {table: MaintenancePolicy.of({**general, **own.get(table, {})}) for table in tables}


def _read(file: str) -> dict[str, Any]:
    try:
        toml = import_module("tomllib")
    except ModuleNotFoundError:
        raise OptionError(
            f"Cannot read {file}: TOML needs Python 3.11 or newer. Run it there, or leave the file out for the "
            "defaults."
        ) from None
    try:
        document: dict[str, Any] = toml.loads(Path(file).read_text())
    except (OSError, ValueError) as problem:
        raise OptionError(
            f"Cannot read the policy in {file}: {problem}. Give the path of a document in TOML."
        ) from problem
    return document
