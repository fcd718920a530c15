"""The program of a writer without Spark: takes the steps that Spark's processes take, when a file tells it to begin."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from support.tables import Sink, embedded_options

from iceberg_ds.catalogs.client import connect
from iceberg_ds.catalogs.settings import catalog_settings

_TIMEOUT_S = 300


def main() -> None:
    """Append two rows, as often as the last argument says, to `db.t` of the warehouse."""
    warehouse, folder, number, appends = sys.argv[1:]
    options = embedded_options(Path(warehouse))
    (Path(folder) / f"ready-{number}").touch()
    deadline = time.monotonic() + _TIMEOUT_S
    while not (Path(folder) / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("Nobody said go.")
        time.sleep(0.001)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    for append in range(int(appends)):
        first = 1_000_000 * int(number) + 2 * append
        sink.append(first, first + 1)


if __name__ == "__main__":
    main()
