"""The appends of `bench_peer.py`: both sinks in turn in one warm session, a session for each shape of table.

Tables are made, checked and dropped outside of the measured time. The order rotates from round to round; one round
before them is not counted. If a job of the runtime fails, the shape begins anew without it, and the result says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import set_folder
from harness import Sample, Settings, load_average
from peer_place import NAMESPACE, Place
from peer_shapes import SHAPES, Job, Shape
from remote import Remote, RemoteError
from support.services.bucket import Bucket
from support.services.servers import serve_objects

TABLE = f"{NAMESPACE}.t"
ONE_ROW = "one_row"
_LISTS = ("GET list", "GET bucket", "GET uploads")


class _PeerFailedError(Exception):
    """A job of the runtime failed."""

    def __init__(self, variant: str, reason: str) -> None:
        super().__init__(reason)
        self.variant = variant


@dataclass(slots=True, kw_only=True)
class Appends:
    """What a run of all shapes found.

    Attributes:
        samples: The appends, seconds.
        requests: What appends asked the S3 server for, number of requests.
        seconds: How long each shape took as a whole, by its name.
        versions: Of the session's Spark and of the runtime.
        failures: Jobs of the runtime that failed: which, of what shape, and why.
    """

    samples: list[Sample] = field(default_factory=list)
    requests: list[Sample] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One shape, ready to be appended.

    Attributes:
        place: The catalog.
        session: The session of both.
        shape: The shape.
        columns: Columns of its table, in SQL.
        expected: Number of the rows, and the sum of their keys.
    """

    place: Place
    session: Remote
    shape: Shape
    columns: str
    expected: list[int]

    def run(self, job: Job, name: str, source: str) -> tuple[dict[str, float], list[str]]:
        """Append to a new table; return what was measured, and the requests to the S3 server.

        Raises:
            RuntimeError: The table does not hold exactly what was written into it, or another sink wrote it.
        """
        bucket = Bucket(store=self.place.store, name=name) if self.place.store else None
        properties = {"write.parquet.compression-codec": "zstd", **job.properties}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        where = f"LOCATION '{bucket.location}/t'" if bucket else ""
        self.session.ask(
            "sql",
            statement=f"CREATE TABLE {TABLE} ({self.columns}) USING iceberg {self.shape.partitioned} {where} "
            f"TBLPROPERTIES ({listed})",
        )
        before = len(bucket.requests()) if bucket else 0
        options = {**self.place.options, **job.options} if job.is_ours else {}
        measured = self.session.ask("append", sink=job.sink, source=source, table=TABLE, options=options)
        asked = bucket.requests()[before:] if bucket else []
        found = self._files(job, self.expected if source != ONE_ROW else None)
        self.session.ask("sql", statement=f"DROP TABLE {TABLE} PURGE")
        return {**measured, **found}, asked

    def _files(self, job: Job, expected: list[int] | None) -> dict[str, float]:
        statement = f"SELECT count(*), sum(`{self.shape.key}`) FROM {TABLE}"  # noqa: S608  # no outside input
        if expected and (totals := self.session.ask("sql", statement=statement)[0]) != expected:
            raise RuntimeError(f"{self.shape.label}, {job.label}: rows and sum of keys are {totals}, not {expected}")
        ((engine,),) = self.session.ask("sql", statement=f"SELECT summary['engine-name'] FROM {TABLE}.snapshots")  # noqa: S608
        if (engine == "icebergsink") != job.is_ours:
            raise RuntimeError(f"{self.shape.label}, {job.label}: {engine} has written the table")
        counted = f"SELECT count(*), sum(file_size_in_bytes) FROM {TABLE}.files"  # noqa: S608
        ((files, size),) = self.session.ask("sql", statement=counted)
        return {"files": files, "bytes": size}


