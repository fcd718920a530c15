"""The result of a chaos run: counted from its log and its verdict, and written as JSON and as Markdown."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chaos.events import Event, Fault, Kind
from chaos.verifier import Verdict

_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "iceberg-ds")
_RANDOM = "at random, after "
_NOWHERE = "at random"
_ENDS = {Kind.LANDED: "the rows landed", Kind.SKIPPED: "recognised as landed before"}
_NO_END = "another blow came before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run is measured by.

    Attributes:
        seed: Its seed.
        catalog: Kind of its catalog.
        kills: How many kills there were.
        seconds: How long it took from the first blow to the last.
        total_seconds: The same with starts and ends.
        machine: Its size and versions.
        faults: How many of each fault.
        places: How many kills at each step, by step and by whether they were ordered for it.
        roles: How many kills of each kind of process.
        outcomes: How many faults of one writer were followed by what.
        errors: How often each error of the sink or of Spark ended a query or a batch.
        examples: The first text of each.
        epochs: How many epochs, or batches, each writer landed.
        setbacks: What the run itself could not bring about.
        verdict: What the verifier found.
        problems: All that is wrong, the verifier's findings among it.
        checked_by: What `iceberg_ds.verify` says of the same table.
    """

    seed: int
    catalog: str
    kills: int
    seconds: float
    total_seconds: float
    machine: Mapping[str, str]
    faults: Mapping[str, int]
    places: Mapping[str, int]
    roles: Mapping[str, int]
    outcomes: Mapping[str, int]
    errors: Mapping[str, int]
    examples: Mapping[str, str]
    epochs: Mapping[str, int]
    setbacks: Sequence[str]
    verdict: Verdict | None
    problems: Sequence[str]
    checked_by: str

    @property
    def is_whole(self) -> bool:
        """Whether every row is in the table exactly once, and nothing else went wrong."""
        return self.verdict is not None and not self.problems

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        return "every row exactly once" if self.is_whole else "BROKEN: " + "; ".join(self.problems)

    def write(self, path: Path) -> None:
        """Write it as `path`.json and `path`.md."""
        path.parent.mkdir(parents=True, exist_ok=True)
        values = asdict(self) | {"headline": self.headline}
        path.with_suffix(".json").write_text(json.dumps(values, indent=2) + "\n")
        path.with_suffix(".md").write_text(self.markdown())

    def markdown(self) -> str:
        """Return it for people."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# Chaos run, seed {self.seed}, catalog {self.catalog}"
        yield f"\n**Verdict: {self.headline}.**"
        yield f"\n{self.kills} kills in {self.seconds / 60:.1f} minutes, {self._per_minute():.1f} a minute"
        yield f"({self.total_seconds / 60:.1f} minutes with start and end)."
        yield from _table("Machine", ("what", "which"), self.machine)
        if self.verdict is not None:
            yield from self._rows(self.verdict)
        yield from _table("Faults", ("fault", "times"), self.faults)
        yield from _table("Kills by place", ("step of the write", "kills"), self.places)
        yield from _table("Kills by process", ("process", "kills"), self.roles)
        yield from _table("What followed a blow at one writer", ("outcome", "times"), self.outcomes)
        yield from _table("Errors that ended a query or a batch", ("error", "times"), self.errors)
        yield from _table("The first of each", ("error", "text"), self.examples)
        yield f"\n## What `iceberg_ds.verify` says\n\n```\n{self.checked_by}\n```"
        if self.setbacks:
            yield "\n## What the run could not bring about\n"
            yield from (f"* {text}" for text in self.setbacks)

    def _rows(self, verdict: Verdict) -> Iterator[str]:
        yield "\n## Rows\n"
        yield "| writer | commits | rows in the source | in the table | lost | doubled |\n|---|---|---|---|---|---|"
        for name, account in verdict.accounts.items():
            counts = (self.epochs.get(name, 0), account.source, account.found, account.lost, account.doubled)
            yield f"| {name} | {' | '.join(map(str, counts))} |"
        yield f"\n{verdict.snapshots} snapshots that have not expired, {verdict.data_files} data files on `main`,"
        yield f"{verdict.orphans} files at the table's location that no snapshot refers to."

    def _per_minute(self) -> float:
        return self.kills / self.seconds * 60 if self.seconds else 0


def _table(title: str, head: tuple[str, str], rows: Mapping[str, object]) -> Iterator[str]:
    if rows:
        yield f"\n## {title}\n\n| {head[0]} | {head[1]} |\n|---|---|"
        yield from (f"| {name} | {value} |" for name, value in rows.items())


def machine() -> dict[str, str]:
    """Return this machine's size and the versions of what runs."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "processors": str(os.cpu_count()),
        "memory": f"{memory_gb:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def result_of(  # noqa: PLR0913  # the values of one result
    events: Sequence[Event],
    *,
    seed: int,
    catalog: str,
    verdict: Verdict | None,
    problems: Sequence[str],
    total_seconds: float,
    checked_by: str,
) -> Result:
    """Count what the log tells."""
    faults = [event for event in events if event.kind is Kind.FAULT and event.fault is not None]
    kills = [event for event in faults if event.fault is not None and event.fault.is_kill]
    failures = [event for event in events if event.kind is Kind.FAILED]
    found = list(verdict.problems) if verdict is not None else []
    return Result(
        seed=seed,
        catalog=catalog,
        kills=len(kills),
        seconds=faults[-1].at_s - faults[0].at_s if faults else 0,
        total_seconds=total_seconds,
        machine=machine(),
        faults=_counted(event.fault.value for event in faults if event.fault is not None),
        places=_counted(map(_place, kills)),
        roles=_counted(_role(event) for event in kills),
        outcomes=_counted(
            f"{_group(event)}: {_outcome(events, event)}" for event in faults if event.stream is not None
        ),
        errors=_counted(_error(event) for event in failures),
        examples={_error(event): (event.text or "").replace("|", "/") for event in reversed(failures)},
        epochs=_counted(event.stream or "" for event in events if event.kind is Kind.LANDED),
        setbacks=[f"{_name(event)}: {event.text}" for event in events if event.kind is Kind.SETBACK],
        verdict=verdict,
        problems=[*problems, *found],
        checked_by=checked_by,
    )


def _counted(names: Any) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda one: (-one[1], one[0])))


def _error(event: Event) -> str:
    return (event.text or "").partition(":")[0]


def _name(event: Event) -> str:
    return event.fault.name if event.fault is not None else ""


def _place(event: Event) -> str:
    if event.place is None:
        return _NOWHERE
    return event.place if event.is_planned else f"{_RANDOM}{event.place}"


def _role(event: Event) -> str:
    match event.fault:
        case Fault.KILL_DRIVER:
            return "driver"
        case Fault.ZOMBIE:
            return "driver, its committer lives on"
        case Fault.KILL_EXECUTOR:
            return "executor"
    return f"Python {event.role}"


def _group(event: Event) -> str:
    return "kill" if event.fault is not None and event.fault.is_kill else _name(event).lower().replace("_", " ")


def _outcome(events: Sequence[Event], fault: Event) -> str:
    """Return what came of a fault: how the writer's next write ended, and with which errors on the way."""
    errors = []
    for event in events:
        if event.at_s <= fault.at_s or event.stream != fault.stream:
            continue
        if event.kind in _ENDS:
            return _ENDS[event.kind] + (f", after {', '.join(dict.fromkeys(errors))}" if errors else "")
        if event.kind is Kind.FAULT:
            return _NO_END
        if event.kind is Kind.FAILED:
            name = _error(event)
            errors += [name] if name.endswith("Error") else []
    return "the run ended"
