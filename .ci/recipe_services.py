"""Make `.recipes/services/`: what the recipes in `examples/` need beside this package, in pinned versions.

Maven fetches a Kafka broker, Kafka Connect with Debezium's connector of PostgreSQL, and Spark's connectors of Kafka and
Avro; pip fetches the Spark that these connectors belong to, for they exist for other versions than the one that the
sink is developed with. PostgreSQL itself is in `.services/`. Does nothing if the folder is as it should be; processes
that want it at the same time wait for each other.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from installing import STAMP, alone, finish, is_finished, run
from maven import fetch_jars

FOLDER = Path(__file__).resolve().parents[1] / ".recipes" / "services"
SPARK = "4.0.0"
KAFKA = "4.3.1"
PACKAGES = (f"pyspark=={SPARK}", "py4j==0.10.9.9")
# What Maven fetches into each folder, with all that it needs.
MAVEN = {
    "kafka": (
        f"org.apache.kafka:kafka_2.13:{KAFKA}",
        f"org.apache.kafka:kafka-tools:{KAFKA}",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    "debezium": (
        f"org.apache.kafka:connect-runtime:{KAFKA}",
        f"org.apache.kafka:connect-json:{KAFKA}",
        "io.debezium:debezium-connector-postgres:3.6.1.Final",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    "connectors": (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
        f"org.apache.spark:spark-avro_2.13:{SPARK}",
    ),
}


def wanted() -> dict[str, object]:
    """Return what a finished folder says of itself."""
    return {"packages": list(PACKAGES), "maven": {name: list(jars) for name, jars in MAVEN.items()}}


def make() -> None:
    """Make the folder's contents anew.

    Raises:
        SystemExit: A tool is missing, or failed.
    """
    if shutil.which("mvn") is None:
        raise SystemExit(f"Cannot make {FOLDER}: Maven 3.6 or newer must be on the PATH. Install it and run again.")
    for name in ("spark", *MAVEN):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    for name, jars in MAVEN.items():
        fetch_jars(FOLDER / name, jars)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile")
    run(FOLDER, *pip, "--target", FOLDER / "spark", *PACKAGES)


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
