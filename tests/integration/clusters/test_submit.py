"""The commands of the documentation, run on a standalone cluster as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.exhaustive import EXHAUSTIVE
from support.spark.cluster import SETTINGS, SPARK_HOME, Cluster
from support.spark.cluster_environment import REPOSITORY, documented, make_environment
from support.spark.cluster_tables import Lake

_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)`")
_TIMEOUT_S = 450

pytestmark = pytest.mark.timeout(600)


def submit(name: str, folder: Path, cluster: Cluster, lake: Lake, python: Path, **conf: str) -> None:
    """Run the commands of an example, in a folder that has the job and Spark's settings; `_` in those is a dot."""
    (folder / "job.py").write_text(documented("job.py"))
    settings = {**SETTINGS, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= {key.replace("_", "."): value for key, value in conf.items()}
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK_"))}
    ended = subprocess.run(
        ["timeout", "--signal=KILL", str(_TIMEOUT_S), "bash", "-eu", "-c", documented(name)],  # with all its children
        cwd=folder,
        env={
            **inherited,
            **lake.environment,
            "MASTER": cluster.master,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(python),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-6000:]}"


def check(lake: Lake) -> None:
    """Assert that the job's rows are there once, and take its tables away."""
    assert lake.ids("db.events") == list(range(1000))
    assert lake.count("db.ticks") == 100
    lake.drop("db.events", "db.ticks")


@pytest.mark.exhaustive
def test_zip_of_the_package_is_enough_for_executors_that_have_its_dependencies(
    cluster: Cluster, lake: Lake, bare_python: Path, tmp_path: Path
) -> None:
    """A user could not try the sink on a cluster without its administrator."""
    submit("py-files", tmp_path, cluster, lake, bare_python)

    check(lake)


@EXHAUSTIVE
def test_packed_environment_is_enough_for_executors_that_have_an_interpreter(
    cluster: Cluster, lake: Lake, tmp_path: Path
) -> None:
    """A user would need PyIceberg and PyArrow on all machines beforehand."""
    python = make_environment(tmp_path / "environment", "iceberg-ds", without=["pyspark", "iceberg-ds"], copied=True)
    (packages,) = (tmp_path / "environment" / "lib").glob("*/site-packages")
    for part in ("iceberg_ds", "pyspark_icebergsink.py", "pyspark_icebergsource.py"):
        subprocess.run(["cp", "-r", REPOSITORY / part, packages], check=True)

    submit("archives", tmp_path, cluster, lake, python, spark_cores_max="1")  # each executor unpacks 300 MB

    check(lake)
    assert len(list(cluster.folder.glob("worker-*/app-*/*/environment/bin/python"))) == 1


def test_every_test_that_the_documentation_names_exists() -> None:
    """A way of running the sink could name a test that nobody runs."""
    named = set(_NAMED_TEST.findall((REPOSITORY / "docs" / "clusters.md").read_text()))

    assert len(named) >= 4
    assert [path for path in named if not (REPOSITORY / path).exists()] == []
