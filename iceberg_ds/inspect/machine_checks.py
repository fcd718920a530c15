"""Checks that a machine can write: it puts, gets, lists and deletes files, and has the right time and versions.

Runs on the driver and on executors, which only get storage properties. Each file has a unique name in a folder that
only this check uses, and is deleted again even if a step fails.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyiceberg.io import FileIO

from iceberg_ds._version import __version__
from iceberg_ds.error_hints import Cause, hint_for
from iceberg_ds.inspect.checklist import Check, CheckFailedError, Checklist, NotTriedError
from iceberg_ds.io.files import file_io, is_s3
from iceberg_ds.io.listing import LISTED_PLACES, can_list, list_files, store_clock_ms
from iceberg_ds.io.local_paths import is_local, local_path

PYTHON, OWN = "python", "iceberg_ds"
# The oldest supported versions, the same as in `pyproject.toml`.
MINIMUM = {PYTHON: "3.10", "pyspark": "4.0", "pyarrow": "18", "pyiceberg": "0.12"}
# How many leading parts of each version must be the same on all machines.
_SAME_PARTS = {PYTHON: 2, "pyspark": 2, "pyarrow": 0, "pyiceberg": 2, OWN: 3}
PUT, GET, LIST, DELETE = "storage: write a file", "storage: read it", "storage: list it", "storage: delete it"
SEES, LARGE, CLOCK = "storage: read the driver's file", "storage: write a large file in parts", "clock"
# Snapshots may not be older than their table by more than a minute; signed requests are refused after 5 to 15.
MAX_SKEW_S = 60.0
_CONTENT = b"written by a check of iceberg_ds, and deleted by it"
_PART_BYTES = 5 * 1024 * 1024  # the least that S3 allows
_CLOCK_STEP = "Set the clock of the machine with NTP: it must not differ from the storage's by more than a minute."
_SHARED_STEP = (
    "Use an object store, or a file system that all machines share, as warehouse: a local folder is another one on "
    "each machine."
)
_DELETE_STEP = (
    "Allow the deletion of objects (s3:DeleteObject, storage.objects.delete or the like) below the table's location; "
    "files of failed writes stay there for ever otherwise."
)
# A store that does not answer should be detected soon; settings of the user take precedence.
_QUICK_S3 = {"s3.connect-timeout": "5", "s3.request-timeout": "20", "s3.retry.num-retries": "1"}
# Shortest duration of a task in seconds: shorter tasks would all run on the executor that is ready first.
_LEAST_S = 1.5


def installed_versions() -> dict[str, str]:
    """Return the versions on this machine by name; a package that is not installed is left out."""
    found = {name: text for name in MINIMUM if name != PYTHON and (text := _version(name)) is not None}
    return {PYTHON: platform.python_version(), **found, OWN: __version__}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # shipped without pip's metadata
        try:
            return str(import_module(name).__version__)
        except (ImportError, AttributeError):
            return None


def version_problems(found: Mapping[str, str], driver: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the versions of a machine.

    Args:
        found: Versions on the machine.
        driver: Versions on the driver.
    """
    problems = []
    for name, least in MINIMUM.items():
        if name not in found:
            problems.append(f"{name} is not installed")
        elif _numbers(found[name]) < _numbers(least):
            problems.append(f"{name} is {found[name]}, and {least} or later is needed")
    for name, parts in _SAME_PARTS.items():
        here, there = found.get(name), driver.get(name)
        if here is not None and there is not None and _numbers(here)[:parts] != _numbers(there)[:parts]:
            problems.append(f"{name} is {here}, and {there} on the driver")
    return problems


