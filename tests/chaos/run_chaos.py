"""Does any fault make a stream or a batch lose or double a row? A script: `make chaos`.

    python tests/chaos/run_chaos.py --kills 50 --seed 1 --catalog sqlite

Real Spark writes several streams and batches into one table, a stream into a branch of it, and changes by key into
another table, while processes are killed at named steps and at random, catalog and store are away, disks are full,
clocks jump, others compact and expire, and checkpoints are copied and put back. Then a reader that shares no code
with the sink compares tables and sources by row id. Exits with 1 if a row is missing or doubled, or one that was
deleted is back. `tests/chaos/README.md` tells more.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from chaos import keyed, reports
from chaos.campaign import Campaign, Plan
from chaos.driver import TABLE
from chaos.events import Fault, Log
from chaos.fleet import KEYED, Fleet
from chaos.others import Peer
from chaos.result import Result, result_of
from chaos.verifier import Verdict, source_rows, sources_of, verify
from chaos.world import CATALOGS, World, serve_world

import iceberg_ds

RESULTS = Path(__file__).parent / "results"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="end after so many kills")
    parser.add_argument("--minutes", type=float, default=90, help="end after so many minutes in any case")
    parser.add_argument("--seed", type=int, default=1, help="decides which faults come, and where")
    parser.add_argument("--catalog", choices=CATALOGS, default="sqlite")
    parser.add_argument(
        "--faults", type=_faults, default=frozenset(Fault), help=f"some of {', '.join(map(_word, Fault))}"
    )
    parser.add_argument("--streams", type=int, default=2, help="streams into the main branch")
    parser.add_argument("--batches", type=int, default=1, help="writers of batches")
    parser.add_argument("--kills-between", type=int, default=6, help="kills between two faults of a whole query")
    parser.add_argument("--epochs-ahead", type=int, default=12, help="what the sources have in store for each stream")
    parser.add_argument("--peer", action="store_true", help="let Iceberg's own Spark runtime compact and expire, too")
    parser.add_argument("--result", type=Path, help="where the result goes, without a suffix")
    parser.add_argument("--folder", type=Path, help="a new folder for everything; a temporary one by default")
    return parser.parse_args(arguments)


def _word(fault: Fault) -> str:
    return fault.name.lower().replace("_", "-")


def _faults(text: str) -> frozenset[Fault]:
    known = {_word(fault): fault for fault in Fault}
    return frozenset(known[word.strip()] for word in text.split(","))


def run(options: argparse.Namespace, folder: Path) -> Result:
    """Run a campaign in a folder, and return its result."""
    started = time.monotonic()
    for name in ("orders", "places", "put-aside"):
        (folder / name).mkdir(parents=True)
    plan = Plan(
        seed=options.seed,
        kills=options.kills,
        seconds=options.minutes * 60,
        faults=options.faults,
        kills_between=options.kills_between,
    )
    with serve_world(options.catalog, folder) as world:
        draw = random.Random(f"{options.seed}-fleet")  # noqa: S311  # no secret
        fleet = Fleet(folder=folder, world=world, draw=draw, epochs_ahead=options.epochs_ahead)
        fleet.add(options.streams, options.batches)
        peer = Peer(world, folder / "peer") if options.peer else None
        campaign = Campaign(plan, fleet, world, folder, peer)
        try:
            campaign.run()
        finally:
            fleet.close()
            if peer is not None:
                peer.close()
        verdict = _verify(world, fleet, campaign.problems)
        campaign.problems += _verify_keys(world, fleet)
        for name, account in (verdict.accounts if verdict else {}).items():
            campaign.problems += reports.problems_of(fleet.reports(name), name, account.found)
        for name in (keyed.TABLE, TABLE):
            checked = iceberg_ds.verify(name, options=world.options, deep=True, orphans=False)
            campaign.problems.extend(
                f"iceberg_ds.verify: {name}: {check.name}: {check.detail}" for check in checked.failures
            )
    log = Log(folder)
    return result_of(
        log.read(),
        seed=options.seed,
        catalog=options.catalog,
        verdict=verdict,
        problems=campaign.problems,
        total_seconds=time.monotonic() - started,
        checked_by=str(checked),
    )


def _verify(world: World, fleet: Fleet, problems: list[str]) -> Verdict | None:
    try:
        table = world.table()
        if table is not None:
            return verify(table, sources_of(fleet))
        problems.append("there is no table")
    except Exception as error:  # a table that cannot be read is a finding, not the end of the report
        problems.append(f"the table cannot be read: {type(error).__name__}: {error}")
    return None


def _verify_keys(world: World, fleet: Fleet) -> list[str]:
    """Return what is wrong with the table that is written by key."""
    try:
        table = world.table(keyed.TABLE)
        if table is None:
            return [f"there is no table {keyed.TABLE}"]
        rows = source_rows(Path(fleet.streams[KEYED].source))
        return list(keyed.problems_of(table, (number for number, _ in rows)))
    except Exception as error:  # as above
        return [f"the table {keyed.TABLE} cannot be read: {type(error).__name__}: {error}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return its exit code."""
    options = parse(arguments)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    result = run(options, folder)
    path = options.result or RESULTS / f"{options.catalog}-seed-{options.seed}"
    result.write(path)
    if options.folder is None and result.is_whole:
        shutil.rmtree(folder, ignore_errors=True)
    print(result.markdown())  # noqa: T201  # a script
    print(f"Written to {path}.md and {path}.json" + ("" if result.is_whole else f"; everything is left in {folder}"))  # noqa: T201
    return 0 if result.is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
