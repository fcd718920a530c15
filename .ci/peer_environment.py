"""Make `.peer/`: an environment with Iceberg's own Spark runtime, which tests and benchmarks hold the sink against.

It has an interpreter, a Spark and jars of its own, pinned here: the runtime exists for other versions of Spark
than those that the sink is developed with. Spark's own resolver fetches the jars, once. Does nothing if the
folder is as it should be; processes that want it at the same time wait for each other.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from installing import STAMP, alone, finish, is_finished, run, run_java

PACKAGES = ("pyspark==4.1.4", "py4j==0.10.9.9")
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    "org.postgresql:postgresql:42.7.7",
    "org.xerial:sqlite-jdbc:3.49.1.0",
)
# A link to an environment is that environment, and not another one to make.
FOLDER = (Path(__file__).resolve().parents[1] / ".peer").resolve()
# Spark resolves `spark.jars.packages` when a session starts; that the session starts is a test of the jars, too.
_FETCH = """
import sys
from pyspark.sql import SparkSession

packages, ivy, catalog = sys.argv[1:]
settings = {
    "spark.jars.packages": packages,
    "spark.jars.ivy": ivy,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.peer.type": "jdbc",
    "spark.sql.catalog.peer.uri": f"jdbc:sqlite:{catalog}/catalog.db",
    "spark.sql.catalog.peer.warehouse": catalog,
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sql("SHOW NAMESPACES IN peer").collect()
spark.stop()
"""


def wanted() -> dict[str, object]:
    """Return what a finished folder says of itself."""
    return {
        "folder": str(FOLDER),
        "interpreter": f"{sys.base_prefix} {sys.version}",
        "packages": list(PACKAGES),
        "jars": list(JARS),
    }


def make() -> None:
    """Make the folder's contents anew."""
    for name in ("venv", "jars", "work"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    work = FOLDER / "work"
    work.mkdir()
    python = FOLDER / "venv" / "bin" / "python"
    run(FOLDER, sys.executable, "-m", "venv", FOLDER / "venv")
    run(FOLDER, python, "-m", "pip", "install", "--quiet", *PACKAGES)
    run_java(FOLDER, python, "-c", _FETCH, ",".join(JARS), work / "ivy", work)
    (work / "ivy" / "jars").rename(FOLDER / "jars")
    shutil.rmtree(work)
    finish(FOLDER, wanted())


def main() -> None:
    """Make the folder unless it is there."""
    with alone(FOLDER):
        if not is_finished(FOLDER, wanted()):
            (FOLDER / STAMP).unlink(missing_ok=True)
            make()
        (FOLDER / STAMP).touch()  # newer than this file, for make


if __name__ == "__main__":
    main()
