"""Which values reports add to the metrics, and their sums; pure but for the clock of the reader.

A streaming query repeats its last commit when it starts again, a committer may be killed before it could report, and
several streams may write to one file. These rules make the sums true all the same:

* Each snapshot counts once. `iceberg.sink.commits` with outcome `committed` is the number of snapshots that reports
  tell of. A commit whose process was killed before its report is counted by its replay, which the table tells of: what
  the snapshot says of itself (`iceberg.commit.*` but for duration and attempts, which the killed process took with it)
  and one commit with outcome `committed`, beside the one with outcome `replayed`.
* A replay of a snapshot that has been counted is a replay and nothing else. The report on a commit that is read twice
  counts once.
* A commit cannot have ended after its report was read: a time ahead of the reader's clock counts as the time of
  reading, so that no clock that was wrong once hides later commits. The next commit takes its place, also if it was the
  reader's clock that was ahead.
* A gauge of a table shows its newest snapshot by sequence number, in any order of the reports. A table of format 1
  has no sequence numbers: there a replay, whose snapshot may be an older one, never takes the place of a commit; and
  once more snapshots of it were told of than are remembered, a replay counts for itself alone.
* The number of series is bounded. A snapshot, a query or the text of an error is never a label; a stream that is a UUID
  has the label of a stream without a name, and the write of a quarantine table has that of the application whose
  rows it got; beyond `LARGEST_WRITERS` combinations of table, branch and stream further
  ones are counted together as stream `other` of their table and branch, if these are known, and else as `other`. They
  have no gauges but those of a known table, because others would mean nothing. A long name is cut.
"""

from __future__ import annotations

import hashlib
import re
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from iceberg_ds.messages import FUTURE_MS
from iceberg_ds.metrics.instruments import INSTRUMENTS, MAINTENANCE, Instrument
from iceberg_ds.metrics.report import OUTCOMES, CommitReport, Outcome

# Combinations of table, branch and stream that have series of their own.
LARGEST_WRITERS = 1_000
# Characters of a name that a label shows; of a longer one it shows these and a digest.
LONGEST_LABEL = 500
OTHER = "other"
OTHER_WRITER = (OTHER, OTHER, OTHER)
# Snapshots that are remembered, to count each once: for one table, and in all.
SNAPSHOTS_OF_TABLE = 10_000
SNAPSHOTS = 200_000
# Outcomes of commits that did not fail.
SUCCESSES: tuple[Outcome, ...] = ("committed", "replayed", "empty")
_OPERATIONS = {"append", "replace", "overwrite", "delete", *MAINTENANCE}
_UUID = r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"
# A name under which rows go into a quarantine table: `<stream> > <table or its UUID>`, or a digest of it if it is long.
_QUARANTINE = re.compile(rf"(?P<stream>.+) > (?:[^.]+\..+|(?:{_UUID}|route-by)(?:@.+)?)", re.IGNORECASE | re.DOTALL)
_NO_NAME = re.compile(rf"{_UUID}(?: > .+)?|quarantine [0-9a-f]{{32}}", re.IGNORECASE | re.DOTALL)

