"""Spares Spark's Python workers searches in every task, plan and commit, and each task a wait.

After each call a worker looks for garbage among all objects of all loaded modules, 120,000 of them in a task of this
sink: 60 ms, for which the next task waits. Before each call, Spark below 4.2 tells Python to look at its import folders
anew, and Python then reads the table of contents of Spark's own archives once for every package that was looked for
in them: 100 ms.

Spark sends a task's rows in several small pieces over TCP, and sends none before the one before is confirmed (Nagle's
algorithm); the worker's kernel waits up to 40 ms before it confirms a piece that gets no answer (RFC 1122, 4.2.3.2).
So tasks with few rows took 40 ms longer than they needed, unless the kernel is asked to confirm at once.

Imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar
from zipimport import zipimporter

_Batch = TypeVar("_Batch")
_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")
_LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
_DAEMON = "pyspark.daemon"
_known: int | None = None  # how many modules the call before this one found


def eased(call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let a function that Spark calls in its workers spare them both searches in the calls after it."""

    @wraps(call)
    def eased_call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if not _is_spark_worker():
            return call(*args, **kwargs)
        _set_modules_aside()
        try:
            return call(*args, **kwargs)
        finally:
            _forget_sparks_archives()

    return eased_call


def acknowledging(batches: Iterator[_Batch]) -> Iterator[_Batch]:
    """Yield the batches of a task, and have the kernel confirm at once to Spark what has arrived of them."""
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(found) for found in _local_connections()] if _is_spark_worker() else []
        _acknowledge(connections)
        for batch in batches:
            yield batch
            _acknowledge(connections)  # of what has come meanwhile; the kernel must be told each time


def _acknowledge(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):  # it is closed; its reader will be told
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _local_connections() -> Iterator[socket.socket]:
    """Yield the TCP connections of this process to its own machine, one of them Spark's, each opened once more.

    Yields none where no such list exists (only Linux has it), or no TCP (`spark.python.unix.domain.socket.enabled`).
    """
    for file in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed meanwhile, such as that of the list itself
            if file.is_socket():
                connection = socket.socket(fileno=os.dup(int(file.name)))
                if connection.type == socket.SOCK_STREAM and _peer(connection) in _LOOPBACK:
                    yield connection
                else:
                    connection.close()


def _peer(connection: socket.socket) -> str | None:
    """Return the address of the other end, or None."""
    try:
        address = connection.getpeername()
    except OSError:
        return None
    return str(address[0]) if isinstance(address, tuple) else None


def _is_spark_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON


def _forget_sparks_archives() -> None:
    """Drop what Python remembers of folders in Spark's archives, which never change; an import finds them again."""
    specs = [getattr(sys.modules.get(name), "__spec__", None) for name in ("pyspark", "py4j")]
    loaders = [spec.loader for spec in specs if spec is not None]
    archives = {loader.archive for loader in loaders if isinstance(loader, zipimporter)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and (finder.archive in archives or _is_sparks_jar(finder.archive)):
            sys.path_importer_cache.pop(path, None)


def _is_sparks_jar(archive: str) -> bool:
    """Return whether `archive` is the one that Spark has on the path of its workers, with Python code or without."""
    name = os.path.basename(archive)  # noqa: PTH119  # the archive is a str, and pathlib is not loaded here
    return name.startswith("spark-core_") and name.endswith(".jar")


def _set_modules_aside() -> None:
    """Hide all live objects from the garbage collector if the call before this one has loaded modules.

    Spark has just looked for garbage, after that call. Memory is freed as before, except for cycles among the objects
    that are alive now.
    """
    global _known
    before, _known = _known, len(sys.modules)
    if before not in (None, _known):
        gc.freeze()
