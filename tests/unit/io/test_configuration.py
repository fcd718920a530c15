"""PyIceberg's configuration where it is malformed: what stands in it is not shown."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError
from iceberg_ds.io.configuration import configured_catalog
from iceberg_ds.options.parse import parse_options

SECRET = "hunter2-s3cr3t"  # noqa: S105  # the thing to hide
MALFORMED = [
    f"catalog:\n  lake:\n    uri: http://localhost\n   token: {SECRET}\n",
    f"catalog:\n  lake:\n    credential: [{SECRET}]\n",
    f"catalog:\n  lake:\n    token: {SECRET}\n    token: {SECRET}\n",
    f"catalog:\n  lake: {SECRET}\n",
    f"catalog: {SECRET}\n",
    f"default-catalog:\n  token: {SECRET}\n",
]


def write_file(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this PyIceberg's configuration."""
    (folder / ".pyiceberg.yaml").write_text(text)
    monkeypatch.setenv("PYICEBERG_HOME", str(folder))


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_file_is_refused_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """On a shared server each user would read its credentials in his own error, because a line is indented badly."""
    write_file(tmp_path, text, monkeypatch)

    with pytest.raises(OptionError, match=r"Cannot read PyIceberg's configuration") as raised:
        catalog_settings(parse_options({"table": "db.t", **({} if "default" in text else {"catalog": "lake"})}))
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_error_of_a_malformed_file_tells_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would find what is wrong with a file whose text is not shown."""
    write_file(tmp_path, MALFORMED[0], monkeypatch)

    with pytest.raises(OptionError, match=r"ParserError in line 4 of the file"):
        configured_catalog("lake")


def test_malformed_variable_is_refused_without_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg shows the value of a variable that the file contradicts."""
    write_file(tmp_path, "catalog:\n  lake: x\n", monkeypatch)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", SECRET)

    with pytest.raises(OptionError, match=r"configuration.*: ValueError\.") as raised:
        configured_catalog("lake")
    assert SECRET not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "entrance", ["iceberg_ds.IcebergSink({'path': 'db.t'}).writer(None, False)", "iceberg_ds.upsert_into('db.t')"]
)
def test_entrance_reads_the_configuration_before_pyiceberg_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entrance: str
) -> None:
    """PyIceberg reads it as it is loaded, and its error, which shows the credentials, would come before ours."""
    write_file(tmp_path, MALFORMED[0], monkeypatch)

    failed = subprocess.run(
        [sys.executable, "-c", f"import iceberg_ds; {entrance}"], capture_output=True, text=True, check=False
    )

    assert "OptionError: Cannot read PyIceberg's configuration" in failed.stderr
    assert SECRET not in failed.stderr
