"""Faults of a whole query: a second driver beside the first, and a checkpoint that is put back.

No other blow falls while one of them is under way, so that what follows is its outcome.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from chaos.checkpoint import Checkpoint
from chaos.driver import REFUSED
from chaos.events import Event, Fault, Kind, tell
from chaos.fleet import stream_in

if TYPE_CHECKING:
    from chaos.campaign import Campaign

_BESIDE_S = 4.0
_BESIDE_TIMEOUT_S = 60
_WAIT_S = 60
_RUN_ID = "icebergsink.run-id"
_EPOCHS_BACK = 3
_TRIES = 3


class UpsetError(RuntimeError):
    """The upset could not be brought about; the query goes on as before."""


def rolled_back_one(campaign: Campaign, name: str) -> None:
    """Let a query forget that its last epoch is finished; it has to find that out."""
    checkpoint = _stop(campaign, name)
    for _ in range(_TRIES):
        if checkpoint.planned == checkpoint.finished >= 0:
            break
        campaign.fleet.begin(name)  # it was stopped in the middle of an epoch, which it repeats anyway
        epoch = checkpoint.planned
        campaign.wait(lambda epoch=epoch: campaign.fleet.checkpoint(name).finished >= epoch, _WAIT_S)
        checkpoint = _stop(campaign, name)
    else:
        campaign.fleet.begin(name)
        raise UpsetError(f"{name} could not be stopped between two epochs")
    epoch = checkpoint.forget_last()
    campaign.tell(Kind.FAULT, Fault.ROLLED_BACK_ONE, name, f"epoch {epoch} is forgotten")
    campaign.fleet.begin(name)


def rolled_back_many(campaign: Campaign, name: str) -> None:
    """Put a checkpoint back by several epochs, wait for the refusal, and restore the newest one."""
    backup = _clean(campaign, name).copy_to(campaign.folder / "put-aside" / f"{name}-old")
    campaign.fleet.begin(name)
    target = backup.next_epoch + _EPOCHS_BACK
    if not campaign.wait(lambda: campaign.fleet.checkpoint(name).finished >= target, _WAIT_S):
        raise UpsetError(f"{name} did not come to epoch {target}")
    checkpoint = _stop(campaign, name)
    newest = checkpoint.copy_to(campaign.folder / "put-aside" / f"{name}-new")
    backup.copy_to(checkpoint.folder)
    campaign.tell(
        Kind.FAULT, Fault.ROLLED_BACK_MANY, name, f"from epoch {newest.next_epoch} to epoch {backup.next_epoch}"
    )
    seen = len(campaign.log.events)
    try:
        campaign.fleet.begin(name)
        is_refused = campaign.wait(
            lambda: any(_is_refusal(event, name) for event in campaign.log.events[seen:]), _WAIT_S
        )
    finally:
        with suppress(RuntimeError, OSError):  # of a driver that has died; the next one is to find the newest one, too
            campaign.fleet.stop(name)
        newest.copy_to(checkpoint.folder)
    if not is_refused:
        campaign.problems.append(f"{name}: a checkpoint rolled back by {_EPOCHS_BACK} epochs or more was not refused")
    campaign.tell(Kind.FAULT_OVER, Fault.ROLLED_BACK_MANY, name, "refused" if is_refused else "NOT refused")
    campaign.fleet.begin(name)


def _is_refusal(event: Event, name: str) -> bool:
    return event.kind is Kind.FAILED and event.stream == name and REFUSED in (event.text or "")


def second_driver(campaign: Campaign, name: str) -> None:
    """Let a second driver run a query from a copy of its checkpoint for some seconds; go on with the one that won."""
    first = _clean(campaign, name)
    second = first.copy_to(campaign.folder / "put-aside" / f"{name}-second")
    spec = replace(campaign.fleet.streams[name], checkpoint=str(second.folder))
    other = campaign.fleet.lend_next()
    campaign.tell(Kind.FAULT, Fault.SECOND_DRIVER, name, f"from epoch {first.next_epoch}")
    seen = len(campaign.log.events)
    try:
        stream_in(other, spec)
        campaign.fleet.begin(name)
        # Both write, and one of them is told so.
        campaign.wait(
            lambda: any(event.kind is Kind.FAILED for event in _since(campaign, seen, name)), _BESIDE_TIMEOUT_S
        )
        since = time.monotonic()
        campaign.wait(lambda: time.monotonic() - since > _BESIDE_S, _BESIDE_S * 2)
    finally:
        text = "the second driver"
        tell(
            campaign.folder,
            Event(kind=Kind.FAULT, fault=Fault.KILL_DRIVER, stream=name, role="driver", text=text),
        )
        other.process.close()
    campaign.fleet.stop(name)
    has_won = _checkpoint_of_last(campaign, name) == str(second.folder)
    if has_won:
        second.copy_to(first.folder)
    refusals = sorted({(event.text or "").partition(":")[0] for event in _failures(campaign, seen, name)})
    winner = "the second" if has_won else "the first"
    campaign.tell(
        Kind.FAULT_OVER, Fault.SECOND_DRIVER, name, f"{winner} was last; errors: {', '.join(refusals) or 'none'}"
    )
    campaign.fleet.begin(name)


def _since(campaign: Campaign, seen: int, name: str) -> list[Event]:
    return [event for event in campaign.log.events[seen:] if event.stream == name]


def _failures(campaign: Campaign, seen: int, name: str) -> list[Event]:
    return [event for event in _since(campaign, seen, name) if event.kind is Kind.FAILED]


def _checkpoint_of_last(campaign: Campaign, name: str) -> str | None:
    """Return the checkpoint of the run that committed the newest epoch of a query that has not expired."""
    checkpoints = {
        event.run_id: event.text
        for event in campaign.log.events
        if event.kind is Kind.STARTED and event.stream == name and event.run_id is not None
    }
    table = campaign.world.table(campaign.fleet.streams[name].table)
    summaries = [snapshot.get("summary", {}) for snapshot in table.snapshots] if table is not None else []
    runs = [summary[_RUN_ID] for summary in summaries if summary.get(_RUN_ID) in checkpoints]
    return checkpoints[runs[-1]] if runs else None


def _clean(campaign: Campaign, name: str) -> Checkpoint:
    """Stop a query where its checkpoint leaves no doubt which rows its next epoch will have.

    Raises:
        UpsetError: It was stopped in the middle; it goes on.
    """
    checkpoint = _stop(campaign, name)
    if not checkpoint.is_clean:
        campaign.fleet.begin(name)
        raise UpsetError(f"{name} was stopped while it planned an epoch")
    return checkpoint


def _stop(campaign: Campaign, name: str) -> Checkpoint:
    campaign.calm()
    campaign.wait(lambda: campaign.is_well(name), _WAIT_S)
    campaign.fleet.stop(name)
    campaign.read()
    return campaign.fleet.checkpoint(name)
