"""The package as its users get it: a wheel, in an environment that holds nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.exhaustive import few

from iceberg_ds import __version__

REPOSITORY = Path(__file__).parents[2]
CONSTRAINTS = REPOSITORY / ".ci" / "constraints.txt"
INSTALL_TIMEOUT_S = 900

# What a user would try first; it neither imports nor registers the package.
TRIAL = """
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(100).selectExpr("id", "concat('row ', id) AS name")
rows.write.format("icebergsink").mode("append").save("db.t")
warehouse = Path("iceberg-warehouse").absolute()
catalog = load_catalog("default", type="sql", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
table = catalog.load_table("db.t")
print("ids", sum(table.scan().to_arrow()["id"].to_pylist()))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command in a clean environment and return what it prints.

    Raises:
        AssertionError: It fails; its output is in the text.
    """
    ours = ("PYTHON", "PYSPARK_", "SPARK_", "PYICEBERG_", "VIRTUAL_ENV", "UV_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment["PYICEBERG_HOME"] = str(cwd)
    # As if the environment were activated: Spark starts its workers with the python3 of the path.
    environment["PATH"] = f"{Path(command[0]).parent}:{environment['PATH']}"
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, f"{command}:\n{ended.stdout[-3000:]}\n{ended.stderr[-5000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, REPOSITORY, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def install_with_pip(environment: Path, wheel: Path) -> None:
    """Make an environment with `venv` and install the wheel with `pip`."""
    folder = environment.parent
    run(sys.executable, "-m", "venv", environment, cwd=folder)
    python = environment / "bin" / "python"
    # Compiling what is never imported would take longer than all else.
    arguments = ("--quiet", "--no-compile", "--constraint", CONSTRAINTS)
    run(python, "-m", "pip", "install", *arguments, wheel, cwd=folder)


def install_with_uv(environment: Path, wheel: Path) -> None:
    """Make an environment and install the wheel into it with `uv`, which comes from the package index."""
    folder = environment.parent
    run(sys.executable, "-m", "venv", folder / "tools", cwd=folder)
    run(folder / "tools" / "bin" / "python", "-m", "pip", "install", "--quiet", "uv", cwd=folder)
    uv = folder / "tools" / "bin" / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, environment, cwd=folder)
    python = environment / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraint", CONSTRAINTS, wheel, cwd=folder)


INSTALLERS = {"pip": install_with_pip, "uv": install_with_uv}


@pytest.fixture(scope="module", params=few(1, INSTALLERS))
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the Python of an environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp(f"installed-with-{request.param}")
    INSTALLERS[request.param](folder / "environment", wheel)
    yield folder / "environment" / "bin" / "python"
    run("rm", "-rf", folder / "environment", cwd=folder)  # half a gigabyte


@pytest.mark.exhaustive
@pytest.mark.timeout(INSTALL_TIMEOUT_S)
def test_installed_wheel_writes_without_registration(python: Path, tmp_path: Path) -> None:
    """`pip install` would give a package that lacks a module, a dependency, or what PySpark finds it by."""
    printed = run(python, "-c", TRIAL, cwd=tmp_path)

    assert f"ids {sum(range(100))}" in printed


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The package would lack its types or what PySpark finds it by, or drop its tests into the user's environment."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(name for name in names if name.endswith("METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())

    contents = [name for name in names if ".dist-info/" not in name]
    modules = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "iceberg_ds").rglob("*.py")}
    assert set(contents) == modules | {"iceberg_ds/py.typed", "pyspark_icebergsink.py"}
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert any(name.endswith("licenses/LICENSE") for name in names)
