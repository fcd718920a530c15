"""Fixtures of the tests that make writes fail in real Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark.fixtures import _spark_of_this_process, house
from support.spark.session import shared_session
from support.spark.stream_runs import Stream

__all__ = ["_spark_of_this_process", "house", "retrying_spark", "spark", "stream"]


def active(session: SparkSession) -> SparkSession:
    """Return the session as the active one, in which a stream looks its sink up: tests before may have left another."""
    session.createDataFrame([], "id INT")  # what is made for its effect
    return session


@pytest.fixture
def spark(_spark_of_this_process: None) -> SparkSession:
    """Return this process's first session, in which the sink that fails can be found; no task is tried twice."""
    return active(shared_session("local[2]"))


@pytest.fixture
def retrying_spark(_spark_of_this_process: None) -> SparkSession:
    """Return such a session in which each task is tried four times."""
    return active(shared_session("local[2,4]"))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Return a stream that has not run yet, and has no rows."""
    return Stream(folder=tmp_path / "stream")
