"""What does it cost to look for rows that cannot be written, if there are none?

    python benchmarks/bench_bad_rows.py --rounds 7 --rows 3000000

One warm Spark session appends the lineitem-like set, in turn with `on-bad-row=fail`, where nothing is looked for beside
what the writers check, and with `quarantine`. The sides rotate from round to round, and a round before them is not
counted. `nothing` is the side with `fail` run once more: how far it is from 1.00 tells what the machine's noise is.
The second case has required columns, and a partition field that may overflow, so that there is something to look at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from datasets import set_folder
from harness import (
    Report,
    Sample,
    Settings,
    cost_lines,
    load_average,
    machine,
    parse_arguments,
    scratch_folder,
    write_report,
)
from peer_place import NAMESPACE, Place
from remote import Remote

QUESTION = "What does it cost to look for rows that cannot be written, if there are none?"
USES = {"rounds": "", "rows": ""}
VARIANTS = {"fail": "no look", "quarantine": "a look", "fail-again": "nothing"}
PLAIN, STRICT = "append", "append, partitioned, required columns"
CASES = {
    PLAIN: {},
    STRICT: {"use-nullable-query-schema": "false", "partition-by": "truncate(1000000, l_orderkey)"},
}


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure all sides of every case in every round."""
    place = Place(folder=scratch / "bad-rows")
    place.database.parent.mkdir(parents=True)
    source = set_folder(settings, "lineitem", settings.rows)
    samples = []
    with place.session_of_sink() as session:
        session.ask("source", name="source", folder=str(source), key="l_orderkey")
        for number in range(settings.rounds + 1):
            names = list(VARIANTS)
            rotated = names[number % len(names) :] + names[: number % len(names)]
            for case in CASES:
                for variant in rotated:
                    load = load_average()
                    value = _milliseconds(session, place, case, variant, number)
                    print(f"round {number}, {case}, {variant}: {value:.0f} ms", flush=True)
                    if number:
                        details = {"load_before": load}
                        samples.append(Sample(case=case, variant=variant, round=number, value=value, details=details))
    return samples


def _milliseconds(session: Remote, place: Place, case: str, variant: str, number: int) -> float:
    table = f"{NAMESPACE}.{re.sub(r'[^a-z0-9]+', '_', f'{case} {variant} {number}')}"
    options = {**place.options, **CASES[case], "on-bad-row": variant.removesuffix("-again")}
    taken: dict[str, float] = session.ask("append", sink="icebergsink", source="source", table=table, options=options)
    return taken["seconds"] * 1000


def report(samples: Sequence[Sample]) -> Report:
    """Return all cases as a table."""
    return Report(
        name="bad_rows",
        question=QUESTION,
        unit="milliseconds",
        samples=samples,
        header=["case", "fail, ms", "quarantine, ms", "ratio", "ratio of fail to fail"],
        lines=cost_lines(samples, CASES, "fail", "quarantine"),
        notes=["Ratios are taken within each round. No row is bad."],
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        samples = measure(settings, scratch)
    write_report(settings, host, report(samples))


if __name__ == "__main__":
    main()
