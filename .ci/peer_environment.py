"""Make `.peer/`: an environment with Iceberg's own Spark runtime, which tests and benchmarks hold the sink against.

It has an interpreter, a Spark and jars of its own, pinned here: the runtime exists for other versions of Spark
than those that the sink is developed with. Spark's own resolver fetches the jars, once. Does nothing if the
folder is as it should be; processes that want it at the same time wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

PACKAGES = ("pyspark==4.1.4", "py4j==0.10.9.9")
JARS = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.49.1.0")
FOLDER = Path(__file__).resolve().parents[1] / ".peer"
# What would lead the peer's Python, pip or Spark to something that is not the peer's.
_FOREIGN = ("PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_TARGET")
# Spark resolves `spark.jars.packages` when a session starts; that the session starts is a test of the jars, too.
_FETCH = """
import sys
from pyspark.sql import SparkSession

packages, ivy, catalog = sys.argv[1:]
settings = {
    "spark.jars.packages": packages,
    "spark.jars.ivy": ivy,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.peer.type": "jdbc",
    "spark.sql.catalog.peer.uri": f"jdbc:sqlite:{catalog}/catalog.db",
    "spark.sql.catalog.peer.warehouse": catalog,
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sql("SHOW NAMESPACES IN peer").collect()
spark.stop()
"""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what is meant for another Python or Spark."""
    return {name: value for name, value in environment.items() if not name.startswith(_FOREIGN)}


def wanted() -> dict[str, object]:
    """Return what a finished folder says of itself."""
    return {
        "folder": str(FOLDER),
        "interpreter": f"{sys.base_prefix} {sys.version}",
        "packages": list(PACKAGES),
        "jars": list(JARS),
    }


def is_ready() -> bool:
    """Return whether the folder is finished, and of this interpreter and these versions."""
    try:
        return bool(json.loads((FOLDER / "ready.json").read_text()) == wanted())
    except (OSError, ValueError):
        return False


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process makes the folder; the system lets go of a killed one's lock."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path, **environment: str) -> None:
    """Run a command, and show what it printed only if it fails."""
    inherited = clean_environment(os.environ)
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, **environment},
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"Cannot make {FOLDER}: {command[0]} failed, see above.")


def _fetch_jars(python: Path, work: Path) -> None:
    """Fetch the jars into `ivy/jars` below `work`."""
    fetch = (python, "-c", _FETCH, ",".join(JARS), work / "ivy", work)
    try:
        _run(*fetch)
    except SystemExit:
        # A Java that came in a wheel does not know the authorities that this machine's owner trusts.
        print("Once more, with the certificate authorities that Python trusts.", file=sys.stderr)
        store = work / "authorities.jks"
        store.write_bytes(java_key_store(trusted_authorities()))
        options = f"-Djavax.net.ssl.trustStoreType=jks -Djavax.net.ssl.trustStore={shlex.quote(str(store))}"
        _run(*fetch, JDK_JAVA_OPTIONS=f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {options}".strip())


def trusted_authorities() -> list[bytes]:
    """Return the certificates of the authorities that Python and pip trust on this machine."""
    context = ssl.create_default_context()
    known = ssl.get_default_verify_paths()
    files = [Path(os.environ[name]) for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE") if os.environ.get(name)]
    if known.capath is not None:
        files += Path(known.capath).iterdir()
    for path in files:
        with suppress(OSError, ssl.SSLError):  # a folder, or a file of another kind
            context.load_verify_locations(cafile=path)
    return context.get_ca_certs(binary_form=True)


def java_key_store(certificates: list[bytes]) -> bytes:
    """Return a trust store in Java's oldest format, JKS, which every Java reads and which needs no tool to write."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    trusted, version = 2, 2
    parts = [struct.pack(">III", 0xFEEDFEED, version, len(certificates))]
    for number, certificate in enumerate(certificates):
        head = struct.pack(">I", trusted) + text(f"authority-{number}") + struct.pack(">Q", int(time.time() * 1000))
        parts.append(head + text("X.509") + struct.pack(">I", len(certificate)) + certificate)
    content = b"".join(parts)
    salted = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + content
    return content + hashlib.sha1(salted, usedforsecurity=False).digest()


def make() -> None:
    """Make the folder's contents anew."""
    for name in ("venv", "jars", "work"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    work = FOLDER / "work"
    work.mkdir()
    python = FOLDER / "venv" / "bin" / "python"
    _run(sys.executable, "-m", "venv", FOLDER / "venv")
    _run(python, "-m", "pip", "install", "--quiet", *PACKAGES)
    _fetch_jars(python, work)
    (work / "ivy" / "jars").rename(FOLDER / "jars")
    shutil.rmtree(work)
    stamp = FOLDER / "ready.json.new"
    stamp.write_text(json.dumps(wanted(), indent=1))
    stamp.replace(FOLDER / "ready.json")


def main() -> None:
    """Make the folder unless it is there."""
    with _alone():
        if not is_ready():
            (FOLDER / "ready.json").unlink(missing_ok=True)
            make()
        (FOLDER / "ready.json").touch()  # newer than this file, for make


if __name__ == "__main__":
    main()
