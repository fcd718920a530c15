"""Fixtures of the tests on real clusters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services.fixtures import object_store
from support.services.server_process import HOST
from support.services.servers import TESTS, ObjectStore
from support.spark.cluster import Cluster, serve_cluster
from support.spark.cluster_environment import make_environment, zip_package
from support.spark.cluster_tables import Lake
from support.spark.connect import Client, serve_connect

__all__ = ["object_store"]


@pytest.fixture(scope="package")
def lake(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a catalog on the driver's disk, of tables in an object store."""
    return Lake.make(tmp_path_factory.mktemp("lake"), object_store)


@pytest.fixture(scope="package")
def package_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package as `--py-files` takes it."""
    return zip_package(tmp_path_factory.mktemp("package") / "iceberg_ds.zip")


@pytest.fixture(scope="package")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter that has what the package requires, and not the package."""
    return make_environment(tmp_path_factory.mktemp("bare") / "environment", "iceberg-ds", without=["iceberg-ds"])


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a standalone cluster with two workers, whose executors find the tests' modules and nothing of ours."""
    with serve_cluster(tmp_path_factory.mktemp("cluster"), {"PYTHONPATH": str(TESTS), "SPARK_LOCAL_IP": HOST}) as found:
        yield found


@pytest.fixture(scope="package")
def connect_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the Connect server, with its log."""
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="package")
def connect_server(connect_folder: Path, lake: Lake) -> Iterator[str]:
    """Return the address of a Connect server; the sink and catalog `lake` are installed there."""
    with serve_connect(connect_folder, lake.environment) as remote:
        yield remote


@pytest.fixture(scope="package")
def thin_client(connect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Return a client that has what `pip install pyspark[connect]` brings, and nothing else."""
    folder = tmp_path_factory.mktemp("thin-client")
    return Client(
        remote=connect_server, python=make_environment(folder / "environment", "pyspark[connect]"), folder=folder
    )


@pytest.fixture(scope="package")
def full_client(connect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Return a client that has the sink, too."""
    return Client(remote=connect_server, python=Path(sys.executable), folder=tmp_path_factory.mktemp("full-client"))
