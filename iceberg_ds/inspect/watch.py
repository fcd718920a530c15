"""`Watch`: looks at several tables, one after the other, and shows what it found in a terminal.

A table that cannot be looked at hides none of the rest. Each look has a time limit, because a catalog that hangs would
keep a watcher from the tables behind it. A look that hangs is not repeated until it ends, so that there is one of each
table at most.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.inspect.checklist import within
from iceberg_ds.inspect.health import (
    HealthReader,
    TableHealth,
    age_text,
    count_text,
    deletes_text,
    parse_health_options,
    printable,
    size_text,
)
from iceberg_ds.inspect.thresholds import Finding, Thresholds, exceeded
from iceberg_ds.secrets import mask_text

WELL, EXCEEDED, UNSEEN = 0, 1, 3
# As many as go into a terminal of 80 columns; what else is known stands below the table.
_COLUMNS = ("", "table", "rows", "files", "small", "deletes", "snapshots", "manifests", "commit", "lag")
_LEFT_COLUMNS = 2  # the mark and the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at one table found.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        health: How it does; None if it could not be looked at.
        findings: The figures that are above their thresholds.
        error: Why the table could not be looked at, without any secret; None if it could.
    """

    table: str
    branch: str
    health: TableHealth | None = None
    findings: tuple[Finding, ...] = ()
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the table could be looked at, and nothing is above its threshold."""
        return self.error is None and not self.findings


def exit_code(looks: Sequence[Look]) -> int:
    """Return 3 if a table could not be looked at, else 1 if a threshold is exceeded, else 0."""
    if any(look.error is not None for look in looks):
        return UNSEEN
    return WELL if all(look.ok for look in looks) else EXCEEDED


def looks_json(looks: Sequence[Look]) -> str:
    """Return a JSON list with `ok` and the attributes of each look."""
    return json.dumps([{"ok": look.ok, **asdict(look)} for look in looks], indent=2)


class Watch:
    """Looks at tables.

    Args:
        tables: Identifiers of the tables; one that is named twice is looked at once.
        options: Options of a write, which say where the tables are.
        branch: The branch of each; None for that of option `branch`, or `main`.
        thresholds: The highest figures of a healthy table.
        limit_s: Seconds that a look at one table may take.

    Raises:
        OptionError: The options are malformed, or name another table.
    """

    def __init__(
        self,
        tables: Sequence[str],
        options: Mapping[str, str],
        branch: str | None = None,
        *,
        thresholds: Thresholds,
        limit_s: float,
    ) -> None:
        self.thresholds = thresholds
        self._options = options
        self._limit_s = limit_s
        readers = [HealthReader(parse_health_options(table, options, branch)) for table in tables]
        # Each with the lock that a look at its table holds until it ends, which may be after the time limit.
        self._readers = [
            (reader, threading.Lock()) for reader in {(one.table, one.branch): one for one in readers}.values()
        ]

    def look(self) -> list[Look]:
        """Return how each table does now, in the order in which they were given; raises nothing."""
        return [self._look(reader, is_looked_at) for reader, is_looked_at in self._readers]

    def _look(self, reader: HealthReader, is_looked_at: threading.Lock) -> Look:
        def read() -> TableHealth:
            if not is_looked_at.acquire(blocking=False):
                raise IcebergSinkError(f"Cannot look at {reader.table}: an earlier look at it has had no answer yet.")
            try:
                return reader.read()
            finally:
                is_looked_at.release()

        try:
            health = within(self._limit_s, read)
        except IcebergSinkError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"Cannot look at {reader.table}: there was no answer within {self._limit_s:g} s."
        except Exception as error:  # every library below raises its own
            problem = mask_text(f"Cannot look at {reader.table}: {type(error).__name__}: {error}", self._options)
        else:
            findings = exceeded(health, self.thresholds, self._options)
            return Look(table=reader.table, branch=reader.branch, health=health, findings=findings)
        return Look(table=reader.table, branch=reader.branch, error=problem)


class SparingWatch:
    """Looks at tables no more often than once in `every_s` seconds, however often it is asked; threads may share it.

    Who asks while a look is under way waits for it and gets what it finds.

    Args:
        look: Looks at the tables.
        every_s: Seconds from the end of one look to the next.
        clock: Returns a time in seconds.
    """

    def __init__(
        self, look: Callable[[], list[Look]], every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._found: list[Look] = []
        self._looked_at: float | None = None  # when the last look ended

    def look(self) -> list[Look]:
        """Return what the last look found, after a new one if it is due."""
        asked_at = self._clock()
        with self._lock:
            # A look that ended since was under way: its time may be longer than that between two looks.
            if self._looked_at is None or asked_at - self._looked_at >= self._every_s:
                self._found = self._look()
                self._looked_at = self._clock()
            return self._found


def view(looks: Sequence[Look], thresholds: Thresholds) -> RenderableType:
    """Return what looks found, as a table with findings, writers and outlooks below it."""
    grid = Grid(box=SIMPLE_HEAD, show_header=True, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for position, title in enumerate(_COLUMNS):
        is_left = position < _LEFT_COLUMNS
        grid.add_column(title, justify="left" if is_left else "right", no_wrap=not is_left, overflow="fold")
    for look in looks:
        grid.add_row(*_row(look))
    notes = [note for look in looks for note in _notes(look, thresholds)]
    return Group(grid, *map(Text.from_markup, notes))  # no other colours than these


def _row(look: Look) -> list[str]:
    mark = "[red]✘[/red]" if look.error is not None else "[yellow]![/yellow]" if look.findings else "[green]✔[/green]"
    name = _shown(_name(look))
    if (health := look.health) is None:
        return [mark, name]
    return [
        mark,
        name,
        count_text(health.rows),
        count_text(health.data_files),
        f"{health.small_files:,}" if health.is_complete else f"≥ {health.small_files:,}",
        count_text(health.delete_files),
        f"{health.snapshots:,}",
        f"{health.data_manifests + health.delete_manifests:,}",
        age_text(health.last_commit_age_s),
        "" if health.lag_s is None else age_text(health.lag_s),
    ]


def _notes(look: Look, thresholds: Thresholds) -> list[str]:
    name = f"[bold]{_shown(_name(look))}[/bold]"
    if look.error is not None:
        return [f"{name}: [red]{_shown(look.error)}[/red]"]
    notes = [
        f"{name}: [yellow]{_shown(finding.detail)}[/yellow]\n  next: {_shown(finding.next_step)}"
        for finding in look.findings
    ]
    if (health := look.health) is not None:
        average = "" if health.average_file_bytes is None else f" ({size_text(health.average_file_bytes)} a data file)"
        notes.append(f"{name}: {size_text(health.bytes)}{average}, metadata of {size_text(health.metadata_bytes)}")
        if (deletes := deletes_text(health)) is not None:
            notes.append(f"{name}: {deletes}")
        limit = thresholds.max_metadata_mb
        said = health.outlook() if limit is None else health.outlook(round(limit * 1_000_000))
        notes.append(f"{name}: {escape(said)}")
        notes += [
            f"  {writer.kind} {_shown(writer.name)}: last number {writer.number}, {age_text(writer.age_s)} ago"
            for writer in health.writers
        ]
    return notes


def _shown(text: str) -> str:
    """Return a text in which the terminal sees neither markup nor control characters: anybody may name a writer."""
    return escape(printable(text))


def _name(look: Look) -> str:
    return look.table if look.branch == "main" else f"{look.table}, branch {look.branch}"


def show_until_interrupted(watch: Watch, console: Console, every_s: float) -> list[Look]:
    """Show the tables, look again every `every_s` seconds until Ctrl-C, and return what the last look found."""
    looks = watch.look()
    try:
        with Live(view(looks, watch.thresholds), console=console, auto_refresh=False, screen=False) as live:
            while True:
                time.sleep(every_s)
                looks = watch.look()
                live.update(view(looks, watch.thresholds), refresh=True)
    except KeyboardInterrupt:
        return looks