# Values of the labels of an instrument, in its order.
Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one report counts for.

    Attributes:
        is_new_snapshot: Whether no report before told of its snapshot.
        is_commit: Whether it is the report on a commit that made a snapshot.
        outcomes: The outcomes that it adds one commit each to.
        is_maintenance: Whether it is the report on maintenance, which is no commit.
    """

    is_new_snapshot: bool = False
    is_commit: bool = False
    outcomes: tuple[Outcome, ...] = ()
    is_maintenance: bool = False

    @property
    def is_repeated(self) -> bool:
        """Whether the same report was counted before."""
        return not (self.is_commit or self.outcomes or self.is_maintenance)


@dataclass(frozen=True, slots=True)
class _Known:
    sequence_number: int
    # Whether its commit itself was reported; a replay may have told of the snapshot before.
    is_reported: bool


class Snapshots:
    """The snapshots that reports told of, as far as memory goes: the newest ones of each table."""

    def __init__(self) -> None:
        self._tables: dict[str, OrderedDict[int, _Known]] = {}
        # The highest sequence number of a table that was forgotten.
        self._forgotten: dict[str, int] = {}
        self._number = 0

    def count(self, report: CommitReport) -> Counted:
        """Return what the report counts for, and remember its snapshot."""
        if report.outcome == "maintained":
            return Counted(is_maintenance=True)
        is_commit, snapshot_id = report.outcome == "committed", report.snapshot_id
        if snapshot_id is None or not (is_commit or (report.outcome == "replayed" and report.counts)):
            return Counted(is_new_snapshot=is_commit, is_commit=is_commit, outcomes=(report.outcome,))
        of_table = self._tables.get(report.table_uuid)
        known = None if of_table is None else of_table.get(snapshot_id)
        if is_commit:
            self._remember(report, snapshot_id)
            return Counted(
                is_new_snapshot=known is None,
                is_commit=known is None or not known.is_reported,
                outcomes=("committed",) if known is None else (),
            )
        if known is not None or (report.sequence_number or 0) <= self._forgotten.get(report.table_uuid, -1):
            return Counted(outcomes=("replayed",))
        self._remember(report, snapshot_id)
        return Counted(is_new_snapshot=True, outcomes=("replayed", "committed"))

    def _remember(self, report: CommitReport, snapshot_id: int) -> None:
        known = self._tables.setdefault(report.table_uuid, OrderedDict())
        self._number += snapshot_id not in known
        known[snapshot_id] = _Known(report.sequence_number or 0, report.outcome == "committed")
        if len(known) > SNAPSHOTS_OF_TABLE:
            self._forget(report.table_uuid)
        elif self._number > SNAPSHOTS:
            self._forget(max(self._tables, key=lambda uuid: len(self._tables[uuid])))

    def _forget(self, table_uuid: str) -> None:
        _, oldest = self._tables[table_uuid].popitem(last=False)
        self._forgotten[table_uuid] = max(self._forgotten.get(table_uuid, 0), oldest.sequence_number)
        self._number -= 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value for one series: what a counter grows by, what a gauge shows now, or what a histogram counts.

    Attributes:
        instrument: The metric.
        labels: Values of its labels, in its order.
        value: The value, in the unit of the instrument.
    """

    instrument: Instrument
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class _Newest:
    table_uuid: str
    sequence_number: int
    is_commit: bool
    at_ms: int

    def is_after(self, other: _Newest, now_ms: float) -> bool:
        other_ms = other.at_ms if other.at_ms <= now_ms else 0  # the reader's clock was ahead
        if self.table_uuid != other.table_uuid:  # a table in place of one that was dropped
            return self.at_ms >= other_ms
        other_order = (other.sequence_number, other.is_commit, other_ms)
        return (self.sequence_number, self.is_commit, self.at_ms) >= other_order


class Writers:
    """The combinations of table, branch and stream that have series of their own."""

    def __init__(self) -> None:
        self._known: set[Labels] = set()
        self._places: set[Labels] = set()  # table and branch of each

    def of(self, report: CommitReport) -> Labels:
        """Return the labels table, branch and stream of a report."""
        writer = (_label(report.table), _label(report.branch), _stream_label(report.stream))
        if writer not in self._known and len(self._known) >= LARGEST_WRITERS:
            return (*writer[:2], OTHER) if writer[:2] in self._places else OTHER_WRITER
        self._known.add(writer)
        self._places.add(writer[:2])
        return writer

    def have_gauges(self, labels: Labels) -> bool:
        """Return whether labels, of table and branch or of a writer, are those of one and not of several together."""
        return labels in self._places or labels in self._known


class Measurer:
    """Says which values reports add, by the rules of this module.

    Args:
        clock: Seconds since 1970 of the reader.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._snapshots = Snapshots()
        self._writers = Writers()
        self._met: set[Labels] = set()
        self._newest: dict[tuple[str, Labels], _Newest] = {}
        self._latest: dict[tuple[str, Labels], float] = {}

    def remember(self, report: CommitReport) -> Counted:
        """Note a report whose values are not wanted, so that a replay of its commit adds none; return its rank."""
        return self._snapshots.count(report)

    def measure(self, report: CommitReport) -> tuple[Counted, list[Measurement]]:
        """Return what the report counts for, and the values that it adds."""
        report = not_ahead(report, self._clock())
        counted = self._snapshots.count(report)
        return counted, [] if counted.is_repeated else list(self._measurements(report, counted))

    def _measurements(self, report: CommitReport, counted: Counted) -> Iterator[Measurement]:
        is_first = (writer := self._writers.of(report)) not in self._met
        self._met |= set() if counted.is_maintenance else {writer}
        names = dict(zip(("table", "branch", "stream"), writer, strict=True))
        names["operation"] = _operation_label(report.operation)
        for instrument in INSTRUMENTS:
            if "outcome" in instrument.labels and not counted.is_maintenance:
                added = set(counted.outcomes)
                for outcome in OUTCOMES if is_first else counted.outcomes:
                    # From the first report on there is a 0 that an alert sees the first failure rise from.
                    labels = tuple(({**names, "outcome": outcome})[label] for label in instrument.labels)
                    yield Measurement(instrument, labels, float(outcome in added))
            elif _has_value(instrument, report, counted):
                labels = tuple(names[label] for label in instrument.labels)
                value = instrument.value(report)
                if value is not None and self._is_taken(instrument, labels, report, value):
                    yield Measurement(instrument, labels, value)

    def _is_taken(self, instrument: Instrument, labels: Labels, report: CommitReport, value: float) -> bool:
        """Return whether the instrument takes the value; a gauge keeps its own if this one is older."""
        if instrument.kind != "gauge":
            return True
        if not self._writers.have_gauges(labels):
            return False
        key, now_ms = (instrument.name, labels), self._clock() * 1000
        if instrument.keeps == "newest_snapshot":
            is_commit = report.outcome == "committed"
            newest = _Newest(report.table_uuid, report.sequence_number or 0, is_commit, report.at_ms)
            if key in self._newest and not newest.is_after(self._newest[key], now_ms):
                return False
            self._newest[key] = newest
            return True
        is_event = instrument.keeps == "newest_event"
        order, limit = (value * 1000, now_ms + FUTURE_MS) if is_event else (float(report.at_ms), now_ms)
        if not is_later(order, self._latest.get(key), limit):
            return False
        self._latest[key] = order
        return True


def _has_value(instrument: Instrument, report: CommitReport, counted: Counted) -> bool:
    if counted.is_maintenance or instrument.basis == "maintenance":
        return counted.is_maintenance and instrument.basis == "maintenance"
    if instrument.basis == "snapshot":
        return counted.is_new_snapshot
    if instrument.basis == "commit":
        return counted.is_commit
    return instrument.basis == "any" or is_success(report)


def is_success(report: CommitReport) -> bool:
    """Return whether the rows are in the table: not those of a number that was passed over for a later one."""
    return report.outcome in SUCCESSES and (report.outcome != "replayed" or report.snapshot_id is not None)


def is_later(time_ms: float, known_ms: float | None, now_ms: float) -> bool:
    """Return whether a time is not before the known one, or that is ahead of `now_ms`: a clock was wrong."""
    return known_ms is None or time_ms >= known_ms or known_ms > now_ms


def not_ahead(report: CommitReport, now_s: float) -> CommitReport:
    """Return the report with a time that is not ahead of the reader's clock."""
    now_ms = int(now_s * 1000)
    return replace(report, at_ms=now_ms) if report.at_ms > now_ms else report


