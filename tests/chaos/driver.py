"""The program of a driver in a chaos run: keeps streams and writers of batches going, whatever becomes of them.

`python -m chaos.driver FOLDER MASTER ANSWERS CONF`, as `support.spark.process` starts it. Reads commands from
standard input, one JSON object a line, and answers each. A query that ends with an error is told of and started
again, unless its checkpoint has been refused: then it waits for somebody who puts the checkpoint right.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.events import Event, Kind, tell
from chaos.sink import ChaosSink, options
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.spark.jobs import SCHEMA, numbered, write_source
from support.spark.session import start_session

TABLE = "db.t"
FILES_PER_EPOCH = 2
REFUSED = "already holds epoch"
_LOOK_EVERY_S = 0.05
_PAUSE_S = 0.3
_OUR_ERROR = re.compile(r"iceberg_ds\.errors\.(\w+: .*)")
_SPARK_ERROR = re.compile(r"\[([A-Z_.]+)\]")
_LONGEST_TEXT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A query.

    Attributes:
        name: Its name in the run.
        source: Folder of its source.
        checkpoint: Its checkpoint.
        options: Options of the sink.
        trigger_ms: Time between two epochs at least.
        table: The table.
        select: What becomes of the columns of the source.
    """

    name: str
    source: str
    checkpoint: str
    options: Mapping[str, str]
    trigger_ms: int = 1000
    table: str = TABLE
    select: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """A writer of batches, one after the other, each tried until it is in the table.

    Attributes:
        name: Its name in the run.
        first_id: Id of its first row.
        rows: Rows in each batch.
        options: Options of the sink.
        state: File with the number of the batch that is to be written next.
    """

    name: str
    first_id: int
    rows: int
    options: Mapping[str, str]
    state: str

    def next_number(self) -> int:
        """Return the number of the batch that is to be written next, from 0."""
        with suppress(FileNotFoundError):
            return int(Path(self.state).read_text())
        return 0

    def note_next(self, number: int) -> None:
        """Note which batch is to be written next."""
        hidden = Path(self.state).with_suffix(".new")
        hidden.write_text(str(number))
        hidden.rename(self.state)


@dataclass(slots=True, kw_only=True)
class Running:
    """What the driver does for one query or writer.

    Attributes:
        is_wanted: Set while it is to run.
        is_idle: Set while nothing of it runs.
    """

    is_wanted: threading.Event = field(default_factory=threading.Event)
    is_idle: threading.Event = field(default_factory=threading.Event)


