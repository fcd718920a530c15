"""Make `.services/`: the real servers that tests start, built or fetched once, in pinned versions.

Servers of S3 and of Google Cloud Storage (Go builds them), one of Azure's blobs (npm fetches it), Iceberg's REST
reference server, Nessie and PostgreSQL (Maven fetches them). Nessie needs Java 21 or newer, Azure's server Node.js:
those of this machine, else those of wheels. The stamp `ready.json` tells the tests where it is. Does nothing if the
folder is as it should be; processes that want it at the same time wait for each other.
"""

from __future__ import annotations

import os
import platform
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from find_java import install_java, major_version
from find_node import LOWEST_NODE, find_node
from find_node import major_version as node_version
from installing import STAMP, alone, finish, is_finished, run
from maven import fetch_jars

FOLDER = Path(__file__).resolve().parents[1] / ".services"
GO = ("github.com/versity/versitygw/cmd/versitygw@v1.8.0", "github.com/fsouza/fake-gcs-server@v1.56.1")
NPM = "azurite@3.37.0"
# Both Maven's and Java's names of a processor differ from those that Python has.
_PROCESSOR = {"aarch64": "arm64v8", "arm64": "arm64v8"}.get(platform.machine(), "amd64")
_SYSTEM = platform.system().lower()
# What Maven fetches into the folder of a server: group:artifact:version, and a classifier where there is one.
MAVEN = {
    "rest": (
        "org.apache.iceberg:iceberg-open-api:1.11.0:test-fixtures",
        "org.apache.iceberg:iceberg-core:1.11.0",
        "org.apache.iceberg:iceberg-core:1.11.0:tests",
        "org.apache.iceberg:iceberg-aws:1.11.0",
        "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
        "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.5",
        "org.eclipse.jetty.compression:jetty-compression-server:12.1.5",
        "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.5",
        "org.xerial:sqlite-jdbc:3.49.1.0",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
    "nessie": ("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner",),
    "postgres": (f"io.zonky.test.postgres:embedded-postgres-binaries-{_SYSTEM}-{_PROCESSOR}:17.5.0",),
}
# These jars hold all that they need.
_ALONE = ("nessie", "postgres")
LOWEST_JAVA = 21


def wanted() -> dict[str, object]:
    """Return what a finished folder says of itself."""
    return {"go": list(GO), "npm": NPM, "maven": {name: list(jars) for name, jars in MAVEN.items()}}


def make() -> None:
    """Make the folder's contents anew.

    Raises:
        SystemExit: A tool is missing, or failed.
    """
    _check_tools()
    for name in ("bin", "azurite", *MAVEN):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / "bin").mkdir()
    with ThreadPoolExecutor() as beside:  # Go computes, the others wait for the network
        fetched = [beside.submit(_fetch_jars), beside.submit(_fetch_azurite)]
        for server in GO:
            run(FOLDER, "go", "install", "-trimpath", "-ldflags=-s -w", server, GOBIN=str(FOLDER / "bin"))
        for done in fetched:
            done.result()


def _check_tools() -> None:
    needed = {"go": "Go 1.24 or newer", "mvn": "Maven 3.6 or newer"}
    missing = [text for name, text in needed.items() if shutil.which(name) is None]
    if missing:
        raise SystemExit(
            f"Cannot make {FOLDER}: {' and '.join(missing)} must be on the PATH. Install them with this system's "
            "package manager (the packages are often called golang and maven) and run this again."
        )


def _fetch_jars() -> None:
    for name, jars in MAVEN.items():
        fetch_jars(FOLDER / name, jars, is_alone=name in _ALONE)
    _unpack_postgres()
    _link_java()


def _unpack_postgres() -> None:
    """Unpack PostgreSQL from the archive in its jar; any user may run it, for it refuses to be run by root."""
    folder = FOLDER / "postgres"
    (jar,) = folder.glob("embedded-postgres-binaries-*.jar")
    with zipfile.ZipFile(jar) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(name) as archive, tarfile.open(fileobj=archive, mode="r:xz") as inner:
            inner.extractall(folder, filter="data")
    for path in (FOLDER, folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


def _fetch_azurite() -> None:
    """Fetch Azure's server, and put what starts it at `bin/azurite-blob`; no package may run a program of its own."""
    folder = FOLDER / "azurite"
    folder.mkdir()
    node, npm = find_node()
    quietly = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    run(FOLDER, *npm, "install", "--prefix", folder, "--ignore-scripts", "--omit=optional", *quietly, NPM)
    _put_script("node", f'exec "{node}" "$@"')
    program = "azurite/node_modules/azurite/dist/src/blob/main.js"
    _put_script("azurite-blob", f'folder="$(dirname "$0")"\nexec "$folder/node" "$folder/../{program}" "$@"')


def _put_script(name: str, lines: str) -> None:
    script = FOLDER / "bin" / name
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o755)


def _javas() -> Iterator[Path]:
    """Return the Java executables of this machine that are easily found."""
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"], "bin", "java")
    if found := shutil.which("java"):
        yield Path(found)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def _link_java() -> None:
    """Put a Java that is new enough at `bin/java`."""
    new_enough = (java for java in _javas() if major_version(str(java)) >= LOWEST_JAVA)
    java = next(new_enough, None) or install_java() / "bin" / "java"
    _put_script("java", f'exec "{java}" "$@"')


def _is_usable() -> bool:
    """Return whether the folder is finished, and its Java and its Node.js still run."""
    if not is_finished(FOLDER, wanted()):
        return False
    java, node = FOLDER / "bin" / "java", FOLDER / "bin" / "node"
    return major_version(str(java)) >= LOWEST_JAVA and node_version(node) >= LOWEST_NODE


def main() -> None:
    """Make the folder unless it is there."""
    with alone(FOLDER):
        if not _is_usable():
            (FOLDER / STAMP).unlink(missing_ok=True)
            make()
            finish(FOLDER, wanted())
        (FOLDER / STAMP).touch()  # newer than this file, for make


if __name__ == "__main__":
    main()
