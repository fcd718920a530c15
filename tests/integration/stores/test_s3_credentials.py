"""Whose credentials a request has, against moto, which plays Amazon's S3 and STS and keeps what it was sent.

moto takes every key for right: the tests look at what was asked of it, not at what it allows.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import fsspec.config
import pytest
import requests
from support.services.bucket import s3_client
from support.services.catalogs import Moto

from iceberg_ds.io.files import ObjectIO

ROLE = "arn:aws:iam::123456789012:role/writer"
AWS_VARIABLES = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")


class Recorder:
    """Passes requests on to moto, and keeps them.

    Attributes:
        requests: Path, headers and body of each.
    """

    def __init__(self, moto: Moto) -> None:
        self.requests: list[tuple[str, dict[str, str], str]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                recorder.requests.append((self.path, dict(self.headers.items()), body.decode(errors="replace")))
                headers = {key: value for key, value in self.headers.items() if key != "Host"}
                url = f"{moto.endpoint}{urlsplit(self.path).path}?{urlsplit(self.path).query}"
                answer = requests.request(self.command, url, headers=headers, data=body, timeout=30)
                self.send_response(answer.status_code)
                for key, value in answer.headers.items():
                    if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815  # http.server's names

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def role_requests(self) -> list[dict[str, str]]:
        """Return the parameters of each request for the credentials of a role."""
        bodies = [{key: found[0] for key, found in parse_qs(body).items()} for _, _, body in self.requests]
        return [body for body in bodies if body.get("Action", "").startswith("AssumeRole")]

    def signers(self) -> set[str]:
        """Return the access keys that objects were written with; empty for a request that was not signed."""
        writes = [headers for path, headers, _ in self.requests if path.startswith("/credentials/")]
        found = [re.search(r"Credential=([^/]+)/", headers.get("Authorization", "")) for headers in writes]
        return {key.group(1) if key else "" for key in found}


@pytest.fixture
def recorder(sts: Moto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recorder]:
    """Return a recorder before moto, in an environment without credentials."""
    for name in AWS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    found = Recorder(sts)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", found.endpoint)
    owner_client(sts).create_bucket(Bucket="credentials", ACL="public-read-write")
    thread = Thread(target=found.server.serve_forever, args=[0.01])
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def owner_client(moto: Moto) -> Any:
    """Return the client of the store's owner."""
    owner = {"s3.endpoint": moto.endpoint, "s3.access-key-id": "owner", "s3.secret-access-key": "x"}
    return s3_client(owner)


def write(recorder: Recorder, properties: dict[str, str], size: int = 1) -> None:
    """Write an object."""
    io = ObjectIO({"s3.endpoint": recorder.endpoint, **properties})
    with io.new_output("s3://credentials/x").create(overwrite=True) as stream:
        stream.write(bytes(size))


def test_role_is_assumed_with_external_id_and_session_name(recorder: Recorder) -> None:
    """A bucket of another account could not be written."""
    properties = {
        "s3.access-key-id": "user",
        "s3.secret-access-key": "x",
        "client.assume-role.arn": ROLE,
        "client.assume-role.external-id": "42",
        "client.assume-role.session-name": "nightly",
        "client.assume-role.timeout-sec": "900",
    }
    write(recorder, properties)
    write(recorder, properties)

    (asked, _) = recorder.role_requests()
    assert asked["RoleArn"] == ROLE
    assert asked["ExternalId"] == "42"
    assert asked["RoleSessionName"] == "nightly"
    assert asked["DurationSeconds"] == "900"
    assert {key[:4] for key in recorder.signers()} == {"ASIA"}


def test_credentials_of_a_role_are_asked_for_once_for_many_files(recorder: Recorder) -> None:
    """Each file, or each load of a table, would cost a request to the token service, which limits them."""
    properties = {
        "s3.endpoint": recorder.endpoint,
        "s3.access-key-id": "user",
        "s3.secret-access-key": "x",
        "s3.role-arn": ROLE,
    }
    for _ in range(2):
        io = ObjectIO(properties)
        for number in range(3):
            with io.new_output(f"s3://credentials/{number}").create(overwrite=True) as stream:
                stream.write(b"x")

    assert len(recorder.role_requests()) == 1


