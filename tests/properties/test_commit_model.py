"""Every course that a commit can take, up to a depth: nothing is called final that may still change.

A model of a catalog with others who commit, alter, roll back, replace and expire, of a network that loses, doubles and
delays requests and of a cache that shows older states. The sink's own look at the table (`check_commit_status`) is
asked in each. Files are deleted only where it says that the write is absent for good; then no later state may refer to
them. A request is sent again only where it says that the write is absent; then the branch does not have its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import pytest
from pyiceberg.table.metadata import TableMetadata
from support.exhaustive import EXHAUSTIVE
from support.tables.metadata import OUR_SNAPSHOT, Past, identity, metadata_of

from iceberg_ds.snapshots.commit_status import Attempt, CommitStatus, Reply, StatusCheck, check_commit_status

WRITE = identity()


@dataclass(frozen=True)
class State:
    """One state of the table: what a metadata file says.

    Attributes:
        snapshots: Id, parent and sequence number of each, in the order in which they were added.
        head: The snapshot of `main`, None for none.
        version: How often the table was changed.
        holders: The snapshots that refer to the files of the write: its own, and those that build on that.
        expired_number: The highest sequence number of snapshots that have expired.
    """

    snapshots: tuple[tuple[int, int | None, int], ...]
    head: int | None
    version: int = 0
    holders: frozenset[int] = frozenset()
    expired_number: int = 0

    @property
    def last_number(self) -> int:
        """The table's last sequence number."""
        return max((self.expired_number, *(number for _, _, number in self.snapshots)))

    @property
    def has_ours(self) -> bool:
        """Whether it refers to the files of the write."""
        return any(snapshot_id in self.holders for snapshot_id, _, _ in self.snapshots)

    @property
    def shows_ours(self) -> bool:
        """Whether it has the snapshot of the write."""
        return any(snapshot_id == OUR_SNAPSHOT for snapshot_id, _, _ in self.snapshots)

    def with_snapshot(self, snapshot_id: int, parent: int | None, number: int) -> State:
        """Return the table after a commit to `main`."""
        return replace(self._with(snapshot_id, parent, number), head=snapshot_id)

    def _with(self, snapshot_id: int, parent: int | None, number: int) -> State:
        holds = snapshot_id == OUR_SNAPSHOT or parent in self.holders
        return replace(
            self,
            snapshots=(*self.snapshots, (snapshot_id, parent, number)),
            version=self.version + 1,
            holders=self.holders | {snapshot_id} if holds else self.holders,
        )

    def expired(self, *, cuts_parents: bool) -> State:
        """Return the table without all snapshots but that of `main`, as Java (keeps parents) or PyIceberg does it."""
        kept = tuple(
            (snapshot_id, None if cuts_parents else parent, number)
            for snapshot_id, parent, number in self.snapshots
            if snapshot_id == self.head
        )
        return replace(self, snapshots=kept, version=self.version + 1, expired_number=self.last_number)

    def others(self) -> Iterator[State]:
        """Yield what one commit of somebody else makes of it."""
        number = self.last_number + 1
        yield self.with_snapshot(number, self.head, number)
        yield replace(self, version=self.version + 1)  # a property
        yield self._with(number, self.head, number)  # another branch
        parents = {snapshot_id: parent for snapshot_id, parent, _ in self.snapshots}
        if self.head is not None and (parent := parents[self.head]) in parents:
            yield replace(self, head=parent, version=self.version + 1)  # rolled back
        if self.head is not None:
            yield replace(self, head=None, version=self.version + 1)  # replaced: CREATE OR REPLACE TABLE
        if len(self.snapshots) > 1 and self.head is not None:
            yield self.expired(cuts_parents=False)
            yield self.expired(cuts_parents=True)

    def accepts(self, parent: int | None, number: int) -> bool:
        """Return whether a request is carried out that asserts `parent`, as Iceberg's library checks it."""
        return self.head == parent and not self.shows_ours and (parent is None or number > self.last_number)


@dataclass(frozen=True)
class Course:
    """What has happened so far.

    Attributes:
        states: The table's states, the newest last.
        under_way: Parent and number of the requests that may arrive, once more too.
        attempts: What the sink knows of its requests: those, and what it was answered.
        before: How many of the states are older than the first one that the sink sees.
    """

    states: tuple[State, ...]
    under_way: frozenset[tuple[int | None, int]] = frozenset()
    attempts: tuple[tuple[int | None, int, Reply, bool], ...] = ()
    before: int = 0

    @property
    def was_replaced(self) -> bool:
        """Whether somebody has replaced the table since the sink saw it first."""
        seen = self.states[self.before :]
        return any(state.head is not None and later.head is None for state, later in pairwise(seen))

    @property
    def is_overtaken_first(self) -> bool:
        """Whether a request for a snapshot without a parent was overtaken.

        No number of such a snapshot tells that it is late: it is taken not to come again after a replacement.
        """
        return any(parent is None and reply is Reply.OVERTAKEN for parent, _, reply, _ in self.attempts)

    def doubles(self, before: Course) -> bool:
        """Return whether the write has landed since, on a branch that had its rows."""
        then = before.states[-1]
        return len(self.states) > len(before.states) and self.states[-1].shows_ours and then.head in then.holders

    def steps(self) -> Iterator[Course]:
        """Yield what may happen next, but for requests of the sink."""
        now = self.states[-1]
        for state in now.others():
            course = replace(self, states=(*self.states, state))
            if not (course.was_replaced and course.is_overtaken_first):
                yield course
        for parent, number in self.under_way:
            if now.accepts(parent, number):
                yield replace(self, states=(*self.states, now.with_snapshot(OUR_SNAPSHOT, parent, number)))

    def sends(self, view: State) -> Iterator[Course]:
        """Yield what may become of a request that the sink makes for the table as it sees it."""
        now, asked = self.states[-1], (view.head, view.last_number + 1)
        sent = replace(self, under_way=self.under_way | {asked})
        arrived = [sent]
        if now.accepts(*asked):
            landed = now.with_snapshot(OUR_SNAPSHOT, *asked)
            arrived.append(replace(sent, states=(*self.states, landed)))
        for course in arrived:
            is_carried_out = course is not sent
            for reply in (Reply.LOST, Reply.OVERTAKEN):
                # A gateway that sends twice answers with what became of the second one.
                if reply is Reply.LOST or is_carried_out or not now.accepts(*asked):
                    done = replace(course, attempts=(*self.attempts, (*asked, reply, not view.snapshots)))
                    if not (done.was_replaced and done.is_overtaken_first):
                        yield done


