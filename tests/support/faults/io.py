"""A file system that fails on demand: local files through PyIceberg's `py-io-impl`, in this process.

`strike` says what happens to the nth opening, writing, closing, reading or deleting of a kind of file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyiceberg.io import InputFile, OutputFile

from iceberg_ds.io.local_io import LocalFileIO

FAULTY_IO = f"{__name__}.FaultyFileIO"


class FileKind(Enum):
    """The files of a table, by their names."""

    DATA = r".*\.(parquet|puffin)"
    MANIFEST = r".*-(m|d|f|r)[\d-]*[^/]*\.avro"
    MANIFEST_LIST = r".*/snap-[^/]*\.avro"
    METADATA = r".*\.metadata\.json"

    def has(self, path: str) -> bool:
        """Return whether the file is of this kind."""
        if self is FileKind.MANIFEST and FileKind.MANIFEST_LIST.has(path):
            return False
        return re.fullmatch(self.value, path) is not None


class Doing(Enum):
    """What is done to a file."""

    OPEN = "opening"
    WRITE = "writing"
    CLOSE = "closing"
    READ = "reading"
    DELETE = "deleting"


class Harm(Enum):
    """What happens then."""

    FAIL = "fails"
    FAIL_LATE = "fails after it was done"
    STALL = "times out"
    TRUNCATE = "fails half-way"
    TRUNCATE_SILENTLY = "leaves half of it, without an error"


# Silent truncation of what no size is recorded for before the commit cannot be seen by any writer.
HARMS: dict[Doing, tuple[Harm, ...]] = {
    Doing.OPEN: (Harm.FAIL, Harm.STALL),
    Doing.WRITE: (Harm.FAIL, Harm.STALL, Harm.TRUNCATE),
    Doing.CLOSE: (Harm.FAIL_LATE, Harm.STALL, Harm.TRUNCATE, Harm.TRUNCATE_SILENTLY),
    Doing.READ: (Harm.FAIL, Harm.STALL),
    Doing.DELETE: (Harm.FAIL, Harm.FAIL_LATE, Harm.STALL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFault:
    """A fault of the file system.

    Attributes:
        file: Of which files.
        doing: What fails.
        harm: How.
        numbers: Which of them, from 1; None for all.
    """

    file: FileKind
    doing: Doing
    harm: Harm
    numbers: frozenset[int] | None = None

    def __str__(self) -> str:
        which = "each" if self.numbers is None else ", ".join(map(str, sorted(self.numbers)))
        return f"{self.doing.value} {self.file.name.lower()} {which} {self.harm.value}"

    @property
    def error(self) -> OSError:
        """What is raised."""
        text = f"planned fault: {self}"
        return TimeoutError(text) if self.harm is Harm.STALL else OSError(text)


@dataclass(slots=True)
class Damage:
    """The fault that is in force, and what it did."""

    fault: FileFault | None = None
    seen: Counter[Doing] = field(default_factory=Counter)
    struck: int = 0
    done: set[tuple[FileKind, Doing]] = field(default_factory=set)

    def harm(self, path: str, doing: Doing) -> FileFault | None:
        """Take note of what is done to a file; return the fault if it strikes."""
        fault = self.fault
        self.done |= {(kind, doing) for kind in FileKind if kind.has(path)}
        if fault is None or doing is not fault.doing or not fault.file.has(path):
            return None
        self.seen[doing] += 1
        if fault.numbers is not None and self.seen[doing] not in fault.numbers:
            return None
        self.struck += 1
        return fault


_damage = Damage()


@contextmanager
def strike(fault: FileFault | None) -> Iterator[Damage]:
    """Let the files of this process's `FaultyFileIO` suffer a fault, None for none; yield what was done to them."""
    global _damage  # noqa: PLW0603  # one for the process, as a disk is
    before, _damage = _damage, Damage(fault)
    try:
        yield _damage
    finally:
        _damage = before


def _done(path: str, doing: Doing, call: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
    """Do something to a file, or let it suffer."""
    fault = _damage.harm(path, doing)
    if fault is None:
        return call()
    if fault.harm in {Harm.TRUNCATE, Harm.TRUNCATE_SILENTLY} and half is not None:
        result = half()
        if fault.harm is Harm.TRUNCATE_SILENTLY:
            return result
    if fault.harm is Harm.FAIL_LATE:
        call()
    raise fault.error


class _Stream:
    """An output stream that suffers."""

    def __init__(self, inner: Any, path: str) -> None:
        self._inner = inner
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, data: Any) -> int:
        """Write."""
        text = bytes(data)
        return int(
            _done(
                self._path,
                Doing.WRITE,
                lambda: self._inner.write(text),
                lambda: self._inner.write(text[: len(text) // 2]),
            )
            or len(text)
        )

    def close(self) -> None:
        """Close."""
        if not self._inner.closed:
            try:
                _done(self._path, Doing.CLOSE, self._inner.close, self._close_half)
            finally:
                self._inner.close()

    def _close_half(self) -> None:
        size = self._inner.tell()
        self._inner.close()
        with open(re.sub("^file:(//)?", "", self._path), "r+b") as file:  # noqa: PTH123
            file.truncate(size // 2)

    def __enter__(self) -> _Stream:  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Output(OutputFile):
    """An output file that suffers."""

    def __init__(self, inner: OutputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        """Return whether it is there."""
        return self._inner.exists()

    def to_input_file(self) -> InputFile:
        """Return the same file, to be read."""
        return self._inner.to_input_file()

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002  # the interface's
        """Open it for writing."""
        opened = _done(self.location, Doing.OPEN, lambda: self._inner.create(overwrite=overwrite))
        return _Stream(opened, self.location)


class _Input(InputFile):
    """An input file that suffers."""

    def __init__(self, inner: InputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        """Return whether it is there."""
        return self._inner.exists()

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002  # the interface's
        """Open it for reading."""
        return _done(self.location, Doing.READ, lambda: self._inner.open(seekable=seekable))


class FaultyFileIO(LocalFileIO):
    """The FileIO of local disks, whose files suffer what `strike` says."""

    def new_input(self, location: str) -> Any:
        """Return the file, to be read."""
        return _Input(super().new_input(location))

    def new_output(self, location: str) -> Any:
        """Return the file, to be written."""
        return _Output(super().new_output(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file."""
        path = location if isinstance(location, str) else location.location
        _done(path, Doing.DELETE, lambda: super(FaultyFileIO, self).delete(path))
