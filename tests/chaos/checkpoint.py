"""A stream's checkpoint on disk, as far as a chaos run reads it, copies it and puts it back."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint of a stream with one source of files.

    Attributes:
        folder: Its folder; it need not exist yet.
    """

    folder: Path

    @property
    def planned(self) -> int:
        """The last epoch that was planned, -1 for none."""
        return last_number(self.folder / "offsets")

    @property
    def finished(self) -> int:
        """The last epoch that Spark knows to be finished, -1 for none."""
        return last_number(self.folder / "commits")

    @property
    def next_epoch(self) -> int:
        """The epoch that the query begins with when it is started."""
        return self.planned if self.planned > self.finished else self.finished + 1

    @property
    def portions(self) -> int:
        """How many portions of files the source has handed out."""
        return last_number(self.folder / "sources" / "0") + 1

    @property
    def is_clean(self) -> bool:
        """Whether every portion belongs to a planned epoch.

        Spark notes a portion before it plans the epoch. If it ends between the two, the epoch gets that portion and
        another one; of two drivers that go on from there, only one may have noted it, and their epochs would differ.
        """
        if self.planned < 0:
            return False
        *_, offset = (self.folder / "offsets" / str(self.planned)).read_text().splitlines()
        return bool(json.loads(offset)["logOffset"] == self.portions - 1)

    def copy_to(self, folder: Path) -> Checkpoint:
        """Return a copy in a folder, in place of what was there."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return Checkpoint(folder=folder)

    def forget_last(self) -> int:
        """Take the last epoch out of the log of finished ones; return its number."""
        last = self.finished
        for name in (str(last), f".{last}.crc"):
            (self.folder / "commits" / name).unlink(missing_ok=True)
        return last


def last_number(log: Path) -> int:
    """Return the highest number in one of Spark's logs, -1 for none."""
    names = (path.name.removesuffix(".compact") for path in log.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)
