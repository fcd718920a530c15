"""Fetch jars by Maven into a folder, with all that they need or alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from installing import run_java

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_NOTHING_MORE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>services</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def fetch_jars(folder: Path, jars: Iterable[str], *, is_alone: bool = False) -> None:
    """Make a folder and fetch jars into it.

    Args:
        folder: The new folder.
        jars: group:artifact:version, and a classifier where there is one.
        is_alone: Whether to leave out what the jars need.

    Raises:
        SystemExit: Maven failed.
    """
    folder.mkdir()
    pom = folder / "pom.xml"
    inside = _NOTHING_MORE if is_alone else ""
    pom.write_text(_POM.format(name=folder.name, dependencies="".join(_dependency(jar, inside) for jar in jars)))
    run_java(folder, "mvn", "-B", "-q", "-f", pom, _COPY, f"-DoutputDirectory={folder}")


def _dependency(jar: str, inside: str) -> str:
    tags = ("groupId", "artifactId", "version", "classifier")
    parts = (f"<{tag}>{part}</{tag}>" for tag, part in zip(tags, jar.split(":"), strict=False))
    return f"<dependency>{''.join(parts)}{inside}</dependency>"
