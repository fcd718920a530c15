"""Vended credentials: which ones count, when they end, and what they take the place of."""

from __future__ import annotations

import pytest

from iceberg_ds.io.vended_credentials import (
    REFRESH_CA_BUNDLE,
    REFRESH_ENABLED,
    REFRESH_ENDPOINT,
    REFRESH_HEADER_PREFIX,
    REFRESH_TOKEN,
    credentials_for,
    expires_at_ms,
    has_credentials,
    needs_renewal,
    opens_more,
    renewal_headers,
    renewal_properties,
    storage_credentials,
    why_ended,
    with_vended,
    without_signing,
)

MINUTE_MS = 60_000
KEYS = {"s3.access-key-id": "vended", "s3.secret-access-key": "vended"}


def test_answer_of_the_credentials_endpoint_is_read() -> None:
    """A task could not renew its credentials."""
    answer = {"storage-credentials": [{"prefix": "s3://b/t", "config": {"s3.access-key-id": "a", "x-ms": 5}}]}

    assert storage_credentials(answer) == [("s3://b/t", {"s3.access-key-id": "a", "x-ms": "5"})]
    assert storage_credentials({"metadata": {}}) == []


@pytest.mark.parametrize(
    "answer",
    [None, [], "text", {"storage-credentials": "hunter2"}, {"storage-credentials": [{"config": {"token": "hunter2"}}]}],
)
def test_answer_of_another_form_is_refused_without_showing_it(answer: object) -> None:
    """A broken answer would crash a task with the credentials in its log."""
    with pytest.raises(ValueError, match="storage-credentials") as refused:
        storage_credentials(answer)

    assert "hunter2" not in str(refused.value)


def test_credentials_of_the_longest_matching_prefix_count() -> None:
    """A file would be opened with the credentials of another place, and be refused."""
    credentials = [("s3://b", {"k": "bucket"}), ("s3://b/wh/t", {"k": "table"}), ("s3://b/wh/t/x", {"k": "other"})]

    assert credentials_for("s3://b/wh/t", credentials) == {"k": "table"}
    assert credentials_for("s3a://b/wh/t", credentials) == {"k": "table"}
    assert credentials_for("s3://b/wh", credentials) == {"k": "bucket"}
    assert credentials_for("gs://b", credentials) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3.session-token-expires-at-ms", "5000"),
        ("gcs.oauth2.token-expires-at", "5000"),
        ("adls.sas-token-expires-at-ms.account", "5000.0"),
    ],
)
def test_end_of_credentials_is_known_for_each_store(key: str, value: str) -> None:
    """Tasks would use credentials that have ended."""
    assert expires_at_ms({key: value, "s3.region": "1"}) == 5000
    assert expires_at_ms({key: value, "s3.session-token-expires-at-ms": "4000"}) == 4000
    assert expires_at_ms({key: "soon"}) is None


def test_credentials_are_renewed_some_time_before_they_end() -> None:
    """An upload that begins just before the end would fail in its middle."""
    assert needs_renewal(60 * MINUTE_MS, now_ms=56 * MINUTE_MS)
    assert not needs_renewal(60 * MINUTE_MS, now_ms=54 * MINUTE_MS)
    assert not needs_renewal(None, now_ms=54 * MINUTE_MS)


def test_short_lived_credentials_are_not_renewed_at_every_file() -> None:
    """The catalog would be asked for each file."""
    assert not needs_renewal(2 * MINUTE_MS, now_ms=MINUTE_MS - 1, lifetime_ms=2 * MINUTE_MS)
    assert needs_renewal(2 * MINUTE_MS, now_ms=MINUTE_MS, lifetime_ms=2 * MINUTE_MS)


def test_ended_credentials_are_named_unless_they_are_renewed() -> None:
    """A user would see that access is denied, and not why."""
    properties = {"s3.session-token-expires-at-ms": "1000"}

    assert "ended at 1970-01-01T00:00:01+00:00" in str(why_ended(properties, now_ms=1000))
    assert why_ended(properties, now_ms=999) is None
    assert why_ended({**properties, REFRESH_ENABLED: "true"}, now_ms=1000) is None


def test_request_for_credentials_has_the_token_and_the_headers() -> None:
    """A catalog of many realms would not know which one is meant."""
    properties = {REFRESH_TOKEN: "t", f"{REFRESH_HEADER_PREFIX}polaris-realm": "r", "s3.region": "x"}

    assert renewal_headers(properties) == {"Authorization": "Bearer t", "polaris-realm": "r"}


def test_what_renewal_needs_is_told_apart() -> None:
    """A task could not renew, or would get what it does not need."""
    needed = dict.fromkeys(
        (REFRESH_ENABLED, REFRESH_ENDPOINT, REFRESH_TOKEN, REFRESH_CA_BUNDLE, f"{REFRESH_HEADER_PREFIX}x"), "v"
    )

    assert renewal_properties({**needed, "s3.region": "x", "token": "t"}) == needed


def test_users_own_credentials_for_the_same_store_give_way() -> None:
    """A session token or a role of the user's would make requests with vended keys fail."""
    own = {
        "s3.endpoint": "e",
        "s3.session-token": "own",
        "s3.role-arn": "own",
        "client.assume-role.arn": "own",
        "client.access-key-id": "own",
        "s3.profile-name": "own",
        "s3.signer": "own",
        "adls.account-key": "kept",
        "s3.sse.type": "kms",
    }

    merged = with_vended(own, KEYS)

    assert merged == {"s3.endpoint": "e", "adls.account-key": "kept", "s3.sse.type": "kms", **KEYS}
    assert with_vended(own, {"s3.region": "r"}) == {**own, "s3.region": "r"}
    assert with_vended({"gcs.oauth2.token-expires-at": "1"}, {"gcs.oauth2.token": "t"}) == {"gcs.oauth2.token": "t"}
    assert with_vended({"adls.account-key": "own"}, {"adls.sas-token.a": "t"}) == {"adls.sas-token.a": "t"}


def test_access_that_only_the_catalog_gives_is_noticed() -> None:
    """A table would be staged that nobody can write the first file of."""
    own = {"s3.endpoint": "http://127.0.0.1:7070/", "s3.region": "x", "s3.path-style-access": "true"}

    assert opens_more(own, KEYS)
    assert opens_more({}, {"s3.endpoint": "e"})
    assert not opens_more(own, {"s3.endpoint": "http://127.0.0.1:7070", "client.region": "x", "s3.sse.type": "kms"})


def test_signing_by_the_catalog_is_told_apart_from_credentials() -> None:
    """A catalog that offers both would be refused."""
    signing = {"s3.signer": "S3V4RestSigner", "s3.signer.uri": "u", "s3.remote-signing-enabled": "true"}

    assert without_signing({**signing, "s3.region": "x"}) == {"s3.region": "x"}
    assert has_credentials({"s3.profile-name": "p"})
    assert not has_credentials({**signing, "s3.region": "x"})
