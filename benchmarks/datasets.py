"""Input of the benchmarks: a lineitem-like set, made by Spark once and kept as Parquet.

    python benchmarks/datasets.py --rows 6000000

The columns are those of TPC-H's lineitem, and a timestamp `l_updated_at`. Quantity and extended price are
doubles, discount and tax decimal(12,2). Every value is a hash of the row's number, so the set depends on
nothing but the number of rows. It is no TPC-H: keys, prices and texts follow simpler rules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import Settings, parse_arguments, scratch_folder
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

FILES = 4  # equal ones: every job reads them as four equal tasks
USES = {"rows": ""}
_VERSION = 1  # raise it when the rows change
_DAYS = 2_406  # between the first and the last order, as in TPC-H
_TEXTS = {
    "l_shipinstruct": ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"),
    "l_shipmode": ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"),
}
# None is shorter than four letters, so that nine of them make the longest comment.
_POOL = (
    "about above according across after against along among around asymptotes attainments bold braids busy carefully "
    "courts daring deposits dependencies dolphins dugouts engage even excuses express final fluffily foxes furiously "
    "grouches haggle ideas instructions integrate ironic kindle multipliers notornis orbits packages patterns pending "
    "pinto platelets players quickly quiet regular requests ruthless sauternes sentiments silent sleep slyly sometimes "
    "special stealthy thinly tithes unusual warhorses"
)
_WORDS = tuple(_POOL.split())


def lineitem(spark: SparkSession, rows: int) -> DataFrame:
    """Return the set with `rows` rows, ordered by order key, in `FILES` partitions."""
    numbered = spark.range(0, rows, 1, FILES)
    keyed = numbered.withColumns(_keys(rows)).withColumn("ordered", _date("1992-01-01", _draw("l_orderkey", 0, _DAYS)))
    dated = keyed.withColumns(_dates()).withColumns(_amounts())
    return dated.withColumns(_labels()).select(*_columns())


def _draw(column: str, salt: int, below: int) -> Column:
    """Return a number from 0 to `below` - 1 that depends on the column's value and on `salt` alone."""
    return F.pmod(F.xxhash64(F.col(column), F.lit(salt)), F.lit(below))


def _date(start: str | Column, days: Column) -> Column:
    first = F.lit(start).cast("date") if isinstance(start, str) else start
    return F.date_add(first, days.cast("int"))


def _pick(texts: tuple[str, ...], salt: int) -> Column:
    return F.element_at(F.array(*map(F.lit, texts)), _draw("id", salt, len(texts)).cast("int") + 1)


def _keys(rows: int) -> dict[str, Column]:
    # Orders have one to seven lines in turn: 28 lines are seven orders.
    lines = [(order, line) for order in range(7) for line in range(order + 1)]
    place = (F.col("id") % 28).cast("int") + 1
    return {
        "l_orderkey": (F.col("id") / 28).cast("long") * 7 + F.element_at(F.array(*(F.lit(o) for o, _ in lines)), place),
        "l_partkey": _draw("id", 1, max(1_000, rows // 30)) + 1,
        "l_suppkey": _draw("id", 2, max(100, rows // 600)) + 1,
        "l_linenumber": F.element_at(F.array(*(F.lit(line + 1) for _, line in lines)), place),
    }


def _dates() -> dict[str, Column]:
    shipped = _date(F.col("ordered"), _draw("id", 3, 121) + 1)
    return {
        "l_shipdate": shipped,
        "l_commitdate": _date(F.col("ordered"), _draw("id", 4, 61) + 30),
        "l_receiptdate": _date(shipped, _draw("id", 5, 30) + 1),
        "l_updated_at": F.timestamp_millis(F.unix_date(shipped).cast("long") * 86_400_000 + _draw("id", 6, 86_400_000)),
    }


def _amounts() -> dict[str, Column]:
    quantity = (_draw("id", 7, 50) + 1).cast("double")
    retail_price = (90_000 + (F.col("l_partkey") / 10).cast("long") % 20_001 + 100 * (F.col("l_partkey") % 1_000)) / 100
    return {
        "l_quantity": quantity,
        "l_extendedprice": F.round(quantity * retail_price, 2),
        "l_discount": (_draw("id", 8, 11) / 100).cast("decimal(12,2)"),
        "l_tax": (_draw("id", 9, 9) / 100).cast("decimal(12,2)"),
    }


def _labels() -> dict[str, Column]:
    watershed = F.lit("1995-06-17").cast("date")
    words = F.concat_ws(" ", *(_pick(_WORDS, 20 + number) for number in range(9)))
    return {
        "l_returnflag": F.when(F.col("l_receiptdate") > watershed, "N").otherwise(_pick(("R", "A"), 10)),
        "l_linestatus": F.when(F.col("l_shipdate") > watershed, "O").otherwise("F"),
        **{name: _pick(texts, 11 + number) for number, (name, texts) in enumerate(_TEXTS.items())},
        "l_comment": F.substring(words, F.lit(1), (_draw("id", 13, 34) + 10).cast("int")),
    }


def _columns() -> list[str]:
    keys = ["l_orderkey", "l_partkey", "l_suppkey", "l_linenumber"]
    amounts = ["l_quantity", "l_extendedprice", "l_discount", "l_tax"]
    dates = ["l_returnflag", "l_linestatus", "l_shipdate", "l_commitdate", "l_receiptdate"]
    return [*keys, *amounts, *dates, *_TEXTS, "l_comment", "l_updated_at"]


def session(name: str, scratch: Path) -> SparkSession:
    """Return a Spark session with two cores, whose own files go to `scratch`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().appName(name).master("local[2]")
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Iceberg writes, too; Spark's default is INT96, which no new file should have.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # As large as a split may be, so that every file is a task of its own.
        "spark.sql.files.openCostInBytes": "134217728",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def lineitem_folder(settings: Settings) -> Path:
    """Return the folder with the set's Parquet files, which are made first if they are not there."""
    folder = settings.data_dir.resolve() / f"lineitem-{settings.rows}-v{_VERSION}"
    if not (folder / "_SUCCESS").exists():
        # In a process of its own: the benchmark's session starts fresh, whether or not the set was there.
        arguments = [f"--rows={settings.rows}", f"--data-dir={settings.data_dir}"]
        subprocess.run([sys.executable, __file__, *arguments], check=True)
    return folder


def main() -> None:
    """Write the set."""
    settings = parse_arguments("Makes the lineitem-like set that the benchmarks read.", USES)
    folder = settings.data_dir.resolve() / f"lineitem-{settings.rows}-v{_VERSION}"
    with scratch_folder(settings) as scratch:
        spark = session("datasets", scratch)
        lineitem(spark, settings.rows).write.mode("overwrite").option("compression", "snappy").parquet(str(folder))
        spark.stop()
    print(f"Wrote {settings.rows:,} rows to {folder}")


if __name__ == "__main__":
    main()
