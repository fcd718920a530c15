"""What writes and commits cost does not grow: requests, files, bytes, copies, modules, memory. Nothing is timed.

`limits.py` holds the figures; `make guard` prints all of them, and notes them anew if they are to be other ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from guard.limits import MEASURED, growths, limit_of, sunk
from guard.measuring import FORBIDDEN, MEASURES, ON_HISTORY, ON_REST_HISTORY, Figures, Place, measure
from guard.show import table, write
from support.exhaustive import EXHAUSTIVE
from support.services.servers import ObjectStore

# Starts a process for each role of a write.
SLOW = "roles"
# The whole table is in each metadata file, and PyIceberg makes an object of each snapshot in it.
GROWS_WITH_HISTORY = {"commit: table metadata bytes", "commit: Python calls", "plan: Python calls"}
GROWS_WITH_HISTORY |= {"commit: models copied deeply"}


@pytest.fixture(scope="module")
def measured(object_store: ObjectStore) -> Iterator[Callable[[str], Figures]]:
    """Return what measures a group of figures, once."""
    # As `make guard` does, not in a folder of pytest: what tasks are sent grows with the names of folders.
    with tempfile.TemporaryDirectory() as name:
        place = Place(store=object_store, folder=Path(name))
        yield cache(lambda group: measure(group, place))


@pytest.mark.parametrize("group", [pytest.param(one, marks=EXHAUSTIVE if one == SLOW else ()) for one in MEASURES])
def test_no_figure_grew(measured: Callable[[str], Figures], group: str) -> None:
    """Writes would become slower or dearer with each release, and nobody would notice."""
    grown = growths(measured(group))

    assert not grown, "\n".join(map(str, grown))


@pytest.mark.parametrize(
    ("group", "scenes"), [("micro-batches", ON_HISTORY), ("rest", ON_REST_HISTORY)], ids=["sql", "rest"]
)
def test_a_long_history_costs_no_request_and_no_copy(
    measured: Callable[[str], Figures], group: str, scenes: dict[int, str]
) -> None:
    """A stream would become slower with each micro-batch that it commits."""
    short, long = (
        {name.partition(" / ")[2]: number for name, number in measured(group).items() if name.startswith(f"{scene} / ")}
        for scene in scenes.values()
    )

    assert short
    assert {growth.name for growth in growths(long, short)} <= GROWS_WITH_HISTORY


def test_nothing_is_listed_but_the_place_of_a_new_table(measured: Callable[[str], Figures]) -> None:
    """A policy without the right to list would not do, and a write would take longer the more files there are."""
    every = {name: number for group in ("batches", "micro-batches") for name, number in measured(group).items()}
    names = {name.partition(": ")[2] for name in every}
    asked = {name for name in names if name.startswith("S3")} - {"S3 GET list"}

    assert {name: number for name, number in every.items() if "S3 GET list" in name} == {
        "first batch write / plan: S3 GET list": 1
    }
    assert {name.split()[1] for name in asked} <= {"GET", "PUT", "DELETE"}
    assert {name.partition(" of a ")[2] for name in asked} == {
        "data file",
        "manifest",
        "manifest list",
        "table metadata",
    }


def test_each_kind_of_figure_is_in_the_table() -> None:
    """A scene that counts nothing would never fail."""
    for part in ("S3 PUT of a data file", "SQL SELECT", "REST POST table", "writer bytes", "Arrow memory", "modules"):
        assert [name for name in MEASURED if part in name], part


def test_no_task_loads_what_is_the_drivers() -> None:
    """Every executor would pay for the catalog's libraries, and have the code that reads credentials."""
    loaded = {name.rpartition(" ")[2] for name in MEASURED if name.startswith("task, ") and "modules of" in name}

    assert loaded <= set(FORBIDDEN)


def test_figure_that_grew_is_told_with_the_place_to_look_at() -> None:
    """Nobody would know what to mend."""
    name = "batch write / commit: S3 GET of a manifest"
    (grown,) = growths(
        {name: 3, "batch write / tasks: message bytes": 102}, {name: 1, "batch write / tasks: message bytes": 100}
    )

    assert str(grown).startswith(f"{name} grew from 1 to 3 (limit 1). Look at io/s3_io.py")
    assert limit_of("x: data file bytes", 100) == 103


def test_every_figure_has_a_place_to_look_at() -> None:
    """The test would fail with an error of its own."""
    assert all(map(str, growths({name: number * 2 + 1 for name, number in MEASURED.items()})))


def test_figures_are_noted_and_shown(tmp_path: Path) -> None:
    """The table could not be brought up to date, or would hide what sank."""
    file = tmp_path / "limits.py"
    file.write_text('before = 1\nMEASURED: dict[str, int] = {\n    "old: bytes": 1,\n}\nafter = 2\n')
    write({"b: S3 PUT": 2, "a: writer bytes": 12_345}, file)
    name = next(name for name in MEASURED if "S3 PUT of a data file" in name)

    assert file.read_text() == (
        'before = 1\nMEASURED: dict[str, int] = {\n    "a: writer bytes": 12_345,\n    "b: S3 PUT": 2,\n}\nafter = 2\n'
    )
    assert name in sunk({})
    assert f"{name:<78} {0:>12} {MEASURED[name]:>12} {MEASURED[name]:>12}  sank: note it" in table({})