def _numbers(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split("."):
        digits = "".join(character for character in part if character.isdigit())
        if not digits or not part[0].isdigit():
            break
        parts.append(int(digits))
    return tuple(parts)


def describe(versions: Mapping[str, str]) -> str:
    """Return the versions as text."""
    return ", ".join(f"{name} {text}" for name, text in versions.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place where a check tries the storage.

    Attributes:
        folder: Folder of this check, without a trailing slash.
        properties: The properties that open the storage.
        limit_s: Seconds that one step may take.
        marker: Path of a file that the driver wrote and every machine must see; None on the driver itself.
    """

    folder: str
    properties: Mapping[str, str]
    limit_s: float
    marker: str | None = None


def quick_properties(properties: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the properties with short time-outs, which soon detect a store that does not answer."""
    return {**(_QUICK_S3 if is_s3(folder) else {}), **properties}


def machine() -> str:
    """Return the name of the machine of this process."""
    return platform.node() or "localhost"


def probe_storage(place: Place, name: str, where: str) -> list[Check]:
    """Try the storage from this machine, and return the checks.

    Args:
        place: The place in the storage.
        name: Name of the files; no other machine uses it.
        where: Name of the machine in the result.
    """
    checklist = Checklist(place.properties, place.limit_s, where)
    properties = place.properties
    path = f"{place.folder}/{name}.bin"
    created = missing_folders(path)
    if (marker := place.marker) is not None:
        checklist.attempt(SEES, lambda: _see(properties, marker))
    try:
        io = checklist.attempt(PUT, lambda: _put(properties, path))
        if io is not None:
            checklist.attempt(GET, lambda: _get(io, path))
            checklist.attempt(LIST, lambda: _list(properties, place.folder, path))
            checklist.attempt(CLOCK, lambda: _clock(properties, path))
        checklist.attempt(LARGE, lambda: _put_large(properties, place.folder, f"{path}.large"), needs=[PUT])
        _delete(checklist, properties, [path, f"{path}.large"])
    finally:
        remove_folders(created)
    return checklist.checks


def _put(properties: Mapping[str, str], path: str) -> tuple[str, FileIO]:
    io = file_io(properties, path)
    with io.new_output(path).create() as stream:
        stream.write(_CONTENT)
    return f"{len(_CONTENT)} bytes in {path}", io


def write_marker(place: Place) -> tuple[str, str]:
    """Write a file that the executors must see, and return its path twice, as text and value; `clean_up` deletes it."""
    path = f"{place.folder}/driver.marker"
    _put(place.properties, path)
    return path, path


def _see(properties: Mapping[str, str], path: str) -> tuple[str, None]:
    try:
        return _get(file_io(properties, path), path)
    except FileNotFoundError:
        raise CheckFailedError(f"{path} is not there for this machine", _SHARED_STEP) from None


def _get(io: FileIO, path: str) -> tuple[str, None]:
    with io.new_input(path).open() as stream:
        content = stream.read()
    if content != _CONTENT:
        raise CheckFailedError(
            f"{path} holds {len(content)} other bytes than were written",
            "Look for a cache or a proxy between this machine and the storage.",
        )
    return "the same bytes", None


def _list(properties: Mapping[str, str], folder: str, path: str) -> tuple[str, None]:
    if not can_list(folder):
        raise NotTriedError(f"only {LISTED_PLACES} are listed; writing needs no listing")
    try:
        listed = list_files(properties, folder)
    except Exception as error:
        if hint_for(error).cause is Cause.FORBIDDEN:
            right = "the right to list is missing (s3:ListBucket, storage.objects.list or the like)"
            raise NotTriedError(f"{right}; writing does not need it") from None
        raise
    if path not in listed:
        raise CheckFailedError(
            f"{path} was written and is not listed", "Check that all machines use the same storage and settings."
        )
    return "listed", None


def _put_large(properties: Mapping[str, str], folder: str, path: str) -> tuple[str, None]:
    if is_local(folder):
        raise NotTriedError("local files are not written in parts")
    # Other stores get no size of parts: their libraries choose it.
    parts = {"s3.multipart.part-size-bytes": str(_PART_BYTES)} if is_s3(folder) else {}
    with file_io({**properties, **parts}, path).new_output(path).create() as stream:
        stream.write(bytes(_PART_BYTES))
        stream.write(_CONTENT)
    return f"{_PART_BYTES + len(_CONTENT):,} bytes", None


def _clock(properties: Mapping[str, str], path: str) -> tuple[str, None]:
    before = time.time()
    stored = _storage_time(properties, path)
    skew = skew_s(stored, before, time.time())
    if abs(skew) > MAX_SKEW_S:
        raise CheckFailedError(f"this machine's clock is {skew:+.0f} s from the storage's", _CLOCK_STEP)
    return f"{skew:+.0f} s from the storage's", None


def skew_s(other: float, before: float, after: float) -> float:
    """Return by how many seconds this clock is ahead of `other`, a clock that was read between `before` and `after`."""
    return before - other if other < before else min(after - other, 0.0)


def _storage_time(properties: Mapping[str, str], path: str) -> float:
    """Return the time that the storage's answers tell, in seconds since 1970."""
    if is_local(path):
        return local_path(path).stat().st_mtime
    if not can_list(path):
        raise NotTriedError("the clock of this storage is not asked")
    if not is_s3(path):
        return store_clock_ms(properties, path) / 1000 + 1  # the store tells whole seconds
    # Imported here, because this loads Amazon's libraries.
    from iceberg_ds.io.s3_io import s3_store  # noqa: PLC0415

    bucket, _, key = path.partition("://")[2].partition("/")
    # Not HEAD, whose error answers have no reason: the client would not learn about another region.
    answer = s3_store(properties).ask("get_object", Bucket=bucket, Key=key)
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is None:
        raise NotTriedError("the storage does not say what time it is")
    return parsedate_to_datetime(date).timestamp() + 1  # the header tells whole seconds


def _delete(checklist: Checklist, properties: Mapping[str, str], paths: list[str]) -> None:
    """Delete the files, also after a failed write: only its answer may have been lost."""
    written = checklist.passed(PUT)

    def delete() -> tuple[str, None]:
        left: list[str] = []
        for path in paths:
            with suppress(FileNotFoundError):
                file_io(properties, path).delete(path)
        with suppress(Exception):  # without the right to list, the store's answer is believed
            left = [path for path in list_files(properties, paths[0].rpartition("/")[0]) if path in paths]
        if left:
            raise CheckFailedError(f"left behind: {', '.join(left)}", _DELETE_STEP)
        return "gone", None

    if written:
        checklist.attempt(DELETE, delete)
        return
    with suppress(Exception):  # most likely there is no file, and every request fails
        delete()
    checklist.skip(DELETE, f"not tried, because '{PUT}' did not pass")


def clean_up(place: Place) -> list[str]:
    """Delete what other machines left in the check's folder, and return what could not be deleted."""
    left = []
    for path in {*_listed(place), *([place.marker] if place.marker else [])}:
        try:
            file_io(place.properties, path).delete(path)
        except FileNotFoundError:
            continue
        except Exception:  # each library below raises its own errors
            left.append(path)
    return left


def _listed(place: Place) -> list[str]:
    try:
        return list_files(place.properties, place.folder)
    except Exception:  # listing is not allowed, or the store does not answer; each machine has deleted its own files
        return []


def missing_folders(path: str) -> list[Path]:
    """Return the local folders above `path` that do not exist yet, the innermost first; none in object stores."""
    if not is_local(path):
        return []
    parents = local_path(path).parents
    return [folder for folder in parents if not folder.exists()]


def remove_folders(folders: list[Path]) -> None:
    """Remove those of the folders that are still empty: other processes may have put files into them."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106  # one call for what may be missing


def answer_of_executor(place: Mapping[str, object] | None, run: str) -> str:
    """Return what this executor found, as JSON; only one of its tasks tries the storage.

    Args:
        place: The fields of `Place`; None to try no storage.
        run: Name of this run of the check.
    """
    started = time.monotonic()
    process = _executor_process()
    answer: dict[str, object] = {"executor": f"{machine()} (process {process})", "time": time.time()}
    with _Claim(f"iceberg-ds-check-{run}-{process}") as is_first:
        if is_first:
            answer["versions"] = installed_versions()
            answer["checks"] = _storage_checks(place, f"executor-{machine()}-{process}", str(answer["executor"]))
        time.sleep(max(0.0, _LEAST_S - (time.monotonic() - started)))
    return json.dumps(answer)


def _storage_checks(place: Mapping[str, object] | None, name: str, where: str) -> list[dict[str, object]]:
    if place is None:
        return []
    return [asdict(check) for check in probe_storage(Place(**place), name, where)]  # type: ignore[arg-type]  # its own fields


def _executor_process() -> int:
    """Return the id of the executor's Java process: Python workers are children of its daemon."""
    daemon = os.getppid()
    try:
        # The fields before the parent's id are the daemon's id, its name in brackets and its state.
        return int(Path(f"/proc/{daemon}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return daemon


class _Claim:
    """Tells whether this task is the first of its executor; leaves nothing behind, even if the task is killed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> bool:
        if sys.platform != "linux":
            return True  # only Linux has socket names outside folders; elsewhere, every task tries
        try:
            self._socket.bind(f"\0{self._name}")
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._socket.close()
