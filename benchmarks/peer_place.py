"""Where `bench_peer.py` measures: the environment of the runtime's Spark with the sink in it, and the shared catalog.

The runtime exists for an older Spark than the one that the project is developed with. `.ci/test_matrix.py` makes an
environment of that Spark and the sink, `.ci/peer_environment.py` fetches the runtime's jars: together they let one
session write with both.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import HERE
from remote import Remote

sys.path.append(str(HERE.parent / "tests"))  # the tests have the same peer and servers
sys.path.append(str(HERE.parent / ".ci"))
from peer_environment import PACKAGES
from support.peer.jvm_peer import CATALOG, install_peer
from support.services.servers import ObjectStore, peer_s3
from test_matrix import Cell, highest_pyarrow

NAMESPACE = "bench"
OWN_PYTHON = Path(sys.executable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A catalog that both sinks know.

    Attributes:
        folder: For the catalog's file, the warehouse unless a store has it, and what sessions leave.
        store: The S3 server of the warehouse, None for local files.
    """

    folder: Path
    store: ObjectStore | None = field(default=None, repr=False)

    @property
    def warehouse(self) -> str:
        """The location of the tables."""
        return self.store.bucket("warehouse") if self.store else f"file://{self.folder}/iceberg"

    @property
    def database(self) -> Path:
        """The file of the catalog."""
        return self.folder / "iceberg" / "catalog.db"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        own = {"type": "sql", "uri": f"sqlite:///{self.database}", "warehouse": self.warehouse}
        return {**own, **(self.store.properties if self.store else {})}

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to it."""
        return {"catalog": CATALOG, **{f"catalog.{key}": value for key, value in self.properties.items()}}

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings that make it the current catalog of the runtime; nothing is cached, as both write."""
        prefix = f"spark.sql.catalog.{CATALOG}"
        own = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.database}",
            "warehouse": self.warehouse,
            "jdbc.schema-version": "V1",
            "cache-enabled": "false",
            **(peer_s3(self.store) if self.store else {}),
        }
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{key}": value for key, value in own.items()},
            "spark.sql.defaultCatalog": CATALOG,
        }

    def session_of_both(self, conf: Mapping[str, str] | None = None, script: str = "peer_server.py") -> Remote:
        """Start a session that writes with the runtime and with the sink, and make the namespace.

        Args:
            conf: Settings beside or instead of the usual ones.
            script: What it runs.
        """
        remote = self.new_session_of_both(conf, script)
        remote.ask("sql", statement=f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
        return remote

    def new_session_of_both(self, conf: Mapping[str, str] | None = None, script: str = "peer_server.py") -> Remote:
        """Start such a session, which has run nothing yet."""
        self.database.parent.mkdir(parents=True, exist_ok=True)
        jars = sorted(str(path) for path in (install_peer() / "jars").glob("*.jar"))
        settings = {**self.settings, **(conf or {})}
        arguments = {"folder": str(self.folder / "both"), "jars": jars, "conf": settings}
        return Remote(python_of_both(), script, self.folder, arguments)

    def session_without_jar(self, conf: Mapping[str, str], script: str) -> Remote:
        """Start a session of the runtime's Spark that has the package alone; arguments as of `session_of_both`."""
        arguments = {"folder": str(self.folder / "without-jar"), "jars": [], "conf": dict(conf)}
        return Remote(python_of_both(), script, self.folder / "without-jar", arguments)

    def session_of_sink(self) -> Remote:
        """Start a session that writes with the sink alone, on the Spark that the project is developed with."""
        arguments = {"folder": str(self.folder / "sink"), "jars": [], "conf": {}}
        return Remote(OWN_PYTHON, "peer_server.py", self.folder, arguments)


def python_of_both() -> Path:
    """Return the interpreter of the environment with the runtime's Spark and the sink, which is made if missing."""
    spark = next(package.partition("==")[2] for package in PACKAGES if package.startswith("pyspark=="))
    cell = Cell(spark=spark, pyarrow=highest_pyarrow())
    script = HERE.parent / ".ci" / "test_matrix.py"
    subprocess.run([sys.executable, str(script), "--make", cell.name], check=True)
    return cell.python
