"""What each figure was when it was last noted, and how far above that it may be.

`make guard GUARD_ARGS=--write` writes the table below anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Shares by which a figure may grow, by the end of its name; all others are exact. Ids and addresses are a few bytes
# longer or shorter each time; what libraries do inside differs a little between their versions.
_SLACK = {"Arrow memory bytes": 0.25, "bytes": 0.03, "Python calls": 0.1, "modules": 0.03}
# Where to look if a figure grew, by a part of its name.
_PLACES = {
    "S3": "io/s3_io.py and io/stores.py; who opens or loads a file again?",
    "SQL": "catalog/client.py; who loads the table, or asks for it, once more?",
    "REST": "catalog/client.py and rest_client.py; who loads the table, or asks for it, once more?",
    "table metadata parsed": "catalog/client.py; who loads the table once more?",
    "copied deeply": "snapshots/snapshot.py and commit/; which updates of metadata are carried out twice?",
    "Python calls": "the step under cProfile; which loop goes over all snapshots, files or columns?",
    "data file": "writers/rolling.py and parquet.py; encodings, and when a file ends",
    "manifest": "snapshots/manifests.py; what each entry holds, and how many manifests there are",
    "table metadata": "snapshots/txn_properties.py and txn.py; what each commit adds to the table",
    "message bytes": "messages.py; what each task sends",
    "writer bytes": "plan.py; what each task is sent",
    "modules": "`python -X importtime`, and tests/unit/test_imports.py; import it where it is needed",
    "Arrow memory": "writers/; what is kept of a batch, a row group or a partition",
}

MEASURED: dict[str, int] = {
    "300,000 rows, 50 partitions / tasks: Arrow memory bytes": 28_778_624,
    "300,000 rows, one file / tasks: Arrow memory bytes": 2_088_960,
    "batch write / commit: Python calls": 9_235,
    "batch write / commit: S3 PUT of a manifest": 1,
    "batch write / commit: S3 PUT of a manifest list": 1,
    "batch write / commit: S3 PUT of a table metadata": 1,
    "batch write / commit: SQL SELECT": 2,
    "batch write / commit: SQL UPDATE": 1,
    "batch write / commit: manifest bytes": 4_510,
    "batch write / commit: manifest files": 1,
    "batch write / commit: manifest list bytes": 1_862,
    "batch write / commit: manifest list files": 1,
    "batch write / commit: table metadata bytes": 2_432,
    "batch write / commit: table metadata files": 1,
    "batch write / plan: Python calls": 3_469,
    "batch write / plan: S3 GET of a table metadata": 1,
    "batch write / plan: SQL SELECT": 1,
    "batch write / plan: table metadata parsed": 1,
    "batch write / plan: writer bytes": 2_233,
    "batch write / tasks: S3 PUT of a data file": 2,
    "batch write / tasks: data file bytes": 95_281,
    "batch write / tasks: data file files": 2,
    "batch write / tasks: message bytes": 1_115,
    "batch write, REST / commit: REST GET table": 1,
    "batch write, REST / commit: REST POST table": 1,
    "batch write, REST / plan: REST GET table": 1,
    "batch write, every report / commit: Python calls": 9_302,
    "batch write, every report / commit: S3 PUT of a manifest": 1,
    "batch write, every report / commit: S3 PUT of a manifest list": 1,
    "batch write, every report / commit: S3 PUT of a table metadata": 1,
    "batch write, every report / commit: SQL SELECT": 2,
    "batch write, every report / commit: SQL UPDATE": 1,
    "batch write, every report / commit: manifest bytes": 4_519,
    "batch write, every report / commit: manifest files": 1,
    "batch write, every report / commit: manifest list bytes": 1_868,
    "batch write, every report / commit: manifest list files": 1,
    "batch write, every report / commit: table metadata bytes": 3_085,
    "batch write, every report / commit: table metadata files": 1,
    "batch write, every report / plan: Python calls": 3_511,
    "batch write, every report / plan: S3 GET of a table metadata": 1,
    "batch write, every report / plan: SQL SELECT": 1,
    "batch write, every report / plan: table metadata parsed": 1,
    "batch write, every report / plan: writer bytes": 2_356,
    "batch write, every report / tasks: S3 PUT of a data file": 2,
    "batch write, every report / tasks: data file bytes": 95_281,
    "batch write, every report / tasks: data file files": 2,
    "batch write, every report / tasks: message bytes": 1_123,
    "committer, REST / process: modules": 639,
    "committer, SQL and S3 / process: modules": 964,
    "first batch write / commit: S3 PUT of a data file": 1,
    "first batch write / commit: S3 PUT of a manifest": 1,
    "first batch write / commit: S3 PUT of a manifest list": 1,
    "first batch write / commit: S3 PUT of a table metadata": 1,
    "first batch write / commit: SQL INSERT": 1,
    "first batch write / commit: SQL SELECT": 5,
    "first batch write / commit: data file bytes": 7_979,
    "first batch write / commit: data file files": 1,
    "first batch write / commit: manifest bytes": 4_451,
    "first batch write / commit: manifest files": 1,
    "first batch write / commit: manifest list bytes": 1_787,
    "first batch write / commit: manifest list files": 1,
    "first batch write / commit: table metadata bytes": 1_611,
    "first batch write / commit: table metadata files": 1,
    "first batch write / commit: table metadata parsed": 2,
    "first batch write / plan: S3 GET list": 1,
    "first batch write / plan: SQL CREATE": 2,
    "first batch write / plan: SQL INSERT": 1,
    "first batch write / plan: SQL PRAGMA": 4,
    "first batch write / plan: SQL SELECT": 9,
    "first batch write / plan: writer bytes": 3_023,
    "first batch write / tasks: message bytes": 21_833,
    "first batch write, REST / commit: REST GET config": 1,
    "first batch write, REST / commit: REST GET table": 1,
    "first batch write, REST / commit: REST HEAD view": 1,
    "first batch write, REST / commit: REST POST table": 1,
    "first batch write, REST / plan: REST GET config": 1,
    "first batch write, REST / plan: REST GET namespace": 1,
    "first batch write, REST / plan: REST GET table": 1,
    "first batch write, REST / plan: REST HEAD view": 1,
    "first batch write, REST / plan: REST POST namespaces": 1,
    "first batch write, REST / plan: REST POST tables": 1,
    "micro-batch on 1,000 snapshots / commit: Python calls": 10_161,
    "micro-batch on 1,000 snapshots / commit: S3 PUT of a data file": 1,
    "micro-batch on 1,000 snapshots / commit: S3 PUT of a manifest": 1,
    "micro-batch on 1,000 snapshots / commit: S3 PUT of a manifest list": 1,
    "micro-batch on 1,000 snapshots / commit: S3 PUT of a table metadata": 1,
    "micro-batch on 1,000 snapshots / commit: SQL SELECT": 2,
    "micro-batch on 1,000 snapshots / commit: SQL UPDATE": 1,
    "micro-batch on 1,000 snapshots / commit: data file bytes": 7_979,
    "micro-batch on 1,000 snapshots / commit: data file files": 1,
    "micro-batch on 1,000 snapshots / commit: manifest bytes": 4_464,
    "micro-batch on 1,000 snapshots / commit: manifest files": 1,
    "micro-batch on 1,000 snapshots / commit: manifest list bytes": 1_921,
    "micro-batch on 1,000 snapshots / commit: manifest list files": 1,
    "micro-batch on 1,000 snapshots / commit: table metadata bytes": 675_470,
    "micro-batch on 1,000 snapshots / commit: table metadata files": 1,
    "micro-batch on 1,000 snapshots / plan: Python calls": 13_121,
    "micro-batch on 1,000 snapshots / plan: S3 GET of a table metadata": 1,
    "micro-batch on 1,000 snapshots / plan: SQL SELECT": 1,
    "micro-batch on 1,000 snapshots / plan: table metadata parsed": 1,
    "micro-batch on 1,000 snapshots / plan: writer bytes": 1_757,
    "micro-batch on 1,000 snapshots / tasks: message bytes": 21_133,
    "micro-batch on 1,000 snapshots, REST / commit: REST GET table": 1,
    "micro-batch on 1,000 snapshots, REST / commit: REST POST table": 1,
    "micro-batch on 1,000 snapshots, REST / plan: REST GET table": 1,
    "micro-batch on 10 snapshots / commit: Python calls": 9_169,
    "micro-batch on 10 snapshots / commit: S3 PUT of a data file": 1,
    "micro-batch on 10 snapshots / commit: S3 PUT of a manifest": 1,
    "micro-batch on 10 snapshots / commit: S3 PUT of a manifest list": 1,
    "micro-batch on 10 snapshots / commit: S3 PUT of a table metadata": 1,
    "micro-batch on 10 snapshots / commit: SQL SELECT": 2,
    "micro-batch on 10 snapshots / commit: SQL UPDATE": 1,
    "micro-batch on 10 snapshots / commit: data file bytes": 7_979,
    "micro-batch on 10 snapshots / commit: data file files": 1,
    "micro-batch on 10 snapshots / commit: manifest bytes": 4_461,
    "micro-batch on 10 snapshots / commit: manifest files": 1,
    "micro-batch on 10 snapshots / commit: manifest list bytes": 1_908,
    "micro-batch on 10 snapshots / commit: manifest list files": 1,
    "micro-batch on 10 snapshots / commit: table metadata bytes": 9_240,
    "micro-batch on 10 snapshots / commit: table metadata files": 1,
    "micro-batch on 10 snapshots / plan: Python calls": 3_221,
    "micro-batch on 10 snapshots / plan: S3 GET of a table metadata": 1,
    "micro-batch on 10 snapshots / plan: SQL SELECT": 1,
    "micro-batch on 10 snapshots / plan: table metadata parsed": 1,
    "micro-batch on 10 snapshots / plan: writer bytes": 1_754,
    "micro-batch on 10 snapshots / tasks: message bytes": 21_133,
    "micro-batch on 10 snapshots, REST / commit: REST GET table": 1,
    "micro-batch on 10 snapshots, REST / commit: REST POST table": 1,
    "micro-batch on 10 snapshots, REST / plan: REST GET table": 1,
    "partitioned batch write / commit: Python calls": 15_183,
    "partitioned batch write / commit: S3 PUT of a manifest": 1,
    "partitioned batch write / commit: S3 PUT of a manifest list": 1,
    "partitioned batch write / commit: S3 PUT of a table metadata": 1,
    "partitioned batch write / commit: SQL SELECT": 2,
    "partitioned batch write / commit: SQL UPDATE": 1,
    "partitioned batch write / commit: manifest bytes": 5_365,
    "partitioned batch write / commit: manifest files": 1,
    "partitioned batch write / commit: manifest list bytes": 1_884,
    "partitioned batch write / commit: manifest list files": 1,
    "partitioned batch write / commit: table metadata bytes": 2_590,
    "partitioned batch write / commit: table metadata files": 1,
    "partitioned batch write / plan: Python calls": 3_737,
    "partitioned batch write / plan: S3 GET of a table metadata": 1,
    "partitioned batch write / plan: SQL SELECT": 1,
    "partitioned batch write / plan: table metadata parsed": 1,
    "partitioned batch write / plan: writer bytes": 2_579,
    "partitioned batch write / tasks: S3 PUT of a data file": 16,
    "partitioned batch write / tasks: data file bytes": 163_290,
    "partitioned batch write / tasks: data file files": 16,
    "partitioned batch write / tasks: message bytes": 3_748,
    "planner, REST / process: modules": 595,
    "planner, SQL and S3 / process: modules": 920,
    "task, SQL and S3 / process: modules": 398,
    "task, local files / process: modules": 399,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A figure that is higher than it may be.

    Attributes:
        name: Which.
        noted: What it was.
        limit: The highest that it may be.
        now: What it is.
    """

    name: str
    noted: int
    limit: int
    now: int

    def __str__(self) -> str:
        place = next(text for part, text in _PLACES.items() if part in self.name.partition(": ")[2])
        return f"{self.name} grew from {self.noted:,} to {self.now:,} (limit {self.limit:,}). Look at {place}"


def limit_of(name: str, noted: int) -> int:
    """Return how high a figure may be that was noted so."""
    share = next((share for end, share in _SLACK.items() if name.endswith(end)), 0)
    return noted + int(noted * share)


def growths(figures: Mapping[str, int], noted: Mapping[str, int] = MEASURED) -> list[Growth]:
    """Return those of the figures that are higher than they may be; one that was never noted was 0."""
    found = [
        Growth(name=name, noted=noted.get(name, 0), limit=limit_of(name, noted.get(name, 0)), now=now)
        for name, now in figures.items()
    ]
    return [growth for growth in found if growth.now > growth.limit]


def sunk(figures: Mapping[str, int]) -> list[str]:
    """Return the names of figures that are lower than noted by more than they may be above it: note them anew."""
    return [name for name, noted in MEASURED.items() if limit_of(name, figures.get(name, 0)) < noted and noted > 0]
