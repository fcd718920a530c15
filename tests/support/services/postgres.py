"""A real PostgreSQL server, which is a catalog's database in some tests and the source of a change feed in others."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.services.server_process import HOST, Server, free_port
from support.services.servers import install_services

_USER, _PASSWORD = "tests", "tests-password"
# PostgreSQL refuses to be run by root.
_NOBODY = "nobody"
_INITDB_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A running PostgreSQL server on loopback.

    Attributes:
        port: Its port.
        name: The database.
        user: The owner, who may do everything.
        password: The owner's password.
    """

    port: int
    name: str = "postgres"
    user: str = _USER
    password: str = field(default=_PASSWORD, repr=False)


@contextmanager
def serve_database(folder: Path, **settings: str) -> Iterator[Database]:
    """Serve PostgreSQL.

    Args:
        folder: Where its log goes.
        settings: Settings of the server, such as `wal_level="logical"`.
    """
    port = free_port()
    with _postgres_home() as (home, user):
        _init_database(home, user)
        arguments = {
            "port": str(port),
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "fsync": "off",
            "logging_collector": "off",
            **settings,
        }
        log = folder / "server.log"
        server = Server(
            name="PostgreSQL",
            command=[
                home / "postgres" / "bin" / "postgres",
                "-D",
                home / "data",
                *(part for key, value in arguments.items() for part in ("-c", f"{key}={value}")),
            ],
            log=log,
            is_ready=lambda: "ready to accept connections" in log.read_text(errors="replace"),
            user=user,
            stop_signal="SIGQUIT",  # it would wait for its clients otherwise
        )
        with server.running():
            yield Database(port=port)


@contextmanager
def _postgres_home() -> Iterator[tuple[Path, str]]:
    """Yield a folder with PostgreSQL's programs, and the user that owns it; empty for this process's.

    The folder lies where every user may look, unlike those of the tests.
    """
    is_root = os.geteuid() == 0
    home = Path(tempfile.mkdtemp(prefix="iceberg-ds-postgres-"))
    try:
        shutil.copytree(install_services() / "postgres", home / "postgres", ignore=shutil.ignore_patterns("*.jar"))
        if is_root:
            os.chown(home, pwd.getpwnam(_NOBODY).pw_uid, -1)
        yield home, _NOBODY if is_root else ""
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _init_database(home: Path, user: str) -> None:
    password = home / "password"
    password.write_text(_PASSWORD)
    password.chmod(0o644)
    command = [home / "postgres" / "bin" / "initdb", "--pgdata", home / "data", "--pwfile", password]
    command += ["--username", _USER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-sync"]
    options = {"user": user, "extra_groups": []} if user else {}
    subprocess.run(command, check=True, capture_output=True, cwd=home, timeout=_INITDB_TIMEOUT_S, **options)
