"""How the sink proves itself to a REST catalog, seen on the wire; and that it writes a table each way."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.catalogs.rest_fake import TOKEN_PATH, Fault, Recorded, RestFake, serve_rest_fake
from support.catalogs.rest_sinks import QUICK, sink_of
from support.tables.sink import NAME

from iceberg_ds.errors import CatalogError

TABLE = "/namespaces/db/tables/t"
SECRET = "s3cr3t-of-the-client"  # noqa: S105  # the thing to hide
CREDENTIAL = f"writer:{SECRET}"
ACCESS_KEY, SECRET_KEY = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
BUCKET_ARN = "arn:aws:s3tables:us-east-1:111122223333:bucket/lake"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[RestFake]:
    """Return an empty catalog."""
    with serve_rest_fake(tmp_path) as server:
        yield server


def test_client_credentials_get_a_token_that_every_request_carries(fake: RestFake) -> None:
    """No catalog with OAuth2 could be used."""
    fake.credential = CREDENTIAL
    sink = sink_of(fake, credential=CREDENTIAL, scope="PRINCIPAL_ROLE:writer", audience="lake", resource="tables")

    sink.append(1)

    assert sink.ids() == [1]
    form = fake.asked("POST", TOKEN_PATH)[0].form
    assert form == {
        "grant_type": "client_credentials",
        "client_id": "writer",
        "client_secret": SECRET,
        "scope": "PRINCIPAL_ROLE:writer",
        "audience": "lake",
        "resource": "tables",
    }
    others = [request for request in fake.recorded if request.path != TOKEN_PATH]
    assert {request.headers["authorization"] for request in others} <= {f"Bearer {token}" for token in fake.tokens}


def test_token_server_may_be_another_one(fake: RestFake, tmp_path: Path) -> None:
    """No catalog with a separate identity provider could be used."""
    (tmp_path / "identity").mkdir()
    with serve_rest_fake(tmp_path / "identity") as identity:
        fake.credential = CREDENTIAL
        fake.tokens = identity.tokens
        sink = sink_of(fake, **{"credential": CREDENTIAL, "oauth2-server-uri": f"{identity.uri}{TOKEN_PATH}"})
        sink.append(1)

        assert sink.ids() == [1]
        assert fake.asked("POST", TOKEN_PATH) == []


def test_static_token_is_carried(fake: RestFake) -> None:
    """A user with a token, and no client of his own, could not write."""
    fake.credential, fake.tokens = CREDENTIAL, ["given"]
    sink = sink_of(fake, token="given")  # noqa: S106  # made up

    sink.append(1)

    assert sink.ids() == [1]
    assert fake.asked("POST", TOKEN_PATH) == []


@pytest.mark.parametrize("status", [401, 419])
def test_expired_token_is_renewed_once(fake: RestFake, status: int) -> None:
    """A stream would end when its first token does."""
    fake.credential, fake.refusal = CREDENTIAL, status
    sink = sink_of(fake, credential=CREDENTIAL)
    sink.append(1)
    issued = len(fake.asked("POST", TOKEN_PATH))
    fake.tokens.clear()

    sink.append(2)

    assert sink.ids() == [1, 2]
    assert len(fake.asked("POST", TOKEN_PATH)) == issued + 1


def test_token_that_expires_before_the_commit_is_renewed(fake: RestFake) -> None:
    """A job that runs longer than a token could not commit."""
    fake.credential = CREDENTIAL
    sink = sink_of(fake, credential=CREDENTIAL)
    sink.append(1)
    fake.faults = [Fault(method="POST", path=TABLE, status=401)]

    sink.append(2)

    assert sink.ids() == [1, 2]
    assert len(fake.tables.load_table(NAME).metadata.snapshots) == 2


def test_token_that_stays_refused_is_an_error_without_the_secret(fake: RestFake) -> None:
    """The catalog would be asked for ever, or the client's secret would stand in the log."""
    fake.credential = CREDENTIAL
    sink = sink_of(fake, credential=CREDENTIAL)
    fake.faults = [Fault(method="GET", path=TABLE, status=401) for _ in range(2)]
    with pytest.raises(CatalogError, match="UnauthorizedError") as refused:
        sink.table()

    assert SECRET not in str(refused.value)
    assert "token-" not in str(refused.value)
    assert fake.faults == []


def test_wrong_client_secret_is_an_error_without_it(fake: RestFake) -> None:
    """A user would not learn that the secret is wrong, or would find it in the log."""
    fake.credential = CREDENTIAL
    with pytest.raises(CatalogError, match="invalid_client") as refused:
        sink_of(fake, credential="writer:wr0ng-s3cr3t")

    assert "wr0ng-s3cr3t" not in str(refused.value)


def test_other_kinds_of_authentication_may_be_options(fake: RestFake) -> None:
    """PyIceberg would not heed flat properties, and ask without any credentials."""
    credentials = {"auth.type": "basic", "auth.basic.username": "writer", "auth.basic.password": SECRET}
    sink = sink_of(fake, **credentials)

    sink.append(1)

    expected = base64.b64encode(f"writer:{SECRET}".encode()).decode()
    assert {request.headers["authorization"] for request in fake.recorded} == {f"Basic {expected}"}


