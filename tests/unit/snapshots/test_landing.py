"""What a freshly loaded table says of a write: a table of situations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from support.metadata import OUR_SNAPSHOT, START_MS, Past, identity, line, metadata_of
from support.tables import QUERY

from iceberg_ds.plan import EpochId
from iceberg_ds.snapshots.epochs import EpochMark, property_mark, summary_mark
from iceberg_ds.snapshots.landing import Attempt, Landing, find_landing

OURS = OUR_SNAPSHOT
HEAD = 2


def refused(parent_id: int | None) -> Attempt:
    """Return an attempt that the catalog says it did not carry out."""
    return Attempt(parent_id=parent_id, was_refused=True)


def lost(parent_id: int | None) -> Attempt:
    """Return an attempt whose answer was lost."""
    return Attempt(parent_id=parent_id, was_refused=False)


def epoch_summary(number: int, run_id: str | None = None) -> dict[str, str]:
    """Return the summary of a snapshot of our query."""
    return summary_mark(EpochId(query_id=QUERY, epoch_id=number, run_id=run_id))


def recorded(number: int, snapshot_id: int, run_id: str | None = None) -> dict[str, str]:
    """Return the property that records an epoch of our query."""
    mark = EpochMark(epoch_id=number, snapshot_id=snapshot_id, timestamp_ms=START_MS, run_id=run_id)
    return property_mark("main", QUERY, mark)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the table shows, what was tried before, and what has to follow.

    Attributes:
        history: Snapshots of the table, the last one the head of `main`.
        properties: Its properties.
        attempts: What was sent before.
        lists_our_manifest: The branch's newest snapshot lists a manifest of ours.
        landing: What has to be found.
        is_final: Whether nothing can change it any more.
    """

    history: list[Past]
    properties: dict[str, str] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    lists_our_manifest: bool = False
    landing: Landing
    is_final: bool


BATCH = {
    "nothing sent yet": Situation(history=line(1, HEAD), landing=Landing.ABSENT, is_final=True),
    "nothing sent yet, empty table": Situation(history=[], landing=Landing.ABSENT, is_final=True),
    "our snapshot is the head": Situation(
        history=line(1, HEAD, OURS), attempts=(lost(HEAD),), landing=Landing.LANDED, is_final=True
    ),
    "our snapshot is further back": Situation(
        history=line(1, HEAD, OURS, 4, 5), attempts=(lost(HEAD),), landing=Landing.LANDED, is_final=True
    ),
    "refusal was a lie": Situation(
        history=line(1, HEAD, OURS), attempts=(refused(HEAD),), landing=Landing.LANDED, is_final=True
    ),
    "our snapshot was rolled back and is still there": Situation(
        history=[*line(1, HEAD, OURS), Past(snapshot_id=9, parent=HEAD)],
        attempts=(lost(HEAD),),
        landing=Landing.LANDED,
        is_final=True,
    ),
    "refused, branch moved": Situation(
        history=line(1, HEAD, 3), attempts=(refused(HEAD),), landing=Landing.ABSENT, is_final=True
    ),
    "refused, branch did not move": Situation(
        history=line(1, HEAD), attempts=(refused(HEAD),), landing=Landing.ABSENT, is_final=True
    ),
    "lost, branch did not move: it may still arrive": Situation(
        history=line(1, HEAD), attempts=(lost(HEAD),), landing=Landing.ABSENT, is_final=False
    ),
    "lost, branch moved: it can no longer arrive": Situation(
        history=line(1, HEAD, 3), attempts=(lost(HEAD),), landing=Landing.ABSENT, is_final=True
    ),
    "lost twice, one of them may still arrive": Situation(
        history=line(1, HEAD, 3), attempts=(lost(HEAD), lost(3)), landing=Landing.ABSENT, is_final=False
    ),
    "lost into an empty table that is still empty": Situation(
        history=[], attempts=(lost(None),), landing=Landing.ABSENT, is_final=False
    ),
    "refused by an empty table that is still empty": Situation(
        history=[], attempts=(refused(None),), landing=Landing.ABSENT, is_final=True
    ),
    "lost, then the parent expired: it may have landed and expired": Situation(
        history=[Past(snapshot_id=8, parent=7)], attempts=(lost(HEAD),), landing=Landing.UNDECIDED, is_final=True
    ),
    "lost, then the parent expired, and our manifest is listed": Situation(
        history=[Past(snapshot_id=8, parent=7)],
        attempts=(lost(HEAD),),
        lists_our_manifest=True,
        landing=Landing.LANDED,
        is_final=True,
    ),
    "refused, then the parent expired": Situation(
        history=[Past(snapshot_id=8, parent=7)], attempts=(refused(HEAD),), landing=Landing.ABSENT, is_final=True
    ),
    "refused although it landed, then the parent expired, and our manifest is listed": Situation(
        history=[Past(snapshot_id=8, parent=7)],
        attempts=(refused(HEAD),),
        lists_our_manifest=True,
        landing=Landing.LANDED,
        is_final=True,
    ),
    "lost and refused, then the parents expired": Situation(
        history=[Past(snapshot_id=8, parent=7)],
        attempts=(lost(HEAD), refused(3)),
        landing=Landing.UNDECIDED,
        is_final=True,
    ),
    "lost into an empty table that others fill": Situation(
        history=[Past(snapshot_id=8, parent=7)], attempts=(lost(None),), landing=Landing.UNDECIDED, is_final=True
    ),
}

