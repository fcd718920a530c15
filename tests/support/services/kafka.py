"""A real Kafka broker, and Kafka Connect with Debezium's connector; `make recipes` fetches them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

from support.services.server_process import HOST, Server, ServerError, free_port
from support.services.servers import QUICK_JAVA, REPOSITORY, java, make_servers
from support.spark.process import wait_until

RECIPE_SERVICES = REPOSITORY / ".recipes" / "services"
PARTITIONS = 3
_TOOL_TIMEOUT_S = 120
_CLUSTER_ID = "aWNlYmVyZy1kcy10ZXN0cw"  # 16 bytes, in Base64
_LAST_CHARACTERS = 6000


@cache
def install_recipe_services() -> Path:
    """Make what the recipes need unless it is there, and return its folder.

    Raises:
        ServerError: It could not be made.
    """
    return make_servers("recipe_services.py", RECIPE_SERVICES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A running Kafka broker.

    Attributes:
        broker: Its host and port.
    """

    broker: str

    def create_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        """Create a topic."""
        arguments = ["--bootstrap-server", self.broker, "--create", "--topic", name, "--partitions", str(partitions)]
        _run_tool("org.apache.kafka.tools.TopicCommand", *arguments)


@contextmanager
def serve_kafka(folder: Path) -> Iterator[Kafka]:
    """Serve a Kafka broker that is its own controller."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(folder / "logs"),
        "num.partitions": str(PARTITIONS),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    settings = folder / "server.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    _run_tool("kafka.tools.StorageTool", "format", "--cluster-id", _CLUSTER_ID, "--config", settings)
    log = folder / "server.log"
    server = Server(
        name="Kafka",
        command=_java("kafka", "kafka.Kafka", settings),
        log=log,
        is_ready=lambda: "Kafka Server started" in log.read_text(errors="replace"),
    )
    with server.running():
        yield Kafka(broker=f"{HOST}:{port}")


@contextmanager
def serve_connect(folder: Path, worker: Path, connector: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run Kafka Connect with one connector, which has begun to read its source when the block begins.

    Args:
        folder: Where the log goes, and what the worker writes to its working directory.
        worker: Properties of the worker.
        connector: Properties of the connector.
        environment: Variables that the properties name.
    """
    log = folder / "connect.log"
    server = Server(
        name="Kafka Connect",
        command=_java("debezium", "org.apache.kafka.connect.cli.ConnectStandalone", worker, connector),
        log=log,
        is_ready=lambda: "Snapshot ended with" in log.read_text(errors="replace"),
        environment=environment,
        stop_signal="SIGKILL",  # as a machine's failure would end it
    )
    with server.running():
        yield


@contextmanager
def serve_connect_cluster(
    folder: Path, worker: Path, environment: Mapping[str, str], connector: Path | None = None
) -> Iterator[None]:
    """Run the one worker of a Kafka Connect cluster, which reads its source when the block begins.

    Args:
        folder: Where the log goes, and what the worker writes to its working directory.
        worker: Properties of the worker.
        environment: Variables that the properties name; CONNECT_PORT is the port of the worker's REST API.
        connector: The connector that the cluster gets; None if it has it from an earlier worker.
    """
    log = folder / "connect.log"
    server = Server(
        name="Kafka Connect",
        command=_java("debezium", "org.apache.kafka.connect.cli.ConnectDistributed", worker),
        log=log,
        is_ready=lambda: "Finished starting connectors and tasks" in log.read_text(errors="replace"),
        environment=environment,
        stop_signal="SIGKILL",  # as a machine's failure would end it
    )
    with server.running():
        if connector is not None:
            address = f"http://{HOST}:{environment['CONNECT_PORT']}/connectors/shop/config"
            headers = {"Content-Type": "application/json"}
            request = Request(address, connector.read_bytes(), headers, method="PUT")
            urlopen(request, timeout=_TOOL_TIMEOUT_S).close()  # noqa: S310  # http
        wait_until(lambda: "Snapshot ended with" in log.read_text(errors="replace"), "Debezium reads the log")
        yield


def _java(jars: str, program: str, *arguments: str | Path) -> list[str | Path]:
    """Return the command that runs a program of the jars in one folder."""
    return [java(), *QUICK_JAVA, "-cp", f"{install_recipe_services() / jars}{os.sep}*", program, *arguments]


def _run_tool(program: str, *arguments: str | Path) -> None:
    """Run one of Kafka's own tools.

    Raises:
        ServerError: It failed.
    """
    command = _java("kafka", program, *arguments)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S)
    if done.returncode:
        raise ServerError(f"{program} failed:\n{(done.stdout + done.stderr)[-_LAST_CHARACTERS:]}")
