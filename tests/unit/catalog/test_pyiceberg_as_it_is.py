"""PyIceberg in a process that uses the sink: what is replaced in it, and that a user's own calls do not notice."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType
from support.programs import pyiceberg_user

from iceberg_ds.catalog.pyiceberg_patches import keep_in_force, know_variants

REPLACED = [
    "pyiceberg.catalog.rest.TableResponse.model_validate_json",
    "pyiceberg.serializers.FromInputFile.table_metadata",
    "pyiceberg.serializers.ToOutputFile.table_metadata",
    "pyiceberg.table.CommitTableRequest.model_dump_json",
    "pyiceberg.table.CommitTableResponse.model_validate_json",
    "pyiceberg.table.update._apply_table_update[iceberg_ds.table.requests.UpgradeFormatVersion]",
    "pyiceberg.types.IcebergType.handle_primitive_type",
    "pyiceberg.types.ListType.__init__",
    "pyiceberg.types.MapType.__init__",
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a process of its own finds: this one has used the sink already."""
    command = [sys.executable, pyiceberg_user.__file__, str(tmp_path_factory.mktemp("user"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # our own
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def test_only_what_is_listed_is_replaced(found: dict[str, Any]) -> None:
    """A user's own PyIceberg would work otherwise than without the sink, and no page would say why."""
    assert found["replaced"] == REPLACED
    assert found["replaced again"] == []  # or each connection would make each call a little slower
    assert found["filters"] == ["urllib3.connectionpool"]


def test_calls_of_a_user_do_what_they_did_before(found: dict[str, Any]) -> None:
    """A user's program would fail, or another library that builds upon PyIceberg, as soon as the sink is used."""
    assert found["before"] == {
        "a table with a variant": "ValidationError",
        "a list of variants": "ValidationError",
        "a subclass of a request": "Own",
        "the schema of a request": "['identifier', 'requirements', 'updates']",
        "a request is what it was": "True",
        "an answer is one of its class": "True",
        "an answer that is given by name": "x",
        "a pickled request": "False",
        "calls of a function that wraps one of PyIceberg's": "2",
        "a logged address": "GET /x?token=abc",
    }
    assert found["after"] == found["before"]


def test_patches_of_a_user_leave_nothing_behind() -> None:
    """Each patch that a test puts in and takes out would make all later calls slower, until they fail."""
    know_variants()
    before = IcebergType.handle_primitive_type.__func__

    for _ in range(50):
        with mock.patch.object(IcebergType, "handle_primitive_type"):
            keep_in_force()
        keep_in_force()

    assert IcebergType.handle_primitive_type.__func__ is before
    assert str(Schema.model_validate_json('{"type":"struct","fields":[],"schema-id":0}')) == "table {\n\n}"


def own_type(*given: Any) -> Any:
    """Return what was given."""
    return given


@pytest.mark.parametrize("own", [own_type, staticmethod(own_type)])
def test_function_that_a_user_puts_in_place_of_a_method_is_called_as_he_wrote_it(
    own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No schema could be parsed in a process whose user changes PyIceberg, too."""
    know_variants()
    monkeypatch.setattr(IcebergType, "handle_primitive_type", own)
    keep_in_force()

    assert IcebergType.handle_primitive_type("mine", None) == ("mine", None)
