"""The course of a chaos run: lays orders, kills at random, lets things be away, until there were enough kills."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos import keyed, others, upsets
from chaos.drawing import Blow, Blows, campaign_faults
from chaos.driver import TABLE
from chaos.events import Event, Fault, Kind, Log, tell
from chaos.fleet import BRANCH, Fleet
from chaos.orders import Order, lay, waits, withdraw
from chaos.proxy import Away
from chaos.verifier import MAIN
from chaos.world import World

_LOOK_EVERY_S = 0.05
_OF_ALL = {Fault.KILL_DRIVER, Fault.ZOMBIE}
_BY_PEER = 0.5
_FINISH_TRIES = 3
_LONGEST_WAIT_S = 20
_RECOVERY_TIMEOUT_S = 240
_LONGEST_OUTAGE_S = 6.0
_FIRST_ROWS_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do.

    Attributes:
        seed: Decides about everything that is drawn.
        kills: It ends after so many kills.
        seconds: It ends so long after the first rows in any case.
        faults: The faults to draw from.
        kills_between: Kills between two faults of the whole table or of a whole query.
    """

    seed: int
    kills: int
    seconds: float
    faults: Collection[Fault]
    kills_between: int = 6


@dataclass(slots=True, kw_only=True)
class Target:
    """A writer and the blow that it is to get.

    Attributes:
        blows: Where blows come from.
        blow: The one that is due at a random moment, None for none.
        due_s: When.
        laid_s: When its last order was laid.
    """

    blows: Blows
    blow: Blow | None = None
    due_s: float = 0
    laid_s: float = 0


