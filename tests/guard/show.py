"""What do writes and commits cost, counted and not timed? A script: `make guard`.

    python tests/guard/show.py
    python tests/guard/show.py --write

Prints every figure, what it was when it was noted, and how high it may be; `--write` notes them anew. Exits with 1
if one is higher than it may be. `test_guard.py` fails then, too.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from guard import limits
from guard.limits import MEASURED, growths, limit_of, sunk
from guard.measuring import MEASURES, Place, measure
from support.services.servers import serve_objects

_TABLE = re.compile(r"^MEASURED: dict\[str, int\] = \{\n.*?^\}\n", re.DOTALL | re.MULTILINE)


def measure_all() -> dict[str, int]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serve_objects(folder / "object-store") as store:
            place = Place(store=store, folder=folder)
            return {name: number for group in MEASURES for name, number in measure(group, place).items()}


def table(figures: Mapping[str, int]) -> str:
    """Return the figures as text, with what was noted of each."""
    grown, lower = {growth.name for growth in growths(figures)}, set(sunk(figures))
    lines = [f"{'figure':<78} {'now':>12} {'noted':>12} {'limit':>12}"]
    for name in sorted(figures.keys() | MEASURED.keys()):
        noted, now = MEASURED.get(name, 0), figures.get(name, 0)
        verdict = "  GREW" if name in grown else "  sank: note it" if name in lower else ""
        lines.append(f"{name:<78} {now:>12,} {noted:>12,} {limit_of(name, noted):>12,}{verdict}")
    return "\n".join(lines)


def write(figures: Mapping[str, int], file: Path) -> None:
    """Note the figures in the table of `file`."""
    rows = "".join(f'    "{name}": {number:_},\n' for name, number in sorted(figures.items()))
    text = _TABLE.sub(lambda _: f"MEASURED: dict[str, int] = {{\n{rows}}}\n", file.read_text(), count=1)
    file.write_text(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and note if asked to; return 1 if a figure is too high."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="note the figures as they are now")
    asked = parser.parse_args(arguments)
    figures = measure_all()
    print(table(figures))  # noqa: T201
    if asked.write:
        write(figures, Path(limits.__file__))
        return 0
    for growth in growths(figures):
        print(growth)  # noqa: T201
    return int(bool(growths(figures)))


if __name__ == "__main__":
    sys.exit(main())
