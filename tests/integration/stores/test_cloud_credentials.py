"""Whose credentials open Google Cloud Storage and Azure: those of options, and those that a REST catalog vends.

Azure's server checks keys and tokens. That of Google's interface does not: there the tests look at what is sent.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp.connector
import pytest
from pyiceberg.table import Table
from support.catalogs.rest_fake import RestFake, serve_rest_fake
from support.catalogs.rest_sinks import sink_of
from support.exhaustive import EXHAUSTIVE
from support.services.cloud_stores import (
    ACCOUNT,
    ACCOUNT_KEY,
    AZURE_HOST,
    Gcs,
    azure_client,
    container_token,
    serve_blobs,
)
from support.services.tls_files import make_tls_files
from support.tables.sink import SCHEMA, rows, write_batches

from iceberg_ds.errors import DataFileError
from iceberg_ds.io.files import OBJECT_IO, ObjectIO
from iceberg_ds.io.vended_credentials import REFRESH_ENABLED
from iceberg_ds.plan import WritePlan

HOUR_S = 3600
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
]
CREDENTIAL = "writer:s3cr3t-of-the-client"
GOOD_AND_BAD = {"good": ACCOUNT_KEY, "bad": "b3RoZXI="}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the host of an account whose server speaks TLS, as Azure's own does, and has the container `vended`."""
    folder = tmp_path_factory.mktemp("azure-tls")
    tls = make_tls_files(folder)
    # As SSL_CERT_FILE in the environment of a process makes it trust the authority from the start.
    aiohttp.connector._SSL_CONTEXT_VERIFIED.load_verify_locations(tls.authority)
    with serve_blobs(folder, tls) as uri:
        with azure_client(uri, connection_verify=str(tls.authority)) as client:
            client.create_container("vended")
        yield f"{uri.partition('://')[2]}/{ACCOUNT}"


def in_ms(seconds: float) -> int:
    """Return the time in so many seconds, in milliseconds since 1970."""
    return int((time.time() + seconds) * 1000)


def vended_token(ends_at_ms: int, rights: str = "racwdl") -> dict[str, str]:
    """Return what a catalog vends for Azure."""
    token = container_token("vended", ends_at_ms, rights)
    return {f"adls.sas-token.{AZURE_HOST}": token, f"adls.sas-token-expires-at-ms.{AZURE_HOST}": str(ends_at_ms)}


def vend(fake: RestFake, keys: dict[str, str]) -> None:
    """Let the catalog vend these for its tables."""

    def answer(table: Table) -> dict[str, Any]:
        return {"config": {}, "storage-credentials": [{"prefix": table.metadata.location, "config": keys}]}

    fake.vend = answer


@pytest.fixture
def azure_catalog(tmp_path: Path, account: str) -> Iterator[RestFake]:
    """Return a catalog with its tables in Azure."""
    own = {"adls.account-name": ACCOUNT, "adls.account-host": account, "adls.account-key": ACCOUNT_KEY}
    warehouse = f"abfss://vended@{AZURE_HOST}/{tmp_path.name}"
    with serve_rest_fake(tmp_path, storage=own, warehouse=warehouse) as fake:
        fake.endpoints = ENDPOINTS
        fake.credential = CREDENTIAL
        yield fake


@pytest.fixture
def gcs_catalog(tmp_path: Path, gcs: Gcs) -> Iterator[RestFake]:
    """Return a catalog with its tables in Google Cloud Storage."""
    bucket = gcs.bucket(f"vended-{tmp_path.name.lower().replace('_', '-')}"[:60].strip("-"))
    storage = {"py-io-impl": OBJECT_IO, **bucket.properties}
    with serve_rest_fake(tmp_path, storage=storage, warehouse=f"{bucket.location}/wh") as fake:
        fake.endpoints = ENDPOINTS
        fake.credential = CREDENTIAL
        yield fake


def in_task(planned: WritePlan, *ids: int) -> tuple[Any, ...]:
    """Run a task with nothing but the plan, as it travels; return its files."""
    return write_batches(pickle.loads(pickle.dumps(planned)), rows(*ids), SCHEMA)  # noqa: S301  # our own


@EXHAUSTIVE
@pytest.mark.parametrize("kind", GOOD_AND_BAD)
def test_key_of_the_options_opens_azure_and_another_one_does_not(account: str, kind: str) -> None:
    """A user could not write with the account's key, or the store would not be asked who writes."""
    own = {"adls.account-host": account, "adls.account-key": GOOD_AND_BAD[kind]}
    location = f"abfss://vended@{AZURE_HOST}/options-{kind}"

    def write() -> None:
        with ObjectIO(own).new_output(location).create(overwrite=True) as stream:
            stream.write(b"x")

    if kind == "bad":
        with pytest.raises(Exception, match=r"AuthorizationFailure|AuthenticationFailed"):
            write()
    else:
        write()
        assert len(ObjectIO(own).new_input(location)) == 1


