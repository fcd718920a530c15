"""Which snapshots and refs expire, case by case, by the rules of Iceberg's `RemoveSnapshots`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from support.tables.metadata import START_MS, Past, line, metadata_of

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.maintenance.retention import Retention, find_expired

NOW_MS = START_MS + 100  # snapshot n is of START_MS + n
TAG, BRANCH = SnapshotRefType.TAG, SnapshotRefType.BRANCH
EVER = "9223372036854775807"


def ref(snapshot_id: int, kind: SnapshotRefType = BRANCH, **retention: int) -> SnapshotRef:
    """Return a ref with a retention of its own."""
    return SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=kind, **retention)


def table(refs: Mapping[str, SnapshotRef], history: list[Past] | None = None) -> TableMetadataV2:
    """Return a table with five snapshots in a line, or another history."""
    made = metadata_of(history or line(1, 2, 3, 4, 5), branches={"main": 5})
    return made.model_copy(update={"refs": {"main": ref(5), **refs}})


@dataclass(frozen=True, kw_only=True)
class Case:
    """Arguments, refs beside `main` at snapshot 5, and what goes; `older_than` 4 is the time of snapshot 4."""

    goes: set[int]
    refs_that_go: set[str] = field(default_factory=set)
    older_than: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    history: list[Past] | None = None


FORKED = [*line(1, 2, 3, 4, 5), Past(snapshot_id=6, parent=2), Past(snapshot_id=7, parent=6)]
CASES = {
    "nothing is five days old": Case(goes=set()),
    "all but the head": Case(goes={1, 2, 3, 4}, older_than=100),
    "a snapshot of that very time stays": Case(goes={1, 2, 3}, older_than=4),
    "the last three stay": Case(goes={1, 2}, older_than=100, retain_last=3),
    "young ones stay beyond the number": Case(goes={1}, older_than=2, retain_last=1),
    "the table's age": Case(goes={1, 2, 3}, properties={"history.expire.max-snapshot-age-ms": "96"}),
    "the table's number": Case(
        goes={1, 2, 3}, older_than=100, properties={"history.expire.min-snapshots-to-keep": "2"}
    ),
    "arguments come before properties": Case(
        goes={1, 2, 3, 4},
        older_than=100,
        retain_last=1,
        properties={"history.expire.min-snapshots-to-keep": "5", "history.expire.max-snapshot-age-ms": EVER},
    ),
    "a tag keeps its snapshot alone": Case(goes={1, 3, 4}, older_than=100, refs={"t": ref(2, TAG)}),
    "an old tag goes, and its snapshot": Case(
        goes={1, 2, 3, 4}, refs_that_go={"t"}, older_than=100, refs={"t": ref(2, TAG, max_ref_age_ms=97)}
    ),
    "a tag of just that age stays": Case(goes={1, 3, 4}, older_than=100, refs={"t": ref(2, TAG, max_ref_age_ms=98)}),
    "the table's age of refs": Case(
        goes={1, 2, 3, 4},
        refs_that_go={"t"},
        older_than=100,
        refs={"t": ref(2, TAG)},
        properties={"history.expire.max-ref-age-ms": "97"},
    ),
    "a tag that is never old": Case(
        goes={1, 3, 4},
        older_than=100,
        refs={"t": ref(2, TAG, max_ref_age_ms=2**63 - 1)},
        properties={"history.expire.max-ref-age-ms": "1"},
    ),
    "main is never old": Case(goes={1, 2, 3, 4}, older_than=100, properties={"history.expire.max-ref-age-ms": "1"}),
    "a branch keeps its own number": Case(
        goes={1, 3, 4}, older_than=100, history=FORKED, refs={"b": ref(7, min_snapshots_to_keep=3)}
    ),
    "a branch keeps its own age": Case(
        goes={1, 2, 3, 4}, older_than=100, history=FORKED, refs={"b": ref(7, max_snapshot_age_ms=94)}
    ),
    "a branch's own number ends where the first old one is": Case(
        goes={1, 2, 3, 4, 6}, older_than=100, history=FORKED, refs={"b": ref(7, min_snapshots_to_keep=1)}
    ),
    "an old branch goes; what only it had is unreferenced": Case(
        goes={1, 2, 3, 4, 6, 7},
        refs_that_go={"b"},
        older_than=100,
        history=FORKED,
        refs={"b": ref(7, max_ref_age_ms=92)},
    ),
    "what only an old branch had stays while it is young": Case(
        goes={1, 2, 3, 4}, refs_that_go={"b"}, older_than=5, history=FORKED, refs={"b": ref(7, max_ref_age_ms=92)}
    ),
    "unreferenced ones stay while they are young": Case(goes={1, 2, 3, 4, 6}, older_than=7, history=FORKED),
    "unreferenced ones are not counted": Case(goes={1, 2, 3, 6, 7}, older_than=100, retain_last=2, history=FORKED),
    "named ones go though they are young": Case(goes={3}, snapshot_ids=(3,)),
    "named ones go beside old ones": Case(goes={1, 3}, older_than=2, snapshot_ids=(3,)),
    "named ones that are not there are ignored": Case(goes=set(), snapshot_ids=(99,)),
    "old ones behind a gap are unreferenced": Case(
        goes={1}, older_than=2, history=[*line(1), Past(snapshot_id=3, parent=2), *line(4, 5)], retain_last=9
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_case_of_the_rules(case: Case) -> None:
    """A snapshot that somebody counts on would go, or old ones would never."""
    metadata = table(case.refs, case.history)
    older_than = None if case.older_than is None else START_MS + case.older_than
    retention = Retention.of(
        case.properties,
        NOW_MS,
        older_than_ms=older_than,
        retain_last=case.retain_last,
        snapshot_ids=case.snapshot_ids,
    )

    expired = find_expired(metadata, retention)

    assert expired.snapshot_ids == case.goes
    assert expired.refs == case.refs_that_go


@pytest.mark.parametrize(("number", "names"), [(5, "'main', 'x'"), (2, "'t'")])
def test_snapshot_of_a_ref_is_refused(number: int, names: str) -> None:
    """A branch or tag would be dropped together with its snapshot."""
    metadata = table({"t": ref(2, TAG), "x": ref(5)})

    with pytest.raises(OptionError, match=f"snapshot {number} is still that of {names}"):
        find_expired(metadata, Retention.of({}, NOW_MS, snapshot_ids=[number]))


def test_snapshot_of_a_ref_that_goes_may_be_named() -> None:
    """It would be refused for a tag that is gone after the call."""
    metadata = table({"t": ref(2, TAG, max_ref_age_ms=1)})

    expired = find_expired(metadata, Retention.of({}, NOW_MS, snapshot_ids=[2]))

    assert (expired.refs, expired.snapshot_ids) == ({"t"}, {2})


def test_ref_without_a_snapshot_is_refused() -> None:
    """A damaged table would lose the snapshots that the ref was to keep."""
    with pytest.raises(UnsupportedTableError, match="'t' names snapshot 99, which the table does not have"):
        find_expired(table({"t": ref(99, TAG)}), Retention.of({}, NOW_MS))


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9223372036854775808"])
@pytest.mark.parametrize("name", ["max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"])
def test_malformed_property_is_refused(name: str, text: str) -> None:
    """Snapshots that it was to keep would go by the default."""
    with pytest.raises(UnsupportedTableError, match=f"history.expire.{name} is"):
        Retention.of({f"history.expire.{name}": text}, NOW_MS)
