"""The conformance check: it says of each catalog what it does not keep, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.exceptions import ForbiddenError
from support.catalogs.faulty_catalog import FaultyCatalog, connection_lost
from support.catalogs.lax_catalog import HEEDLESS, NESSIE, LaxCatalog, Trap
from support.tables.sink import Sink

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.inspect.conformance import ConformanceResult, check_conformance

ALL_OF_IT = "rows land exactly once"
SEVERAL = "of a request for several tables, all changes are carried out or none"


def check(catalog: LaxCatalog | FaultyCatalog) -> dict[str, ConformanceResult]:
    """Check a catalog in memory; return the results by name."""
    # The client only calls methods that the faulty catalog has, too.
    client = CatalogClient(catalog, CatalogSettings(name="lax", properties=()))  # type: ignore[arg-type]
    return {result.name: result for result in check_conformance(client, ("db",), another=lambda: client)}


def failed(results: dict[str, ConformanceResult]) -> set[str]:
    """Return the names of what did not pass."""
    return {name for name, result in results.items() if result.passed is not True}


def files(folder: Path) -> list[Path]:
    """Return everything below a folder."""
    return sorted(folder.rglob("*"))


def test_sqlite_keeps_the_protocol_and_nothing_is_left(sink: Sink, warehouse: Path) -> None:
    """A user would mistrust a catalog that is sound, or find scratch tables in it."""
    sink.append(1)
    before = files(warehouse)

    results = check_conformance(sink.catalog, ("db",))

    assert [result for result in results if not result.passed] == []
    assert results[-1].name == ALL_OF_IT
    assert "atomic over tables" in {result.detail for result in results if result.name == SEVERAL}
    assert files(warehouse) == before
    assert sink.catalog.raw.list_tables("db") == [("db", "t")]


def test_namespace_that_was_missing_is_removed(sink: Sink, warehouse: Path) -> None:
    """A check would leave a namespace behind."""
    results = check_conformance(sink.catalog, ("scratch",))

    assert results[-1].passed
    assert sink.catalog.raw.list_namespaces() == []
    assert [path for path in files(warehouse) if path.is_file()] == [warehouse / "catalog.db"]


def test_sound_server_passes(tmp_path: Path) -> None:
    """The findings below would be those of the fake."""
    assert failed(check(LaxCatalog(tmp_path))) == set()
    assert [path for path in files(tmp_path) if path.is_file()] == []


def test_what_nessie_does_not_keep_is_named_and_the_sink_makes_up_for_it(tmp_path: Path) -> None:
    """A user of Nessie would not learn what other engines may lose there."""
    results = check(LaxCatalog(tmp_path, NESSIE, {"nessie.is-nessie-catalog": "true"}))

    assert failed(results) == {
        "a commit for an empty branch is refused if it has a snapshot",
        "of two first commits into an empty table one is refused",
        "all snapshots are shown",
        "branches are held",
        "a snapshot does not take back a change of the schema",
    }
    assert results[ALL_OF_IT].passed
    assert not any(result.is_needed for result in results.values() if not result.passed)


def test_catalog_with_nessies_gaps_and_another_name_is_not_trusted(tmp_path: Path) -> None:
    """A user would rely on guards that are not in use."""
    results = check(LaxCatalog(tmp_path, NESSIE))

    assert results[ALL_OF_IT].passed is False
    assert "of first commits of this sink at once, none is lost" in failed(results)


def test_catalog_that_looks_at_no_requirement_is_not_trusted(tmp_path: Path) -> None:
    """A user would lose rows of concurrent writers without a warning."""
    results = check(LaxCatalog(tmp_path, HEEDLESS))

    assert results[ALL_OF_IT].passed is False
    assert results[ALL_OF_IT].next_step.startswith("Use a single writer")
    assert {
        "a commit from an old snapshot is refused",
        "of commits at once, none is lost",
        "a commit is carried out whole or not at all",
        "a commit for another table of the same name is refused",
    } <= failed(results)


@pytest.mark.parametrize(
    ("trap", "name", "is_fatal"),
    [
        (Trap.PROPERTIES_APART, "a commit is carried out whole or not at all", True),
        (Trap.PROPERTIES_DROPPED, "table properties last", True),
        (Trap.CREATES_AGAIN, "a table that exists is not created again", True),
        (Trap.ONE_SNAPSHOT, "all snapshots are shown", False),
        (Trap.ONE_BRANCH, "branches are held", False),
        (Trap.SCHEMA_OF_SNAPSHOT, "a snapshot does not take back a change of the schema", False),
    ],
)
def test_each_gap_is_found(tmp_path: Path, trap: Trap, name: str, *, is_fatal: bool) -> None:
    """A user would trust a catalog that does not deserve it."""
    results = check(LaxCatalog(tmp_path, frozenset({trap})))

    assert name in failed(results)
    assert results[name].next_step
    assert results[ALL_OF_IT].passed is not is_fatal


@pytest.mark.parametrize(
    ("traps", "detail"),
    [
        (frozenset(), "one table after the other: the catalog takes no request for several tables"),
        (frozenset({Trap.MANY_TABLES}), "atomic over tables"),
    ],
)
def test_check_says_what_a_catalog_does_with_several_tables(
    tmp_path: Path, traps: frozenset[Trap], detail: str
) -> None:
    """A user would not know whether readers may see half an epoch."""
    found = check(LaxCatalog(tmp_path, traps))[SEVERAL]

    assert (found.passed, found.detail) == (True, detail)


def test_server_that_carries_out_a_part_of_a_request_is_found_out(tmp_path: Path) -> None:
    """A user would believe a server that says that it takes several tables at once."""
    results = check(LaxCatalog(tmp_path, frozenset({Trap.TABLE_BY_TABLE})))

    assert failed(results) == {SEVERAL}
    assert results[SEVERAL].detail.startswith("one table after the other: ")
    assert results[ALL_OF_IT].passed


def test_catalog_that_fails_is_neither_sound_nor_broken(tmp_path: Path) -> None:
    """A user without the right to write would be told that the catalog loses rows."""
    catalog = FaultyCatalog(LaxCatalog(tmp_path))
    catalog.fail_next(1000, lambda: ForbiddenError("no right to write"))

    results = check(catalog)

    assert {result.passed for name, result in results.items() if name != SEVERAL} == {None}
    assert "no right to write" in results["a commit from an old snapshot is refused"].detail
    assert results[ALL_OF_IT].detail.startswith("not known")


def test_what_could_not_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would find a scratch table and not know where it came from."""
    catalog = LaxCatalog(tmp_path)

    def refuse(_: object) -> None:
        raise ForbiddenError("no right to drop")

    monkeypatch.setattr(catalog, "drop_table", refuse)

    left = check(catalog)["scratch tables are removed"]

    assert left.passed is False
    assert "table db.iceberg_ds_check_" in left.detail
    assert "no right to drop" in left.detail


def test_answer_that_was_lost_is_no_finding(tmp_path: Path) -> None:
    """A network that drops one answer would make a sound catalog look broken."""
    catalog = FaultyCatalog(LaxCatalog(tmp_path))
    catalog.fail_next(1, connection_lost)

    results = check(catalog)

    assert results["a table is created with its first snapshot in one commit"].passed is None
    assert results[ALL_OF_IT].passed
