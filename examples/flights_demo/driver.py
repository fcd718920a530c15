"""The Spark driver that the demo kills: it loads small tables and, when its turn comes, streams flights or changes.

This is all that a user writes, and nothing in it knows of the kills: `examples/flights.py` starts it as
a process, says through its standard input when its turn has come and for what, and kills it from outside.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import iceberg_ds

SCHEMAS = {
    "flights": (
        "row_number BIGINT, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
        "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
        "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
    ),
    "departures": (
        "op STRING, lsn BIGINT, row_number BIGINT, carrier STRING, flight INT, origin STRING, dest STRING, "
        "dep_delay INT, arr_delay INT"
    ),
    "airlines": "carrier STRING, name STRING",
    "airports": ("faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"),
    "planes": (
        "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, "
        "speed INT, engine STRING"
    ),
    "weather": (
        "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT, "
        "wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP"
    ),
}

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Three tasks for the 2.5 MB of a month, so that an epoch has a middle to be killed in.
    "spark.sql.files.maxPartitionBytes": "1m",
    "spark.sql.files.openCostInBytes": "0",
}


def start_session(folder: Path) -> SparkSession:
    """Start Spark with all of its temporary files below `folder`."""
    temporary = folder / "tmp"
    # A JVM that lives for seconds gains nothing from the second compiler.
    java = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir="{temporary}"'
    # One core for the tasks leaves another one to the next driver, which starts meanwhile.
    builder = SparkSession.builder.master("local[1]").appName("flights")
    builder = builder.config("spark.local.dir", str(temporary)).config("spark.driver.extraJavaOptions", java)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    iceberg_ds.register(spark)
    return spark


def load_small_table(spark: SparkSession, folder: Path, source: Path, name: str) -> None:
    """Write one of the package's plain CSV files into its table, as a batch."""
    rows = spark.read.csv(str(source / f"{name}.csv"), schema=SCHEMAS[name], header=True, nullValue="NA")
    rows.write.format("icebergsink").mode("append").option("warehouse", str(folder / "warehouse")).save(f"nyc.{name}")


def stream_flights(spark: SparkSession, folder: Path) -> None:
    """Stream the months that the checkpoint does not have yet, one per epoch."""
    months = spark.readStream.option("maxFilesPerTrigger", 1)
    flights = months.csv(str(folder / "flights"), schema=SCHEMAS["flights"], header=True, nullValue="NA")
    query = (
        flights.writeStream.format("icebergsink")
        .option("warehouse", str(folder / "warehouse"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start("nyc.flights")
    )
    query.awaitTermination()


def stream_changes(spark: SparkSession, folder: Path) -> None:
    """Stream what became of the planned departures, a file per epoch: the table has those that are left, by key."""
    files = spark.readStream.option("maxFilesPerTrigger", 1)
    changes = files.csv(str(folder / "changes"), schema=SCHEMAS["departures"], header=True, nullValue="NA")
    query = (
        changes.writeStream.format("icebergsink")
        .option("warehouse", str(folder / "warehouse"))
        .option("keys", "row_number")
        .option("operation-column", "op")
        .option("sequence-by", "lsn")
        .option("checkpointLocation", str(folder / "checkpoint-of-departures"))
        .trigger(availableNow=True)
        .start("nyc.departures")
    )
    query.awaitTermination()


STREAMS = {"flights": stream_flights, "departures": stream_changes}


def main() -> None:
    """Load, wait for a line on standard input, stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--load", nargs="*", default=[], choices=sorted(SCHEMAS))
    arguments = parser.parse_args()
    spark = start_session(arguments.folder)
    for name in arguments.load:
        load_small_table(spark, arguments.folder, arguments.source, name)
    turn = sys.stdin.readline().strip()
    if not turn:
        sys.exit("The demo is gone.")
    STREAMS[turn](spark, arguments.folder)


if __name__ == "__main__":
    main()
