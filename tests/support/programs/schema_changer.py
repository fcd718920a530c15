"""The program of a writer without Spark that adds columns to a table, when a file tells it to begin."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql.types import LongType, StructField, StructType
from support.tables.sink import IDENTIFIER, SCHEMA, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.table.schema_evolution import EvolutionPolicy, propose_request

_TIMEOUT_S = 300


def main() -> None:
    """Add `shared_0`, `own_<number>_0`, `shared_1` and so on to `db.t` of the warehouse, as often as told."""
    warehouse, folder, number, rounds = sys.argv[1:]
    catalog = connect(catalog_settings(embedded_options(Path(warehouse))))
    (Path(folder) / f"ready-{number}").touch()
    deadline = time.monotonic() + _TIMEOUT_S
    while not (Path(folder) / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("Nobody said go.")
        time.sleep(0.001)
    policy = EvolutionPolicy(mode="add-columns")
    for position in range(int(rounds)):
        for name in (f"shared_{position}", f"own_{number}_{position}"):
            wanted = StructType([*SCHEMA, StructField(name, LongType())])
            alter_table(
                catalog,
                IDENTIFIER,
                lambda metadata, wanted=wanted: propose_request(wanted, metadata, policy, table_name="db.t"),
            )


if __name__ == "__main__":
    main()
