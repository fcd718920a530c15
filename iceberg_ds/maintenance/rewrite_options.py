"""Pure: the options of a rewrite of data files, by the names and with the defaults of Spark's procedure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import OptionError
from iceberg_ds.options.parse import is_known, name_hint
from iceberg_ds.parsing import boolean, count, one_of, positive_integer
from iceberg_ds.secrets import mask_name, refused_value

JobOrder: TypeAlias = Literal["none", "bytes-asc", "bytes-desc", "files-asc", "files-desc", "cold-first"]

# Of the target size: smaller and larger files are rewritten.
_MIN_SHARE, _MAX_SHARE = 0.75, 1.8
_ACTION = "rewrite data files"
_TARGET = "target-file-size-bytes"
# Each byte of each text takes 8 steps of its own: more of them take minutes for few rows.
_MOST_KEY_BYTES = 1024
_TARGET_PROPERTY, _TARGET_DEFAULT = "write.target-file-size-bytes", 512 * 1024 * 1024


def ratio(text: str) -> float:
    """Return a number from above 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ValueError("expected a number above 0, at most 1, such as 0.3")
    return number


def key_bytes(text: str) -> int:
    """Return how many bytes of a text may count in a Z-order."""
    if (number := positive_integer(text)) > _MOST_KEY_BYTES:
        raise ValueError(f"expected a whole number from 1 to {_MOST_KEY_BYTES}")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOptions:
    """What is rewritten, and in which portions. Defaults are those of Spark's procedure `rewrite_data_files`.

    Attributes:
        target_file_size_bytes: Bytes that a new file should have.
        min_file_size_bytes: Smaller files are rewritten.
        max_file_size_bytes: Larger files are rewritten; no new file is larger.
        min_input_files: A group of at least this many files is rewritten, even if they are small together.
        rewrite_all: Whether all files are rewritten.
        max_file_group_size_bytes: Most bytes of the files of a group.
        max_concurrent_file_group_rewrites: How many groups are rewritten at once; None for as many as the cluster can.
        partial_progress_enabled: Whether groups are committed as they are done, and a group that fails is passed over.
        partial_progress_max_commits: How many commits that makes, at most.
        partial_progress_max_failed_commits: More failed commits than this fail the rewrite; None for `max-commits`.
        rewrite_job_order: Which groups come first; `cold-first`, which Spark's procedure does not know: those of the
            partitions that were written to the longest ago.
        use_starting_sequence_number: Whether new files count as old as the snapshot that the rewrite began with, so
            that deletes which land meanwhile apply to them. Else such deletes make a group stale.
        delete_file_threshold: A file with at least this many delete files is rewritten; None for no such rule.
        delete_ratio_threshold: A file is rewritten if at least this share of its rows is deleted by delete files that
            are for this file alone.
        output_spec_id: Partition spec of new files; None for the table's current one.
        remove_dangling_deletes: Whether delete files that apply to no data file any more are removed, too.
        max_files_to_rewrite: How many files a call rewrites, at most; None for no limit.
        var_length_contribution: How many bytes of text and bytes count in a Z-order.
        max_output_size: How many bytes of the interleaved value count in a Z-order.
    """

    target_file_size_bytes: int
    min_file_size_bytes: int
    max_file_size_bytes: int
    min_input_files: int = 5
    rewrite_all: bool = False
    max_file_group_size_bytes: int = 100 * 1024**3
    max_concurrent_file_group_rewrites: int | None = None
    partial_progress_enabled: bool = False
    partial_progress_max_commits: int = 10
    partial_progress_max_failed_commits: int | None = None
    rewrite_job_order: JobOrder = "none"
    use_starting_sequence_number: bool = True
    delete_file_threshold: int | None = None
    delete_ratio_threshold: float = 0.3
    output_spec_id: int | None = None
    remove_dangling_deletes: bool = False
    max_files_to_rewrite: int | None = None
    var_length_contribution: int = 8
    max_output_size: int = 2**31 - 1

    @classmethod
    def of(cls, given: Mapping[str, str], metadata: TableMetadata) -> RewriteOptions:
        """Return the options in `given`, where those of a write are passed over, with defaults of the table.

        Raises:
            OptionError: An option is malformed, or sizes contradict each other; all problems are named.
        """
        parsed, problems = _parsed(given, _PARSERS)
        target = parsed.setdefault("target_file_size_bytes", _target_of(metadata))
        least = parsed.setdefault("min_file_size_bytes", int(target * _MIN_SHARE))
        most = parsed.setdefault("max_file_size_bytes", int(target * _MAX_SHARE))
        if not least < target <= most:
            problems.append(
                f"min-file-size-bytes ({least}) must be below {_TARGET} ({target}), and that at most "
                f"max-file-size-bytes ({most})"
            )
        spec_id = parsed.get("output_spec_id")
        if spec_id is not None and spec_id not in metadata.specs():
            problems.append(f"output-spec-id is {spec_id}, and the table has {', '.join(map(str, metadata.specs()))}")
        if problems:
            raise OptionError(_refusal(_ACTION, problems))
        return cls(**parsed)


