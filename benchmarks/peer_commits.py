"""The commits of `bench_peer.py` without the writes before them: the sink's writers beside Iceberg's Java library.

Ours: a Python process unpickles what tasks have reported of files that they really wrote, and commits it
(`peer_committer`). The runtime's: the same calls of the Java library that its Spark sink makes on the driver, in a warm
Java (`peer_java`). Both write manifests, a manifest list and table metadata, and change an SQLite catalog. Neither
opens a data file; ours looks whether each local one is there.
"""

from __future__ import annotations

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from commit_case import make_table
from harness import Sample, Settings, load_average
from peer_files import ManyFiles, check_table, create_table
from peer_place import NAMESPACE, OWN_PYTHON, Place
from pyiceberg.catalog import Catalog, load_catalog
from remote import Remote
from support.peer.jvm_peer import CATALOG

CONSECUTIVE = "commits in a row"


def files_label(files: int) -> str:
    """Return how results name a commit of so many files."""
    return f"{files:,} file{'s' if files > 1 else ''}"


def snapshots_label(snapshots: int, *, is_own: bool) -> str:
    """Return how results name a commit onto so many snapshots, after one of its own or of the other side."""
    return f"1 file onto {snapshots:,} snapshots, after {'its own' if is_own else 'the other side'}"


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure commits of many files, onto many snapshots, and in a row."""
    place = Place(folder=scratch / "commits")
    samples = []
    with place.session_of_both() as java:
        catalog = load_catalog(CATALOG, **place.properties)
        for files in settings.files:
            samples += _commits_of_files(settings, ManyFiles(scratch / f"files-{files}", files), java, catalog)
        with _sides(place, java) as (ours, jvm):
            for snapshots in settings.snapshots:
                name = f"s{snapshots}"
                make_table(catalog, name, snapshots, 1)
                java.ask("hold_files", table=f"{NAMESPACE}.{name}_seed")
                samples += _commits_onto(settings, name, snapshots, ours, jvm)
                check_table(catalog, name, 1, 1 + 4 * (settings.rounds + 1))
            samples += _commits_in_a_row(settings, catalog, ours, jvm)
    return samples


def _commits_of_files(settings: Settings, many: ManyFiles, java: Remote, catalog: Catalog) -> list[Sample]:
    label = files_label(many.files)
    many.commit()
    held = f"{NAMESPACE}.held_{many.files}"
    java.ask("sql", statement=f"CALL system.register_table('{held}', '{many.metadata_file()}')")
    if (found := java.ask("hold_files", table=held)) != many.files:
        raise RuntimeError(f"Java sees {found} files of {many.files}")
    samples = []
    for number in range(settings.rounds + 1):
        for variant in sorted(("ours", "jvm"), reverse=bool(number % 2)):
            load = load_average()
            if variant == "ours":
                result = many.commit()
            else:
                name = f"jvm_{many.files}_{number}"
                create_table(catalog, name, is_partitioned=True)
                result = java.ask("commit_all", table=f"{NAMESPACE}.{name}")
                check_table(catalog, name, many.files, many.files, many.rows)
            value = result.pop("seconds") * 1000
            samples.append(_sample(label, variant, number, value, {**result, "load_before": load}))
    return [sample for sample in samples if sample.round]  # the first round warms up


def _sample(case: str, variant: str, number: int, value: float, details: dict[str, float]) -> Sample:
    print(f"round {number}, {case}, {variant}: {value:.0f} ms", flush=True)
    return Sample(case=case, variant=variant, round=number, value=value, details=details)


class _Side(ABC):
    """One side that commits micro-batches of one file, warm; each table gets one query."""

    name = ""

    def __init__(self) -> None:
        self._query = str(uuid.uuid4())
        self._epochs: dict[str, int] = {}

    def commit(self, table: str) -> float:
        """Commit the next micro-batch to a table of the namespace and return the seconds."""
        epoch = self._epochs[table] = self._epochs.get(table, -1) + 1
        return self._commit(f"{NAMESPACE}.{table}", self._query, epoch)

    @abstractmethod
    def _commit(self, table: str, query: str, epoch: int) -> float:
        """Commit that micro-batch of a query and return the seconds."""


class _Ours(_Side):
    """The sink: one process writes, another one commits."""

    name = "ours"

    def __init__(self, writer: Remote, committer: Remote, folder: Path) -> None:
        super().__init__()
        self._writer, self._committer = writer, committer
        self._target = str(folder / "epoch.pickle")

    def _commit(self, table: str, query: str, epoch: int) -> float:
        self._writer.ask("write_epoch", table=table, query=query, epoch=epoch, target=self._target)
        return float(self._committer.ask("commit_epoch", target=self._target, epoch=epoch))


class _Java(_Side):
    """The runtime's library."""

    name = "jvm"

    def __init__(self, java: Remote) -> None:
        super().__init__()
        self._java = java

    def _commit(self, table: str, query: str, epoch: int) -> float:
        return float(self._java.ask("commit_one", table=table, query=query, epoch=epoch))


@contextlib.contextmanager
def _sides(place: Place, java: Remote) -> Iterator[tuple[_Side, _Side]]:
    arguments = {"options": place.options}
    with (
        Remote(OWN_PYTHON, "peer_committer.py", place.folder / "writer", arguments) as writer,
        Remote(OWN_PYTHON, "peer_committer.py", place.folder / "committer", arguments) as committer,
    ):
        yield _Ours(writer, committer, place.folder), _Java(java)


def _commits_onto(settings: Settings, table: str, snapshots: int, ours: _Side, jvm: _Side) -> list[Sample]:
    """Commit twice by each side in every round, so that each follows the other and itself."""
    samples = []
    for number in range(settings.rounds + 1):
        for side, is_own in ((ours, False), (ours, True), (jvm, False), (jvm, True)):
            load = load_average()
            value = side.commit(table) * 1000
            label = snapshots_label(snapshots, is_own=is_own)
            samples.append(_sample(label, side.name, number, value, {"load_before": load}))
    return [sample for sample in samples if sample.round]  # the first round warms up


def _commits_in_a_row(settings: Settings, catalog: Catalog, ours: _Side, jvm: _Side) -> list[Sample]:
    """Commit again and again by each side to a table of its own, the two in turn."""
    samples = []
    for side in (ours, jvm):
        create_table(catalog, f"row_{side.name}", is_partitioned=False)
    for number in range(1, settings.consecutive + 1):
        for side in (ours, jvm) if number % 2 else (jvm, ours):
            value = side.commit(f"row_{side.name}") * 1000
            samples.append(Sample(case=CONSECUTIVE, variant=side.name, round=number, value=value))
    for side in (ours, jvm):
        check_table(catalog, f"row_{side.name}", 1, settings.consecutive)
    return samples
