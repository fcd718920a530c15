"""What the reports on the commits of one writer tell, against the rows that a reader found of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path


def problems_of(file: Path, name: str, found: int) -> Iterator[str]:
    """Yield what is wrong with the reports of a writer that appends.

    A commit whose process died before its report is told by the replay of its epoch, unless its snapshot had expired.

    Args:
        file: The file of its reports, and the older one beside it.
        name: The writer.
        found: Rows of it in the table.
    """
    lines = file.read_text().splitlines() if file.exists() else []
    reports = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    in_table = [report for report in reports if report["outcome"] in {"committed", "replayed"}]
    rows = {report["snapshot_id"]: report["counts"].get("added-records", 0) for report in in_table if report["counts"]}
    expired = {report["snapshot_id"] for report in in_table} - rows.keys()
    told = sum(rows.values())
    if told > found:
        yield f"the reports of {name} tell of {told} rows, and {found} are in the table"
    if told < found and not expired:
        yield f"the reports of {name} tell of {told} rows only, and {found} are in the table"