_PARSERS: Mapping[str, Callable[[str], object]] = {
    _TARGET: positive_integer,
    "min-file-size-bytes": count,
    "max-file-size-bytes": positive_integer,
    "min-input-files": positive_integer,
    "rewrite-all": boolean,
    "max-file-group-size-bytes": positive_integer,
    "max-concurrent-file-group-rewrites": positive_integer,
    "partial-progress.enabled": boolean,
    "partial-progress.max-commits": positive_integer,
    "partial-progress.max-failed-commits": count,
    "rewrite-job-order": one_of(*get_args(JobOrder)),
    "use-starting-sequence-number": boolean,
    "delete-file-threshold": positive_integer,
    "delete-ratio-threshold": ratio,
    "output-spec-id": count,
    "remove-dangling-deletes": boolean,
    "max-files-to-rewrite": positive_integer,
    "var-length-contribution": key_bytes,
    "max-output-size": positive_integer,
}
# What only a Z-order takes.
OF_Z_ORDER = ("var-length-contribution", "max-output-size")
# Options of Spark's procedure that say how its jobs shuffle rows; nothing is shuffled here.
_OF_SHUFFLES = ("compression-factor", "shuffle-partitions-per-file", "max-file-group-input-files")


def write_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a write takes, too: those of the catalog, and how files are written.

    Raises:
        OptionError: An option is known to neither, or malformed.
    """
    own_options(_ACTION, given, _PARSERS, _OF_SHUFFLES)
    return {key: text for key, text in given.items() if key == _TARGET or key not in _PARSERS}


def own_options(
    action: str, given: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]], of_shuffles: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values of a procedure's own options, among those that a write knows, too.

    Args:
        action: What is done, for the error.
        given: The options, by keys in lower case.
        parsers: What reads each of its own.
        of_shuffles: Options of Spark's procedure that have no meaning here.

    Raises:
        OptionError: Options are known to neither, or malformed; all problems are named.
    """
    parsed, problems = _parsed(given, parsers)
    for key in given:
        if key in of_shuffles:
            reason = "says how Spark's own rewrite divides rows between its tasks, and here it has no meaning"
            problems.append(f"option '{key}' {reason}")
        elif not (key in parsers or is_known(key) or key == "path"):
            hint = name_hint(key, parsers, [*parsers, "and those of a write"])
            problems.append(f"unknown option '{mask_name(key)}': {hint}")
    if problems:
        raise OptionError(_refusal(action, problems))
    return parsed


def _parsed(given: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]]) -> tuple[dict[str, Any], list[str]]:
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    for key, text in given.items():
        if (parse := parsers.get(key)) is None:
            continue
        try:
            parsed[key.replace("-", "_").replace(".", "_")] = parse(text)
        except ValueError as problem:
            problems.append(f"option '{key}' is {refused_value(text, str(problem))}")
    return parsed, problems


def _target_of(metadata: TableMetadata) -> int:
    text = metadata.properties.get(_TARGET_PROPERTY, "")
    try:
        return positive_integer(text)
    except ValueError:  # as everywhere, a property that cannot be read counts as not set
        return _TARGET_DEFAULT


def _refusal(action: str, problems: Iterable[str]) -> str:
    return f"Cannot {action} with these options:\n" + "\n".join(f"  - {problem}" for problem in problems)
