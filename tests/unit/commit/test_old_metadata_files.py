"""Tables that delete old metadata files: never one that is needed, whatever becomes of the commits around it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, false_refusal, refusal
from support.checks.invariants import check_sound
from support.exhaustive import EXHAUSTIVE
from support.tables.sink import Sink, embedded_options, epoch, local, rows

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.errors import IcebergSinkError

pytestmark = pytest.mark.usefixtures("waits")

ERRORS = {"refused": refusal, "lost": connection_lost, "falsely refused": false_refusal}
STEPS = st.one_of(
    st.tuples(st.just("other"), st.integers(1, 3)),
    st.tuples(st.just("race"), st.integers(1, 3)),
    st.tuples(st.sampled_from(sorted(ERRORS)), st.sampled_from(When)),
    st.tuples(st.just("replay"), st.none()),
)


def stored(table: Table) -> set[Path]:
    """Return the metadata files in the table's folder."""
    return set(local(table.metadata.location).rglob("*.metadata.json"))


def known(table: Table) -> set[Path]:
    """Return the metadata files that the table stands at, or names in its log."""
    return {
        local(path) for path in (table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log))
    }


def keeping(sink: Sink, versions: int) -> Sink:
    """Return the sink whose new table keeps so many old metadata files."""
    properties = {"write.metadata.previous-versions-max": str(versions)}
    return replace(sink, options=replace(sink.options, table_properties=properties))


@pytest.mark.parametrize("versions", [1, 2, 5])
def test_as_many_old_files_stay_as_the_table_says(sink: Sink, versions: int) -> None:
    """The folder would grow with each commit, or the table lose its history of metadata."""
    few = keeping(sink, versions)
    for number in range(8):
        few.append(number, of_epoch=epoch(number))

    assert stored(sink.table()) == known(sink.table())
    assert len(stored(sink.table())) == versions + 1
    assert sink.ids() == list(range(8))


def _faulty(sink: Sink) -> tuple[FaultyCatalog, Sink]:
    faulty = FaultyCatalog(connect(catalog_settings(sink.options)).raw)
    client: Any = CatalogClient(faulty, catalog_settings(sink.options))  # type: ignore[arg-type]  # has what is called
    return faulty, replace(sink, catalog=client)


@settings(max_examples=15)
@given(versions=st.integers(1, 3), steps=st.lists(STEPS, min_size=1, max_size=6))
@EXHAUSTIVE
def test_stream_beside_others_stays_exactly_once_with_hardly_any_old_metadata(
    versions: int, steps: list[tuple[str, Any]]
) -> None:
    """The metadata file that the table stands at would be deleted, or an epoch come twice: the table would be lost."""
    with TemporaryDirectory() as folder:
        options = embedded_options(Path(folder))
        other = keeping(Sink(catalog=connect(catalog_settings(options)), options=options), versions)
        faulty, stream = _faulty(other)
        expected = [0]
        stream.append(0, of_epoch=epoch(0))
        for number, (kind, what) in enumerate(steps, start=1):
            if kind == "other":
                for one in range(what):
                    other.append(1000 * number + one)
                    expected.append(1000 * number + one)
                continue
            faulty.forget()
            if kind == "race":
                rivals = [1000 * number + one for one in range(what)]
                # The commits of others fall between the look at the table and the request.
                faulty.before_commit(faulty.commits + 1, lambda rivals=rivals: [other.append(one) for one in rivals])
                expected += rivals
            elif kind in ERRORS:
                faulty.fail_next(1, ERRORS[kind], when=what)
            messages = stream.write(rows(number), of_epoch=epoch(number))
            for _ in range(2 if kind == "replay" else 1):
                with suppress(IcebergSinkError):
                    commit_write(stream.catalog, messages, epoch_id=number)
            with suppress(IcebergSinkError):  # what became of it is found by the replay
                commit_write(stream.catalog, stream.write(rows(number), of_epoch=epoch(number)), epoch_id=number)
            expected.append(number)

            table = other.table()
            assert known(table) <= stored(table)
        assert other.ids() == sorted(expected)
        check_sound(other.table())
