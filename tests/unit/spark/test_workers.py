"""What Spark's workers are spared, and that no other process is touched."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iceberg_ds.spark import workers

WORKER = "pyspark.daemon"
# Two calls of a function that loads a module, with the search that Spark makes after each.
EASE = """
from iceberg_ds.spark.workers import eased
@eased
def call():
    import colorsys
for _ in range(2):
    call(); gc.collect()
"""
STATE = """
finders = [finder.archive for finder in sys.path_importer_cache.values() if isinstance(finder, zipimporter)]
print(json.dumps({"frozen": gc.get_freeze_count(), "archives": sorted({path.rpartition("/")[2] for path in finders})}))
"""


@pytest.fixture
def archives(tmp_path: Path) -> list[str]:
    """Return the paths of a Spark in archives, and of an archive of the user's."""
    names = {"pyspark": "pyspark.zip", "jvm": "spark-core_2.13-4.1.4.jar", "users": "users.zip"}
    for package, name in names.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"{package}/__init__.py", "")
            archive.writestr(f"{package}/inner/__init__.py", "")
            archive.writestr(f"{package}/inner/later.py", "value = 7")
    return [str(tmp_path / name) for name in names.values()]


def state_after(script: str, tmp_path: Path, module: str, *paths: str) -> dict[str, Any]:
    """Return what the collector and Python's imports know in a process whose main module has this name."""
    file = tmp_path / "script.py"
    imports = "import gc, json, sys, types; from zipimport import zipimporter"
    named = f"sys.modules['__main__'].__spec__ = types.SimpleNamespace(name={module!r})"
    # The package itself imports the real PySpark; the module under test needs neither.
    bare = "package = types.ModuleType('iceberg_ds'); package.__path__ = [%r]; sys.modules['iceberg_ds'] = package"
    folder = str(Path(__file__).parents[3] / "iceberg_ds")
    file.write_text("\n".join([imports, named, bare % folder, f"sys.path[:0] = {list(paths)}", script, STATE]))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_workers_do_not_search_their_modules_for_garbage(tmp_path: Path) -> None:
    """Every task would keep the next one waiting, and every micro-batch take two cores' time for nothing."""
    assert state_after(EASE, tmp_path, WORKER)["frozen"] > 1_000


def test_workers_do_not_read_sparks_archives_again_and_again(tmp_path: Path, archives: list[str]) -> None:
    """Plan, tasks and commit of every micro-batch would each begin with 100 ms of reading, on Spark below 4.2."""
    use = "import pyspark.inner, users.inner"

    assert len(state_after(use, tmp_path, WORKER, *archives)["archives"]) == 3
    assert state_after(f"{use}\n{EASE}", tmp_path, WORKER, *archives)["archives"] == ["users.zip"]


def test_modules_in_sparks_archives_can_be_imported_later(tmp_path: Path, archives: list[str]) -> None:
    """The worker would fail at whatever Spark imports when it is needed."""
    later = "import importlib; importlib.invalidate_caches(); import pyspark.inner.later as l; assert l.value == 7"

    assert state_after(f"import pyspark.inner\n{EASE}\n{later}", tmp_path, WORKER, *archives)["frozen"] > 1_000


def test_processes_of_the_user_are_left_alone(tmp_path: Path, archives: list[str]) -> None:
    """A program that plans writes itself would have its own garbage kept for ever."""
    state = state_after(f"import pyspark.inner\n{EASE}", tmp_path, "my.program", archives[0])

    assert state == {"frozen": 0, "archives": ["pyspark.zip"]}


def test_garbage_is_not_kept_and_later_garbage_is_found(tmp_path: Path) -> None:
    """Workers would grow with every task."""
    before = "import gc, weakref\nclass C: pass\na = C(); a.me = a; gone = weakref.ref(a); del a\n"
    after = "\nb = C(); b.me = b; later = weakref.ref(b); del b; call(); gc.collect()\n"
    check = "assert gone() is None and later() is None"

    assert state_after(f"{before}{EASE}{after}{check}", tmp_path, WORKER)["frozen"] > 1_000


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection that has come and gone so often that its kernel waits before it confirms."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            for _ in range(100):
                far.sendall(b"rows")
                near.sendall(near.recv(4))
                far.recv(4)
            yield near, far


def confirms_at_once(connection: socket.socket) -> bool:
    """Return whether the kernel confirms what comes in as soon as it is there."""
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def open_files() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").glob("*")))


def test_rows_are_confirmed_at_once_each_time(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task of a small micro-batch would take 40 ms longer than it needs."""
    near, far = connected
    monkeypatch.setattr(workers, "_is_spark_worker", lambda: True)

    def arriving() -> Iterator[int]:
        for number in range(3):
            assert confirms_at_once(near)
            far.sendall(b"rows")
            near.sendall(near.recv(4))
            assert not confirms_at_once(near)
            yield number

    assert not confirms_at_once(near)
    assert list(workers.acknowledging(arriving())) == [0, 1, 2]
    assert confirms_at_once(near)


def test_task_leaves_no_connection_open(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lives for many tasks could open no file any more."""
    monkeypatch.setattr(workers, "_is_spark_worker", lambda: True)
    before = open_files()

    meanwhile = [open_files() for _ in workers.acknowledging(iter(range(2)))]

    assert min(meanwhile) >= before + len(connected)
    assert open_files() == before


def test_connections_of_the_users_process_are_left_alone(connected: tuple[socket.socket, socket.socket]) -> None:
    """A program that writes itself would have its connections changed."""
    near, _ = connected

    assert list(workers.acknowledging(iter([1, 2]))) == [1, 2]
    assert not confirms_at_once(near)
