"""What `bench_peer.py` appends, and who appends it: values alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from harness import Sample, Settings, spread_of

FANOUT = {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A set of rows and the table that it goes to.

    Attributes:
        label: How results name it.
        source: The set of `datasets.py`.
        key: A column of it that holds a number, which is summed up to check the table.
        share: Its rows for each row of `--rows`, so that an append takes seconds.
        partitioned: How the table is partitioned, in SQL; empty if it is not.
        is_in_store: Whether the table is in S3.
    """

    label: str
    source: str = "lineitem"
    key: str = "l_orderkey"
    share: Fraction = Fraction(1)
    partitioned: str = ""
    is_in_store: bool = False

    def rows(self, settings: Settings) -> int:
        """Return how many rows are appended."""
        return max(4, int(settings.rows * self.share))

    def jobs(self) -> dict[str, Job]:
        """Return who appends it: without partitions the runtime distributes nothing anyway."""
        return {name: job for name, job in JOBS.items() if self.partitioned or name != "jvm-fanout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One competitor.

    Attributes:
        label: How results name it.
        sink: What `format()` takes.
        options: Options of the write.
        properties: Properties of its table.
    """

    label: str
    sink: str
    options: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether the sink does it."""
        return self.sink == "icebergsink"


SHAPES = {
    "unpartitioned": Shape(label="unpartitioned"),
    "flag": Shape(label="3 partitions", partitioned="PARTITIONED BY (l_returnflag)"),
    "month": Shape(label="84 partitions", partitioned="PARTITIONED BY (months(l_shipdate))", share=Fraction(1, 2)),
    "thousand": Shape(
        label="1,000 partitions", partitioned="PARTITIONED BY (bucket(1000, l_partkey))", share=Fraction(1, 3)
    ),
    "wide": Shape(label="300 columns", source="wide", key="c0", share=Fraction(1, 60)),
    "nested": Shape(label="strings and nested", source="nested", key="id", share=Fraction(1, 6)),
    "narrow": Shape(label="2 longs", source="narrow", key="k", share=Fraction(3)),
    "s3": Shape(label="unpartitioned, in S3", share=Fraction(1, 2), is_in_store=True),
}
JOBS = {
    "ours": Job(label="icebergsink", sink="icebergsink"),
    "ours-level-3": Job(label="icebergsink, zstd level 3", sink="icebergsink", options={"compression-level": "3"}),
    "jvm": Job(label="Iceberg's Spark runtime", sink="iceberg"),
    "jvm-fanout": Job(label="the runtime, no distribution, fan-out", sink="iceberg", properties=FANOUT),
}


def faster_setting(case: str, samples: Sequence[Sample]) -> str | None:
    """Return the runtime's job with the lower median, None if it has none."""
    medians = {
        name: spread.median
        for name, job in JOBS.items()
        if not job.is_ours and (spread := spread_of(samples, case, name)) is not None
    }
    return min(medians, key=lambda name: medians[name]) if medians else None
