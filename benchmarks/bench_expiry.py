"""What do the expiry of snapshots and the removal of orphan files take, beside those of Iceberg's own Spark runtime?

    python benchmarks/bench_expiry.py --rounds 3 --files 100000,1000000 --snapshots 10000,100

One warm session of the runtime's Spark has both, in the environment that `bench_rewrites.py` has. Two tables of empty
files: one has the first of `--files` and `--snapshots`, the other the last. In the first, each snapshot replaces the
files of the one before; all but the last expire. The other has its files from as many appends, and a tenth more that
nothing refers to. Every measurement begins with the same files; what is left is counted after it. One round
before is not counted. Memory is the most that the driver took: of Python, above what it had before, and of Java's
heap, which in a session of one machine is that of the tasks, too.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from charts import Bar, Chart, draw
from commit_case import made_up_files, table_schema
from harness import (
    MEGABYTE,
    Report,
    Sample,
    Settings,
    Spread,
    load_average,
    machine,
    parse_arguments,
    ratios,
    scratch_folder,
    spread_of,
    write_report,
)
from peer_place import NAMESPACE, Place
from peer_tables import median_of
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, write_manifest, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, Snapshot, SnapshotLogEntry, Summary
from remote import Remote
from support.peer.jvm_peer import CATALOG

from iceberg_ds.maintenance.places_on_spark import LARGE_TABLE_FILES
from iceberg_ds.snapshots.version_3 import ManifestList, read_list

QUESTION = "What do expiry and the removal of orphan files take, beside Iceberg's own Spark runtime?"
USES = {
    "files": "of the table whose snapshots expire: the first number; of the one with orphans: the last",
    "snapshots": "as for --files",
    "rounds": "one more is run first, not counted",
}
EXPIRY, ORPHANS = "expire_snapshots", "remove_orphan_files"
VARIANTS: Mapping[str, str] = {
    "ours": "iceberg_ds, on Spark",
    "process": "iceberg_ds, in one process",
    "jvm": "runtime",
}
_OLD_S = 1_600_000_000
_SHARE_OF_ORPHANS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A table that can be made again.

    Attributes:
        name: What is done to it.
        place: The catalog.
        folder: Its folder.
        saved: A copy of the folder.
        metadata: Its metadata file.
        left: How many data files are to be left.
    """

    name: str
    place: Place
    folder: Path
    saved: Path
    metadata: str
    left: int

    @property
    def table(self) -> str:
        """Its identifier."""
        return f"{NAMESPACE}.{self.name}"

    def restore(self) -> None:
        """Let the table be as it was made; sessions that have its catalog open see that."""
        shutil.rmtree(self.folder)
        _link(self.saved, self.folder)
        with sqlite3.connect(self.place.database, timeout=60) as database:
            database.execute(
                "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL "
                "WHERE table_namespace = ? AND table_name = ?",
                (self.metadata, NAMESPACE, self.name),
            )

    def run(self, session: Remote, variant: str) -> dict[str, float]:
        """Do it in one of the ways, and return what was measured.

        Raises:
            RuntimeError: Another number of data files is left.
        """
        if variant == "jvm":
            arguments = f"table => '{self.table}', stream_results => true"
            if self.name == EXPIRY:
                arguments += ", older_than => TIMESTAMP '2100-01-01', retain_last => 1"
            statement = f"CALL {CATALOG}.system.{self.name}({arguments})"
            measured: dict[str, float] = session.ask("timed", statement=statement)
        else:
            do = "expire" if self.name == EXPIRY else "clean"
            measured = session.ask(do, table=self.table, options=self.place.options, on_spark=variant == "ours")
        left = sum(1 for _ in (self.folder / "data").iterdir())
        if left != self.left:
            raise RuntimeError(f"{self.name}, {variant}: {left} data files are left instead of {self.left}")
        return measured


