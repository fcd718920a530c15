"""How does the sink compare with Iceberg's own Spark runtime?

    python benchmarks/bench_peer.py --rounds 5 --rows 6000000 --sets unpartitioned,month,batches,commits

Appends (`peer_appends.py`): both sinks write the sets of `datasets.py` in turn, in one warm session of the runtime's
Spark, which has the sink on its path; a session for each set. Micro-batches (`peer_batches.py`): whole triggers in such
a session, and of the sink in a second one, too, with the Spark that the project is developed with. Commits
(`peer_commits.py`): the driver's work alone, of many files, onto many snapshots, and again and again. Every table is
checked. Each part writes its results as soon as it ends; `results/marks.md` tells which marks they meet.
"""

from __future__ import annotations

import time

import peer_appends
import peer_batches
import peer_commits
from charts import draw
from harness import PEER_APPENDS, PEER_SETS, Settings, machine, parse_arguments, scratch_folder, write_report
from peer_marks import write_marks
from peer_tables import (
    QUESTION,
    appends_chart,
    appends_report,
    batches_chart,
    batches_report,
    commits_chart,
    commits_report,
    requests_chart,
    requests_report,
)

USES = {
    "rows": "each set has its share of them",
    "rounds": "one more is run first and not counted",
    "sets": "",
    "tasks": "",
    "batches": "",
    "files": "",
    "snapshots": "",
    "consecutive": "",
}

# Beside the appends: by the name of its set, how each part is measured, reported and drawn.
PARTS = {
    "batches": (peer_batches.measure, batches_report, batches_chart),
    "commits": (peer_commits.measure, commits_report, commits_chart),
}


def run_appends(settings: Settings) -> None:
    """Measure the appends and what they ask of S3, and report."""
    host = machine()
    with scratch_folder(settings) as scratch:
        outcome = peer_appends.measure(settings, scratch)
    write_report(settings, host, appends_report(settings, outcome))
    draw(settings.results_dir / "peer.png", appends_chart(outcome))
    if outcome.requests:
        write_report(settings, host, requests_report(outcome))
        draw(settings.results_dir / "peer-requests.png", requests_chart(outcome))


def run_part(name: str, settings: Settings) -> None:
    """Measure one of the other parts, and report."""
    measure, report, chart = PARTS[name]
    host, begun = machine(), time.monotonic()
    with scratch_folder(settings) as scratch:
        samples = measure(settings, scratch)
    write_report(settings, host, report(settings, samples, time.monotonic() - begun))
    draw(settings.results_dir / f"peer-{name}.png", chart(samples))


def main() -> None:
    """Measure what is chosen, report each part, and compute the marks."""
    settings = parse_arguments(QUESTION, USES)
    if unknown := set(settings.sets) - set(PEER_SETS):
        raise SystemExit(f"There is no set {', '.join(sorted(unknown))}. There are: {', '.join(PEER_SETS)}.")
    if set(settings.sets) & set(PEER_APPENDS):
        run_appends(settings)
    for name in PARTS:
        if name in settings.sets:
            run_part(name, settings)
    write_marks(settings)


if __name__ == "__main__":
    main()
