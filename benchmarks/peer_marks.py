"""The marks that the sink is held to, each with what was measured: computed from the samples in the results folder.

    python benchmarks/peer_marks.py

`bench_peer.py` does this at its end; `bench_memory.py` measures what one of the marks needs. A mark without samples is
said to be not measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peer_batches
import peer_commits
from harness import MEGABYTE, Sample, Settings, Spread, parse_arguments, ratios, spread_of
from peer_shapes import JOBS, SHAPES, faster_setting
from peer_tables import in_a_row, median_of

SOURCES = ("peer", "peer-requests", "peer-batches", "peer-commits", "memory")
_MANY_FILES = 50_000
_MANY_SNAPSHOTS = 10_000
_OURS = [name for name, job in JOBS.items() if job.is_ours]

Samples = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line of the table.

    Attributes:
        job: What was done.
        mark: What is asked for.
        measured: What was measured, empty if nothing was.
        is_met: Whether that is enough.
    """

    job: str
    mark: str
    measured: str = ""
    is_met: bool = False

    def cells(self) -> list[str]:
        """Return it as cells of a table."""
        return [
            self.job,
            self.mark,
            self.measured or "not measured",
            ("yes" if self.is_met else "no") if self.measured else "-",
        ]


def marks(samples: Samples) -> list[Mark]:
    """Return all marks."""
    return [
        *_append_marks(samples["peer"]),
        *_batch_marks(samples["peer-batches"]),
        *_commit_marks(samples["peer-commits"]),
        *_memory_marks(samples),
        *_request_marks(samples["peer-requests"]),
    ]


def _append_marks(samples: Sequence[Sample]) -> Iterator[Mark]:
    for name in ("unpartitioned", "flag", "month", "thousand"):
        case, is_partitioned = SHAPES[name].label, bool(SHAPES[name].partitioned)
        peer = faster_setting(case, samples)
        for variant in _OURS:
            job = f"append, {case}: {JOBS[variant].label}"
            least, size = (1.5, "files") if is_partitioned else (1.1, "bytes")
            mark = (
                f">= {least} x rows/s, {'files at most as many as by fan-out' if is_partitioned else 'bytes no larger'}"
            )
            beside = ratios(samples, (case, peer or ""), (case, variant))
            ours = median_of(samples, case, variant, size)
            theirs = median_of(samples, case, "jvm-fanout" if is_partitioned else "jvm", size)
            if not beside or ours is None:
                yield Mark(job=job, mark=mark)
                continue
            speed = Spread.of(beside)
            unit = 1 if is_partitioned else MEGABYTE
            other = "none, because the runtime's fan-out failed" if theirs is None else f"{theirs / unit:,.0f}"
            shown = f"{speed.show()} x, {ours / unit:,.0f} {'files' if is_partitioned else 'MB'} to {other}"
            is_met = speed.median >= least and (theirs is None or ours <= theirs)
            yield Mark(job=job, mark=mark, measured=shown, is_met=is_met)


def _batch_marks(samples: Sequence[Sample]) -> Iterator[Mark]:
    for tasks, most, mark in ((2, 1.2, "<= 1.2 x the runtime's time"), (64, 1.0, "faster, and one file")):
        case = peer_batches.label(1_000, tasks)
        for variant, label in peer_batches.VARIANTS.items():
            beside = ratios(samples, (case, variant), (case, "jvm"))
            if variant == "jvm":
                continue
            job = f"micro-batch of {case}: {label}"
            if not beside:
                yield Mark(job=job, mark=mark)
                continue
            spread = Spread.of(beside)
            files = median_of(samples, case, variant, "files") or 0
            is_met = spread.median <= most if tasks == 2 else spread.median < most and files == 1
            yield Mark(job=job, mark=mark, measured=f"{spread.show()} x, {files:,.0f} files", is_met=is_met)


def _commit_marks(samples: Sequence[Sample]) -> Iterator[Mark]:
    case = peer_commits.files_label(_MANY_FILES)
    mark = Mark(job=f"commit of {case}", mark="<= 0.1 s on the driver, <= 300 MB")
    spread = spread_of(samples, case, "ours")
    added = median_of(samples, case, "ours", "memory_added_bytes")
    if spread is None or added is None:
        yield mark
    else:
        times = f"{spread.median / 1000:.2f} s ({spread.low / 1000:.2f}-{spread.high / 1000:.2f})"
        shown = f"{times}, {added / MEGABYTE:.0f} MB"
        is_met = spread.median <= 100 and added <= 300 * MEGABYTE
        yield Mark(job=mark.job, mark=mark.mark, measured=shown, is_met=is_met)
    for is_own in (False, True):
        case = peer_commits.snapshots_label(_MANY_SNAPSHOTS, is_own=is_own)
        mark = Mark(job=f"commit of {case}", mark="<= 0.3 s, and faster than the runtime")
        spread, beside = spread_of(samples, case, "ours"), ratios(samples, (case, "jvm"), (case, "ours"))
        if spread is None or not beside:
            yield mark
            continue
        shown = f"{spread.median / 1000:.3f} s ({spread.low / 1000:.3f}-{spread.high / 1000:.3f}), the runtime's "
        shown += f"{Spread.of(beside).show()} x"
        is_met = spread.median <= 300 and Spread.of(beside).median > 1
        yield Mark(job=mark.job, mark=mark.mark, measured=shown, is_met=is_met)
    yield _in_a_row_mark(samples)


