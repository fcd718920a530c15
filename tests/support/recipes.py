"""Recipes: the small projects below `examples/`, run by the commands of their README in an environment of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from support.spark.session import spare_defaults

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENTS = REPOSITORY / ".recipes"
# Spark and a scheduler start anew with each command.
TIMEOUT_S = 1500
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Airflow, Dagster and dbt would tell their makers that they were run.
_SILENT = {"DAGSTER_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "SCARF_ANALYTICS": "false"}
_FOREIGN = ("PYTHON", "PYSPARK_", "SPARK_", "PYICEBERG_", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A copy of an example, in a folder of its own.

    Attributes:
        folder: Where its files are.
        environment: The virtual environment that its README lets a user make.
    """

    folder: Path
    environment: Path

    @property
    def commands(self) -> list[str]:
        """The lines of the README's blocks of shell, but for those that install."""
        blocks = _SHELL.findall((self.folder / "README.md").read_text())
        lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
        return [line for line in lines if line and not line.startswith("pip install")]

    @property
    def settings(self) -> list[str]:
        """The commands that set variables."""
        return [line for line in self.commands if line.startswith("export ")]

    def run(self, *commands: str, code: int = 0) -> str:
        """Run commands in one shell of the recipe's environment, and return what they print, errors too.

        Raises:
            AssertionError: The first command that fails did not end with `code`; the output is in the text.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        environment["PATH"] = f"{self.environment / 'bin'}:{environment['PATH']}"
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", **_SILENT}
        spare_defaults(environment, self.folder.with_name("conf"))
        ended = subprocess.run(
            ["bash", "-e", "-c", "\n".join(commands)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == code, f"ended with {ended.returncode}:\n{ended.stdout[-8000:]}"
        return ended.stdout

    def run_readme(self) -> str:
        """Run all commands of the README, and return what they print."""
        return self.run(*self.commands)

    def run_again(self, *commands: str, code: int = 0) -> str:
        """Run commands with the variables that the README sets, and return what they print."""
        return self.run(*self.settings, *commands, code=code)

    @property
    def lake(self) -> Catalog:
        """The catalog `lake` that the README sets up in the recipe's folder."""
        uri, warehouse = f"sqlite:///{self.folder}/lake.db", f"file://{self.folder}/lake"
        return load_catalog("lake", type="sql", uri=uri, warehouse=warehouse)

    def read(self, table: str, *, sort_by: str) -> list[dict[str, Any]]:
        """Return the rows of a table, sorted by a column."""
        rows: pa.Table = self.lake.load_table(table).scan().to_arrow()
        return rows.sort_by(sort_by).to_pylist()


def copy_recipe(name: str, folder: Path) -> Recipe:
    """Copy an example to where its commands may write.

    Raises:
        AssertionError: Its environment is missing.
    """
    environment = ENVIRONMENTS / name
    assert (environment / "ready.json").exists(), f"Make the environment: python .ci/recipe_environments.py {name}"
    shutil.copytree(REPOSITORY / "examples" / name, folder)
    return Recipe(folder=folder, environment=environment)