@EXHAUSTIVE
def test_token_of_the_options_opens_azure(account: str) -> None:
    """A user without the account's key could not write."""
    own = {"adls.account-host": account, "adls.sas-token": container_token("vended", in_ms(HOUR_S))}
    location = f"abfss://vended@{AZURE_HOST}/options-token"
    with ObjectIO(own).new_output(location).create() as stream:
        stream.write(b"x")

    assert len(ObjectIO(own).new_input(location)) == 1


def test_azure_is_written_with_vended_tokens_alone(azure_catalog: RestFake, account: str) -> None:
    """A user would need keys of his own, although the catalog is there to give them."""
    vend(azure_catalog, vended_token(in_ms(HOUR_S)))
    sink = sink_of(azure_catalog, **{"credential": CREDENTIAL, "adls.account-host": account})

    sink.append(1)
    sink.append(2)

    assert sink.ids() == [1, 2]
    assert ACCOUNT_KEY not in str(dict(sink.plan().io_properties))


def test_vended_token_takes_the_place_of_the_users_key(azure_catalog: RestFake, account: str) -> None:
    """A key of the user's that does not fit beside the vended token would make every request fail."""
    vend(azure_catalog, vended_token(in_ms(HOUR_S)))
    own = {"adls.account-host": account, "adls.account-key": GOOD_AND_BAD["bad"]}
    sink = sink_of(azure_catalog, **{"credential": CREDENTIAL, **own})

    sink.append(1)

    assert sink.ids() == [1]


@pytest.mark.parametrize("may_renew", [True, False])
def test_task_on_azure_that_outlives_its_token(azure_catalog: RestFake, account: str, *, may_renew: bool) -> None:
    """A long task would fail although it may ask for another token, or its user not learn how to let it."""
    vend(azure_catalog, vended_token(in_ms(HOUR_S)))
    own = {"adls.account-host": account, REFRESH_ENABLED: str(may_renew).lower()}
    sink = sink_of(azure_catalog, **{"credential": CREDENTIAL, **own})
    sink.append(0)
    planned = sink.plan()
    ended = {**planned.io_properties, **vended_token(in_ms(-5))}
    planned = replace(planned, io_properties=ended)

    if may_renew:
        assert len(in_task(planned, 1)) == 1
        assert len(azure_catalog.asked("GET", "/credentials")) == 1
        return
    with pytest.raises(DataFileError, match=REFRESH_ENABLED) as failure:
        in_task(planned, 1)
    assert "sig=" not in str(failure.value)


def test_token_of_azure_without_the_right_to_write_is_refused_and_not_shown(
    azure_catalog: RestFake, account: str
) -> None:
    """A user would not learn that a right is missing, or everybody would learn the token."""
    vend(azure_catalog, vended_token(in_ms(HOUR_S)))
    sink = sink_of(azure_catalog, **{"credential": CREDENTIAL, "adls.account-host": account})
    planned = sink.plan()
    reading = {**planned.io_properties, **vended_token(in_ms(HOUR_S), rights="rl")}

    with pytest.raises(
        DataFileError, match=r"Storage Blob Data Contributor|AuthorizationPermissionMismatch"
    ) as failure:
        in_task(replace(planned, io_properties=reading), 1)
    assert "sig=" not in str(failure.value)


def test_google_is_asked_with_vended_tokens_alone(gcs_catalog: RestFake, gcs: Gcs) -> None:
    """Tasks would act as whoever their machine belongs to, or as the user, instead of with the catalog's token."""
    vend(gcs_catalog, {"gcs.oauth2.token": "vended", "gcs.oauth2.token-expires-at": str(in_ms(HOUR_S))})
    own = {"gcs.service.host": gcs.proxy.uri, "gcs.oauth2.token": "of-the-user"}
    sink = sink_of(gcs_catalog, **{"credential": CREDENTIAL, **own})
    planned = sink.plan()
    gcs.proxy.begin()

    files = in_task(planned, 1)

    assert len(files) == 1
    assert gcs.proxy.authorizations == {"Bearer vended"}


def test_task_on_google_renews_its_token(gcs_catalog: RestFake, gcs: Gcs) -> None:
    """A task that runs longer than its token would fail, each time it is tried again."""
    vend(gcs_catalog, {"gcs.oauth2.token": "ended", "gcs.oauth2.token-expires-at": str(in_ms(-1))})
    own = {"gcs.service.host": gcs.proxy.uri, REFRESH_ENABLED: "true"}
    sink = sink_of(gcs_catalog, **{"credential": CREDENTIAL, **own})
    planned = sink.plan()
    vend(gcs_catalog, {"gcs.oauth2.token": "fresh", "gcs.oauth2.token-expires-at": str(in_ms(HOUR_S))})
    gcs.proxy.begin()

    files = in_task(planned, 1)

    assert len(files) == 1
    assert gcs.proxy.authorizations - {"Bearer of-the-owner"} == {"Bearer fresh"}  # the first one is the catalog's
