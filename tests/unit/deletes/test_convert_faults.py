"""Conversions under a failing catalog and on a failing disk: the rows stay, and nothing is left that nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    false_refusal,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_clean, check_sound, stored_files, unreferenced_files
from support.checks.reader import listed, rows_of
from support.exhaustive import one_of_each
from support.faults.io import FAULTY_IO, HARMS, Doing, FileFault, FileKind, Harm, strike
from support.keys.conversions import ENCODINGS, convert, keyed_deletes
from support.keys.messages import KEYED_SCHEMA, keyed_tasks, plan_by_keys
from support.tables.sink import NAME, Sink, epoch

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, IcebergSinkError
from iceberg_ds.options.parse import parse_options
from iceberg_ds.snapshots.refs import branch_history

pytestmark = pytest.mark.usefixtures("waits")

EVERY_ERROR = [refusal, throttled, state_unknown, server_error, connection_lost, timed_out, forbidden, false_refusal]
AFTER = [(0, "EU", 0), (1, "US", 10), (3, "EU", 3), (5, "DE", 50)]
# The rest of a commit is the same whatever is committed.
OF_CONVERSIONS = (FileKind.DATA, FileKind.MANIFEST)
FILES = [
    (FileFault(file=file, doing=doing, harm=harm, numbers=numbers), encoding)
    for file in FileKind
    for doing in (Doing.OPEN, Doing.WRITE, Doing.CLOSE, Doing.READ)
    for harm in HARMS[doing]
    for numbers in (frozenset({1}), *((frozenset({2}),) if file is FileKind.DATA else ()), None)
    for encoding in (ENCODINGS if file in OF_CONVERSIONS else ENCODINGS[:1])
    # What no size is recorded for before the commit cannot be seen.
    if harm is not Harm.TRUNCATE_SILENTLY or file is FileKind.DATA
]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table with two epochs by key."""
    sink.create(KEYED_SCHEMA)
    put(sink, 0, *[("I", key, "EU", key, 0) for key in range(4)])
    put(sink, 1, ("U", 1, "US", 10, 1), ("D", 2, "EU", None, 1), ("I", 5, "DE", 50, 1))
    return sink


def put(sink: Sink, number: int, *events: Any) -> None:
    """Write and commit an epoch by key."""
    sink.commit(keyed_tasks(plan_by_keys(sink), list(events), of_epoch=epoch(number)))


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows, read as the spec says."""
    return sorted(tuple(row.values()) for row in rows_of(sink.table()))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", EVERY_ERROR)
def test_failing_commit_lands_once_or_not_at_all(  # noqa: PLR0913, PLR0917  # one case of a table
    keyed: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    error: Callable[[], Exception],
    when: When,
    encoding: RowEncoding,
) -> None:
    """Rows would be there twice or deleted ones come back, whenever a catalog stumbles."""
    faulty_catalog.fail_next(1, error, when=when)

    try:
        convert(faulty_sink, encoding)
    except IcebergSinkError:
        assert error is forbidden
        assert keyed_deletes(keyed.table())
    else:
        assert not keyed_deletes(keyed.table())
        assert len(list(branch_history(keyed.table().metadata, "main"))) == 3
    assert values(keyed) == AFTER
    check_clean(keyed.table())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("error", [connection_lost, refusal])
def test_catalog_that_never_answers_leaves_files_exactly_if_they_may_be_needed(
    keyed: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    error: Callable[[], Exception],
    encoding: RowEncoding,
) -> None:
    """A table would lose files that it may yet refer to; or those of refused conversions pile up."""
    before = stored_files(keyed.table().location())
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError if error is connection_lost else CommitConflictError):
        convert(faulty_sink, encoding)

    left = stored_files(keyed.table().location()) - before
    assert bool(left) == (error is connection_lost)
    assert values(keyed) == AFTER
    check_sound(keyed.table())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_attempts_that_are_lost_to_a_stream_add_nothing_twice(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, encoding: RowEncoding
) -> None:
    """Each epoch that is faster would leave manifests behind, or its deletes be dropped."""
    for number in (1, 2, 3):
        event = ("U", 3, "EU", 100 + number, number)
        faulty_catalog.before_commit(number, lambda number=number, event=event: put(keyed, 1 + number, event))

    convert(faulty_sink, encoding)

    assert faulty_catalog.commits == 4
    assert [found.number for found in keyed_deletes(keyed.table())] == [5, 4, 3]
    assert values(keyed) == [*AFTER[:2], (3, "EU", 103), AFTER[3]]
    check_clean(keyed.table())


@pytest.mark.parametrize(
    "faulty",
    one_of_each(FILES, lambda faulty: (faulty[0].file, faulty[0].doing), lambda faulty: (faulty[1], faulty[0].harm)),
    ids=lambda faulty: "-".join(map(str, faulty)),
)
def test_disk_that_fails_changes_no_row(keyed: Sink, faulty: tuple[FileFault, RowEncoding]) -> None:
    """Rows would be lost or come back, the table be broken, or files of a failure be left for ever."""
    fault, encoding = faulty
    folder = keyed.options.warehouse
    options = parse_options(
        {
            "table": NAME,
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{folder}/catalog.db",
            "catalog.warehouse": f"file://{folder}",
            "catalog.py-io-impl": FAULTY_IO,
        }
    )
    failing = Sink(catalog=connect(catalog_settings(options)), options=options)

    with strike(fault) as damage:
        try:
            convert(failing, encoding)
        except IcebergSinkError as error:
            problem: IcebergSinkError | None = error
        else:
            problem = None

    table = keyed.table()
    assert values(keyed) == AFTER
    check_sound(table)
    if problem is None:
        assert not keyed_deletes(table)
    else:
        assert damage.struck
        assert keyed_deletes(table)
        assert listed(table)[DataFileContent.POSITION_DELETES] == []
    if not isinstance(problem, CommitStateUnknownError):
        assert unreferenced_files(table) == set()
    convert(keyed, encoding)
    assert [tuple(row.values()) for row in keyed.rows()] == AFTER
