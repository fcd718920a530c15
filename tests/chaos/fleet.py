"""The streams and batches of a chaos run, and the drivers that run them, one after the other.

A driver takes seconds to start, so the next one is always started beforehand.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyspark
from chaos import keyed
from chaos.checkpoint import Checkpoint
from chaos.driver import FILES_PER_EPOCH, BatchSpec, StreamSpec
from chaos.orders import Place, place_of
from chaos.world import World
from support.spark.jobs import write_source
from support.spark.process import SparkProcess, find_members

ROWS_PER_FILE = 10
ROWS_PER_BATCH = 20
BRANCH = "audit"
KEYED = "keyed"
_IDS_PER_WRITER = 10_000_000
_ANSWER_TIMEOUT_S = 180
_FINISH_TIMEOUT_S = 900
_GROW_EVERY_S = 0.5
_LONGEST_ZOMBIE_LIFE_S = 6.0
_MASTERS = ("local[2]", "local[2]", "local[2,4]", "local-cluster[2,1,512]")
_CONF = {
    "spark.driver.memory": "768m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.python.daemon.module": "chaos.daemon",
    "spark.deploy.maxExecutorRetries": "-1",
}
_TABLE_OPTIONS = {
    "table-property.write.metadata.delete-after-commit.enabled": "true",
    "table-property.write.metadata.previous-versions-max": "5",
    "table-property.commit.retry.total-timeout-ms": "20000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A Spark driver.

    Attributes:
        process: The process.
        master: Its master.
    """

    process: SparkProcess
    master: str

    @property
    def has_executors(self) -> bool:
        """Whether its tasks run in processes of their own."""
        return self.master.startswith("local-cluster")

    @property
    def is_dead(self) -> bool:
        """Whether it has ended."""
        return self.process._process.poll() is not None

    def places(self, folder: Path) -> Iterator[tuple[int, Place]]:
        """Yield its Python workers that have noted where they are."""
        java = find_members(self.process.pid, "java")  # which may have the number of a worker that is long dead
        for pid in {*find_members(self.process.pid)} - {*java}:
            place = place_of(folder, pid)
            if place is not None:
                yield pid, place

    def executors(self) -> list[int]:
        """Return the Java processes of its executors."""
        return [
            pid for pid in find_members(self.process.pid, "java") if "CoarseGrainedExecutorBackend" in _command(pid)
        ]


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@dataclass(slots=True, kw_only=True)
class Fleet:
    """All writers of a run.

    Attributes:
        folder: The run's folder.
        world: Where they write.
        draw: Decides about masters.
        epochs_ahead: How many epochs the sources have in store for each stream.
        streams: The queries by name.
        batches: The writers of batches by name.
        driver: The driver that runs them.
    """

    folder: Path
    world: World
    draw: random.Random
    epochs_ahead: int = 12
    masters: Sequence[str] = _MASTERS
    streams: dict[str, StreamSpec] = field(default_factory=dict)
    batches: dict[str, BatchSpec] = field(default_factory=dict)
    driver: Driver = field(init=False)
    _next: Driver = field(init=False)
    _started: int = 0
    _grown_s: float = 0
    _swept: list[tuple[float, Driver]] = field(default_factory=list)

    def add(self, streams: int, batches: int) -> None:
        """Define so many streams into the table, one into a branch, one by key elsewhere, and writers of batches."""
        names = [*(f"stream-{number}" for number in range(1, streams + 1)), BRANCH, KEYED]
        for name in names:
            options = {**self.world.options, **_TABLE_OPTIONS, "metrics-file": str(self.reports(name))}
            if name == BRANCH:
                options |= {"branch": BRANCH, "create-branch": "true"}
            source, checkpoint = self.folder / "source" / name, self.folder / "checkpoint" / name
            spec = StreamSpec(name=name, source=str(source), checkpoint=str(checkpoint), options=options)
            if name == KEYED:
                spec = replace(spec, options={**options, **keyed.OPTIONS}, table=keyed.TABLE, select=keyed.SELECT)
            self.streams[name] = spec
        for number in range(1, batches + 1):
            name = f"batch-{number}"
            self.batches[name] = BatchSpec(
                name=name,
                first_id=_IDS_PER_WRITER * (len(names) + number),
                rows=ROWS_PER_BATCH,
                options={**self.world.options, **_TABLE_OPTIONS, "metrics-file": str(self.reports(name))},
                state=str(self.folder / f"{name}.next"),
            )

    @property
    def names(self) -> list[str]:
        """The names of all writers."""
        return [*self.streams, *self.batches]

    def reports(self, name: str) -> Path:
        """Return the file of reports on the commits of a writer."""
        return self.folder / "reports" / f"{name}.jsonl"

    def checkpoint(self, name: str) -> Checkpoint:
        """Return the checkpoint of a stream."""
        return Checkpoint(folder=Path(self.streams[name].checkpoint))

    def grow(self) -> None:
        """See to it that no source runs dry, so that every epoch has its two files, whoever plans it."""
        if time.monotonic() - self._grown_s < _GROW_EVERY_S:
            return
        self._grown_s = time.monotonic()
        for number, name in enumerate(self.streams):
            source = Path(self.streams[name].source)
            there = len(list(source.glob("*.json")))
            ahead = there // FILES_PER_EPOCH - self.checkpoint(name).portions
            if ahead < self.epochs_ahead:
                first = _IDS_PER_WRITER * number
                files = range(there, there + self.epochs_ahead * FILES_PER_EPOCH)
                ids = (range(first + file * ROWS_PER_FILE, first + (file + 1) * ROWS_PER_FILE) for file in files)
                write_source(source, ids, first_file=there)

    def start(self) -> None:
        """Start the first driver."""
        self.grow()
        self._next = self._new_driver(self.masters[0])
        self.take_over()

    def take_over(self) -> None:
        """Let the next driver run everything, and start another one for later.

        It may be killed before it has everything; then it is dead, and whoever looks finds that out.
        """
        self.driver = self._next
        self._next = self._new_driver(self.draw.choice(self.masters))
        with suppress(RuntimeError, OSError):
            self.driver.process.wait_ready()
            for name in self.names:
                self.begin(name)

    def replace_dead(self) -> None:
        """Let the next driver take over if this one is dead, and end the workers of dead ones in time."""
        if self.driver.is_dead:
            self._swept.append((time.monotonic() + self.draw.uniform(0, _LONGEST_ZOMBIE_LIFE_S), self.driver))
            self.take_over()
        for due_s, dead in list(self._swept):
            if time.monotonic() >= due_s:
                dead.process.close()
                self._swept.remove((due_s, dead))

    def lend_next(self) -> Driver:
        """Give away the driver that was to be the next one, and start another one."""
        lent = self._next
        lent.process.wait_ready()
        self._next = self._new_driver(self.draw.choice(self.masters))
        return lent

    def begin(self, name: str) -> None:
        """Let the driver run a writer."""
        if name in self.streams:
            stream_in(self.driver, self.streams[name])
        else:
            _ask(self.driver, "batches", **asdict(self.batches[name]))

    def stop(self, name: str) -> None:
        """Let the driver stop a writer, and wait until nothing of it runs."""
        _ask(self.driver, "stop", name=name)

    def finish(self) -> None:
        """Let every stream take all that its source has."""
        for name in self.names:
            self.stop(name)
        for spec in self.streams.values():
            _ask(self.driver, "finish", _FINISH_TIMEOUT_S, **asdict(spec))

    def kill_driver(self) -> None:
        """Kill the driver's Python and Java, and leave its workers to themselves."""
        with suppress(ProcessLookupError):
            os.killpg(self.driver.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill all drivers."""
        for _, dead in self._swept:
            dead.process.close()
        for name in ("driver", "_next"):
            if hasattr(self, name):
                getattr(self, name).process.close()

    def _new_driver(self, master: str) -> Driver:
        self._started += 1
        process = SparkProcess(
            self.folder / "drivers" / str(self._started),
            master=master,
            environment={"CHAOS_FOLDER": str(self.folder), "SPARK_HOME": str(Path(pyspark.__file__).parent)},
            conf=_CONF,
            program="chaos.driver",
        )
        return Driver(process=process, master=master)


def stream_in(driver: Driver, spec: StreamSpec) -> None:
    """Let a driver run a query."""
    _ask(driver, "stream", **asdict(spec))


def _ask(driver: Driver, do: str, timeout_s: float = _ANSWER_TIMEOUT_S, **arguments: object) -> None:
    try:
        error = driver.process.run(json.dumps({"do": do, **arguments}), timeout_s)
    except TimeoutError:
        driver.process.kill()  # its late answer would be taken for that to the next request
        raise
    if error is not None:
        raise RuntimeError(f"The driver could not {do}: {error}")
