"""Which client writes a table's files to S3 best: Arrow's, s3fs or the sink's own?

    python benchmarks/bench_storage.py --rounds 5

Each writes to the same real S3 server (versitygw, a process on this machine), once straight and once as if each
answer travelled 30 ms. Every measurement is a process of its own, as a Spark worker is: `start` loads the libraries
and writes a first file of 1 kB; the others begin after that. `large` writes 100 MB into one file, `four` the same into
four files in turn, `parquet` encodes 1.5 million rows into one file, `small` writes 40 files of 20 kB and reads each
back. The variants rotate from round to round. The memory is how far the process grew at most in a case.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from charts import Bar, Chart, draw
from harness import (
    HERE,
    Report,
    Sample,
    Settings,
    Spread,
    machine,
    parse_arguments,
    run_case,
    scratch_folder,
    spread_of,
    write_report,
)

sys.path.append(str(HERE.parent / "tests"))  # the tests start the same server
from support.services.servers import ObjectStore, serve_objects

QUESTION = "Which client writes a table's files to S3 best: Arrow's, s3fs or the sink's own?"
USES = {"rounds": ""}
CASES = ("start", "small", "large", "four", "parquet")
VARIANTS = {"ours": "the sink's own", "arrow": "Arrow", "s3fs": "s3fs"}
DISTANCE_MS = 30
PLACES = {"near": "", "far": f", {DISTANCE_MS} ms away"}
NOTE = (
    "The memory of `start` is that of the libraries. The server speaks HTTP without TLS, so that the sink's client and "
    "s3fs compute a SHA-256 of what they send; over HTTPS they need not."
)
_REQUEST = re.compile(r"\|\s*(GET|HEAD|PUT|POST|DELETE)\s*\|\s*/storage/(\S+?)[/|]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The server, and the ways to it."""

    store: ObjectStore
    endpoints: dict[str, str]

    def requests(self) -> dict[str, int]:
        """Return how many requests each run made, by the name of its folder."""
        log = (self.store.folder.parent / "server.log").read_text(errors="replace")
        return Counter(name for _, name in _REQUEST.findall(log))


@contextlib.contextmanager
def stores(folder: Path) -> Iterator[Stores]:
    """Start the server, and what makes it far away."""
    with serve_objects(folder) as store:
        store.bucket("storage")
        port = store.endpoint.rpartition(":")[2]
        command = [sys.executable, str(HERE / "distant_store.py"), port, str(DISTANCE_MS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as distance:
            assert distance.stdout is not None  # noqa: S101  # it was asked for
            far = f"http://127.0.0.1:{distance.stdout.readline().strip()}"
            yield Stores(store=store, endpoints={"near": store.endpoint, "far": far})
            distance.communicate("")


def measure(settings: Settings, ways: Stores) -> list[Sample]:
    """Run every case of every round."""
    samples = []
    for number in range(1, settings.rounds + 1):
        names = list(VARIANTS)
        rotated = names[number % len(names) :] + names[: number % len(names)]
        for place, case, variant in ((p, c, v) for p in PLACES for c in CASES for v in rotated):
            samples.append(measured(ways, place, case, variant, number))
            print(samples[-1], file=sys.stderr)
    asked = ways.requests()
    return [
        Sample(
            case=sample.case,
            variant=sample.variant,
            round=sample.round,
            value=sample.value,
            details={**sample.details, "requests": asked.get(folder_of(sample), 0)},
        )
        for sample in samples
    ]


def folder_of(sample: Sample) -> str:
    """Return the folder that a run writes to."""
    return f"{sample.case}-{sample.variant}-{sample.round}"


def measured(ways: Stores, place: str, case: str, variant: str, number: int) -> Sample:
    """Run one case once."""
    empty = Sample(case=f"{case}-{place}", variant=variant, round=number, value=0)
    properties = {**ways.store.properties, "s3.endpoint": ways.endpoints[place]}
    location = f"s3://storage/{folder_of(empty)}"
    result = run_case(
        "storage_case.py", {"case": case, "variant": variant, "properties": properties, "place": location}
    )
    details = {key: result[key] for key in ("grown_mb", "load_before")}
    return Sample(case=empty.case, variant=variant, round=number, value=result["seconds"], details=details)


def detail(samples: Sequence[Sample], case: str, variant: str, name: str) -> float:
    """Return the median of what else is known of the samples of one case and variant."""
    found = [sample.details[name] for sample in samples if (sample.case, sample.variant) == (case, variant)]
    return Spread.of(found).median


def lines(samples: Sequence[Sample]) -> list[list[str]]:
    """Return the lines of the table."""
    table = []
    for place, remark in PLACES.items():
        for case in CASES:
            name = f"{case}-{place}"
            for variant, label in VARIANTS.items():
                spread = spread_of(samples, name, variant)
                if spread is not None:
                    grown = f"{detail(samples, name, variant, 'grown_mb'):.0f}"
                    requests = f"{detail(samples, name, variant, 'requests'):.0f}"
                    table.append([f"{case}{remark}", label, spread.show(), grown, requests])
    return table


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the chart of all cases."""
    bars = [
        Bar(label=f"{case}{PLACES[place]}: {label}", group=variant, spread=spread)
        for place in PLACES
        for case in CASES
        for variant, label in VARIANTS.items()
        if (spread := spread_of(samples, f"{case}-{place}", variant)) is not None
    ]
    return Chart(title="Writing to S3, shorter is better", axis="seconds", bars=bars)


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(__doc__ or "", USES)
    host = machine()
    with scratch_folder(settings) as folder, stores(folder / "store") as ways:
        samples = measure(settings, ways)
    report = Report(
        name="storage",
        question=QUESTION,
        unit="s",
        samples=samples,
        header=["case", "client", "seconds: median (lowest-highest)", "grown by MB", "requests"],
        lines=lines(samples),
        notes=[NOTE],
    )
    write_report(settings, host, report)
    draw(settings.results_dir / "storage.png", chart(samples))


if __name__ == "__main__":
    main()
