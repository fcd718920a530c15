"""How results of checks look in a terminal: a table with a coloured mark for each, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iceberg_ds.checks.result import Check, CheckResult, Outcome

_MARKS: dict[Outcome, str] = {
    "ok": "[green]✔[/green]",
    "failed": "[red]✘[/red]",
    "warning": "[yellow]![/yellow]",
    "skipped": "[dim]-[/dim]",
}


def print_result(result: CheckResult, console: Console, verdicts: tuple[str, str] = ("Ready", "Not ready")) -> None:
    """Print the table of checks, and what it comes to: the first of `verdicts` if all is well, else the second."""
    table = Table(show_header=True, header_style="bold", show_lines=False)
    for title, options in (
        ("", {}),
        ("check", {}),
        ("where", {}),
        ("s", {"justify": "right"}),
        ("found", {"overflow": "fold"}),
    ):
        table.add_column(title, **options)  # type: ignore[arg-type]  # its own
    for check in result.checks:
        table.add_row(
            _MARKS[check.outcome], escape(check.name), escape(check.where), f"{check.seconds:.2f}", _found(check)
        )
    console.print(table)
    console.print(_summary(result.checks, verdicts))


def _found(check: Check) -> str:
    detail = escape(check.detail)
    return f"{detail}\n[yellow]next: {escape(check.next_step)}[/yellow]" if check.next_step else detail


def _summary(checks: Sequence[Check], verdicts: tuple[str, str]) -> str:
    count = {outcome: sum(check.outcome == outcome for check in checks) for outcome in _MARKS}
    verdict = f"[red]{verdicts[1]}[/red]" if count["failed"] else f"[green]{verdicts[0]}[/green]"
    warnings = f"{count['warning']} to know of, " if count["warning"] else ""
    return f"{verdict}: {count['ok']} passed, {count['failed']} failed, {warnings}{count['skipped']} not tried."
