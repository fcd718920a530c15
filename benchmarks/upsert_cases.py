"""What `bench_upserts.py` measures: writes by key beside MERGE INTO, and how the table reads later.

One warm session of the runtime's Spark has both sinks. Every write begins with the same snapshot of one table: after
it, the table is checked, set back, and what was written is expired, all outside of the measured time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import Sample, Settings, load_average
from peer_place import NAMESPACE, Place
from remote import Remote
from support.peer.jvm_peer import CATALOG

TABLE = f"{NAMESPACE}.orders"
AWAKE = f"{NAMESPACE}.awake"
BASE_FILES = 16
WRITES: Mapping[str, str] = {
    "ours": "icebergsink, keys",
    "ours-distributed": "icebergsink, distribute and keys",
    "ours-published": "icebergsink, keys and publish-converted",
    "ours-position": "iceberg_ds.upsert, position deletes",
    "ours-rewriting": "iceberg_ds.upsert, copy-on-write",
    "jvm-mor": "MERGE INTO, merge-on-read",
    "jvm-cow": "MERGE INTO, copy-on-write",
}
_ENCODINGS = {"ours-position": "position", "ours-vectors": "deletion-vector", "ours-rewriting": "copy-on-write"}
# Where an epoch waits for its conversion.
_STAGING_BRANCH = "main__unconverted"
_MODES = {"jvm-mor": "merge-on-read", "jvm-cow": "copy-on-write"}
_COLUMNS = "id BIGINT NOT NULL, region STRING, amount DOUBLE, units INT, at TIMESTAMP, note STRING"
_NAMES = ("region", "amount", "units", "at", "note")
_BY_KEY = {"keys": "id", "operation-column": "op"}
_TOTALS = "count(*), sum(id), sum(units), sum(CAST(amount * 100 AS BIGINT))"
_READ = f"SELECT count(*), sum(units), sum(amount), sum(length(note)) FROM {TABLE}"  # noqa: S608  # no outside input


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The table, ready to be changed.

    Attributes:
        place: The catalog.
        session: The session of both.
        base: The snapshot that every write begins with.
        table: Identifier of the table.
    """

    place: Place
    session: Remote
    base: int
    table: str = TABLE

    def sql(self, statement: str) -> list[list[Any]]:
        """Run a statement and return its rows."""
        found: list[list[Any]] = self.session.ask("sql", statement=statement)
        return found

    def write(self, variant: str, source: str) -> dict[str, float]:
        """Write changes in one of the ways."""
        if variant in _MODES:
            self.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('write.merge.mode' = '{_MODES[variant]}')")
            measured: dict[str, float] = self.session.ask("timed", statement=_merge(self.table, source))
        elif variant in _ENCODINGS:
            options = {**self.place.options, **_BY_KEY, "delete-encoding": _ENCODINGS[variant]}
            measured = self.session.ask("upsert", source=source, table=self.table, options=options)
        else:
            published = {"publish-converted": "true"} if variant == "ours-published" else {}
            options = {**self.place.options, **_BY_KEY, **published}
            measured = self.session.ask("append", sink="icebergsink", source=source, table=self.table, options=options)
        return measured

    def wake(self) -> None:
        """Let the sink write some rows elsewhere: Spark ends Python workers that had nothing to do for a minute."""
        options = {**self.place.options, **_BY_KEY}
        self.session.ask("append", sink="icebergsink", source="awake", table=AWAKE, options=options)

    def files(self) -> dict[str, float]:
        """Return what the newest snapshot added."""
        names = ("added-data-files", "added-delete-files", "added-files-size", "removed-files-size")
        columns = ", ".join(f"CAST(coalesce(summary['{name}'], '0') AS BIGINT)" for name in names)
        newest = f"SELECT {columns} FROM {self.table}.snapshots ORDER BY committed_at DESC LIMIT 1"  # noqa: S608
        (found,) = self.sql(newest)
        return dict(zip(names, found, strict=True))

    def head(self) -> int:
        """Return the table's snapshot."""
        ((found,),) = self.sql(f"SELECT snapshot_id FROM {self.table}.refs WHERE name = 'main'")  # noqa: S608
        return int(found)

    def set_back(self, snapshot: int, *, expires: bool = True) -> None:
        """Let the table have a snapshot again, and forget all later ones unless they are needed."""
        self._call("set_current_snapshot", f"snapshot_id => {snapshot}")
        self.sql(f"ALTER TABLE {self.table} DROP BRANCH IF EXISTS {_STAGING_BRANCH}")
        if expires:
            self._call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01', retain_last => 1")

    def compact(self) -> None:
        """Let the runtime rewrite all files that have deletes."""
        options = "'delete-file-threshold', '1', 'remove-dangling-deletes', 'true'"
        self._call("rewrite_data_files", f"options => map({options})")

    def rewrite(self, variant: str, sort_order: str | None = None) -> dict[str, float]:
        """Rewrite all data files, by the runtime or by the sink's package; return what was measured."""
        if variant == "ours":
            options = {**self.place.options, "rewrite-all": "true"}
            found: dict[str, float] = self.session.ask(
                "rewrite", table=self.table, options=options, sort_order=sort_order
            )
            return found
        sorting = "" if sort_order is None else f", strategy => 'sort', sort_order => '{sort_order}'"
        arguments = f"table => '{self.table}', options => map('rewrite-all', 'true'){sorting}"
        measured: dict[str, float] = self.session.ask(
            "timed", statement=f"CALL {CATALOG}.system.rewrite_data_files({arguments})"
        )
        return measured

    def totals(self) -> list[list[Any]]:
        """Return sums over the table's rows."""
        return self.sql(f"SELECT {_TOTALS} FROM {self.table}")  # noqa: S608  # no outside input

    def convert(self) -> None:
        """Let the sink's package turn deletes by keys into position deletes."""
        measured = self.session.ask("convert", table=self.table, options=self.place.options)
        print(f"converted in {measured['seconds']:.2f} s", flush=True)

    def _call(self, procedure: str, arguments: str) -> None:
        self.sql(f"CALL {CATALOG}.system.{procedure}(table => '{self.table}', {arguments})")