STREAM = {
    "first epoch of the query": Situation(history=line(1, HEAD), landing=Landing.ABSENT, is_final=True),
    "the epoch before is the last": Situation(
        history=line(1, HEAD, s2=epoch_summary(4)),
        properties=recorded(4, HEAD),
        landing=Landing.ABSENT,
        is_final=True,
    ),
    "an epoch far before is the last": Situation(
        history=line(1, HEAD), properties=recorded(0, 99), landing=Landing.ABSENT, is_final=True
    ),
    "an earlier run landed this epoch": Situation(
        history=line(1, HEAD, s2=epoch_summary(5)),
        properties=recorded(5, HEAD),
        landing=Landing.REPLAYED,
        is_final=True,
    ),
    "an earlier run landed this epoch, and it expired": Situation(
        history=line(8, 9), properties=recorded(5, HEAD), landing=Landing.REPLAYED, is_final=True
    ),
    "the JVM sink landed this epoch": Situation(
        history=line(1, HEAD, 3, s2=epoch_summary(5)),
        properties=recorded(4, 1),
        landing=Landing.REPLAYED,
        is_final=True,
    ),
    "an earlier run landed this epoch, and a later start of it committed nothing yet": Situation(
        history=line(1, HEAD, s2=epoch_summary(5, "run A")),
        properties=recorded(5, HEAD, "run A"),
        landing=Landing.REPLAYED,
        is_final=True,
    ),
    "another run landed this epoch while ours is alive": Situation(
        history=line(1, HEAD, s1=epoch_summary(4, "our run"), s2=epoch_summary(5, "run A")),
        properties=recorded(5, HEAD, "run A"),
        landing=Landing.FENCED,
        is_final=True,
    ),
    "another driver landed this epoch while we tried": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(5)),
        properties=recorded(5, 3),
        attempts=(refused(HEAD),),
        landing=Landing.FENCED,
        is_final=True,
    ),
    "another driver landed this epoch after our answer was lost": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(5)),
        properties=recorded(5, 3),
        attempts=(lost(HEAD),),
        landing=Landing.FENCED,
        is_final=True,
    ),
    "we landed it": Situation(
        history=line(1, HEAD, OURS, s777=epoch_summary(5)),
        properties=recorded(5, OURS),
        attempts=(lost(HEAD),),
        landing=Landing.LANDED,
        is_final=True,
    ),
    "we landed it, and it expired": Situation(
        history=line(8, 9), properties=recorded(5, OURS), attempts=(lost(HEAD),), landing=Landing.LANDED, is_final=True
    ),
    "a later epoch landed before we tried": Situation(
        history=line(1, HEAD, s2=epoch_summary(6)),
        properties=recorded(6, HEAD),
        landing=Landing.SURPASSED,
        is_final=True,
    ),
    "a later epoch landed while we were refused": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(6)),
        properties=recorded(6, 3),
        attempts=(refused(HEAD),),
        landing=Landing.SURPASSED,
        is_final=True,
    ),
    "a later epoch landed after our answer was lost: ours may have landed first and expired": Situation(
        history=line(8, 9), properties=recorded(6, 9), attempts=(lost(HEAD),), landing=Landing.SURPASSED, is_final=False
    ),
    "lost, and it may still arrive": Situation(
        history=line(1, HEAD), properties=recorded(4, 1), attempts=(lost(HEAD),), landing=Landing.ABSENT, is_final=False
    ),
    "lost, and the record shows that it never landed, though history expired": Situation(
        history=line(8, 9), properties=recorded(4, 1), attempts=(lost(HEAD),), landing=Landing.ABSENT, is_final=True
    ),
}


@pytest.mark.parametrize("situation", BATCH.values(), ids=BATCH.keys())
def test_landing_of_a_batch(situation: Situation) -> None:
    """A batch would be committed twice, be lost, or lose its files although it landed."""
    metadata = metadata_of(situation.history, properties=situation.properties)

    finding = find_landing(metadata, identity(), situation.attempts, lambda: situation.lists_our_manifest)

    assert (finding.landing, finding.is_final) == (situation.landing, situation.is_final)
    assert finding.mark is None


@pytest.mark.parametrize("situation", STREAM.values(), ids=STREAM.keys())
def test_landing_of_an_epoch(situation: Situation) -> None:
    """An epoch would be committed twice, be lost, or lose its files although it landed."""
    metadata = metadata_of(situation.history, properties=situation.properties)
    write = identity(epoch=EpochId(query_id=QUERY, epoch_id=5, run_id="our run"))

    finding = find_landing(
        metadata, write, situation.attempts, lambda: pytest.fail("an epoch needs no file to be read")
    )

    assert (finding.landing, finding.is_final) == (situation.landing, situation.is_final)


def test_no_file_is_read_while_the_metadata_tells() -> None:
    """Every commit would read a manifest list for nothing."""
    metadata = metadata_of(line(1, HEAD, 3))

    finding = find_landing(metadata, identity(), (lost(HEAD),), lambda: pytest.fail("read a file"))

    assert finding.landing is Landing.ABSENT


def test_marks_of_other_queries_do_not_count() -> None:
    """Two streams into one table would skip each other's epochs."""
    summary = summary_mark(EpochId(query_id="another", epoch_id=9))
    write = identity(epoch=EpochId(query_id=QUERY, epoch_id=5))

    finding = find_landing(metadata_of(line(1, HEAD, s2=summary)), write, (), lambda: False)

    assert finding.landing is Landing.ABSENT


def test_branch_of_the_write_is_the_one_that_is_looked_at() -> None:
    """An epoch would be skipped on a branch that does not have it."""
    history = [*line(1, HEAD), Past(snapshot_id=3, parent=1, summary=epoch_summary(5))]
    metadata = metadata_of(history, branches={"main": HEAD, "audit": 3})
    write = identity(epoch=EpochId(query_id=QUERY, epoch_id=5))

    assert find_landing(metadata, write, (), lambda: False).landing is Landing.ABSENT
    assert find_landing(metadata, replace(write, branch="audit"), (), lambda: False).landing is Landing.REPLAYED
