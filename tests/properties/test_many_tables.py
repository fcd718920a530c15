"""Random epochs over several tables, with faults, races and lost changes: exactly what a dictionary of tables says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    false_refusal,
    refusal,
    state_unknown,
)
from support.checks.invariants import check_sound
from support.exhaustive import examples
from support.tables.epochs import Tables
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CommitConflictError

pytestmark = pytest.mark.usefixtures("waits")

NAMES = ("a", "b", "c")
EVENTS = (
    "fine",
    "replayed",
    "half before",
    "refused",
    "falsely refused",
    "lost before",
    "lost after",
    "unknown after",
    "late",
    "dropped change",
    "faster writer",
    "second driver",
)


@pytest.mark.parametrize("in_turn", [False, True], ids=["together", "in turn"])
@settings(max_examples=examples(30))
@given(
    steps=st.lists(
        st.tuples(st.sets(st.sampled_from(NAMES), min_size=1), st.sampled_from(EVENTS), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    )
)
def test_any_sequence_of_epochs_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[set[str], str, int]], *, in_turn: bool
) -> None:
    """Rows of a table would be lost or doubled in a case that nobody thought of."""
    options = embedded_options(tmp_path_factory.mktemp("model") / "warehouse")
    named = catalog_settings(options)
    tables = Tables(of_one=Sink(catalog=connect(named), options=options), names=NAMES)
    faulty_catalog = FaultyCatalog(load_catalog(named.name, **dict(named.properties)))
    client = CatalogClient(faulty_catalog, named)  # type: ignore[arg-type]  # it has the methods that are called
    faulty = Tables(of_one=Sink(catalog=client, options=options), names=NAMES)
    if in_turn:
        faulty_catalog.can_commit_tables = False
    expected: dict[str, list[int]] = {}
    for number, (names, event, passed) in enumerate(steps):
        faulty_catalog.pass_next(passed if in_turn else 0)
        expected = play(tables, faulty, faulty_catalog, expected, number, sorted(names), event)
        faulty_catalog.forget()
        faulty_catalog.deliver()

        assert tables.ids() == {name: sorted(ids) for name, ids in expected.items()}, (number, names, event, passed)
    for name in expected:
        check_sound(tables.sink(name).table())


def play(  # noqa: PLR0913, PLR0917  # the parts of the model
    tables: Tables,
    faulty: Tables,
    catalog: FaultyCatalog,
    before: dict[str, list[int]],
    number: int,
    names: list[str],
    event: str,
) -> dict[str, list[int]]:
    """Commit an epoch while something happens; return what each table has then."""
    ids = [10 * number + 1]
    writes = faulty.write(number, dict.fromkeys(names, ids))
    after = {**before, **{name: [*before.get(name, []), *ids] for name in names}}
    next_one = catalog.commits + 1
    match event:
        case "replayed":
            tables.commit(tables.write(number, dict.fromkeys(names, ids)))
        case "half before":
            tables.sink(names[0]).commit(tables.write(number, {names[0]: ids})[0].commits)
        case "refused" | "falsely refused":
            catalog.fail_next(1, refusal if event == "refused" else false_refusal)
        case "lost before" | "lost after":
            catalog.fail_next(1, connection_lost, when=When.AFTER if event == "lost after" else When.BEFORE)
        case "unknown after":
            catalog.fail_next(1, state_unknown, when=When.AFTER)
        case "late":
            catalog.hold_next()
        case "dropped change":
            catalog.lose_changes(names[-1])
        case "faster writer" if names[0] in before:
            other = tables.sink(names[0])
            catalog.before_commit(next_one, lambda: other.append(10 * number + 2) and None)
            after[names[0]] = [*after[names[0]], 10 * number + 2]
        case "second driver" if set(names) <= before.keys():
            theirs = tables.write(number, {name: [10 * number + 3] for name in names})
            catalog.before_commit(next_one, lambda: tables.commit(theirs) and None)
            with pytest.raises(CommitConflictError, match="another live driver"):
                faulty.commit(writes)
            return {**before, **{name: [*before[name], 10 * number + 3] for name in names}}
    faulty.commit(writes)
    return after
