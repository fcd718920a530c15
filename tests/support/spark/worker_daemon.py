"""PySpark's daemon of workers, which has imported beforehand what each worker needs (`spark.python.daemon.module`).

Workers are forked from it: a worker is there at once, where it would take a second to import the sink. Spark starts one
daemon for each role.
"""

from __future__ import annotations

import importlib
import sys

from pyspark.daemon import manager

_PLANNER = (
    "iceberg_ds.catalog.client",
    "iceberg_ds.options.sink_options",
    "iceberg_ds.planning.plan_write",
    "pyiceberg.catalog.sql",
)
_COMMITTER = ("iceberg_ds.commit.commit", "iceberg_ds.options.sink_options", "pyiceberg.catalog.sql")
_NEEDS = {
    "pyspark.sql.worker.write_into_data_source": _PLANNER,
    "pyspark.sql.worker.commit_data_source_write": _COMMITTER,
    "pyspark.sql.worker.python_streaming_sink_runner": _COMMITTER,
    "pyspark.worker": ("iceberg_ds.messages", "iceberg_ds.writers.row_predicates", "iceberg_ds.writers.task_writer"),
}


def serve(*modules: str) -> None:
    """Import what the role of this daemon needs, and these modules, and fork workers until Spark ends."""
    role = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    for module in (*modules, role, *_NEEDS.get(role, ())):
        importlib.import_module(module)
    manager()


if __name__ == "__main__":
    serve()
