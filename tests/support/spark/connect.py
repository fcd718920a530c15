"""A Spark Connect server on loopback, and clients of it: programs in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.services.server_process import HOST, Server, accepts, free_port
from support.services.servers import QUICK_JAVA
from support.spark.cluster import SPARK_HOME

CLIENT_TIMEOUT_S = 500
EVENTS = "events"  # the folder of a server's event logs
_PROGRAM = Path(__file__).with_name("connect_client.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Runs programs that connect to a server.

    Attributes:
        remote: The server's address, which programs find in the environment, as `SparkSession` does.
        python: The client's interpreter.
        folder: Its working directory.
    """

    remote: str
    python: Path
    folder: Path

    def run(self, *steps: tuple[str, list[object]]) -> list[Any]:
        """Take steps of `connect_client` with their arguments in one process, and return what they return.

        Raises:
            AssertionError: One of them failed; the output is in the text.
        """
        task = self.folder / "steps.json"
        task.write_text(json.dumps(steps))
        found: list[Any] = json.loads(self.call(str(_PROGRAM), str(task)).splitlines()[-1])
        return found

    def call(self, *arguments: str) -> str:
        """Run the client's Python with arguments, and return what it prints.

        Raises:
            AssertionError: It failed; the output is in the text.
        """
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK_"))}
        ended = subprocess.run(
            [self.python, "-W", "ignore", *arguments],
            cwd=self.folder,
            env={**inherited, "SPARK_REMOTE": self.remote},
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-6000:]}"
        return ended.stdout


@contextmanager
def serve_connect(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run a server whose Python is this process's, with the sink installed, and yield its address.

    Args:
        folder: For its log and files.
        environment: Variables beside this process's.
    """
    port = free_port()
    (folder / EVENTS).mkdir()
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": HOST,
        "spark.driver.extraJavaOptions": " ".join(QUICK_JAVA[:-1]),
        "spark.driver.host": HOST,
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder / EVENTS}",
        "spark.eventLog.enabled": "true",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.ui.enabled": "false",
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server = Server(
        name="Spark Connect",
        command=[SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]", *conf, *program, "spark-internal"],
        log=folder / "server.log",
        is_ready=lambda: accepts(port),
        environment={
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": "",  # this process's hides pandas, which the worker of `foreachBatch` needs
            **environment,
        },
    )
    with server.running():
        yield f"sc://{HOST}:{port}"
