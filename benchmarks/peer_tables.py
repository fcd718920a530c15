"""Tables and charts of `bench_peer.py`, all of them computed from its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import peer_batches
import peer_commits
from charts import Bar, Chart
from harness import MEGABYTE, Report, Sample, Settings, Spread, cell, ratios, spread_of
from peer_appends import Appends
from peer_shapes import SHAPES, faster_setting

QUESTION = "How does the sink compare with Iceberg's own Spark runtime?"
FIRST_AND_LAST = 100
_COMMITTERS = {"ours": "icebergsink", "jvm": "Iceberg's Java library"}
_CHECKED = "Every table has been counted by the runtime, and was written by the sink that the line names."

_LEVELS = "zstd on both sides: the runtime at its default level of 3, ours at its own default and at 3."
_HEAP = "Java's heap counts garbage; both sinks read their rows with it. Python workers serve ours alone."
_COUNTED = (
    "Counted in the server's log from the start of a write to the end of its commit; the catalog is an SQLite file. "
    "A list by the sink would have ended the run with an error."
)
_SESSIONS = (
    "The runtime shares one warm session with ours on its Spark; ours on the Spark that the project is developed with "
    "has another."
)
_COMMITS = (
    "Ours: unpickling what tasks report, and the writer's `commit`, in a process of its own that has committed before; "
    "many files are a batch, single ones a micro-batch. Java: the calls that the runtime makes on the driver "
    "(`newAppend` in a batch, `refresh` and `newFastAppend` in a micro-batch), in a warm Java that holds the files' "
    "entries in memory."
)


def median_of(samples: Sequence[Sample], case: str, variant: str, detail: str) -> float | None:
    """Return the median of what else is known of the samples of one case and variant, None if nothing is."""
    chosen = [sample.details for sample in samples if (sample.case, sample.variant) == (case, variant)]
    values = [details[detail] for details in chosen if detail in details]
    return Spread.of(values).median if values else None


def _shown(values: Sequence[float] | None, digits: int = 2) -> str:
    return Spread.of(values).show(digits) if values else "-"


def appends_report(settings: Settings, outcome: Appends) -> Report:
    """Return the appends as a table."""
    versions = f"Spark {outcome.versions['spark']}, Iceberg {outcome.versions['iceberg']}"
    chosen = [shape for name, shape in SHAPES.items() if name in settings.sets]
    rows = ", ".join(f"{shape.label} {shape.rows(settings):,}" for shape in chosen)
    return Report(
        name="peer",
        question=f"{QUESTION} Appends.",
        unit="seconds",
        samples=outcome.samples,
        header=(
            "table",
            "job",
            "seconds: median (min-max)",
            "million rows/s",
            "files",
            "MB written",
            "MB of Java's heap, peak",
            "MB of the largest Python worker, peak",
            "time / the runtime's faster setting, per round",
        ),
        lines=[
            _append_line(outcome.samples, shape.label, name, job.label)
            for shape in chosen
            for name, job in shape.jobs().items()
            if spread_of(outcome.samples, shape.label, name) is not None
        ],
        notes=(
            *outcome.failures,
            f"{settings.rounds} rounds, local[2]; both sinks in turn in a warm session: {versions}, heap at most 4 GB.",
            f"{_LEVELS} Rows: {rows}.",
            f"{_HEAP} {_CHECKED}",
            _durations(outcome.seconds),
        ),
    )


def _durations(seconds: Mapping[str, float]) -> str:
    return f"The whole took, checks and starts included: {', '.join(f'{n} {s:.0f} s' for n, s in seconds.items())}."


def _append_line(samples: Sequence[Sample], case: str, name: str, label: str) -> list[str]:
    own = [sample for sample in samples if (sample.case, sample.variant) == (case, name)]
    beside = ratios(samples, (case, name), (case, faster_setting(case, samples) or name))
    is_ours = name.startswith("ours")
    return [
        case,
        label,
        _shown([sample.value for sample in own]),
        cell(median_of(samples, case, name, "rows_per_second"), 1e6, 2),
        cell(median_of(samples, case, name, "files")),
        cell(median_of(samples, case, name, "bytes"), MEGABYTE, 1),
        cell(median_of(samples, case, name, "heap_peak_bytes"), MEGABYTE),
        cell(median_of(samples, case, name, "worker_peak_bytes") if is_ours else None, MEGABYTE),
        _shown(beside),
    ]


def requests_report(outcome: Appends) -> Report:
    """Return what appends ask an S3 server for, as a table."""
    jobs = SHAPES["s3"].jobs()
    lines = []
    for case, variant in _asked(outcome):
        chosen = [sample for sample in outcome.requests if (sample.case, sample.variant) == (case, variant)]
        kinds = sorted({key for sample in chosen for key in sample.details if key.startswith("requests ")})
        listed = (f"{cell(_median_or_0(chosen, kind))} {kind.removeprefix('requests ')}" for kind in kinds)
        size = median_of(outcome.requests, case, variant, "bytes") or 0
        spread = Spread.of([sample.value for sample in chosen])
        per_gb = f"{spread.median / size * 1e9:,.0f}" if size else "-"
        lists = f"{max(sample.details['lists'] for sample in chosen):.0f}"
        lines.append([case, jobs[variant].label, spread.show(0), ", ".join(listed), lists, per_gb])
    return Report(
        name="peer-requests",
        question="What does an append ask an S3 server for?",
        unit="requests",
        samples=outcome.requests,
        header=("append", "job", "requests: median (min-max)", "of these, medians", "lists", "requests per GB written"),
        lines=lines,
        notes=(_COUNTED,),
    )


def _asked(outcome: Appends) -> list[tuple[str, str]]:
    """Return the appends whose requests were counted, and who made them, in the order of tables."""
    found = dict.fromkeys((sample.case, sample.variant) for sample in outcome.requests)
    cases = dict.fromkeys(case for case, _ in found)
    return [(case, variant) for case in cases for variant in SHAPES["s3"].jobs() if (case, variant) in found]


def _median_or_0(samples: Sequence[Sample], detail: str) -> float:
    return Spread.of([sample.details.get(detail, 0) for sample in samples]).median


def batches_report(settings: Settings, samples: Sequence[Sample], seconds: float) -> Report:
    """Return the micro-batches as a table."""
    rounds = (
        f"{settings.rounds} rounds, local[2]; in each, a query of {settings.batches} micro-batches after "
        f"{peer_batches.WARMING} that are not counted. Rate source; table and checkpoint are on the local disk."
    )
    cases = dict.fromkeys(sample.case for sample in samples)
    return Report(
        name="peer-batches",
        question=f"{QUESTION} Micro-batches.",
        unit="milliseconds",
        samples=samples,
        header=(
            "micro-batch",
            "sink",
            "whole trigger, ms: median (min-max) of the rounds' medians",
            "of these addBatch, ms",
            "files a batch",
            "kB a batch",
            "time / the runtime's, per round",
        ),
        lines=[
            [
                case,
                label,
                _shown([s.value for s in samples if (s.case, s.variant) == (case, variant)], 0),
                cell(median_of(samples, case, variant, "add_batch_ms")),
                cell(median_of(samples, case, variant, "files")),
                cell(median_of(samples, case, variant, "bytes"), 1000),
                _shown(ratios(samples, (case, variant), (case, "jvm"))),
            ]
            for case in cases
            for variant, label in peer_batches.VARIANTS.items()
            if spread_of(samples, case, variant) is not None
        ],
        notes=(
            rounds,
            f"{_SESSIONS} {_CHECKED}",
            _durations({"part": seconds}),
        ),
    )


def commits_report(settings: Settings, samples: Sequence[Sample], seconds: float) -> Report:
    """Return the commits as a table."""
    several = dict.fromkeys(s.case for s in samples if s.case != peer_commits.CONSECUTIVE)
    return Report(
        name="peer-commits",
        question=f"{QUESTION} Commits.",
        unit="milliseconds",
        samples=samples,
        header=(
            "commit of",
            *(f"{name}, ms: median (min-max)" for name in _COMMITTERS.values()),
            "Java / icebergsink, per round",
            "MB that ours adds to its process",
            "MB of Java's heap, peak",
        ),
        lines=[
            *(
                [
                    case,
                    *(_shown([s.value for s in samples if (s.case, s.variant) == (case, v)], 1) for v in _COMMITTERS),
                    _shown(ratios(samples, (case, "jvm"), (case, "ours"))),
                    cell(median_of(samples, case, "ours", "memory_added_bytes"), MEGABYTE),
                    cell(median_of(samples, case, "jvm", "heap_peak_bytes"), MEGABYTE),
                ]
                for case in several
            ),
            *_row_lines(samples),
        ],
        notes=(
            f"{settings.rounds} rounds, the two in turn; an SQLite catalog and a warehouse on the local disk.",
            _COMMITS,
            _durations({"part": seconds}),
        ),
    )


def in_a_row(samples: Sequence[Sample], variant: str) -> tuple[Spread, Spread] | None:
    """Return the first and the last commits of one side to one table, None if there are too few."""
    chosen = sorted((s for s in samples if (s.case, s.variant) == (peer_commits.CONSECUTIVE, variant)), key=_number)
    width = min(FIRST_AND_LAST, len(chosen) // 2)
    if not width:
        return None
    values = [sample.value for sample in chosen]
    return Spread.of(values[:width]), Spread.of(values[-width:])


def _number(sample: Sample) -> int:
    return sample.round


def _row_lines(samples: Sequence[Sample]) -> list[list[str]]:
    both = {variant: in_a_row(samples, variant) for variant in _COMMITTERS}
    count = max((s.round for s in samples if s.case == peer_commits.CONSECUTIVE), default=0)
    lines = []
    for position, which in enumerate(("first", "last")):
        spreads = [found[position] for found in both.values() if found]
        if len(spreads) == len(both):
            label = f"1 file, the {which} {spreads[0].count} of {count:,} in a row"
            ratio = spreads[1].median / spreads[0].median
            lines.append([label, *(spread.show(1) for spread in spreads), f"{ratio:.2f}", "-", "-"])
    return lines


def appends_chart(outcome: Appends) -> Chart:
    """Return the appends as bars."""
    bars = [
        Bar(label=f"{shape.label}: {job.label}", group="ours" if job.is_ours else "others", spread=spread)
        for shape in SHAPES.values()
        for name, job in shape.jobs().items()
        if (spread := spread_of(outcome.samples, shape.label, name)) is not None
    ]
    return Chart(title="Appending to an Iceberg table with Spark, two cores", axis="seconds", bars=bars)


def requests_chart(outcome: Appends) -> Chart:
    """Return the requests of appends as bars."""
    bars = [
        Bar(label=f"{case}: {SHAPES['s3'].jobs()[variant].label}", group=variant[:4], spread=spread)
        for case, variant in _asked(outcome)
        if (spread := spread_of(outcome.requests, case, variant)) is not None
    ]
    return Chart(title="Requests to S3 of one append", axis="requests", bars=bars, pattern="{:,.0f}")


def batches_chart(samples: Sequence[Sample]) -> Chart:
    """Return the micro-batches as bars."""
    bars = [
        Bar(label=f"{case}: {label}", group=variant, spread=spread)
        for case in dict.fromkeys(sample.case for sample in samples)
        for variant, label in peer_batches.VARIANTS.items()
        if (spread := spread_of(samples, case, variant)) is not None
    ]
    return Chart(title="One micro-batch, whole trigger", axis="milliseconds", bars=bars, pattern="{:,.0f}")


def commits_chart(samples: Sequence[Sample]) -> Chart:
    """Return the commits as bars, on a logarithmic axis."""
    spreads = {
        (case, variant): spread_of(samples, case, variant)
        for case in dict.fromkeys(sample.case for sample in samples if sample.case != peer_commits.CONSECUTIVE)
        for variant in _COMMITTERS
    }
    for variant in _COMMITTERS:
        first, last = in_a_row(samples, variant) or (None, None)
        spreads |= {("first in a row", variant): first, ("last in a row", variant): last}
    bars = [
        Bar(label=f"{case}: {_COMMITTERS[variant]}", group=variant, spread=spread)
        for (case, variant), spread in spreads.items()
        if spread is not None
    ]
    return Chart(title="One commit", axis="milliseconds", bars=bars, is_logarithmic=True, pattern="{:,.1f}")