@cache
def seen(state: State) -> TableMetadata:
    """Return the metadata of a state."""
    history = [Past(snapshot_id=i, parent=p, sequence_number=n) for i, p, n in state.snapshots]
    found = metadata_of(history, branches={} if state.head is None else {"main": state.head})
    return found.model_copy(update={"last_sequence_number": state.last_number})


@cache
def look(view: State, attempts: tuple[tuple[int | None, int, Reply, bool], ...]) -> StatusCheck:
    """Return what the sink makes of the table; others have merged manifests, so that no manifest tells."""
    known = [
        Attempt(
            parent_id=parent,
            has_parent=parent is not None,
            sequence_number=number - 1,
            is_first=is_first,
            table_uuid=WRITE_UUID,
            reply=reply,
            format_version=2,
        )
        for parent, number, reply, is_first in attempts
    ]
    return check_commit_status(seen(view), WRITE, known, lambda: False)


def says_absent_for_good(view: State, attempts: tuple[tuple[int | None, int, Reply, bool], ...]) -> bool:
    """Return whether the sink would delete the files of the write."""
    finding = look(view, attempts)
    return finding.is_final and finding.status is CommitStatus.ABSENT


WRITE_UUID = seen(State((), None)).table_uuid


@cache
def may_refer_to_ours(
    now: State, under_way: frozenset[tuple[int | None, int]], depth: int, *, may_be_replaced: bool
) -> bool:
    """Return whether the table refers to the write, or may do so within `depth` steps of others and of the network."""
    if now.has_ours:
        return True
    if depth == 0:
        return False
    following = (step.states[-1] for step in Course((now,), under_way).steps())
    return any(
        may_refer_to_ours(state, under_way, depth - 1, may_be_replaced=may_be_replaced)
        for state in following
        if may_be_replaced or state.head is not None
    )


def search(course: Course, depth: int, known: set[tuple[Course, int]]) -> Iterator[Course]:
    """Yield the courses in which files are deleted that the table refers to, or may come to refer to."""
    if depth == 0 or (course, depth) in known:
        return
    known.add((course, depth))
    for view in set(course.states):  # a cache may show any
        if course.attempts and says_absent_for_good(view, course.attempts):
            may_be_replaced = not course.is_overtaken_first
            if may_refer_to_ours(course.states[-1], course.under_way, depth, may_be_replaced=may_be_replaced):
                yield course
        elif len(course.attempts) < 2 and look(view, course.attempts).status is CommitStatus.ABSENT:
            for sent in course.sends(view):
                if sent.doubles(course):
                    yield sent
                yield from search(sent, depth - 1, known)
    for step in course.steps():
        yield from search(step, depth - 1, known)


ONE_SNAPSHOT = State(((1, None, 1),), 1)
TWO_SNAPSHOTS = State(((1, None, 1), (2, 1, 2)), 2)
REPLACED = Course((ONE_SNAPSHOT, State(ONE_SNAPSHOT.snapshots, None, 1)), before=1)


@pytest.mark.parametrize(
    ("start", "depth"),
    [
        pytest.param(start, depth - less, marks=() if less else EXHAUSTIVE, id=f"{name}-{depth - less}")
        for name, start, depth in [
            ("one", Course((ONE_SNAPSHOT,)), 7),
            ("two", Course((TWO_SNAPSHOTS,)), 6),
            ("none", Course((State((), None),)), 7),
            ("replaced", REPLACED, 6),
        ]
        for less in (0, 1)
    ],
)
def test_no_file_is_deleted_that_any_later_state_refers_to(start: Course, depth: int) -> None:
    """A table would be unreadable for good: a snapshot lands, or has landed, whose files were deleted."""
    known: set[tuple[Course, int]] = set()

    broken = next(search(start, depth, known), None)

    assert broken is None
    assert len(known) > 1000  # it went somewhere


def test_write_that_nobody_disturbs_is_given_up_for_good() -> None:
    """No file would ever be deleted: every refused write would leave all of its files behind."""
    overtaken = Course((ONE_SNAPSHOT,), attempts=((1, 2, Reply.OVERTAKEN, False),))
    later = ONE_SNAPSHOT.with_snapshot(2, 1, 2)

    assert not says_absent_for_good(ONE_SNAPSHOT, overtaken.attempts)
    assert says_absent_for_good(later, overtaken.attempts)