def make(place: Place, name: str, files: int, snapshots: int) -> Case:
    """Make a table of empty files."""
    catalog = load_catalog(CATALOG, **place.properties)
    table = catalog.create_table(
        f"{NAMESPACE}.{name}", table_schema(), properties={"write.metadata.compression-codec": "none"}
    )
    folder = Path(table.metadata.location.removeprefix("file://"))
    (folder / "data").mkdir(parents=True, exist_ok=True)
    each = files // snapshots
    metadata = _with_history(table, folder, each, snapshots, replaces=name == EXPIRY)
    location = f"{table.location()}/metadata/{snapshots:05d}-{uuid.uuid4()}.metadata.json"
    table.io.new_output(location).create().write(metadata.model_dump_json().encode())
    for number in range(files // _SHARE_OF_ORPHANS if name == ORPHANS else 0):
        _touch(folder / "data" / f"left-behind-{number}.parquet")
    for path in (folder / "metadata").iterdir():
        os.utime(path, (_OLD_S, _OLD_S))
    saved = folder.with_name(f"{folder.name}-saved")
    _link(folder, saved)
    left = each if name == EXPIRY else each * snapshots
    case = Case(name=name, place=place, folder=folder, saved=saved, metadata=location, left=left)
    case.restore()
    return case


def _with_history(table: Table, folder: Path, each: int, snapshots: int, *, replaces: bool) -> TableMetadata:
    """Return the metadata of a new table with snapshots of so many files, added to those before or replacing them.

    They are not made by commits, each of which takes the longer the more there are.
    """
    start, kept, before = table.metadata.last_updated_ms, list[ManifestFile](), list[DataFile]()
    history = []
    for number in range(1, snapshots + 1):
        made = Snapshot(
            snapshot_id=number,
            parent_snapshot_id=number - 1 or None,
            sequence_number=number,
            timestamp_ms=start + number,
            manifest_list=f"{table.location()}/metadata/snap-{number}-0-{uuid.uuid4()}.avro",
            summary=Summary(Operation.OVERWRITE if replaces else Operation.APPEND),
            schema_id=0,
        )
        added = [_placed(one, folder) for one in made_up_files(each)]
        manifests = [_manifest(table, made, added)]
        if replaces and before:
            manifests.append(_manifest(table, made, before, is_deleted=True))
        kept = manifests if replaces else [*kept, *manifests]
        listed = table.io.new_output(made.manifest_list)
        with write_manifest_list(2, listed, number, made.parent_snapshot_id, number, "null") as written:
            written.add_manifests(kept)
        kept = list(read_list(table.io, ManifestList.of(made)))  # with their sequence numbers
        before = added
        history.append(made)
    return table.metadata.model_copy(
        update={
            "snapshots": history,
            "snapshot_log": [
                SnapshotLogEntry(snapshot_id=one.snapshot_id, timestamp_ms=one.timestamp_ms) for one in history
            ],
            "current_snapshot_id": snapshots,
            "refs": {"main": SnapshotRef.model_validate({"snapshot-id": snapshots, "type": "branch"})},
            "last_sequence_number": snapshots,
            "last_updated_ms": start + snapshots,
            "metadata_log": [MetadataLogEntry(metadata_file=table.metadata_location, timestamp_ms=start)],
        }
    )


def _manifest(table: Table, snapshot: Snapshot, files: Sequence[DataFile], *, is_deleted: bool = False) -> ManifestFile:
    """Write a manifest with which a snapshot adds files, or deletes those that the snapshot before has added."""
    number = snapshot.snapshot_id
    path = f"{table.location()}/metadata/{uuid.uuid4()}-m{int(is_deleted)}.avro"
    with write_manifest(2, table.spec(), table.schema(), table.io.new_output(path), number, "null") as writer:
        for file in files:
            if is_deleted:
                writer.delete(
                    ManifestEntry.from_args(
                        snapshot_id=number - 1,
                        sequence_number=number - 1,
                        file_sequence_number=number - 1,
                        data_file=file,
                    )
                )
            else:
                writer.add(ManifestEntry.from_args(snapshot_id=number, data_file=file))
    return writer.to_manifest_file()


def _placed(file: DataFile, folder: Path) -> DataFile:
    """Return an entry whose file exists, and is empty."""
    path = folder / "data" / f"{uuid.uuid4()}.parquet"
    _touch(path)
    file[1] = f"file://{path}"  # its path, by the layout of manifests
    return file


def _touch(path: Path) -> None:
    path.touch()
    os.utime(path, (_OLD_S, _OLD_S))


def _link(source: Path, target: Path) -> None:
    """Copy a folder whose files never change: their names alone."""
    subprocess.run(["cp", "-al", str(source), str(target)], check=True)


def measure(session: Remote, cases: Sequence[Case], settings: Settings) -> list[Sample]:
    """Do both in all ways in each round, beginning with another way each time."""
    samples = []
    names = list(VARIANTS)
    for number in range(settings.rounds + 1):
        shift = number % len(names)
        for case in cases:
            for variant in (*names[shift:], *names[:shift]):
                case.restore()
                load = load_average()
                measured = case.run(session, variant)
                details = {**measured, "load_before": load}
                seconds = details.pop("seconds")
                print(f"round {number}, {case.name}, {variant}: {seconds:.2f} s", flush=True)
                if number:
                    sample = Sample(case=case.name, variant=variant, round=number, value=seconds, details=details)
                    samples.append(sample)
    return samples


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str]) -> Report:
    """Return both as a table."""
    notes = [
        f"{case}: {VARIANTS[variant]} {Spread.of(speed).show()} x as fast as the runtime."
        for case in (EXPIRY, ORPHANS)
        for variant in ("process", "ours")
        if (speed := ratios(samples, (case, "jvm"), (case, variant)))
    ]
    notes.append(f"Unless it is asked for, Spark is used from {LARGE_TABLE_FILES:,} data files on.")
    return Report(
        name="expiry",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=("what", "by", "seconds: median (min-max)", "MB of Python's driver", "MB of Java's heap"),
        lines=[
            [
                case,
                VARIANTS[variant],
                spread.show(),
                f"{(median_of(samples, case, variant, 'driver_peak_bytes') or 0) / MEGABYTE:,.0f}",
                f"{(median_of(samples, case, variant, 'heap_peak_bytes') or 0) / MEGABYTE:,.0f}",
            ]
            for case in (EXPIRY, ORPHANS)
            for variant in VARIANTS
            if (spread := spread_of(samples, case, variant)) is not None
        ],
        notes=(
            *notes,
            (
                f"{settings.rounds} rounds, local[2], all in turn in a warm session: Spark {versions['spark']}, "
                f"Iceberg {versions['iceberg']}. {EXPIRY}: {settings.files[0]:,} files in {settings.snapshots[0]:,} "
                f"snapshots; {ORPHANS}: {settings.files[-1]:,} files in {settings.snapshots[-1]:,} snapshots; on a "
                "local disk."
            ),
        ),
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return both as bars."""
    bars = [
        Bar(label=f"{case}: {label}", group=variant, spread=spread)
        for case in (EXPIRY, ORPHANS)
        for variant, label in VARIANTS.items()
        if (spread := spread_of(samples, case, variant)) is not None
    ]
    return Chart(title="Expiry and orphan files, two cores", axis="seconds", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    sizes = {name: (settings.files[at], settings.snapshots[at]) for name, at in ((EXPIRY, 0), (ORPHANS, -1))}
    if not all(1 < snapshots <= files for files, snapshots in sizes.values()):
        raise SystemExit("--snapshots must be above 1, and --files not below it")
    host = machine()
    begun = time.monotonic()
    with scratch_folder(settings) as scratch:
        place = Place(folder=scratch / "expiry")
        with place.session_of_both(script="expiry_server.py") as session:
            cases = [make(place, name, *size) for name, size in sizes.items()]
            samples = measure(session, cases, settings)
            versions = session.ask("versions")
    print(f"the whole took {time.monotonic() - begun:.0f} s", flush=True)
    write_report(settings, host, report(settings, samples, versions))
    draw(settings.results_dir / "expiry.png", chart(samples))


if __name__ == "__main__":
    main()