def test_profile_that_changes_is_read_again_within_a_minute(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream would go on with keys that somebody has replaced on disk, and end when they do."""
    now_s = time.monotonic()
    monkeypatch.setattr("iceberg_ds.io.stores.time.monotonic", lambda: now_s)
    for key in ("old", "new"):
        (tmp_path / "credentials").write_text(f"[nightly]\naws_access_key_id = {key}\naws_secret_access_key = x\n")
        write(recorder, {"s3.profile-name": "nightly"})
        now_s += 61

    assert recorder.signers() == {"old", "new"}


def test_profile_gives_the_credentials(recorder: Recorder, tmp_path: Path) -> None:
    """A user's profile would be ignored, and another principal would write."""
    (tmp_path / "credentials").write_text("[nightly]\naws_access_key_id = of-profile\naws_secret_access_key = x\n")
    write(recorder, {"s3.profile-name": "nightly"})

    assert "of-profile" in recorder.signers()


def test_profile_may_assume_a_role(recorder: Recorder, tmp_path: Path) -> None:
    """A role that the machine's configuration names would be ignored."""
    (tmp_path / "credentials").write_text("[base]\naws_access_key_id = of-base\naws_secret_access_key = x\n")
    (tmp_path / "config").write_text(
        f"[profile nightly]\nrole_arn = {ROLE}\nsource_profile = base\nregion = eu-west-1\n"
    )
    write(recorder, {"s3.profile-name": "nightly"})

    assert [asked["RoleArn"] for asked in recorder.role_requests()] == [ROLE]
    assert {key[:4] for key in recorder.signers()} == {"ASIA"}


def test_environment_gives_the_credentials(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job could not be given its credentials without options."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    write(recorder, {})

    assert "of-environment" in recorder.signers()


def test_configuration_of_fsspec_does_not_change_who_asks(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are meant for other programs would sign, and files lie in the bucket in somebody else's name."""
    monkeypatch.setitem(fsspec.config.conf, "s3", {"key": "of-others", "secret": "x"})
    write(recorder, {"s3.access-key-id": "of-the-user", "s3.secret-access-key": "x"})

    assert recorder.signers() == {"of-the-user"}


def test_web_identity_gives_the_credentials(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pod with a role of its own (EKS) could not write."""
    (tmp_path / "token").write_text("identity-token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    write(recorder, {})

    (asked,) = recorder.role_requests()
    assert asked["Action"] == "AssumeRoleWithWebIdentity"
    assert asked["WebIdentityToken"] == "identity-token"
    assert {key[:4] for key in recorder.signers()} == {"ASIA"}


def test_session_token_is_sent(recorder: Recorder) -> None:
    """Temporary credentials would be refused."""
    write(recorder, {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.session-token": "of-session"})

    assert "of-session" in {headers.get("X-Amz-Security-Token") for _, headers, _ in recorder.requests}


def test_anonymous_requests_are_not_signed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public bucket would be asked with credentials that it does not know."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    write(recorder, {"s3.anonymous": "true"})

    assert recorder.signers() == {""}


@pytest.mark.parametrize("size", [1, 9 * 1024 * 1024])
def test_objects_are_encrypted_with_the_key_of_kms(recorder: Recorder, sts: Moto, size: int) -> None:
    """Files would lie in the bucket without the encryption that the user asked for."""
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}
    write(recorder, {**keys, "s3.sse.type": "kms", "s3.sse.key": "arn:aws:kms:key"}, size)
    found = owner_client(sts).head_object(Bucket="credentials", Key="x")

    assert found["ServerSideEncryption"] == "aws:kms"
    assert found["SSEKMSKeyId"] == "arn:aws:kms:key"


def test_requests_go_through_the_proxy(recorder: Recorder) -> None:
    """A cluster without a way out of its own could not write."""
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.retry.num-retries": "0"}
    io = ObjectIO({**keys, "s3.endpoint": "http://store.invalid", "s3.proxy-uri": recorder.endpoint})
    with io.new_output("s3://credentials/x").create(overwrite=True) as stream:
        stream.write(b"x")

    assert [path for path, _, _ in recorder.requests] == ["http://store.invalid/credentials/x"]


def vended(key: str, lifetime_ms: int) -> dict[str, Any]:
    """Return what a catalog vends."""
    config = {
        "s3.access-key-id": key,
        "s3.secret-access-key": "x",
        "s3.session-token": "t",
        "s3.session-token-expires-at-ms": str(int(time.time() * 1000) + lifetime_ms),
    }
    return {"storage-credentials": [{"prefix": "s3://credentials", "config": config}]}


def test_vended_credentials_are_renewed_before_the_next_part(recorder: Recorder) -> None:
    """A task that outlives its vended credentials would fail in the middle of a file."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(vended(f"vended-{len(asked)}", 3_600_000)).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        io = ObjectIO(
            {
                **vended("vended-0", 301_000)["storage-credentials"][0]["config"],
                "s3.endpoint": recorder.endpoint,
                "client.refresh-credentials-enabled": "true",
                "client.refresh-credentials-endpoint": f"http://127.0.0.1:{server.server_port}/credentials",
                "client.refresh-credentials-token": "of-the-catalog",
            }
        )
        with io.new_output("s3://credentials/x").create(overwrite=True) as stream:
            stream.write(bytes(9 * 1024 * 1024))
            time.sleep(2)
            stream.write(bytes(9 * 1024 * 1024))
        server.shutdown()
        thread.join()

    assert asked == ["Bearer of-the-catalog"]
    assert recorder.signers() == {"vended-0", "vended-1"}
