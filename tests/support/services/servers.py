"""The real servers that tests write through; each function starts one and ends it with the `with` block.

`make services` puts them into `.services/`; what is missing there is made at the first start. All of them listen on
loopback alone, on ports that were free.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyspark
from support.services.server_process import HOST, Server, ServerError, accepts, free_port

TESTS = Path(__file__).resolve().parents[2]
REPOSITORY = TESTS.parent
SERVICES = REPOSITORY / ".services"
INSTALL_TIMEOUT_S = 900
ACCESS_KEY, SECRET_KEY = "tests-access-key", "tests-secret-key"
REGION = "us-east-1"
_LAST_CHARACTERS = 6000
_ADMIN_TIMEOUT_S = 30
# For a short life beside others on few cores: no second compiler, no collector threads.
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx512m")


@cache
def install_services() -> Path:
    """Make the servers unless they are there, and return their folder.

    Raises:
        ServerError: They could not be made.
    """
    return make_servers("services.py", SERVICES)


def make_servers(script: str, folder: Path) -> Path:
    """Let a script of `.ci` make the servers of a folder unless they are there, and return the folder.

    Raises:
        ServerError: They could not be made.
    """
    command = [sys.executable, str(REPOSITORY / ".ci" / script)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise ServerError(f"Cannot make the servers in {folder}:\n{error.stderr[-_LAST_CHARACTERS:]}") from error
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """A running S3 server whose buckets are folders.

    Attributes:
        endpoint: Its address.
        access_key: The owner's key.
        secret_key: The owner's secret.
        folder: The folder of its buckets.
    """

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    folder: Path

    def bucket(self, name: str) -> str:
        """Make a bucket unless it is there, and return its location."""
        (self.folder / name).mkdir(exist_ok=True)
        return f"s3://{name}"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the owner."""
        return self.properties_of(self.access_key, self.secret_key)

    def properties_of(self, access_key: str, secret_key: str) -> dict[str, str]:
        """Return PyIceberg's properties of a user."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": access_key,
            "s3.secret-access-key": secret_key,
            "s3.region": REGION,
        }

    def add_user(self, access_key: str, secret_key: str) -> dict[str, str]:
        """Add a user who may do nothing until a bucket's policy says so, and return PyIceberg's properties of it."""
        owner = ["--access", self.access_key, "--secret", self.secret_key, "--endpoint-url", self.endpoint]
        user = ["--access", access_key, "--secret", secret_key, "--role", "user"]
        command = [install_services() / "bin" / "versitygw", "admin", *owner, "create-user", *user]
        subprocess.run(command, check=True, capture_output=True, timeout=_ADMIN_TIMEOUT_S)
        return self.properties_of(access_key, secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogService:
    """A running catalog.

    Attributes:
        name: What the catalog is called.
        properties: PyIceberg's properties of it and of its store.
        peer_properties: Those of Iceberg's own Spark runtime.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)
    peer_properties: Mapping[str, str] = field(repr=False)

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to it."""
        return {"catalog": self.name, **{f"catalog.{key}": value for key, value in self.properties.items()}}

    @property
    def peer_settings(self) -> dict[str, str]:
        """Spark's settings that make it the current catalog of the peer's session."""
        prefix = f"spark.sql.catalog.{self.name}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.cache-enabled": "false",
            **{f"{prefix}.{key}": value for key, value in self.peer_properties.items()},
            "spark.sql.defaultCatalog": self.name,
        }


def peer_s3(store: ObjectStore) -> dict[str, str]:
    """Return what the Spark runtime must know of the store."""
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": store.access_key,
        "s3.secret-access-key": store.secret_key,
        "client.region": REGION,
    }


@contextmanager
def serve_objects(folder: Path) -> Iterator[ObjectStore]:
    """Serve the folders in `folder`/buckets as the buckets of an S3 server."""
    buckets, users = folder / "buckets", folder / "users"
    for path in (buckets, users):
        path.mkdir(parents=True)
    port = free_port()
    command = [install_services() / "bin" / "versitygw", "--port", f"{HOST}:{port}", "--region", REGION]
    owner = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    server = Server(
        name="The S3 server",
        command=[*command, "--iam-dir", users, "posix", buckets],
        log=folder / "server.log",
        is_ready=lambda: accepts(port),
        environment=owner,
    )
    with server.running():
        yield ObjectStore(
            endpoint=f"http://{HOST}:{port}", access_key=ACCESS_KEY, secret_key=SECRET_KEY, folder=buckets
        )


def spark_jars(pattern: str) -> list[Path]:
    """Return jars of the installed Spark."""
    return sorted((Path(pyspark.__file__).parent / "jars").glob(pattern))


def java() -> str:
    """Return the Java that Spark uses.

    Raises:
        ServerError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None:
        raise ServerError("There is no Java: set JAVA_HOME, or run the tests by make.")
    return found
