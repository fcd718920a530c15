"""Iceberg's own Spark runtime beside the sink: one Spark in a process of its own, that statements are sent to.

`shared_peer` keeps it for all tests of a folder, because it takes seconds to start. `open_catalog` gives the
SQLite catalog of a test, under the name that the sink's embedded catalog has; caches are off, so that the peer
sees at once what the sink commits.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import types as spark
from support.services.readiness import is_readable
from support.spark.typed_json import decode, encode_rows

TESTS = Path(__file__).resolve().parents[2]
REPOSITORY = TESTS.parent
PEER = REPOSITORY / ".peer"
CATALOG = "default"
INSTALL_TIMEOUT_S = 900
START_TIMEOUT_S = 300
STATEMENT_TIMEOUT_S = 300
_STOP_TIMEOUT_S = 20
_LAST_CHARACTERS = 6000
_FOREIGN = ("PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV")
# For a short life on two shared cores and small tables: no second compiler, no collector threads, no code made for
# each query, few tasks.
_QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.master": "local[2]",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Amazon's services have stand-ins in tests, which take any key.
_ANY_KEY = {"AWS_ACCESS_KEY_ID": "peer", "AWS_SECRET_ACCESS_KEY": "peer", "AWS_REGION": "us-east-1"}

Row = dict[str, Any]

_numbers = itertools.count(1)


class PeerError(RuntimeError):
    """The peer refused a statement, or has died; what it said is in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a statement returned.

    Attributes:
        columns: Names of its columns.
        rows: Its rows, values in the types that Arrow's `to_pylist` has, too.
        seconds: How long Spark took.
    """

    columns: list[str]
    rows: list[list[Any]]
    seconds: float


def install_peer() -> Path:
    """Make the peer's environment unless it is there, and return its folder.

    Raises:
        PeerError: It could not be made.
    """
    command = [sys.executable, str(REPOSITORY / ".ci" / "peer_environment.py")]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise PeerError(f"Cannot make the peer's environment {PEER}:\n{error.stderr[-_LAST_CHARACTERS:]}") from error
    return PEER


class JvmPeer:
    """A running peer.

    Args:
        folder: For its log and temporary files; created if missing.
        conf: Settings of Spark beside or instead of the usual ones.
    """

    def __init__(self, folder: Path, conf: Mapping[str, str] | None = None) -> None:
        peer = install_peer()
        folder.mkdir(parents=True, exist_ok=True)
        jars = sorted(str(path) for path in (peer / "jars").glob("*.jar"))
        settings = {
            **_SETTINGS,
            "spark.driver.extraClassPath": os.pathsep.join(jars),
            "spark.local.dir": str(folder / "spark"),
            "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
            **(conf or {}),
        }
        self._log = folder / "peer.log"
        self._unread = b""
        self._names = (f"session-{number}" for number in itertools.count(1))
        python = peer / "venv" / "bin" / "python"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", "support.peer.jvm_peer_server", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=_environment(python),
                start_new_session=True,
            )
        try:
            self.version = str(self._answer(START_TIMEOUT_S)["spark"])
        except BaseException:
            self.close()
            raise

    def open_catalog(self, warehouse: Path, conf: Mapping[str, str] | None = None) -> PeerCatalog:
        """Return the embedded catalog in `warehouse` as the peer sees it; its SQLite file need not exist yet.

        Args:
            warehouse: The folder; created if missing.
            conf: Settings of its session.
        """
        warehouse.mkdir(parents=True, exist_ok=True)
        prefix = f"spark.sql.catalog.{CATALOG}"
        settings = {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
            f"{prefix}.warehouse": f"file://{warehouse}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.cache-enabled": "false",
            "spark.sql.defaultCatalog": CATALOG,
            **(conf or {}),
        }
        return self.open_session(settings)

    def open_session(self, settings: Mapping[str, str]) -> PeerCatalog:
        """Return a session of its own with settings that describe a catalog and make it the current one."""
        session = next(self._names)
        self.ask("open", session=session, conf=dict(settings))
        return PeerCatalog(peer=self, session=session)

    def ask(self, do: str, timeout_s: float = STATEMENT_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        """Have the server do something and return what it answers.

        Raises:
            PeerError: It answers with an error, does not answer in time or has died.
        """
        if self._process.stdin is None:
            raise PeerError("The peer has no standard input.")
        with suppress(BrokenPipeError):  # reading tells why
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answer(timeout_s)
        if "error" in answer:
            raise PeerError(str(answer["error"]))
        return answer

    def constants(self, name: str) -> dict[str, Any]:
        """Return the public constants of a Java class that are text, numbers or booleans, and sets of text."""
        constants: dict[str, Any] = self.ask("constants", name=name)["constants"]
        return constants

    def close(self) -> None:
        """Stop it: by the end of its input, and by force if that takes too long."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        if self._process.stdout is None:
            raise PeerError("The peer has no standard output.")
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            readable = is_readable(descriptor, deadline - time.monotonic())
            chunk = os.read(descriptor, 1 << 20) if readable else b""
            if not chunk:
                what = "has died" if readable else f"does not answer in {timeout_s} s"
                log = self._log.read_text(errors="replace")
                raise PeerError(f"The peer {what}. Its log ends with:\n{log[-_LAST_CHARACTERS:]}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment(python: Path) -> dict[str, str]:
    """Return the environment of the peer's process: nothing of our Python and Spark, and times in UTC."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {
        **inherited,
        **_ANY_KEY,
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": str(TESTS),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCatalog:
    """One catalog, in a session of its own of a running peer.

    Attributes:
        peer: The peer.
        session: The session's name.
    """

    peer: JvmPeer = field(repr=False)
    session: str

    def run(self, statement: str, timeout_s: float = STATEMENT_TIMEOUT_S) -> Answer:
        """Run a statement and return all that it answers.

        Args:
            statement: Spark SQL; the catalog is the current one, so tables are `db.t`.
            timeout_s: Seconds to wait for the answer.

        Raises:
            PeerError: It failed.
        """
        answer = self.peer.ask("sql", timeout_s, session=self.session, statement=statement)
        return Answer(columns=answer["columns"], rows=decode(answer["rows"]), seconds=answer["seconds"])

    def begin(self, statement: str) -> Callable[[], None]:
        """Let a statement run beside those that follow; return what waits for its end, with the errors of `run`."""
        name = f"statement-{next(_numbers)}"
        self.peer.ask("begin", session=self.session, statement=statement, name=name)

        def finish() -> None:
            self.peer.ask("finish", name=name)

        return finish

    def sql(self, statement: str) -> list[Row]:
        """Run a statement and return its rows by column names; errors are those of `run`."""
        answer = self.run(statement)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    def values(self, statement: str) -> list[Any]:
        """Run a statement and return its only column."""
        return [value for (value,) in self.run(statement).rows]

    def view(self, name: str, rows: Sequence[Mapping[str, Any]], schema: spark.StructType) -> None:
        """Make rows known as `name` to the statements that follow."""
        coded = encode_rows(rows, schema)
        self.peer.ask("view", session=self.session, name=name, schema=schema.jsonValue(), rows=coded)

    def append(self, table: str, rows: Sequence[Mapping[str, Any]], schema: spark.StructType) -> None:
        """Append rows to a table, columns by their names, in one file for each partition."""
        self.view("appended", rows, schema)
        self.run(f"INSERT INTO {table} BY NAME SELECT * FROM appended")  # noqa: S608  # no outside input

    def close(self) -> None:
        """Let go of the session."""
        self.peer.ask("close", session=self.session)


def sql_literal(value: Any, data_type: spark.DataType) -> str:
    """Return a value that is neither nested nor null as Spark SQL writes it, in exactly this type."""
    match data_type:
        case spark.BinaryType():
            return f"X'{value.hex()}'"
        case spark.StringType():
            return _quoted(value)
        case spark.TimestampType() | spark.TimestampNTZType() | spark.DateType():
            return f"CAST({_quoted(value.isoformat())} AS {data_type.simpleString()})"
    return f"CAST({_quoted(repr(value) if isinstance(value, float) else str(value))} AS {data_type.simpleString()})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_shared: list[JvmPeer] = []


def shared_peer() -> JvmPeer:
    """Return this process's peer, started when it is first asked for; it ends with the process, if not sooner."""
    if not _shared:
        folder = Path(tempfile.mkdtemp(prefix="iceberg-ds-peer-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _shared.append(JvmPeer(folder, _QUICK))
        atexit.register(stop_shared_peer)
    return _shared[0]


def stop_shared_peer() -> None:
    """Stop this process's peer, if there is one: it holds nearly a gigabyte."""
    while _shared:
        _shared.pop().close()
