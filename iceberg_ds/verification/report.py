"""How orphans look in a terminal: a table with size and age."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iceberg_ds.verification.result import Orphan, VerifyResult

_DAY_S, _HOUR_S = 86_400, 3_600


def print_orphans(result: VerifyResult, console: Console) -> None:
    """Print the orphans, nothing if there are none."""
    if not result.orphans:
        return
    table = Table(title="files that nothing refers to", title_justify="left", show_header=True, header_style="bold")
    table.add_column("bytes", justify="right")
    table.add_column("age", justify="right")
    table.add_column("")
    table.add_column("file", overflow="fold")
    now_ms = time.time_ns() // 1_000_000
    for orphan in result.orphans:
        fate = "deleted" if orphan.deleted else ""
        table.add_row(f"{orphan.size_bytes:,}", _age(orphan, now_ms), fate, escape(orphan.path))
    console.print(table)


def _age(orphan: Orphan, now_ms: int) -> str:
    seconds = (now_ms - orphan.modified_ms) / 1000
    return f"{seconds / _DAY_S:.1f} d" if seconds >= _DAY_S else f"{seconds / _HOUR_S:.1f} h"
