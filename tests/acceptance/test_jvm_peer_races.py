"""What the sink does by keys beside Iceberg's own Spark runtime, each begun before the other and landed after it.

A row may never change by that: the table has the rows of one after the other, or one of them is refused and says so.
The runtime's statements are real ones, held when they send their commit (`held_commits`). Holding one earlier would
tell nothing else: it reads one snapshot, and has its commit validated from that one on, so that it is the same to it at
which moment between its scan and its commit somebody else lands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.update import SetPropertiesUpdate
from support.checks.reader import listed, rows_of
from support.exhaustive import EXHAUSTIVE
from support.keys.conversions import convert, keyed_deletes, meanwhile
from support.keys.epochs import LAYOUTS
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.publications import applied, tasks
from support.keys.upserts import apart, upsert
from support.peer.held_commits import Held, HeldCatalog, serve_held_catalog
from support.peer.jvm_peer import CATALOG, JvmPeer
from support.tables.delete_files import delete_positions
from support.tables.reading import read_by_tasks
from support.tables.sink import Sink

import iceberg_ds
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.fault_points import FaultPoint

pytestmark = [
    pytest.mark.timeout(900),  # the first one may have to make the peer's environment
    pytest.mark.usefixtures("waits"),
]

Rows = list[tuple[Any, ...]]

# Rows that are deleted from `FIRST`.
HIDDEN = (3, 7)
LAYOUT_NAMES = ("none", "by the key")
# Rows 3 and 7 are hidden by position deletes. The deletes by keys of `OLD`, if there are any, are older than all races.
FIRST = [[(key, "EU", key) for key in range(4)], [(key, "US", key) for key in range(4, 8)]]
OLD: list[Event] = [("U", 4, "DE", 40, 1), ("D", 5, "EU", None, 1)]
NEW: list[Event] = [("U", 1, "DE", 100, 2), ("D", 2, "EU", None, 2), ("I", 9, "DE", 9, 2)]
STEPS = (FaultPoint.TASK_WRITTEN, FaultPoint.COMMIT_BEGUN, FaultPoint.TABLE_LOADED, FaultPoint.MANIFESTS_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What the sink does.

    Attributes:
        events: The changes that it commits.
        run: Does it.
        has_old_deletes: Whether the table has deletes by keys before.
        steps: Where the runtime may be faster.
    """

    events: list[Event]
    run: Callable[[Sink], object]
    has_old_deletes: bool = True
    steps: Sequence[FaultPoint] = STEPS

    def applied(self, rows: Rows) -> Rows:
        """Return the rows after it."""
        return applied(rows, self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """What the runtime does.

    Attributes:
        statement: Its statement, with `{t}` for the table.
        applied: Returns the rows after it.
        properties: Properties of the table that say how.
    """

    statement: str
    applied: Callable[[Rows], Rows] = lambda rows: rows
    properties: Mapping[str, str]


def put(sink: Sink, *events: Event) -> None:
    """Commit changes with deletes by keys."""
    sink.commit(keyed_tasks(plan_by_keys(sink), *apart(events)))


def put_and_convert(sink: Sink, encoding: Any) -> None:
    """Commit changes, and convert their deletes."""
    put(sink, *NEW)
    convert(sink, encoding)


def publish(sink: Sink) -> None:
    """Publish an epoch converted; if others were faster, it comes again, as Spark repeats it."""
    try:
        sink.commit(tasks(sink, 0, *apart(NEW)))
    except CommitConflictError as refused:
        assert "Run the query again: they are written anew" in str(refused)  # noqa: PT017  # it may also land
        sink.commit(tasks(sink, 0, *apart(NEW)))


OURS = {
    "conversion by marks": Ours(events=[], run=lambda sink: convert(sink, "position")),
    "conversion by rewriting": Ours(events=[], run=lambda sink: convert(sink, "copy-on-write")),
    "epoch and conversion by marks": Ours(events=NEW, run=lambda sink: put_and_convert(sink, "position")),
    "epoch and conversion by rewriting": Ours(events=NEW, run=lambda sink: put_and_convert(sink, "copy-on-write")),
    "epoch that is published converted": Ours(
        events=NEW, run=publish, steps=(FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN, FaultPoint.COMMITTED)
    ),
    "upsert by marks": Ours(events=NEW, run=lambda sink: upsert(sink, "position", *apart(NEW)), has_old_deletes=False),
    "upsert by rewriting": Ours(
        events=NEW, run=lambda sink: upsert(sink, "copy-on-write", *apart(NEW)), has_old_deletes=False
    ),
}


def _changed(rows: Rows) -> Rows:
    return [(key, region, amount + 1000 if key < 2 else amount) for key, region, amount in rows]


def _deleted(rows: Rows) -> Rows:
    return [row for row in rows if row[0] >= 2]


def _merged(rows: Rows) -> Rows:
    return [*(row for row in _changed(rows) if row[0] != 6), (20, "XX", 20)]


def _of(verb: str, mode: str, isolation: str) -> dict[str, str]:
    return {f"write.{verb}.mode": mode, f"write.{verb}.isolation-level": isolation}


UPDATE = "UPDATE {t} SET amount = amount + 1000 WHERE id IN (0, 1)"
DELETE = "DELETE FROM {t} WHERE id IN (0, 1)"
MERGE = (
    "MERGE INTO {t} t USING (SELECT col1 AS key FROM VALUES (0L), (1L), (6L), (20L)) s ON t.id = s.key "
    "WHEN MATCHED AND key = 6 THEN DELETE WHEN MATCHED THEN UPDATE SET t.amount = t.amount + 1000 "
    "WHEN NOT MATCHED THEN INSERT (id, region, amount) VALUES (key, 'XX', key)"
)
REWRITE = f"CALL {CATALOG}.system.rewrite_data_files(table => '{{t}}', options => map('rewrite-all', 'true'%s))"
THEIRS = {
    "compaction": Theirs(statement=REWRITE % "", properties={}),
    "compaction with new numbers": Theirs(
        statement=REWRITE % ", 'use-starting-sequence-number', 'false'", properties={}
    ),
    "compaction of position deletes": Theirs(
        statement=f"CALL {CATALOG}.system.rewrite_position_delete_files("
        "table => '{t}', options => map('rewrite-all', 'true'))",
        properties={},
    ),
    "merge of manifests": Theirs(
        statement=f"CALL {CATALOG}.system.rewrite_manifests(table => '{{t}}', use_caching => false)", properties={}
    ),
    **{
        f"{verb}, {mode}, {isolation}": Theirs(
            statement=statement, applied=after, properties=_of(verb, mode, isolation)
        )
        for verb, statement, after in (
            ("update", UPDATE, _changed),
            ("delete", DELETE, _deleted),
            ("merge", MERGE, _merged),
        )
        for mode, isolation in (("copy-on-write", "serializable"), ("merge-on-read", "snapshot"))
    },
    "delete, merge-on-read, serializable": Theirs(
        statement=DELETE, applied=_deleted, properties=_of("delete", "merge-on-read", "serializable")
    ),
    "merge, merge-on-read, serializable": Theirs(
        statement=MERGE, applied=_merged, properties=_of("merge", "merge-on-read", "serializable")
    ),
}
# What the runtime says of a commit that others were faster than.
REFUSALS = (
    "found new delete",
    "new position delete",
    "conflicting",
    "concurrently added DV",
    "missing data files",
    "Missing required files",
    "Deleted manifest",
)


@pytest.fixture(scope="module")
def races(peer: JvmPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldCatalog]:
    """Return a catalog of tables that both write to."""
    with serve_held_catalog(peer, tmp_path_factory.mktemp("races")) as catalog:
        yield catalog


_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A table, what is done to it, and the rows that it has before, in version 3 with the id of each by its key."""

    sink: Sink
    table: str
    theirs: Theirs
    before: Rows
    row_ids: Mapping[int, int] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """What the runtime runs."""
        return self.theirs.statement.format(t=f"db.{self.table}")


def prepare(races: HeldCatalog, ours: Ours, theirs: Theirs, version: str = "2") -> Race:
    """Make a table of two data files with rows that are hidden by position, and with older deletes by keys perhaps."""
    number = next(_numbers)
    table = f"t{number}"
    sink = races.sink(table)
    sink.create(KEYED_SCHEMA, LAYOUTS[LAYOUT_NAMES[number % 2]][0], format_version=version)
    properties = SetPropertiesUpdate(updates={"commit.retry.min-wait-ms": "1", **theirs.properties})
    sink.catalog.send(sink.table(), (), (properties,))
    named = [[dict(zip(COLUMNS.names, row, strict=True)) for row in part] for part in FIRST]
    for parts in [named] if version == "2" else [[part] for part in named]:  # several manifests to merge
        sink.commit(sink.write(*parts, schema=COLUMNS))
    before = [row for part in FIRST for row in part if row[0] not in HIDDEN]
    if version == "3":
        upsert(sink, "position", *apart([("D", key, None, None, 0) for key in HIDDEN]))
        return Race(sink=sink, table=table, theirs=theirs, before=before, row_ids=row_ids_of(sink))
    for found in listed(sink.table())[DataFileContent.DATA]:
        for position, row in enumerate(found.rows()):
            if row["id"] in HIDDEN:
                delete_positions(sink, found.path, [position])
    if ours.has_old_deletes:
        put(sink, *OLD)
        before = applied(before, OLD)
    return Race(sink=sink, table=table, theirs=theirs, before=before)


def row_ids_of(sink: Sink) -> dict[int, int]:
    """Return the ids of the rows of a table of version 3, by their keys."""
    return {row["id"]: row["_row_id"] for row in read_by_tasks(sink, columns="id,_row_id")}


def check_row_ids(race: Race) -> None:
    """Assert that each row has an id of its own, and those that were there before have the one that they had.

    A key that the runtime deletes may come back by an upsert: then it is another row.
    """
    found = row_ids_of(race.sink)
    assert len(set(found.values())) == len(found), race.theirs.statement
    stayed = found.keys() & race.row_ids.keys() & {row[0] for row in race.theirs.applied(race.before)}
    assert {key: found[key] for key in stayed} == {key: race.row_ids[key] for key in stayed}, race.theirs.statement


def check(races: HeldCatalog, tables: Mapping[str, tuple[Race, list[Rows]]]) -> None:
    """Assert that each table, read by the runtime and by the spec, has rows that it may have, and is whole."""
    scans = [f"SELECT '{name}', id, region, amount FROM db.{race.table}" for name, (race, _) in tables.items()]  # noqa: S608
    read: dict[str, Rows] = {name: [] for name in tables}
    for name, *row in races.jvm.run(" UNION ALL ".join(scans)).rows:
        read[name].append(tuple(row))
    for name, (race, allowed) in tables.items():
        found = sorted(read[name])
        assert found in [sorted(rows) for rows in allowed], name
        assert sorted(tuple(row.values()) for row in read_by_tasks(race.sink)) == found, name
        if race.row_ids:
            check_row_ids(race)
        else:
            assert sorted(tuple(row.values()) for row in rows_of(race.sink.table())) == found, name
            if not keyed_deletes(race.sink.table()):
                assert sorted(tuple(row.values()) for row in race.sink.rows()) == found, name
        options = {"warehouse": str(race.sink.options.warehouse)}
        verified = iceberg_ds.verify(f"db.{race.table}", options=options, deep=True)
        assert verified.ok, f"{name}: {verified}"


# What rows with deletion vectors and ids are changed by.
IN_VERSION_3 = [("upsert by marks", "3"), ("upsert by rewriting", "3")]


def theirs_of(version: str) -> dict[str, Theirs]:
    """Return what the runtime does to tables of a version: there is nothing to do for it where it would not commit."""
    return {kind: theirs for kind, theirs in THEIRS.items() if version == "2" or "position deletes" not in kind}


@EXHAUSTIVE
@pytest.mark.parametrize(("name", "version"), [*((name, "2") for name in OURS), *IN_VERSION_3])
def test_runtime_that_began_before_lands_rightly_or_is_refused(races: HeldCatalog, name: str, version: str) -> None:
    """Rows that were deleted would come back with a compaction, or an update be lost or made of an old row."""
    ours = OURS[name]
    prepared = {kind: prepare(races, ours, theirs, version) for kind, theirs in theirs_of(version).items()}
    held: dict[str, Held] = {kind: races.begin(race.table, race.statement) for kind, race in prepared.items()}
    tables = {}

    for kind, race in prepared.items():
        held[kind].wait()
        ours.run(race.sink)
        refusal = held[kind].let_go()
        assert refusal is None or any(text in refusal for text in REFUSALS), f"{kind}: {refusal}"
        after, apply = ours.applied(race.before), race.theirs.applied
        serial = [apply(after), ours.applied(apply(race.before))]
        tables[kind] = race, serial if refusal is None else [after]

    check(races, tables)


@EXHAUSTIVE
@pytest.mark.parametrize(
    ("name", "version"),
    [*((name, "2") for name in OURS if name != "epoch and conversion by rewriting"), *IN_VERSION_3],
)
def test_sink_that_began_before_lands_rightly(races: HeldCatalog, name: str, version: str) -> None:
    """Rows that the runtime changed or moved meanwhile would be there twice, be lost, or come back."""
    ours = OURS[name]
    tables = {}

    for number, (kind, theirs) in enumerate(theirs_of(version).items()):
        race = prepare(races, ours, theirs, version)
        step = ours.steps[(number + list(OURS).index(name)) % len(ours.steps)]
        with meanwhile(step, lambda race=race: races.jvm.run(race.statement)) as done:  # type: ignore[misc]  # bound now
            ours.run(race.sink)
        assert done, f"{kind}: it never came to {step}"
        tables[kind] = race, [ours.applied(race.theirs.applied(race.before)), theirs.applied(ours.applied(race.before))]

    check(races, tables)
