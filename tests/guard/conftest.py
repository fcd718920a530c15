"""Fixtures of the guard."""

from __future__ import annotations

from support.services.fixtures import object_store
from support.spark.fixtures import _spark_of_this_process, spark

__all__ = ["_spark_of_this_process", "object_store", "spark"]