class Campaign:
    """One run.

    Attributes:
        log: The log of the run.
        kills: How many processes, or groups of them, were killed so far.
        problems: What went wrong beside the rows.
    """

    def __init__(self, plan: Plan, fleet: Fleet, world: World, folder: Path, peer: others.Peer | None) -> None:
        self._peer = peer
        self.plan, self.fleet, self.world, self.folder = plan, fleet, world, folder
        self.log = Log(folder)
        self.problems: list[str] = []
        self.kills = 0
        self.draw = random.Random(f"{plan.seed}-campaign")  # noqa: S311  # no secret
        self._targets = {name: Target(blows=Blows(f"{plan.seed}-{name}", plan.faults)) for name in fleet.names}
        self._orders = itertools.count(1)
        self._campaign_faults = itertools.cycle(campaign_faults(f"{plan.seed}-order", plan.faults) or [None])
        self._next_at_kill = plan.kills_between
        self._outage: tuple[Fault, float, Callable[[], None]] | None = None

    def read(self) -> None:
        """Read the log on."""
        new = self.log.read()
        self.kills += sum(event.kind is Kind.FAULT and event.fault is not None and event.fault.is_kill for event in new)

    def run(self) -> None:
        """Strike until it is enough, then let every writer come to its end."""
        self.fleet.start()
        self.wait(lambda: all(self._has_landed(name) for name in self.fleet.names), _FIRST_ROWS_TIMEOUT_S)
        end_s = time.monotonic() + self.plan.seconds
        while self.kills < self.plan.kills and time.monotonic() < end_s:
            self.tend()
            self._strike()
            time.sleep(_LOOK_EVERY_S)
        self._end_outage()
        self.calm()
        self.wait(lambda: all(map(self.is_well, self.fleet.names)), _RECOVERY_TIMEOUT_S)
        stuck = [name for name in self.fleet.names if not self.is_well(name)]
        self.problems += [f"{name} landed nothing in {_RECOVERY_TIMEOUT_S} s after the last fault" for name in stuck]
        self._finish()
        self.read()

    def _finish(self) -> None:
        for tries_left in reversed(range(_FINISH_TRIES)):
            try:
                self.fleet.finish()
            except (RuntimeError, OSError) as error:
                if not tries_left:
                    self.problems.append(f"the streams do not come to their end: {error}")
                self.fleet.replace_dead()
            else:
                return

    def tend(self) -> None:
        """Read the log, keep sources full, replace a dead driver, and end an outage that is due."""
        self.read()
        self.fleet.grow()
        if self._outage is not None and time.monotonic() > self._outage[1]:
            self._end_outage()
        self.fleet.replace_dead()

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for something while the run goes on; return whether it came about."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.tend()
            if condition():
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def calm(self) -> None:
        """Take back all blows that have not struck."""
        for name, target in self._targets.items():
            withdraw(self.folder, name)
            target.blow = None

    def tell(self, kind: Kind, fault: Fault, stream: str | None = None, text: str | None = None) -> None:
        """Tell what the run itself does."""
        tell(self.folder, Event(kind=kind, fault=fault, stream=stream, role="run", text=text))

    def _has_landed(self, name: str) -> bool:
        return any(event.stream == name and event.kind is Kind.LANDED for event in self.log.events)

    def is_well(self, name: str) -> bool:
        """Return whether a writer has landed or skipped something since it was last hit."""
        for event in reversed(self.log.events):
            if event.stream == name and event.kind in {Kind.LANDED, Kind.SKIPPED}:
                return True
            if event.kind is Kind.FAULT and (event.stream == name or event.fault in _OF_ALL):
                return False
        return False

    def _strike(self) -> None:
        if self.kills >= self._next_at_kill:
            self._next_at_kill += self.plan.kills_between
            self._strike_all(next(self._campaign_faults))
        for name, target in self._targets.items():
            self._strike_one(name, target)

    def _strike_one(self, name: str, target: Target) -> None:
        now = time.monotonic()
        if target.blow is not None:
            if now >= target.due_s and (
                self._kill_at_random(name, target.blow) or now - target.due_s > _LONGEST_WAIT_S
            ):
                target.blow = None
        elif waits(self.folder, name):
            if now - target.laid_s > _LONGEST_WAIT_S:
                withdraw(self.folder, name)
        elif self.is_well(name):
            blow = target.blows.next()
            if blow is None:
                return
            if blow.step is None:
                target.blow, target.due_s = blow, now + blow.delay_s
            else:
                target.laid_s = now
                lay(self.folder, self._order(name, blow, blow.step.name))

    def _order(self, name: str, blow: Blow, step: str) -> Order:
        fault = blow.fault
        if fault is Fault.KILL_EXECUTOR and not self.fleet.driver.has_executors:
            fault = Fault.KILL_PYTHON  # there is no executor beside the driver
        then = blow.then.name if blow.then else None
        return Order(number=next(self._orders), fault=fault, stream=name, step=step, amount=blow.amount, then=then)

    def _kill_at_random(self, name: str, blow: Blow) -> bool:
        """Kill a process that works for a writer now, or the driver, wherever it is; return whether there was one."""
        if blow.fault is Fault.KILL_DRIVER:
            if self.fleet.driver.is_dead:
                return False
            tell(self.folder, Event(kind=Kind.FAULT, fault=blow.fault, stream=name, role="driver"))
            self.fleet.kill_driver()
            return True
        found = [(pid, place) for pid, place in self.fleet.driver.places(self.folder) if place.stream == name]
        if found:
            pid, place = self.draw.choice(sorted(found, key=lambda one: one[0]))
            event = Event(
                kind=Kind.FAULT, fault=blow.fault, stream=name, place=place.step, role=place.role, epoch=place.epoch
            )
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                tell(self.folder, event)
                return True
        return False

    def _strike_all(self, fault: Fault | None) -> None:
        name = self.draw.choice([*self.fleet.streams])
        try:
            match fault:
                case Fault.COMPACTION:
                    self.tell(Kind.FAULT, fault, text=self._compact())
                case Fault.EXPIRY:
                    self.tell(Kind.FAULT, fault, text=self._expire())
                case Fault.CATALOG_AWAY:
                    self._begin_outage(fault, self.world.leave_catalog)
                case Fault.STORE_AWAY if self.world.leave_store is not None:
                    self._begin_outage(fault, self.world.leave_store)
                case Fault.SECOND_DRIVER:
                    upsets.second_driver(self, name)
                case Fault.ROLLED_BACK_ONE:
                    upsets.rolled_back_one(self, name)
                case Fault.ROLLED_BACK_MANY:
                    upsets.rolled_back_many(self, name)
        except Exception as error:  # of what others do, or of a driver that died; the writers are what is tried here
            text = f"{type(error).__name__}: {str(error)[:300]}"
            tell(self.folder, Event(kind=Kind.SETBACK, fault=fault, stream=name, role="run", text=text))

    def _compact(self) -> str:
        if self._peer is not None and self.draw.random() < _BY_PEER:
            table = self.draw.choice([TABLE, keyed.TABLE])
            return f"{table}, by Spark's runtime: {self._peer.compact(table)} files"
        branch = self.draw.choice([MAIN, BRANCH])
        return f"{branch}, by PyIceberg: {others.compact(self.world, branch)} files"

    def _expire(self) -> str:
        if self._peer is not None and self.draw.random() < _BY_PEER:
            return f"by Spark's runtime: {self._peer.expire()} files"
        return f"by PyIceberg: {others.expire(self.world)} snapshots"

    def _begin_outage(self, fault: Fault, leave: Callable[[Away], Callable[[], None]]) -> None:
        self._end_outage()
        away = self.draw.choice([*Away])
        seconds = self.draw.uniform(1, _LONGEST_OUTAGE_S)
        come_back = leave(away)
        self.tell(Kind.FAULT, fault, text=f"{away.name}, {seconds:.1f} s")
        self._outage = (fault, time.monotonic() + seconds, come_back)

    def _end_outage(self) -> None:
        if self._outage is not None:
            fault, _, come_back = self._outage
            self._outage = None
            come_back()
            self.tell(Kind.FAULT_OVER, fault)
