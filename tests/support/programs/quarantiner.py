"""Numbered upserts and transactions some of whose rows go to a quarantine table, and the program that kills them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from typing import Any

from support.programs.forker import run_forked
from support.spark.local_frame import LocalFrame, without_moving_rows
from support.tables.bad_rows import SENT

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.fault_points import FaultPoint, listen


def _rows(*ids: str) -> Any:
    return LocalFrame(parts=[[{"id": number, "amount": "1", "token": None} for number in ids]], schema=SENT)


def run(options: Mapping[str, str], kind: str) -> None:
    """Upsert into `db.a`, or write into `db.a` and `db.b`, under one number; a row of each cannot be written."""
    given = {**options, "on-bad-row": "quarantine", "quarantine-table": "db.bad"}
    keyed = {"keys": "id", "evolve-keys": "true"}
    with without_moving_rows():
        if kind == "upsert":
            numbered = {**given, **keyed, "txn-app-id": "app", "txn-version": "1"}
            iceberg_ds.upsert(_rows("1", "x"), "db.a", options=numbered)
            return
        with iceberg_ds.transaction(options=given, app_id="app", version=1) as epoch:
            epoch.append(_rows("1", "x"), "db.a")
            epoch.upsert(_rows("2", "y"), "db.b", options=keyed)


def die_in_run(options: Mapping[str, str], kind: str, step: FaultPoint, number: int, *, is_together: bool) -> None:
    """Do the same in a process of its own that is killed when it comes to `step` for the time `number`, and assert it.

    Args:
        options: Lead to the catalog, and say where reports go.
        kind: As `run` takes it.
        step: Where it dies.
        number: Which time it comes there, from 1.
        is_together: Whether the catalog takes requests for several tables.
    """
    arguments = (json.dumps(dict(options)), kind, step.name, str(number), str(is_together))
    assert run_forked("support.programs.quarantiner", *arguments) == -signal.SIGKILL


def main(options: str, kind: str, name: str, number: str, is_together: str) -> None:
    """Write, and die."""
    if is_together == str(False):
        CatalogClient.takes_many_tables = property(lambda _: False)  # type: ignore[method-assign,assignment]
    left = int(number)

    def die(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is FaultPoint[name]
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    run(json.loads(options), kind)
