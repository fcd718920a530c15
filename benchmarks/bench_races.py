"""How many commits of writers that race for one table land, and how long does each of them wait?

    python benchmarks/bench_races.py --writers 8 --commits 100

Each writer is a process that commits one append of two rows after the other, as fast as it can, through the sink's own
steps without Spark. SQLite is the embedded catalog on local files; PostgreSQL and Iceberg's REST reference server
are processes on this machine, over the S3 server of the tests. The wait of a commit is the time from the files that are
written to the outcome that is known. A fair race lets no writer wait much longer in the median than another one, and
leaves no file behind that the table does not use.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, Report, Sample, Settings, load_average, machine, parse_arguments, scratch_folder, write_report

sys.path.append(str(HERE.parent / "tests"))  # the tests race through the same servers
from support.programs.races import Leftovers, RacedCommit, all_ids, leftovers, race
from support.services.catalogs import serve_postgres, serve_rest_catalog
from support.services.servers import serve_objects
from support.tables.sink import Sink, local

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

QUESTION = "How many commits of writers that race for one table land, and how long does each of them wait?"
USES = {"rounds": "", "writers": "", "commits": "", "catalogs": ""}
TIMEOUT_S = 3600
TABLE = "races.t"
HEADER = (
    "catalog",
    "landed",
    "seconds",
    "commits/s",
    "attempts: mean",
    "most",
    "wait s: p50",
    "p95",
    "longest",
    "writers' median wait s: lowest-highest",
    "left behind: metadata",
    "manifests",
    "data",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A catalog and where its tables' files lie.

    Attributes:
        options: The sink's options that lead to it.
        buckets: The folder of the S3 server's buckets, None if it is local.
    """

    options: Mapping[str, str]
    buckets: Path | None = None

    def folder_of(self, location: str) -> Path:
        """Return the folder of a table's location."""
        return local(location) if self.buckets is None else self.buckets / location.removeprefix("s3://")


@contextlib.contextmanager
def way_to(catalog: str, folder: Path) -> Iterator[Way]:
    """Start what the catalog needs."""
    folder.mkdir(parents=True)
    if catalog == "sqlite":
        yield Way(options={"warehouse": str(folder / "warehouse")})
        return
    serve = {"postgres": serve_postgres, "rest": serve_rest_catalog}[catalog]
    with serve_objects(folder / "store") as store, serve(folder, store) as service:
        yield Way(options=service.options, buckets=store.folder)


def measured(settings: Settings, catalog: str, number: int, folder: Path) -> list[Sample]:
    """Run one race, and return a sample for each commit and one for the whole."""
    load = load_average()
    with way_to(catalog, folder) as way:
        options = {**way.options, "table": TABLE}
        commits = race(
            options, folder / "race", writers=settings.writers, commits=settings.commits, timeout_s=TIMEOUT_S
        )
        parsed = parse_options(options)
        sink = Sink(catalog=connect(catalog_settings(parsed)), options=parsed)
        table = sink.table()
        left = leftovers(table, way.folder_of(table.metadata.location))
        missing = set(all_ids(settings.writers, settings.commits)).symmetric_difference(sink.ids())
    for error in sorted({commit.error for commit in commits if commit.error}):
        print(f"{catalog}: {error}", file=sys.stderr)
    return [whole(commits, left, len(missing), catalog, number, load), *(single(c, catalog, number) for c in commits)]


def whole(  # noqa: PLR0913, PLR0917  # what is known of a race
    commits: Sequence[RacedCommit], left: Leftovers, missing: int, catalog: str, number: int, load: float
) -> Sample:
    """Return a race as a sample: its seconds, and what it left."""
    return Sample(
        case=catalog,
        variant="race",
        round=number,
        value=max(commit.ended_s for commit in commits) - min(commit.began_s for commit in commits),
        details={
            "commits": len(commits),
            "missing_or_double_rows": missing,
            "metadata_left": len(left.metadata),
            "manifests_left": len(left.manifests),
            "data_left": len(left.data),
            "load_before": load,
        },
    )


def single(commit: RacedCommit, catalog: str, number: int) -> Sample:
    """Return a commit as a sample: the seconds that its writer waited."""
    details = {"writer": commit.writer, "attempts": commit.attempts, "landed": not commit.error}
    return Sample(case=catalog, variant="commit", round=number, value=commit.wait_s, details=details)


def line(samples: Sequence[Sample], catalog: str, number: int) -> list[str]:
    """Return the line of one race."""
    mine = [sample for sample in samples if (sample.case, sample.round) == (catalog, number)]
    (race_,) = [sample for sample in mine if sample.variant == "race"]
    commits = [sample for sample in mine if sample.variant == "commit"]
    waits = sorted(sample.value for sample in commits)
    attempts = [sample.details["attempts"] for sample in commits]
    writers = {sample.details["writer"] for sample in commits}
    medians = [statistics.median(s.value for s in commits if s.details["writer"] == writer) for writer in writers]
    landed = sum(sample.details["landed"] for sample in commits)
    left = (race_.details[name] for name in ("metadata_left", "manifests_left", "data_left"))
    return [
        catalog,
        f"{landed:.0f} of {len(commits)}",
        f"{race_.value:.0f}",
        f"{landed / race_.value:.1f}",
        f"{statistics.mean(attempts):.1f}",
        f"{max(attempts):.0f}",
        f"{statistics.median(waits):.2f}",
        f"{waits[int(0.95 * (len(waits) - 1))]:.2f}",
        f"{waits[-1]:.2f}",
        f"{min(medians):.2f}-{max(medians):.2f}",
        *(f"{count:.0f}" for count in left),
    ]


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(__doc__ or "", USES)
    host = machine()
    samples: list[Sample] = []
    races = [(catalog, number) for number in range(1, settings.rounds + 1) for catalog in settings.catalogs]
    with scratch_folder(settings) as folder:
        for catalog, number in races:
            samples += measured(settings, catalog, number, folder / f"{catalog}-{number}")
            print(line(samples, catalog, number), file=sys.stderr)
    broken = sum(sample.details.get("missing_or_double_rows", 0) for sample in samples)
    report = Report(
        name="races",
        question=QUESTION,
        unit="s",
        samples=samples,
        header=HEADER,
        lines=[line(samples, catalog, number) for catalog, number in races],
        notes=[
            f"{settings.writers} writers, {settings.commits} commits of each; one line a race.",
            f"Rows that are missing or there twice afterwards, in all races: {broken:.0f}.",
        ],
    )
    write_report(settings, host, report)


if __name__ == "__main__":
    main()
