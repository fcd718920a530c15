"""The named steps of a write, at which fault tests act; without a listener a step costs one call.

Imports nothing of the package, and runs in every process: planner, tasks, committer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class FaultPoint(Enum):
    """A moment of a write at which a process may die, with what is true then."""

    PLANNED = "planner: everything is decided, the table may have been made or changed, no task runs"
    FILE_OPENED = "task: a data file is begun, and no reader sees it"
    FILE_CLOSED = "task: a data file is whole, and no message names it"
    TASK_WRITTEN = "task: all its files are whole, Spark has no message of them"
    ROWS_CHANGED = "driver: the files of a row-level operation are whole, in no table, and nothing is sent"
    COMMIT_BEGUN = "committer: all messages are there and fit"
    TABLE_LOADED = "committer: an attempt has loaded the table, and not looked at it"
    MANIFESTS_WRITTEN = "committer: an attempt has written its manifests and its manifest list"
    REQUEST_ANSWERED = "committer: the catalog has carried out the request, and nothing is tidied up"
    COMMITTED = "committer: the write is known to have landed and is tidied up; Spark does not know it"
    PUBLISHED = "committer: the branch that readers use is known to have the rows; Spark does not know it"
    SKIPPED = "committer: an earlier write had landed these rows; the new files are deleted"
    CLEANING_UP = "any: files are about to be deleted, with proof"
    TABLES_SEEN = "committer: all tables of an epoch are loaded and looked at, and no request for them is sent"
    TABLES_CREATED = "committer: the new tables of an epoch are there, without rows"
    TABLES_PREPARED = "committer: the manifests of all tables of an epoch are written, and the request is not sent"
    POINTERS_READY = "committer: the metadata files of all tables of a request are written, and no pointer has moved"
    TABLES_ANSWERED = "committer: the catalog has answered the request for all tables, and no table is looked at"
    QUARANTINED = "committer: the quarantine table has the bad rows, and the table itself does not have the good ones"
    CUT_BEGUN = "committer: all tables of an epoch have their rows, and none has the tag of the epoch's cut"
    CUT_TAGGED = "committer: one more table of an epoch has its tag, and the cut is not recorded"
    SNAPSHOTS_EXPIRED = "maintenance: the table is seen without the expired snapshots, and all of their files are there"
    ABORT_BEGUN = "committer: Spark gives the write up"


def _ignore(_: FaultPoint) -> None:
    pass


_listener: Callable[[FaultPoint], None] = _ignore


def fault_point(step: FaultPoint) -> None:
    """Tell the listener that this process has reached `step`; the listener may never return."""
    _listener(step)


def listen(listener: Callable[[FaultPoint], None] | None) -> None:
    """Let `listener` be called at every step that this process reaches; None for no listener."""
    global _listener  # noqa: PLW0603  # one for the process
    _listener = listener or _ignore