class Driver:
    """One Spark, and all that it runs for the run in `folder`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._running: dict[str, Running] = {}

    def warm_up(self, folder: Path) -> None:
        """Write one epoch into another table, so that the processes that writers need are there in time."""
        write_source(folder / "source", [range(FILES_PER_EPOCH)])
        spec = StreamSpec(
            name="warm-up",
            source=str(folder / "source"),
            checkpoint=str(folder / "checkpoint"),
            options={"warehouse": str(folder / "warehouse")},
        )
        self._set_active_session()
        with suppress(Exception):  # the writers will tell what does not work
            self._start(spec, {"availableNow": True}).awaitTermination()

    def do(self, command: dict[str, Any]) -> None:
        """Carry out a command."""
        getattr(self, f"_{command.pop('do')}")(**command)

    def _stream(self, **values: Any) -> None:
        spec = StreamSpec(**values)
        self._begin(spec.name, lambda running: self._keep_streaming(spec, running))

    def _batches(self, **values: Any) -> None:
        spec = BatchSpec(**values)
        self._begin(spec.name, lambda running: self._keep_writing(spec, running))

    def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            running.is_wanted.clear()
            running.is_idle.wait()

    def _finish(self, **values: Any) -> None:
        """Run a query until it has taken all that there is."""
        spec = StreamSpec(**values)
        query = self._start(spec, {"availableNow": True})
        query.awaitTermination()

    def _begin(self, name: str, keep: Callable[[Running], None]) -> None:
        running = self._running[name] = Running()
        running.is_wanted.set()
        threading.Thread(target=self._keep, args=(keep, running), daemon=True).start()

    def _keep(self, keep: Callable[[Running], None], running: Running) -> None:
        self._set_active_session()
        keep(running)

    def _set_active_session(self) -> None:
        # Java looks data sources up in the session that is active in its thread, and has one for each of ours.
        classes = SparkSession._get_j_spark_session_class(self._spark._jvm)
        classes.setActiveSession(self._spark._jsparkSession)

    def _start(self, spec: StreamSpec, trigger: Mapping[str, Any]) -> StreamingQuery:
        source = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_EPOCH).json(spec.source)
        writer = source.selectExpr(*spec.select).writeStream.format(ChaosSink.name()).options(**spec.options)
        writer = writer.options(**options(self._folder, spec.name)).option("checkpointLocation", spec.checkpoint)
        query = writer.trigger(**trigger).start(spec.table)
        tell(
            self._folder,
            Event(kind=Kind.STARTED, stream=spec.name, run_id=str(query.runId), text=spec.checkpoint, role="driver"),
        )
        return query

    def _keep_streaming(self, spec: StreamSpec, running: Running) -> None:
        while running.is_wanted.is_set():
            try:
                query = self._start(spec, {"processingTime": f"{spec.trigger_ms} milliseconds"})
                while running.is_wanted.is_set() and not query.awaitTermination(_LOOK_EVERY_S):  # type: ignore[arg-type]
                    pass
                query.stop()
            except Exception as error:
                text = self._tell_failure(spec.name, error)
                if REFUSED in text:
                    break
                time.sleep(_PAUSE_S)
        running.is_idle.set()

    def _keep_writing(self, spec: BatchSpec, running: Running) -> None:
        number = spec.next_number()
        while running.is_wanted.is_set():
            first = spec.first_id + number * spec.rows
            once = {"txn-app-id": spec.name, "txn-version": str(number)}
            given = {**spec.options, **once, **options(self._folder, spec.name)}
            try:
                rows = numbered(self._spark, first, first + spec.rows)
                rows.write.format(ChaosSink.name()).mode("append").options(**given).save(TABLE)
            except Exception as error:
                self._tell_failure(spec.name, error)
            else:
                number += 1
                spec.note_next(number)
            time.sleep(_PAUSE_S)
        running.is_idle.set()

    def _tell_failure(self, name: str, error: Exception) -> str:
        text = failure_text(str(error))
        tell(self._folder, Event(kind=Kind.FAILED, stream=name, text=text, role="driver"))
        return text


def failure_text(text: str) -> str:
    """Return what an error of Spark says: the sink's own error if it is in there, else the first line."""
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1])[:_LONGEST_TEXT]
    if "exited unexpectedly" in text:
        return "Python worker exited unexpectedly"
    first = " ".join([line for line in text.splitlines() if line.strip()][:2])
    named = _SPARK_ERROR.search(first)
    return (f"{named[1]}: {first}" if named else first)[:_LONGEST_TEXT]


def end_with_java(spark: SparkSession) -> None:
    """End this process when its Java has ended: it can write nothing any more, and the next driver is to take over."""

    def watch() -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        gateway.proc.wait()  # the process that PySpark started
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Say when Spark is ready, and answer each command."""
    folder, master, answers, conf = sys.argv[1:]
    spark = start_session(master, Path(folder), **json.loads(conf))
    end_with_java(spark)
    spark.dataSource.register(ChaosSink)
    driver = Driver(spark, Path(os.environ["CHAOS_FOLDER"]))
    with os.fdopen(int(answers), "w") as stream:

        def answer(error: str | None) -> None:
            stream.write(json.dumps({"error": error}) + "\n")
            stream.flush()

        answer(None)
        threading.Thread(target=driver.warm_up, args=(Path(folder) / "warm-up",), daemon=True).start()
        for line in sys.stdin:
            try:
                driver.do(json.loads(line))
            except Exception as error:
                answer(failure_text(f"{type(error).__name__}: {error}"))
            else:
                answer(None)


if __name__ == "__main__":
    main()
