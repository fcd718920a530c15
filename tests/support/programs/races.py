"""Races: processes without Spark that commit to one table at the same moment, and what each commit took."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from support.checks.invariants import live_entries

TESTS = Path(__file__).resolve().parents[2]
_LOOK_EVERY_S = 0.05
_IDS_OF_A_WRITER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterJob:
    """What one process is to do.

    Attributes:
        options: The sink's options, the table's name among them.
        folder: Where the processes meet.
        number: Which of them it is, from 0.
        commits: How many times it appends two rows, or upserts them if the options name keys.
    """

    options: Mapping[str, str] = field(repr=False)
    folder: str
    number: int
    commits: int

    @property
    def ids(self) -> list[tuple[int, int]]:
        """The ids of the rows of each of its commits."""
        first = _IDS_OF_A_WRITER * self.number
        return [(first + 2 * commit, first + 2 * commit + 1) for commit in range(self.commits)]

    @property
    def results(self) -> Path:
        """The file that its commits go to, one a line."""
        return Path(self.folder) / f"commits-{self.number}"

    def write(self) -> Path:
        """Return a file that holds it."""
        path = Path(self.folder) / f"job-{self.number}.json"
        path.write_text(to_json(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> WriterJob:
        """Return what `write` wrote."""
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RacedCommit:
    """One commit.

    Attributes:
        writer: Who committed.
        began_s: When, on a clock that all processes share.
        ended_s: When its outcome was known.
        attempts: How many requests it took.
        error: Why it failed, empty if it landed.
    """

    writer: int
    began_s: float
    ended_s: float
    attempts: int
    error: str

    @property
    def wait_s(self) -> float:
        """How long the writer waited for its outcome."""
        return self.ended_s - self.began_s


def to_json(values: Mapping[str, Any]) -> str:
    """Return plain values as one line."""
    return json.dumps(dict(values))


def race(
    options: Mapping[str, str], folder: Path, *, writers: int, commits: int, timeout_s: float
) -> list[RacedCommit]:
    """Let processes that begin at the same moment commit, each `commits` times, and return every commit in order.

    Args:
        options: The sink's options, the table's name among them.
        folder: Where the processes meet; it is made.
        writers: How many processes.
        commits: How many times each appends two rows, or upserts them if the options name keys.
        timeout_s: How long the race may take after its start.

    Raises:
        RuntimeError: A process failed otherwise than by a commit; the text holds its errors.
    """
    folder.mkdir(parents=True)
    jobs = [WriterJob(options=options, folder=str(folder), number=n, commits=commits) for n in range(writers)]
    log = folder / "errors"
    command = [sys.executable, "-m", "support.programs.spark_less_writer", *(str(job.write()) for job in jobs)]
    with log.open("w") as errors:
        program = subprocess.Popen(command, cwd=TESTS, stderr=errors, start_new_session=True)
    try:
        while len(list(folder.glob("ready-*"))) < writers and program.poll() is None:
            time.sleep(_LOOK_EVERY_S)
        (folder / "go").touch()
        if program.wait(timeout=timeout_s) != 0:
            raise RuntimeError(log.read_text())
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)  # its children, too
            program.wait()
    lines = chain.from_iterable(job.results.read_text().splitlines() for job in jobs)
    return sorted((RacedCommit(**json.loads(line)) for line in lines), key=lambda commit: commit.ended_s)


def wins(commits: Sequence[RacedCommit]) -> dict[int, int]:
    """Return how many commits of each writer landed."""
    return dict(Counter(commit.writer for commit in commits if not commit.error))


def all_ids(writers: int, commits: int) -> list[int]:
    """Return the ids of all rows of a race, in order."""
    jobs = [WriterJob(options={}, folder="", number=number, commits=commits) for number in range(writers)]
    return sorted(chain.from_iterable(chain.from_iterable(job.ids) for job in jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Files in a table's folder that the table has no use for, by kind; names only.

    Attributes:
        metadata: Metadata files of commits that did not land.
        manifests: Manifests and manifest lists.
        data: Data files.
    """

    metadata: frozenset[str]
    manifests: frozenset[str]
    data: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.metadata or self.manifests or self.data)


def leftovers(table: Table, folder: Path) -> Leftovers:
    """Return what commits that did not land have left behind.

    Args:
        table: The table, freshly loaded, all of whose snapshots have been kept.
        folder: Where its files lie.
    """
    stored = [path.name for path in folder.rglob("*") if path.is_file()]
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    head = table.current_snapshot()
    manifests = head.manifests(table.io) if head else []
    # The sink only appends, so that the newest snapshot lists every manifest that there was.
    paths = {manifest.manifest_path for manifest in manifests}
    data = {entry.data_file.file_path for manifest in manifests for entry in live_entries(table, manifest)}
    known = {Path(path).name for path in (*lists, *paths, *data, *_metadata_files(table, stored))}
    unknown = [name for name in stored if name not in known]
    return Leftovers(
        metadata=frozenset(name for name in unknown if name.endswith(".metadata.json")),
        manifests=frozenset(name for name in unknown if name.endswith(".avro")),
        data=frozenset(name for name in unknown if name.endswith(".parquet")),
    )


def _metadata_files(table: Table, stored: Sequence[str]) -> set[str]:
    """Return the metadata files of commits that landed; of those before the log begins, one of each version."""
    logged = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
    names = {Path(path).name for path in logged}
    first = min(names)[:5]
    older = {name[:5]: name for name in sorted(stored) if name.endswith(".metadata.json") and name[:5] < first}
    return names | set(older.values())
