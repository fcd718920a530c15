"""Variants: texts that Spark makes them of, and what says whether two are the same, types included."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantVal

# By id. Objects with the same keys in another order, values that print alike, long texts, nulls of both kinds.
TEXTS: dict[int, str | None] = {
    1: '{"name": "a", "n": 1, "inside": {"list": [1, "1", 1.5, null, true], "empty": {}}}',
    2: '{"n": 1, "name": "a"}',
    3: "17",
    4: '"17"',
    5: "null",
    6: None,
    7: "[]",
    8: f'"{"é" * 5000}"',
    9: "-1.25e300",
    10: "12345678901234567890123456789",
}
# Of Spark's other types, which no JSON has.
TYPED: dict[int, str] = {
    21: "CAST(date'2024-02-29' AS variant)",
    22: "CAST(timestamp'2024-02-29 12:00:00.000001' AS variant)",
    23: "CAST(timestamp_ntz'1500-01-01 00:00:00' AS variant)",
    24: "CAST(X'00FF' AS variant)",
    25: "CAST(float(1.5) AS variant)",
    26: "CAST(1.50BD AS variant)",
    27: "to_variant_object(named_struct('d', date'1969-12-31', 'm', map('k', array(1, 2))))",
}
_NESTED = (
    "id, v, named_struct('v', v, 'n', id) AS s, array(v, parse_json('{\"last\": true}')) AS l, "
    "map('k', v, 'none', CAST(NULL AS variant)) AS m, IF(id % 2 = 0, named_struct('v', v), NULL) AS o"
)


def variants(spark: SparkSession, texts: dict[int, str | None] = TEXTS, *, typed: bool = False) -> DataFrame:
    """Return rows of `id` and `v`; with `typed` values of Spark's own types, too."""
    rows = spark.createDataFrame(list(texts.items()), "id bigint, text string").selectExpr(
        "id", "parse_json(text) AS v"
    )
    if typed:
        for number, value in TYPED.items():
            rows = rows.union(spark.range(1).selectExpr(f"{number}L AS id", f"{value} AS v"))
    return rows.coalesce(1)


def nested(rows: DataFrame) -> DataFrame:
    """Return variants in columns of all kinds."""
    return rows.selectExpr(*_split(_NESTED))


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def as_plain(value: Any) -> Any:
    """Return what a value is made of, each variant as its bytes."""
    if isinstance(value, VariantVal):
        return (bytes(value.value), bytes(value.metadata))
    if isinstance(value, dict):
        return {key: as_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(part) for part in value]
    return value


def collected(rows: DataFrame) -> list[Any]:
    """Return rows in the order of their ids, each variant as its bytes."""
    return sorted((as_plain(tuple(row)) for row in rows.collect()), key=lambda row: row[0])
