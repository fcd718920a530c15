"""The package as its users get it: a wheel or a source distribution, in an environment that holds nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.supported_sparks import supported_sparks

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
print("ids", sum(table.scan().to_arrow()["id"].to_pylist()), "with Spark", spark.version)
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


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the commands of an environment with `uv`, which comes from the package index."""
    folder = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", folder / "environment", cwd=folder)
    run(folder / "environment" / "bin" / "python", "-m", "pip", "install", "--quiet", "uv", cwd=folder)
    return folder / "environment" / "bin"


@pytest.fixture(scope="module")
def sdist(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution, built from the checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    run(tools / "uv", "build", "--quiet", "--sdist", "--out-dir", folder, REPOSITORY, cwd=folder)
    (built,) = folder.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module", params=supported_sparks())
def constraints(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return constraints that ask for one of the supported versions of Spark."""
    others = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("pyspark==")]
    path = tmp_path_factory.mktemp(f"spark-{request.param}") / "constraints.txt"
    path.write_text("\n".join([*others, f"pyspark=={request.param}", ""]))
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Path]:
    """Return where an environment is to be made."""
    yield tmp_path / "environment"
    shutil.rmtree(tmp_path / "environment", ignore_errors=True)  # half a gigabyte


def install(installer: str, environment: Path, tools: Path, constraints: Path, distribution: Path) -> Path:
    """Install a distribution into an empty environment, and return its Python."""
    python, folder = environment / "bin" / "python", environment.parent
    if installer == "uv":
        uv = tools / "uv"
        run(uv, "venv", "--quiet", "--python", sys.executable, environment, cwd=folder)
        wanted = ("--python", python, "--constraint", constraints, distribution)
        run(uv, "pip", "install", "--quiet", *wanted, cwd=folder)
        return python
    run(sys.executable, "-m", "venv", environment, cwd=folder)
    # Compiling what is never imported would take longer than all else.
    run(
        python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", constraints, distribution, cwd=folder
    )
    return python


@pytest.mark.exhaustive
@pytest.mark.timeout(INSTALL_TIMEOUT_S)
@pytest.mark.parametrize("distribution", ["wheel", "sdist"])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_installed_package_writes_without_registration(  # noqa: PLR0913, PLR0917  # one for each of pytest's fixtures
    installer: str,
    distribution: str,
    environment: Path,
    tools: Path,
    constraints: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """`pip install` would give a package that lacks a module, a dependency, or what PySpark finds it by."""
    python = install(installer, environment, tools, constraints, request.getfixturevalue(distribution))
    printed = run(python, "-c", TRIAL, cwd=tmp_path)
    wanted = re.findall(r"^pyspark==(.+)$", constraints.read_text(), re.MULTILINE)

    assert f"ids {sum(range(100))} with Spark {wanted[0]}" in printed


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The package would lack its types or what PySpark finds it by, or drop its tests into the user's environment."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(name for name in names if name.endswith("METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())

    contents = [name for name in names if ".dist-info/" not in name]
    modules = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "iceberg_ds").rglob("*.py")}
    assert set(contents) == modules | {"iceberg_ds/py.typed", "pyspark_icebergsink.py", "pyspark_icebergsource.py"}
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert any(name.endswith("licenses/LICENSE") for name in names)
