"""What the failures of real servers are taken for; those of servers that only pretend stand in the unit tests."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyiceberg.catalog import load_catalog
from support.exhaustive import EXHAUSTIVE
from support.services.servers import CatalogService, ObjectStore

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.error_hints import Cause, ErrorHint, Service, hint_for, next_step
from iceberg_ds.errors import CatalogError
from iceberg_ds.io.files import file_io
from iceberg_ds.options.parse import parse_options

IO = "iceberg_ds.io.files.ObjectIO", "pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"


def failure(options: Mapping[str, str]) -> CatalogError:
    """Return what a write's first step raises."""
    with pytest.raises(CatalogError) as raised:
        connect(catalog_settings(parse_options({**options, "table": "db.t"}))).find_table(("db", "t"))
    return raised.value


@pytest.mark.parametrize(
    ("right", "wrong", "cause"),
    [
        (":tests-password@", ":made-up-password@", Cause.UNAUTHORIZED),
        ("//tests:", "//nobody:", Cause.UNAUTHORIZED),
        ("/postgres", "/no_such_database", Cause.NO_SUCH_DATABASE),
        ("@127.0.0.1", "@nowhere.invalid", Cause.UNKNOWN_HOST),
    ],
    ids=["password", "user", "database", "host"],
)
def test_wrong_address_of_postgres_is_named(postgres: CatalogService, right: str, wrong: str, cause: Cause) -> None:
    """A user would not learn which part of the address is wrong, or everybody would learn the password."""
    scheme, _, rest = postgres.properties["uri"].partition("://")
    uri = f"{scheme}://{rest.replace(right.removeprefix('//'), wrong.removeprefix('//'))}"

    error = failure({**postgres.options, "catalog.uri": uri})

    found = hint_for(error)
    assert found == ErrorHint(cause=cause, next_step=next_step(cause, Service.SQL))
    assert str(error).endswith(found.next_step)
    assert "-password" not in str(error)


@EXHAUSTIVE
def test_unknown_warehouse_of_nessie_is_named(nessie: CatalogService) -> None:
    """A user would look for a wrong address."""
    error = failure({**nessie.options, "catalog.warehouse": "no-such-warehouse"})

    assert hint_for(error).cause is Cause.NO_SUCH_WAREHOUSE
    assert "Check 'warehouse'" in str(error)


@pytest.mark.exhaustive
def test_missing_namespace_of_every_catalog_is_told(service: CatalogService) -> None:
    """A user would take a misspelt namespace for a broken catalog."""
    catalog = load_catalog(service.name, **service.properties)

    with pytest.raises(Exception) as raised:  # noqa: PT011  # what each raises is PyIceberg's
        catalog.load_namespace_properties("no_such_namespace")

    assert hint_for(raised.value).cause is Cause.NO_SUCH_NAMESPACE


def put(properties: Mapping[str, str], location: str) -> None:
    """Write a small object."""
    with file_io(properties, location).new_output(location).create(overwrite=True) as stream:
        stream.write(b"x")


@pytest.mark.parametrize("implementation", IO, ids=lambda name: name.rpartition(".")[2])
@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"s3.secret-access-key": "made-up"}, Cause.UNAUTHORIZED),
        ({"s3.access-key-id": "nobody"}, Cause.UNAUTHORIZED),
        ({}, Cause.NO_SUCH_BUCKET),
    ],
    ids=["secret", "key", "bucket"],
)
def test_refusals_of_a_store_are_told_apart_by_every_client(
    object_store: ObjectStore, implementation: str, changed: dict[str, str], cause: Cause
) -> None:
    """A user of another of PyIceberg's clients would get another answer."""
    properties = {**object_store.properties, **changed, "py-io-impl": implementation}
    bucket = "no-such-bucket" if cause is Cause.NO_SUCH_BUCKET else object_store.bucket("diagnosis").partition("//")[2]

    with pytest.raises(OSError) as raised:  # noqa: PT011  # the clients' texts differ
        put(properties, f"s3://{bucket}/x")

    found = hint_for(raised.value)
    assert found == ErrorHint(cause=cause, next_step=next_step(cause, Service.S3))
