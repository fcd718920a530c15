"""A change feed that is drawn at random, as files of a stream, and all that its table must hold in each snapshot.

What the table must hold follows from the source's files alone, and from the log in which Spark says how much of it each
epoch has. The source comes in portions, and each portion writes its number into one row, so every snapshot tells by
itself how many portions it has. `Witness` looks at tables of format version 3 that never have equality deletes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from support.checks.reader import listed
from support.checks.same_rows import difference
from support.checks.version_3 import row_ids
from support.keys.streams import BY_KEY, NAMES, Event, KeyedStream, rows_after
from support.spark.jobs import StreamJob, write_file

FILES = 3  # of a portion, as many as an epoch takes; after a kill one may take those of two portions
# The feed inserts these keys in its first portion, and never touches them again: others change their rows.
RESTING = range(-120, 0)
# The key of the row whose amount is the number of the last portion.
CLOCK = 0
_FEWEST_ROWS, _MOST_ROWS = 150, 500
_FEWEST_EVENTS, _MOST_EVENTS = 10, 60
_REGIONS = ("EU", "US", "ASIA")
_EPOCH = "spark.sql.streaming.epochId"

# Id, region, amount and lsn.
Values: TypeAlias = tuple[Any, ...]
# A row from its insert to its delete: its key, and the epoch that inserted it.
Life: TypeAlias = tuple[int, int]
# The rows that a table has, and the epoch that inserted each, by key.
State: TypeAlias = Mapping[int, tuple[Values, int]]


class RandomFeed:
    """A feed with its stream.

    Args:
        folder: Holds source, checkpoint and table.
        seed: The same seed draws the same portions.
        options: Options of the sink beside those that all feeds have; none for a table of format version 2 with
            equality deletes.
    """

    def __init__(self, folder: Path, seed: int, options: Mapping[str, str] | None = None) -> None:
        by_region = {**BY_KEY, "partition-by": "region"}
        self.stream = KeyedStream(folder=folder, options={**by_region, **(options or {})})
        self._draw = random.Random(f"feed {seed}")  # noqa: S311  # no secret
        self._rows: list[Mapping[int, Values]] = [{}]
        self._states: list[State] = []
        self._ends: dict[int, int] = {}
        self._next_key = 1
        self._lsn = 0

    def job(self) -> StreamJob:
        """Return the query; it takes what there is and ends."""
        return replace(self.stream.job(), files_per_epoch=FILES)

    @property
    def portions(self) -> int:
        """How many portions the source has."""
        return len(list(self.stream.source.glob("*.json"))) // FILES

    def grow(self, portions: int) -> None:
        """Add so many portions to the source."""
        for number in range(self.portions, self.portions + portions):
            events = self._drawn(number)
            self._draw.shuffle(events)
            for part in range(FILES):
                lines = [json.dumps(dict(zip(NAMES, event, strict=True))) + "\n" for event in events[part::FILES]]
                write_file(self.stream.source, number * FILES + part, "".join(lines))

    def files(self, number: int) -> list[Path]:
        """Return the files of a portion."""
        return [self.stream.source / f"{number * FILES + part:06d}.json" for part in range(FILES)]

    def rows(self, portions: int) -> Mapping[int, Values]:
        """Return the rows that the table has after so many portions, by key, as the files of the source say."""
        while len(self._rows) <= portions:
            portion = list(self._read(len(self._rows) - 1))
            self._rows.append({row[0]: row for row in rows_after([[portion]], self._rows[-1].values())})
        return self._rows[portions]

    def epoch_of(self, portions: int) -> int:
        """Return the epoch after which the table has so many portions.

        Raises:
            AssertionError: No epoch ends there.
        """
        for planned in (self.stream.checkpoint / "offsets").glob("[0-9]*"):
            if int(planned.name) not in self._ends:  # Spark forgets old ones
                self._ends[int(planned.name)] = json.loads(planned.read_text().splitlines()[-1])["logOffset"] + 1
        epochs = [epoch for epoch, end in self._ends.items() if end == portions]
        assert len(epochs) == 1, f"{portions} portions of the source are the end of epochs {epochs}"
        return epochs[0]

    def state(self, epoch: int) -> State:
        """Return what the table has after an epoch that `epoch_of` has returned."""
        while len(self._states) <= epoch:
            number = len(self._states)
            before = self._states[-1] if self._states else {}
            rows = self.rows(self._ends[number])
            self._states.append({key: (row, before[key][1] if key in before else number) for key, row in rows.items()})
        return self._states[epoch]

    def _read(self, number: int) -> Iterator[Event]:
        """Yield the events of a portion from its files."""
        for file in self.files(number):
            for line in file.read_text().splitlines():
                event = json.loads(line)
                yield event["op"], event["id"], event["region"], event["amount"], event["lsn"]

    def _drawn(self, number: int) -> list[Event]:
        """Draw the events of a portion, in the order of the source."""
        rows = {key: row for key, row in self.rows(number).items() if key > CLOCK}
        events: list[Event] = [("u" if number else "c", CLOCK, self._region(), number, self._following())]
        if number == 0:
            events += [("c", key, self._region(), 0, self._following()) for key in RESTING]
        for _ in range(self._draw.randint(_FEWEST_EVENTS, _MOST_EVENTS)):
            events += self._change(rows)
        return events

    def _change(self, rows: dict[int, Values]) -> list[Event]:
        """Draw a change of the rows as they are within the portion; they are changed."""
        inserts = 6 if len(rows) < _FEWEST_ROWS else 1 if len(rows) > _MOST_ROWS else 3
        verbs = {"insert": inserts, "insert again": 2, "update": 4, "move": 3, "move by images": 2, "change key": 1}
        (verb,) = self._draw.choices([*verbs, "delete"], [*verbs.values(), 3])
        lsn, region, amount = self._following(), self._region(), self._draw.randrange(1_000_000)
        gone = [key for key in range(max(1, self._next_key - 400), self._next_key) if key not in rows]
        if verb == "insert" or not rows or (verb == "insert again" and not gone):
            key, self._next_key = self._next_key, self._next_key + 1
            rows[key] = (key, region, amount, lsn)
            return [("c", key, region, amount, lsn)]
        if verb == "insert again":
            key = self._draw.choice(gone)
            rows[key] = (key, region, amount, lsn)
            return [(self._draw.choice(["c", "u", "+I"]), key, region, amount, lsn)]
        # Half of the changes are of rows that were changed lately, so that a key comes several times in a portion.
        lately = sorted(rows, key=lambda one: int(rows[one][3]))[-10:]
        key = self._draw.choice(lately if self._draw.random() < 1 / 2 else sorted(rows))
        old = rows.pop(key)
        if verb == "delete":
            return [("d", key, None, None, lsn)]
        if verb == "change key":
            new, self._next_key = self._next_key, self._next_key + 1
        else:
            new = key
        region = old[1] if verb == "update" else region
        rows[new] = (new, region, amount, lsn)
        if verb in {"change key", "move by images"}:
            return [("-U", key, old[1], old[2], lsn), ("+U", new, region, amount, lsn)]
        return [("u", new, region, amount, lsn)]

    def _following(self) -> int:
        self._lsn += 1
        return self._lsn

    def _region(self) -> str:
        return self._draw.choice(_REGIONS)


def portions_in(rows: Iterable[Values]) -> int:
    """Return how many portions a table with these rows has.

    Raises:
        AssertionError: The row that tells it is not there, or more than once.
    """
    clocks = [row[2] for row in rows if row[0] == CLOCK]
    assert len(clocks) == 1, f"has {len(clocks)} rows of key {CLOCK}"
    return int(clocks[0]) + 1


class Witness:
    """Looks at each snapshot of the feed's table, and remembers which row had which id.

    Args:
        feed: The feed.

    Attributes:
        amounts: What the rows have by which the feed's table is changed by others, by key.
        ids: The id of each row that was seen.
        epochs: The epoch of each snapshot that was seen and has one.
        problems: What was not as it must be.
        snapshots: How many snapshots were looked at.
    """

    def __init__(self, feed: RandomFeed) -> None:
        self.amounts = dict.fromkeys(RESTING, 0)
        self.ids: dict[Life, int] = {}
        self.epochs: dict[int, int] = {}
        self.problems: list[str] = []
        self._feed = feed
        self._owners: dict[int, Life] = {}
        self._looked: set[int] = set()

    @property
    def snapshots(self) -> int:
        """How many snapshots were looked at."""
        return len(self._looked)

    def look(self, table: Table) -> None:
        """Look at the snapshots that are new, and at what others have changed; nothing may write meanwhile."""
        for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0):
            if snapshot.snapshot_id not in self._looked:
                self._looked.add(snapshot.snapshot_id)
                try:
                    self._look_at(table, snapshot)
                except AssertionError as problem:
                    self._say(snapshot, str(problem))
        head = table.current_snapshot()
        assert head is not None
        # What two rows of one id are was said of the snapshot.
        with suppress(AssertionError):
            rows = {row["id"]: row["amount"] for row in row_ids(table).values() if row["id"] in self.amounts}
            if rows != self.amounts:
                wrong = [
                    (key, rows.get(key), amount) for key, amount in self.amounts.items() if rows.get(key) != amount
                ]
                self._say(head, f"has rows that others changed: (key, found, expected) {wrong[:5]}")

    def compare(self, reader: str, rows: list[Values]) -> None:
        """Compare what a reader reads, with the row id behind each row, with what the table must have in the end."""
        try:
            state = self._feed.state(self._feed.epoch_of(self._feed.portions))
        except AssertionError as problem:
            self.problems.append(f"the stream has not come to the end: {problem}")
            return
        expected = [
            (row[0], row[1], self.amounts.get(row[0], row[2]), row[3], self.ids.get((row[0], born)))
            for row, born in state.values()
        ]
        if (differ := difference(rows, expected)) is not None:
            self.problems.append(f"{reader} reads {differ}")

    def _look_at(self, table: Table, snapshot: Snapshot) -> None:
        files = listed(table, snapshot_id=snapshot.snapshot_id)
        if files[DataFileContent.EQUALITY_DELETES]:
            self._say(snapshot, "has equality deletes")
        found = row_ids(table, snapshot.snapshot_id)
        rows = Counter(tuple(row[name] for name in NAMES[1:]) for row in found.values())
        epoch = self._feed.epoch_of(portions_in(rows.elements()))
        self._note_epoch(snapshot, epoch)
        state = self._feed.state(epoch)
        self._check_rows(snapshot, rows, state)
        for number, row in found.items():
            if row["id"] in state:
                self._check_id(snapshot, (row["id"], state[row["id"]][1]), number)

    def _note_epoch(self, snapshot: Snapshot, epoch: int) -> None:
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if (told := summary.get(_EPOCH)) is None:
            return
        if int(told) != epoch:
            self._say(snapshot, f"is of epoch {told}, and has the rows of epoch {epoch}")
        if int(told) in self.epochs.values():
            self._say(snapshot, f"is of epoch {told}, which had landed before")
        self.epochs[snapshot.snapshot_id] = int(told)

    def _check_rows(self, snapshot: Snapshot, found: Counter[Values], state: State) -> None:
        def of_feed(row: Values) -> Values:
            return (*row[:2], None, row[3]) if row[0] in self.amounts else row

        expected = Counter(of_feed(row) for row, _ in state.values())
        seen: Counter[Values] = Counter()
        for row, times in found.items():
            seen[of_feed(row)] += times
        for what, rows in (("lacks", expected - seen), ("has, unexpectedly,", seen - expected)):
            if rows:
                self._say(snapshot, f"{what} {rows.total()} rows, such as {sorted(rows.elements(), key=str)[:3]}")

    def _check_id(self, snapshot: Snapshot, life: Life, number: int) -> None:
        if self.ids.setdefault(life, number) != number:
            self._say(snapshot, f"has row id {number} for key {life[0]}, which had {self.ids[life]}")
        if self._owners.setdefault(number, life) != life:
            self._say(snapshot, f"has row id {number} for {life}, and it was of {self._owners[number]}")

    def _say(self, snapshot: Snapshot, problem: str) -> None:
        self.problems.append(f"snapshot {snapshot.snapshot_id} (number {snapshot.sequence_number}) {problem}")
