"""What the scripts that make a git-ignored folder of tools share: one maker at a time, quiet commands, a stamp.

A folder is finished when its `ready.json` says exactly what is wanted; any other state is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

STAMP = "ready.json"
# What would lead another environment's Python, pip or Spark to something that is not its own.
_FOREIGN = ("PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_TARGET")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what is meant for another Python or Spark."""
    return {name: value for name, value in environment.items() if not name.startswith(_FOREIGN)}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process makes the folder; the system lets go of a killed one's lock."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_finished(folder: Path, wanted: Mapping[str, object]) -> bool:
    """Return whether the folder's stamp says what is wanted."""
    try:
        return bool(json.loads((folder / STAMP).read_text()) == wanted)
    except (OSError, ValueError):
        return False


def finish(folder: Path, wanted: Mapping[str, object]) -> None:
    """Put the stamp into the folder."""
    stamp = folder / f"{STAMP}.new"
    stamp.write_text(json.dumps(wanted, indent=1))
    stamp.replace(folder / STAMP)


def run(folder: Path, *command: str | Path, **environment: str) -> None:
    """Run a command that helps to make `folder`, and show what it printed only if it fails.

    Args:
        folder: Named in the error.
        command: The command.
        environment: Variables beside those of this process.

    Raises:
        SystemExit: The command failed.
    """
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**clean_environment(os.environ), **environment},
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"Cannot make {folder}: {command[0]} failed, see above.")


def run_java(folder: Path, *command: str | Path) -> None:
    """Run a command that downloads through Java; as `run`, and twice if it must be.

    A Java that came in a wheel does not know the authorities that this machine's owner trusts: the second
    attempt is given those that Python trusts.
    """
    try:
        run(folder, *command)
    except SystemExit:
        print("Once more, with the certificate authorities that Python trusts.", file=sys.stderr)
        store = folder / "authorities.jks"
        store.write_bytes(java_key_store(trusted_authorities()))
        options = f"-Djavax.net.ssl.trustStoreType=jks -Djavax.net.ssl.trustStore={shlex.quote(str(store))}"
        run(folder, *command, JDK_JAVA_OPTIONS=f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {options}".strip())


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