# What is done to a table with deletes before it is read, by its label.
TREATMENTS: Mapping[str, Callable[[Bench], None] | None] = {
    "as written": None,
    "after convert_deletes": Bench.convert,
    "after rewrite_data_files": Bench.compact,
}
BY_POSITION = "as iceberg_ds.upsert writes it"


def _merge(table: str, source: str) -> str:
    updated = ", ".join(f"t.{name} = s.{name}" for name in _NAMES)
    columns = ("id", *_NAMES)
    return (
        f"MERGE INTO {table} t USING {source} s ON t.id = s.id "  # noqa: S608  # no outside input
        f"WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {updated} "
        f"WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT ({', '.join(columns)}) "
        f"VALUES ({', '.join(f's.{name}' for name in columns)})"
    )


@contextlib.contextmanager
def prepared(
    settings: Settings,
    folder: Path,
    files: int = BASE_FILES,
    script: str = "upsert_server.py",
    conf: Mapping[str, str] | None = None,
) -> Iterator[Bench]:
    """Give a table with rows in so many files, and a session with these settings that runs a script."""
    place = Place(folder=folder)
    with place.session_of_both(conf, script=script) as session:
        bench = filled(Bench(place=place, session=session, base=0), settings, files)
        session.ask("changes", name="awake", order="clustered", number=0, keys=20, rows=settings.rows)
        yield bench


def filled(bench: Bench, settings: Settings, files: int = BASE_FILES, version: int = 2) -> Bench:
    """Create the table of `bench` in a format version, let the runtime fill it, and return it with its snapshot."""
    properties = f"'format-version' = '{version}', 'write.parquet.compression-codec' = 'zstd'"
    rest = f"USING iceberg TBLPROPERTIES ({properties}, 'write.distribution-mode' = 'none')"
    bench.sql(f"CREATE TABLE {bench.table} ({_COLUMNS}) {rest}")
    bench.sql(f"ALTER TABLE {bench.table} SET IDENTIFIER FIELDS id")
    bench.session.ask("fill", table=bench.table, rows=settings.rows, files=files)
    return replace(bench, base=bench.head())