def encodable(text: str) -> str:
    """Return text that can be encoded: JSON can hold half a character."""
    return text.encode("utf-8", "replace").decode()


def _label(text: str) -> str:
    """Return text as the value of a label; a hostile file could make labels of a megabyte."""
    text = encodable(text)
    if len(text) <= LONGEST_LABEL:
        return text
    return f"{text[:LONGEST_LABEL]}... {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def is_name(stream: str) -> bool:
    """Return whether a stream or application has a name, and no id: these would make a series for each query."""
    return _NO_NAME.fullmatch(stream) is None


def _stream_label(stream: str | None) -> str:
    if stream is None or not is_name(stream):
        return ""
    quarantine = _QUARANTINE.fullmatch(stream)
    return _label(stream if quarantine is None else quarantine["stream"])


def _operation_label(operation: str | None) -> str:
    return operation if operation in _OPERATIONS else OTHER if operation else ""


@dataclass(slots=True)
class Distribution:
    """What a histogram holds.

    Attributes:
        bounds: Upper bounds of the buckets, in Prometheus' unit; a value counts for the first that is not below it.
        counts: Number of values in each bucket, and in the one above all bounds.
        total: Sum of the values, in Prometheus' unit.
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def take(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def copy(self) -> Distribution:
        """Return a copy."""
        return Distribution(self.bounds, list(self.counts), self.total)


class Counters:
    """The sums, last values and histograms of the reports so far, for each instrument and its series; not thread-safe.

    Values of counters and gauges are in the units of the instruments, histograms in Prometheus'.

    Args:
        clock: Seconds since 1970 of the reader.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._measurer = Measurer(clock)
        self._values: dict[str, dict[Labels, float]] = {}
        self._distributions: dict[str, dict[Labels, Distribution]] = {}

    def take(self, report: CommitReport) -> Counted:
        """Add a report, and return what it counts for."""
        counted, measurements = self._measurer.measure(report)
        for measurement in measurements:
            self._add(measurement)
        return counted

    def values(self, instrument: Instrument) -> Mapping[Labels, float]:
        """Return the value of each series of a counter or gauge."""
        return dict(self._values.get(instrument.name, {}))

    def distributions(self, instrument: Instrument) -> Mapping[Labels, Distribution]:
        """Return the values of each series of a histogram."""
        return {labels: one.copy() for labels, one in self._distributions.get(instrument.name, {}).items()}

    def _add(self, measurement: Measurement) -> None:
        instrument, labels, value = measurement.instrument, measurement.labels, measurement.value
        if instrument.kind == "histogram":
            series = self._distributions.setdefault(instrument.name, {})
            if labels not in series:
                series[labels] = Distribution(instrument.buckets)
            series[labels].take(value * instrument.scale)
        elif instrument.kind == "counter":
            sums = self._values.setdefault(instrument.name, {})
            sums[labels] = sums.get(labels, 0.0) + value
        else:
            self._values.setdefault(instrument.name, {})[labels] = value
