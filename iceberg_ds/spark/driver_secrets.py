"""What the planner of a batch tells its committer and no task can read, though all of them get the same pickle.

Spark pickles one writer for the tasks and for the committer, so every task holds all that the pickle holds. The
planner and the committer share the driver's disk, which executors do not see. So a secret is split in two: random bytes
in the pickle, and the secret combined with them (exclusive or: a one-time pad) in a file on the driver that its user
alone may read. Each half by itself is noise: the pickle to a task, and the file to anyone who finds it, say after a
driver was killed and could not delete it.

In local mode, and in an executor beside the driver that runs as the same user, tasks could read the file.
Imports nothing of the package but errors: tasks unpickle it.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_ds.errors import CommitMessageError, OptionError

_PREFIX = "iceberg-ds-kept-"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOnDriver:
    """Options out of reach of every task.

    Attributes:
        file: The file with one half, or None if there are no options to keep.
        pad: The other half; as long as the file.
    """

    file: str | None = None
    pad: bytes = field(default=b"", repr=False)

    @classmethod
    def keep(cls, options: Mapping[str, str]) -> KeptOnDriver:
        """Keep the options on this machine until `forget`.

        Raises:
            OptionError: The file cannot be written.
        """
        if not options:
            return cls()
        text = json.dumps(dict(options)).encode()
        pad = secrets.token_bytes(len(text))
        kept = cls()
        try:
            descriptor, file = tempfile.mkstemp(prefix=_PREFIX)  # readable and writable by this user alone
            kept = cls(file=file, pad=pad)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_combined(text, pad))
        except OSError as problem:
            kept.forget()  # part of the file may be there
            raise OptionError(
                f"Cannot write with options {_names(options)}: the driver keeps them from the tasks in a temporary "
                f"file, and cannot write one ({problem}). Set TMPDIR to a folder that the driver may write to, or "
                "configure the catalog in ~/.pyiceberg.yaml or the environment of the driver."
            ) from problem
        return kept

    def options(self) -> dict[str, str]:
        """Return the options.

        Raises:
            CommitMessageError: The file is not on this machine, or was changed.
        """
        if self.file is None:
            return {}
        try:
            kept: dict[str, str] = json.loads(_combined(Path(self.file).read_bytes(), self.pad))
        except (OSError, ValueError) as problem:
            raise CommitMessageError(
                "Cannot commit or clean up, nothing was committed and no file was deleted: the options of the catalog, "
                f"which the driver keeps from the tasks in {self.file}, cannot be read ({type(problem).__name__}). "
                "They can be read on the machine that planned the write, by its user, until the write ends. "
                "Configure the catalog in ~/.pyiceberg.yaml or the environment of the driver to do without them."
            ) from None  # the cause may quote what it could not parse
        return kept

    def forget(self) -> None:
        """Delete the file, if it is still there."""
        if self.file is not None:
            with suppress(OSError):  # without the pickle it tells nothing
                Path(self.file).unlink(missing_ok=True)


def _combined(data: bytes, pad: bytes) -> bytes:
    """Return the exclusive or of data and pad.

    Raises:
        ValueError: They differ in length.
    """
    if len(data) != len(pad):
        raise ValueError(f"{len(data)} and {len(pad)} bytes")
    return (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(data), "big")


def _names(options: Mapping[str, str]) -> str:
    return ", ".join(sorted(options))
