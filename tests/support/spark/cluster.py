"""A standalone Spark cluster on loopback: a master and two workers, started from the installed PySpark.

The workers have addresses of their own, because Spark runs two attempts of a task on different hosts only.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyspark
from support.services.server_process import HOST, Server, free_port
from support.services.servers import QUICK_JAVA

SPARK_HOME = Path(pyspark.__file__).parent
_WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
# For drivers and executors: a cluster for tests has to leave the machine some memory.
SETTINGS: Mapping[str, str] = {
    "spark.cores.max": "2",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA[:-1]),
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: Its address, as Spark takes it.
        folder: The workers' folders are in it; `worker-N/app-*/M` is the working directory of an executor.
    """

    master: str
    folder: Path

    def executor_logs(self) -> str:
        """Return what all executors and their Python workers have printed."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("worker-*/app-*/*/std*"))


@contextmanager
def serve_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a master and two workers with two cores each.

    Args:
        folder: For logs, and the files of executors.
        environment: What executors inherit beside this process's variables.
    """
    port, status = free_port(), free_port()
    master = f"spark://{HOST}:{port}"
    variables = {**_daemon_environment(folder), **environment}
    own = ["--host", HOST, "--port", str(port), "--webui-port", str(status)]
    with ExitStack() as running:
        is_up = partial(_has_workers, status, 0)
        running.enter_context(_daemon("master", own, folder / "master.log", variables, is_up).running())
        for number, host in enumerate(_WORKER_HOSTS, start=1):
            work = folder / f"worker-{number}"
            arguments = ["--host", host, "--cores", "2", "--memory", "1g", "--webui-port", str(free_port())]
            is_up = partial(_has_workers, status, number)
            worker = _daemon(
                "worker", [*arguments, "--work-dir", str(work), master], work / "worker.log", variables, is_up
            )
            running.enter_context(worker.running())
        yield Cluster(master=master, folder=folder)


def _daemon_environment(folder: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK_JAVA[:-1]),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=false",
    }


def _daemon(
    name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str], is_ready: Callable[[], bool]
) -> Server:
    program = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
    return Server(
        name=f"Spark's {name}",
        command=[SPARK_HOME / "bin" / "spark-class", program, *arguments],
        log=log,
        is_ready=is_ready,
        environment=environment,
    )


def _has_workers(port: int, count: int) -> bool:
    """Return whether the master answers, and knows of so many workers."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/json/", timeout=2) as answer:
            return int(json.load(answer)["aliveworkers"]) == count
    except OSError:
        return False