def test_oauth2_manager_has_limits_and_renews_refused_tokens(fake: RestFake) -> None:
    """PyIceberg's manager waits for ever, and keeps a token that the catalog has withdrawn."""
    client = {"auth.oauth2.client-id": "writer", "auth.oauth2.client-secret": SECRET, "auth.oauth2.scope": "lake"}
    fake.faults = [Fault(method="POST", path=TOKEN_PATH, hang_s=2)]
    sink = sink_of(
        fake, **QUICK, **client, **{"auth.type": "oauth2", "auth.oauth2.token-url": f"{fake.uri}{TOKEN_PATH}"}
    )
    sink.append(1)
    fake.faults = [Fault(method="GET", path=TABLE, status=401)]
    issued = len(fake.asked("POST", TOKEN_PATH))

    sink.append(2)

    assert sink.ids() == [1, 2]
    assert len(fake.asked("POST", TOKEN_PATH)) == issued + 1
    assert fake.asked("POST", TOKEN_PATH)[0].form == {"grant_type": "client_credentials", "scope": "lake"}


def test_headers_prefix_and_warehouse_reach_the_server(fake: RestFake) -> None:
    """Catalogs that serve many realms and warehouses could not be used."""
    fake.overrides = {"prefix": "lakes/one"}
    sink = sink_of(fake, **{"header.polaris-realm": "tests", "warehouse": "lake one"})

    sink.append(1)

    assert sink.ids() == [1]
    assert fake.recorded[0].target == "/v1/config?warehouse=lake+one"
    assert {request.headers["polaris-realm"] for request in fake.recorded} == {"tests"}
    assert {request.path.rpartition("/namespaces")[0] for request in fake.recorded[1:]} == {"/v1/lakes/one"}


def test_credentials_are_asked_for_unless_the_user_wants_another_access(fake: RestFake) -> None:
    """A catalog that vends credentials would send none."""
    sink_of(fake)
    sink_of(fake, **{"header.x-iceberg-access-delegation": "remote-signing"})

    delegations = [request.headers["x-iceberg-access-delegation"] for request in fake.recorded]
    assert delegations == ["vended-credentials", "remote-signing"]


def test_requests_are_signed(fake: RestFake) -> None:
    """S3 Tables and Glue's REST endpoint could not be used."""
    sink = sink_of(fake, **_signing("s3tables"))

    sink.append(1)

    assert sink.ids() == [1]
    assert {request.method for request in fake.recorded} >= {"GET", "POST", "HEAD"}
    for request in fake.recorded:
        _check_signature(request, fake.uri, "s3tables")


def test_signed_requests_have_the_same_limits(fake: RestFake, waits: list[float]) -> None:
    """A catalog in AWS that hangs, or is busy, would hang or fail the job."""
    fake.faults = [Fault(method="GET", path="/v1/config", hang_s=3)]
    with pytest.raises(CatalogError, match=r"(?i)timed out"):
        sink_of(fake, **_signing("s3tables"), **QUICK, **{"rest.client.max-retries": "0"})
    fake.faults = [Fault(method="GET", path="/v1/config", status=503, headers={"Retry-After": "2"})]

    sink_of(fake, **_signing("s3tables"))

    assert waits == [2]


def test_missing_signer_is_named_with_its_extra(fake: RestFake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would not learn what to install."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(CatalogError, match=r"rest\.sigv4-enabled needs boto3: install the extra 'sigv4'"):
        sink_of(fake, **_signing("s3tables"))


def test_table_bucket_of_s3_tables_is_one_part_of_the_path(fake: RestFake) -> None:
    """Every request to S3 Tables would go to a path that does not exist, or have a wrong signature."""
    encoded = "arn%3Aaws%3As3tables%3Aus-east-1%3A111122223333%3Abucket%2Flake"
    fake.overrides = {"prefix": encoded}
    sink = sink_of(fake, warehouse=BUCKET_ARN, **_signing("s3tables"))

    sink.append(1)

    assert sink.ids() == [1]
    assert fake.recorded[0].target == f"/v1/config?warehouse={encoded}"
    assert {request.path.rpartition("/namespaces")[0] for request in fake.recorded[1:]} == {f"/v1/{encoded}"}
    for request in fake.recorded:
        _check_signature(request, fake.uri, "s3tables")


def test_catalog_that_stages_no_table_gets_it_created_first(fake: RestFake) -> None:
    """On such catalogs, Glue's REST endpoint for one, no write could create its table."""
    fake.can_stage = False
    sink = sink_of(fake)

    sink.append(1)
    sink.append(2)

    assert sink.ids() == [1, 2]


def _signing(service: str) -> dict[str, str]:
    return {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": service,
        "rest.signing-region": "us-east-1",
        "client.access-key-id": ACCESS_KEY,
        "client.secret-access-key": SECRET_KEY,
        "client.region": "us-east-1",
    }


def _check_signature(request: Recorded, uri: str, service: str) -> None:
    """Sign the request as it came once more, and compare."""
    scheme, _, fields = request.headers["authorization"].partition(" ")
    parts: dict[str, Any] = dict(field.strip().split("=", 1) for field in fields.split(","))
    date = request.headers["x-amz-date"]
    assert scheme == "AWS4-HMAC-SHA256"
    assert parts["Credential"] == f"{ACCESS_KEY}/{date[:8]}/us-east-1/{service}/aws4_request"
    assert {"host", "x-amz-date"} <= set(parts["SignedHeaders"].split(";"))
    if "x-amz-content-sha256" in request.headers:
        assert request.headers["x-amz-content-sha256"] == hashlib.sha256(request.body).hexdigest()
    signed = {name: request.headers[name] for name in parts["SignedHeaders"].split(";")}
    url = urlsplit(f"{uri}{request.target}")
    again = AWSRequest(
        method=request.method,
        url=url._replace(query="").geturl(),
        params=dict(parse_qsl(url.query)),
        data=request.body,
        headers=signed,
    )
    again.context["timestamp"] = date
    signer = SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), service, "us-east-1")
    signature = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    assert parts["Signature"] == signature