def measure(settings: Settings, scratch: Path) -> Appends:
    """Append every chosen shape in every round."""
    outcome = Appends()
    for name, shape in SHAPES.items():
        if name in settings.sets:
            begun = time.monotonic()
            jobs = shape.jobs()
            while not _measured(settings, shape, jobs, scratch / f"{name}-{len(jobs)}", outcome):
                pass
            outcome.seconds[name] = time.monotonic() - begun
            print(f"{shape.label}: {outcome.seconds[name]:.0f} s in all", flush=True)
    return outcome


def _measured(settings: Settings, shape: Shape, jobs: dict[str, Job], folder: Path, outcome: Appends) -> bool:
    """Measure a shape in a session of its own; return whether no job of the runtime failed, else forget that one."""
    try:
        with _prepared(settings, shape, folder) as bench:
            samples, requests = _rounds(bench, settings, jobs)
            outcome.versions = bench.session.ask("versions")
    except _PeerFailedError as failed:
        label = jobs.pop(failed.variant).label
        outcome.failures.append(f"{shape.label}, {label}: failed ({failed})")
        print(outcome.failures[-1], flush=True)
        return False
    outcome.samples += samples
    outcome.requests += requests
    return True


@contextlib.contextmanager
def _prepared(settings: Settings, shape: Shape, folder: Path) -> Iterator[Bench]:
    source = set_folder(settings, shape.source, shape.rows(settings))
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(serve_objects(folder / "store")) if shape.is_in_store else None
        place = Place(folder=folder, store=store)
        session = stack.enter_context(place.session_of_both())
        told: dict[str, Any] = session.ask("source", name="source", folder=str(source), key=shape.key)
        if told["tasks"] != len(list(source.glob("*.parquet"))):
            raise RuntimeError(f"Spark reads the input in {told['tasks']} tasks instead of one per file")
        session.ask("small_source", name=ONE_ROW, of="source", rows=1)
        yield Bench(place=place, session=session, shape=shape, columns=told["columns"], expected=told["totals"])


def _rounds(bench: Bench, settings: Settings, jobs: dict[str, Job]) -> tuple[list[Sample], list[Sample]]:
    samples, requests = [], []
    names = list(jobs)
    for number in range(settings.rounds + 1):
        shift = number % len(names)
        for variant in (*names[shift:], *names[:shift]):
            load = load_average()
            details, asked = _run(bench, variant, jobs[variant], f"{variant}-{number}")
            seconds = details.pop("seconds")
            print(
                f"round {number}, {bench.shape.label}, {variant}: {seconds:.2f} s, {details['files']:.0f} files, "
                f"{details['bytes'] / 1e6:.0f} MB",
                flush=True,
            )
            if number:  # the first warms up
                details |= {"rows_per_second": bench.expected[0] / seconds, "load_before": load}
                samples.append(
                    Sample(case=bench.shape.label, variant=variant, round=number, value=seconds, details=details)
                )
                if asked:
                    requests.append(_asked("append of the set", variant, number, asked, details["bytes"]))
                    _, asked = bench.run(jobs[variant], f"{variant}-{number}-one", ONE_ROW)
                    requests.append(_asked("append of one row", variant, number, asked, 0))
    return samples, requests


def _run(bench: Bench, variant: str, job: Job, name: str) -> tuple[dict[str, float], list[str]]:
    try:
        return bench.run(job, name, "source")
    except RemoteError as error:
        if job.is_ours:
            raise
        raise _PeerFailedError(variant, " ".join(str(error).split())[:200]) from error


def _asked(case: str, variant: str, number: int, asked: list[str], size: float) -> Sample:
    """Return how often each kind of request was made.

    Raises:
        RuntimeError: The sink has listed something: it must not need to on its way to a commit.
    """
    lists = sum(request in _LISTS for request in asked)
    if lists and variant.startswith("ours"):
        raise RuntimeError(f"{case}, {variant}: the sink listed the store {lists} times")
    kinds = {f"requests {kind}": float(asked.count(kind)) for kind in sorted(set(asked))}
    details = {**kinds, "lists": lists, "bytes": size}
    return Sample(case=case, variant=variant, round=number, value=len(asked), details=details)