def _in_a_row_mark(samples: Sequence[Sample]) -> Mark:
    ours, theirs = in_a_row(samples, "ours"), in_a_row(samples, "jvm")
    count = max((s.round for s in samples if s.case == peer_commits.CONSECUTIVE), default=0)
    job, mark = f"{count or 1_000:,} consecutive commits", "last 100 no slower than 1.5 x the first 100"
    if ours is None or theirs is None:
        return Mark(job=job, mark=mark)
    growth, other = ours[1].median / ours[0].median, theirs[1].median / theirs[0].median
    shown = f"{growth:.2f} x: {ours[0].median:.0f} to {ours[1].median:.0f} ms (the runtime {other:.2f} x)"
    return Mark(job=job, mark=mark, measured=shown, is_met=growth <= 1.5)


def _memory_marks(samples: Samples) -> Iterator[Mark]:
    sizes = [s for s in samples["memory"] if s.variant == "unpartitioned"]
    job, mark = "executor memory, partitions of any size", "<= 400 MB, flat"
    if sizes:
        spread = Spread.of([sample.value for sample in sizes])
        shown = f"{spread.low:.0f} to {spread.high:.0f} MB for {', '.join(dict.fromkeys(s.case for s in sizes))}"
        yield Mark(job=job, mark=mark, measured=shown, is_met=spread.high <= 400)
    else:
        yield Mark(job=job, mark=mark)
    job, mark = "executor memory, 1,000 open partitions", "<= 600 MB"
    peaks = [
        sample.details["worker_peak_bytes"] / MEGABYTE
        for sample in samples["peer"]
        if sample.case == SHAPES["thousand"].label and sample.variant in _OURS
    ]
    if peaks:
        shown = f"{Spread.of(peaks).show(0)} MB, the largest Python worker"
        yield Mark(job=job, mark=mark, measured=shown, is_met=max(peaks) <= 600)
    else:
        yield Mark(job=job, mark=mark)
    case = peer_commits.files_label(_MANY_FILES)
    added, told = (
        median_of(samples["peer-commits"], case, "ours", key) for key in ("memory_added_bytes", "message_bytes")
    )
    job, mark = f"driver memory, {case}", "<= 400 MB above Spark's own"
    if added is None or told is None:
        yield Mark(job=job, mark=mark)
    else:
        shown = f"{added / MEGABYTE:.0f} MB in the committing process, {told / MEGABYTE:.0f} MB of messages in Java"
        yield Mark(job=job, mark=mark, measured=shown, is_met=added + told <= 400 * MEGABYTE)


def _request_marks(samples: Sequence[Sample]) -> Iterator[Mark]:
    ours = [sample for sample in samples if sample.variant in _OURS]
    job, mark = "S3 requests", "counted per commit and per GB; no list on the write path"
    if not ours:
        yield Mark(job=job, mark=mark)
        return
    lists = sum(sample.details["lists"] for sample in ours)
    one = spread_of(samples, "append of one row", "ours")
    of_set = [s for s in ours if s.details["bytes"] and s.variant == "ours"]
    per_gb = Spread.of([sample.value / sample.details["bytes"] * 1e9 for sample in of_set]).median if of_set else 0
    shown = f"{one.median if one else 0:.0f} for an append of one row, {per_gb:,.0f} per GB, {lists:.0f} lists"
    yield Mark(job=job, mark=mark, measured=shown, is_met=not lists)


def read_samples(folder: Path) -> tuple[dict[str, list[Sample]], list[str]]:
    """Return the samples of each result file that a mark needs, and where they come from."""
    samples: dict[str, list[Sample]] = {name: [] for name in SOURCES}
    origins = []
    for name in SOURCES:
        path = folder / f"{name}.json"
        if path.exists():
            content: dict[str, Any] = json.loads(path.read_text())
            samples[name] = [Sample(**sample) for sample in content["samples"]]
            origins.append(f"`{path.name}`: {content['finished']}, commit {content['machine']['commit']}")
    return samples, origins


def write_marks(settings: Settings) -> None:
    """Write the table of the marks, and print it."""
    samples, origins = read_samples(settings.results_dir)
    rows = [["job", "mark", "measured", "met?"], ["---"] * 4, *(mark.cells() for mark in marks(samples))]
    table = ["| " + " | ".join(cells) + " |" for cells in rows]
    head = (
        "Which marks does the sink meet beside Iceberg's own Spark runtime? Ratios are medians (min-max) of the rounds."
    )
    text = "\n".join([f"{head}\n", *table, "", *(f"{origin}\n" for origin in origins)])
    (settings.results_dir / "marks.md").write_text(text)
    print(text)


if __name__ == "__main__":
    write_marks(parse_arguments("Which marks does the sink meet?", {}))
