"""`ReadOptions`: every option of a read, declared once, and `parse_read_options`, which says at once all that is wrong.

What leads to the table, such as `catalog.*`, a read has in common with a write: `SinkOptions` declares it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from iceberg_ds import parsing as values
from iceberg_ds.errors import OptionError
from iceberg_ds.options.declaring import Option, option
from iceberg_ds.options.parse import name_hint, parse_options, take_option
from iceberg_ds.options.sink_options import CATALOG_PREFIX, SinkOptions
from iceberg_ds.secrets import mask_name

# What a read takes of the options of a write, beside the catalog's properties.
_OF_WRITES = frozenset({"table", "path", "namespace", "catalog", "warehouse", "branch", "case-sensitive", "time-zone"})


def _names(text: str) -> tuple[str, ...]:
    names: list[object] = [part.strip() for part in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = [None]
    found = tuple(name for name in names if isinstance(name, str) and name)
    if len(found) < len(names):
        raise ValueError('expected names with commas between them, or a list in JSON such as ["id", "a,b"]')
    return found


@dataclass(frozen=True, kw_only=True)
class _OfBatches:
    """The options that only a batch has."""

    snapshot_id: int | None = option(
        values.integer, "The snapshot to read.", shown="the newest of `branch`, or the current one"
    )
    as_of_timestamp: int | None = option(
        values.integer, "Read the snapshot that was current at this time, in milliseconds since the Unix epoch."
    )
    tag: str | None = option(str, "Read the snapshot that has this tag.")
    schema_id: int | None = option(
        values.integer, "Read with this schema of the table.", shown="the snapshot's, or the current one of a branch"
    )
    changes_after_snapshot_id: int | None = option(
        values.integer,
        "Read what became of rows after this snapshot, up to `snapshot-id`, as `read_changes` does, unchanged rows "
        "among it.",
    )
    changes_from_snapshot_id: int | None = option(values.integer, "The same, with the changes of this snapshot itself.")


@dataclass(frozen=True, kw_only=True)
class _OfStreams:
    """The options that only a stream has."""

    starting_snapshot_id: int | None = option(
        values.integer,
        "Begin after this snapshot: its own rows are not read, as with `start-snapshot-id` of the runtime's "
        "incremental reads. Read the rows up to it with `snapshot-id`.",
    )
    stream_from_timestamp: int | None = option(
        values.integer,
        "Begin with the first snapshot of this time or later that the branch shows, in milliseconds since the Unix "
        "epoch, even if a writer's clock was behind for a later one; if there is none yet, wait for it.",
    )
    on_change: Literal["fail", "skip", "added-files", "changes"] = option(
        values.one_of("fail", "skip", "added-files", "changes"),
        "What becomes of a snapshot that does more than append rows: see below.",
        default="fail",
    )
    streaming_max_files_per_micro_batch: int | None = option(
        values.positive_integer, "The most data files in a micro-batch.", shown="all"
    )
    streaming_max_rows_per_micro_batch: int | None = option(
        values.positive_integer,
        "The most rows in a micro-batch; files are read whole, and one file at least.",
        shown="all",
    )
    streaming_skip_overwrite_snapshots: bool = option(
        values.boolean, "Pass over snapshots of operation `overwrite`, whatever `on-change` says.", default=False
    )
    streaming_skip_delete_snapshots: bool = option(
        values.boolean, "Pass over snapshots of operation `delete`, whatever `on-change` says.", default=False
    )
    keys: tuple[str, ...] | None = option(
        _names,
        "With `on-change=changes`: names of columns that say which row is which, so that updates are told apart.",
    )
    consumer_id: str | None = option(
        values.writer_name,
        "A name, for one query with one checkpoint: the table says how far it has read, and "
        "[`expire_snapshots`](maintenance/expire-snapshots.md) waits for it.",
    )


@dataclass(frozen=True, kw_only=True)
class ReadOptions(_OfStreams, _OfBatches):
    """The options of one read, parsed; None means that the option was not given.

    Attributes:
        of_table: What leads to the table, and how names and times in a predicate are understood.
    """

    of_table: SinkOptions
    columns: tuple[str, ...] | None = option(
        _names, "Names of columns with commas between them, or a list in JSON.", shown="all columns of the table"
    )
    where: str | None = option(str, "A [predicate](predicates.md): only its rows are read.", shown="all rows")


def _declared(kind: type[_OfBatches | _OfStreams]) -> tuple[Option, ...]:
    return tuple(Option.of(declared) for declared in fields(kind) if "doc" in declared.metadata)


BATCH_OPTIONS, STREAM_OPTIONS = _declared(_OfBatches), _declared(_OfStreams)
READ_OPTIONS = _declared(ReadOptions)
_BY_NAME = {one.name: one for one in READ_OPTIONS}


def parse_read_options(raw: Mapping[str, str]) -> ReadOptions:
    """Parse the options of one read.

    Args:
        raw: The options, by names in lower case.

    Raises:
        OptionError: Names every unknown or malformed option, and those of streams and changes that exclude each other,
            at once; or, first, all that is wrong with what leads to the table.
    """
    name = str(raw.get("table") or raw.get("path"))
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    of_table = {}
    for key, text in raw.items():
        declared = _BY_NAME.get(key)
        if declared is not None:
            problems += filter(None, [take_option(parsed, declared, text)])
        elif key in _OF_WRITES or key.startswith(CATALOG_PREFIX):
            of_table[key] = text
        else:
            known = sorted({*_BY_NAME, *_OF_WRITES} - {"path"})
            hint = name_hint(key, known, [*known, f"{CATALOG_PREFIX}*"])
            problems.append(f"option '{mask_name(key)}' is none of a read: {hint}")
    options = ReadOptions(of_table=parse_options(of_table, "read"), **parsed)
    problems += _contradictions(options)
    if len(problems) == 1:
        raise OptionError(f"Cannot read {name}: {problems[0].rstrip('.')}{'' if problems[0].endswith('?') else '.'}")
    if problems:
        raise OptionError(f"Cannot read {name}:\n" + "\n".join(f"  - {problem}" for problem in problems))
    return options


def _contradictions(options: ReadOptions) -> Iterator[str]:
    """Yield what is wrong with options beside each other."""
    if options.starting_snapshot_id is not None and options.stream_from_timestamp is not None:
        yield "options 'starting-snapshot-id' and 'stream-from-timestamp' both say where the stream begins: give one"
    if options.keys is not None and options.on_change != "changes":
        yield "option 'keys' goes with on-change=changes: give both, or neither"
    if options.keys == ():
        yield "option 'keys' names no column: leave it out for no updates"
    if options.changes_after_snapshot_id is not None and options.changes_from_snapshot_id is not None:
        yield "options 'changes-after-snapshot-id' and 'changes-from-snapshot-id' exclude each other: give one"
