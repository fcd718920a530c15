"""Input of the benchmarks: sets that Spark makes once, kept as Parquet.

    python benchmarks/datasets.py --rows 6000000 --set lineitem

Sets: `lineitem`; `wide`, 300 columns; `nested`, texts, structs, lists and maps; `narrow`, two longs.

The columns of `lineitem` are those of TPC-H's lineitem, and a timestamp `l_updated_at`. Quantity and extended price are
doubles, discount and tax decimal(12,2). Every value is a hash of the row's number, so the set depends on
nothing but the number of rows. It is no TPC-H: keys, prices and texts follow simpler rules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import Settings, parse_arguments, scratch_folder
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

FILES = 4  # equal ones: every job reads them as four equal tasks
USES = {"rows": "", "set": "lineitem, wide, nested or narrow"}
WIDE_COLUMNS = 300
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


def wide(spark: SparkSession, rows: int) -> DataFrame:
    """Return `WIDE_COLUMNS` columns: a key, and longs, doubles, integers, decimals and short texts in turn."""
    kinds = [
        lambda salt: _draw("id", salt, 1_000_000),
        lambda salt: _draw("id", salt, 1_000_000) / 100,
        lambda salt: _draw("id", salt, 1_000).cast("int"),
        lambda salt: (_draw("id", salt, 10_000) / 100).cast("decimal(12,2)"),
        lambda salt: _pick(_WORDS, salt),
    ]
    others = [kinds[number % len(kinds)](number).alias(f"c{number}") for number in range(1, WIDE_COLUMNS)]
    return spark.range(0, rows, 1, FILES).select(F.col("id").alias("c0"), *others)


def nested(spark: SparkSession, rows: int) -> DataFrame:
    """Return a key, two texts, and structs, lists and maps within each other."""
    words = [_pick(_WORDS, 20 + number) for number in range(9)]
    point = F.struct((_draw("id", 1, 1_000) / 8).alias("x"), (_draw("id", 2, 1_000) / 8).alias("y"))
    item = F.struct(words[0].alias("name"), _draw("id", 3, 100).cast("int").alias("count"))
    other = F.struct(words[1].alias("name"), _draw("id", 4, 100).cast("int").alias("count"))
    return spark.range(0, rows, 1, FILES).select(
        "id",
        F.concat_ws(" ", *words).alias("text"),
        F.sha1(F.col("id").cast("string")).alias("code"),
        F.struct(words[2].alias("city"), point.alias("place")).alias("address"),
        F.slice(F.array(*words[3:7]), F.lit(1), _draw("id", 5, 5).cast("int")).alias("tags"),
        F.array(item, other).alias("items"),
        F.create_map(F.lit("first"), _draw("id", 6, 10_000), F.lit("second"), _draw("id", 7, 10_000)).alias("counts"),
    )


def narrow(spark: SparkSession, rows: int) -> DataFrame:
    """Return two longs: a key, and one without an order."""
    return spark.range(0, rows, 1, FILES).select(F.col("id").alias("k"), _draw("id", 1, 1 << 40).alias("v"))


SETS: dict[str, Callable[[SparkSession, int], DataFrame]] = {
    "lineitem": lineitem,
    "wide": wide,
    "nested": nested,
    "narrow": narrow,
}


def session(name: str, scratch: Path, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session with two cores, whose own files go to `scratch`, and with more settings if given."""
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
        **(conf or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def lineitem_folder(settings: Settings) -> Path:
    """Return the folder with the Parquet files of `lineitem`, which are made first if they are not there."""
    return set_folder(settings, "lineitem", settings.rows)


def set_folder(settings: Settings, name: str, rows: int) -> Path:
    """Return the folder with the Parquet files of a set of so many rows, which are made first if they are not there."""
    folder = _folder(settings, name, rows)
    if not (folder / "_SUCCESS").exists():
        # In a process of its own: the benchmark's session starts fresh, whether or not the set was there.
        arguments = [f"--set={name}", f"--rows={rows}", f"--data-dir={settings.data_dir}"]
        subprocess.run([sys.executable, __file__, *arguments], check=True)
    return folder


def _folder(settings: Settings, name: str, rows: int) -> Path:
    return settings.data_dir.resolve() / f"{name}-{rows}-v{_VERSION}"


def main() -> None:
    """Write the set."""
    settings = parse_arguments("Makes a set that the benchmarks read.", USES)
    folder = _folder(settings, settings.set, settings.rows)
    with scratch_folder(settings) as scratch:
        spark = session("datasets", scratch)
        SETS[settings.set](spark, settings.rows).write.mode("overwrite").option("compression", "snappy").parquet(
            str(folder)
        )
        spark.stop()
    print(f"Wrote {settings.rows:,} rows to {folder}")


if __name__ == "__main__":
    main()
