"""Make `.recipes/prometheus/`: a real Prometheus and promtool in a pinned version, which Go builds from their module.

They are built with the versions that their authors chose, and without service discovery, which needs most of the code.
The pages for browsers are no part of the module: what is built answers queries and shows no page. Does nothing if the
folder is as it should be; processes that want it at the same time wait for each other.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from installing import STAMP, alone, finish, is_finished, run

FOLDER = Path(__file__).resolve().parents[1] / ".recipes" / "prometheus"
MODULE = "github.com/prometheus/prometheus@v0.316.0"
PROGRAMS = ("./cmd/prometheus", "./cmd/promtool")
FLAGS = ("-trimpath", "-ldflags=-s -w", "-tags=remove_all_sd")
# The module's workspace names folders that are not in it.
WITHOUT_WORKSPACE = {"GOWORK": "off"}


def wanted() -> dict[str, object]:
    """Return what a finished folder says of itself."""
    return {"module": MODULE, "programs": list(PROGRAMS), "flags": list(FLAGS)}


def make() -> None:
    """Make the folder's contents anew.

    Raises:
        SystemExit: Go is missing, or failed.
    """
    go = shutil.which("go")
    if go is None:
        raise SystemExit(f"Cannot make {FOLDER}: Go must be on the PATH. Install it and run this again.")
    shutil.rmtree(FOLDER / "bin", ignore_errors=True)
    run(FOLDER, go, "mod", "download", MODULE)
    told = subprocess.run([go, "mod", "download", "-json", MODULE], check=True, capture_output=True, text=True)
    source = json.loads(told.stdout)["Dir"]
    run(FOLDER, go, "build", "-C", source, *FLAGS, "-o", f"{FOLDER / 'bin'}/", *PROGRAMS, **WITHOUT_WORKSPACE)


def main() -> None:
    """Make the folder unless it is there."""
    FOLDER.parent.mkdir(exist_ok=True)
    with alone(FOLDER):
        if not is_finished(FOLDER, wanted()):
            (FOLDER / STAMP).unlink(missing_ok=True)
            make()
            finish(FOLDER, wanted())
        (FOLDER / STAMP).touch()  # newer than this file, for make


if __name__ == "__main__":
    main()