def measure_writes(bench: Bench, settings: Settings) -> list[Sample]:
    """Write the changes of each order in each of the ways in every round, beginning with another way each time.

    Raises:
        RuntimeError: The ways do not come to the same table.
    """
    samples = []
    names = list(WRITES)
    for number in range(settings.rounds + 1):
        shift = number % len(names)
        for order in settings.orders:
            source = f"{order}_{number}"
            told = {"order": order, "number": number, "keys": settings.keys, "rows": settings.rows}
            bench.session.ask("changes", name=source, **told)
            bench.session.ask("distribute", name=f"{source}_by_key", of=source, keys=["id"], tasks=2)
            totals: dict[str, list[list[Any]]] = {}
            for variant in (*names[shift:], *names[:shift]):
                given = f"{source}_by_key" if variant == "ours-distributed" else source
                samples += _sample(bench, f"{order} keys", variant, number, given, totals)
            if len({str(found) for found in totals.values()}) != 1:
                raise RuntimeError(f"{order} keys, round {number}: other rows in each way: {totals}")
            expected = settings.rows + (settings.keys + 9) // 10 - (settings.keys + 8) // 10
            if totals["ours"][0][0] != expected:
                raise RuntimeError(f"{order} keys, round {number}: {totals['ours'][0][0]} rows, not {expected}")
    return samples


def _sample(  # noqa: PLR0913, PLR0917  # one case
    bench: Bench, case: str, variant: str, number: int, source: str, totals: dict[str, list[list[Any]]]
) -> list[Sample]:
    """Write once and set the table back; none in the first round, which warms up."""
    bench.wake()
    load = load_average()
    measured = bench.write(variant, source)
    details = {**measured, **bench.files(), "load_before": load}
    totals[variant] = bench.totals()
    bench.set_back(bench.base)
    seconds = details.pop("seconds")
    size = details["added-files-size"] / 1e6
    print(f"round {number}, {case}, {variant}: {seconds:.2f} s, {size:.1f} MB", flush=True)
    return [Sample(case=case, variant=variant, round=number, value=seconds, details=details)] if number else []


def read_label(epochs: int) -> str:
    """Return how results name a table after so many epochs."""
    return f"{epochs} epoch{'' if epochs == 1 else 's'}"


def measure_reads(bench: Bench, settings: Settings) -> list[Sample]:
    """Read the table by the runtime: before any change, and after some epochs of changes of random keys.

    The same epochs are written by equality deletes, and then, from the beginning, by position deletes.

    Raises:
        RuntimeError: What is done to the table before it is read has changed its rows, or the ways differ.
    """
    keys = max(10, settings.keys // 10)
    samples = _read(bench, settings, read_label(0), "as written")
    expected: dict[int, list[list[Any]]] = {}
    for number in range(1, max(settings.read_epochs) + 1):
        source = f"epoch_{number}"
        bench.session.ask("changes", name=source, order="random", number=number, keys=keys, rows=settings.rows)
        bench.write("ours", source)
        if number in settings.read_epochs:
            written, totals = bench.head(), bench.totals()
            expected[number] = totals
            for treatment, treat in TREATMENTS.items():
                if treat is not None:
                    treat(bench)
                    if (found := bench.totals()) != totals:
                        raise RuntimeError(f"{read_label(number)}, {treatment}: {found} instead of {totals}")
                samples += _read(bench, settings, read_label(number), treatment)
                bench.set_back(written, expires=False)
    bench.set_back(bench.base)
    for number in range(1, max(settings.read_epochs) + 1):
        bench.write("ours-position", f"epoch_{number}")
        if number in expected:
            if (found := bench.totals()) != expected[number]:
                raise RuntimeError(f"{read_label(number)}, {BY_POSITION}: {found} instead of {expected[number]}")
            samples += _read(bench, settings, read_label(number), BY_POSITION)
    return samples


def _read(bench: Bench, settings: Settings, case: str, treatment: str) -> list[Sample]:
    samples = []
    for number in range(settings.rounds + 1):
        load = load_average()
        measured: dict[str, float] = bench.session.ask("timed", statement=_READ)
        seconds = measured.pop("seconds")
        print(f"round {number}, read after {case}, {treatment}: {seconds:.2f} s", flush=True)
        if number:
            details = {**measured, "load_before": load}
            samples.append(Sample(case=case, variant=treatment, round=number, value=seconds, details=details))
    return samples
