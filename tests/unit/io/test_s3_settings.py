"""What properties say of S3: used, refused, or of no importance."""

from __future__ import annotations

import logging

import pytest

from iceberg_ds.errors import OptionError
from iceberg_ds.io.store_settings import AssumedRole, S3Settings, s3_settings

SECRET = "marked-secret"  # noqa: S105  # none


def test_no_property_means_amazons_own_store_and_its_default_chain() -> None:
    """A job on an instance with a role could not write without any setting."""
    assert s3_settings({}) == S3Settings()


@pytest.mark.parametrize(
    ("properties", "attribute", "value"),
    [
        ({"s3.endpoint": "http://h:1"}, "endpoint", "http://h:1"),
        ({"s3.region": "eu-west-1"}, "region", "eu-west-1"),
        ({"client.region": "eu-west-1"}, "region", "eu-west-1"),
        ({"s3.region": "eu-west-1", "client.region": "x"}, "region", "eu-west-1"),
        ({"s3.path-style-access": "true"}, "addressing_style", "path"),
        ({"s3.path-style-access": "false"}, "addressing_style", "auto"),
        ({"s3.force-virtual-addressing": "True"}, "addressing_style", "virtual"),
        ({"client.access-key-id": "k", "client.secret-access-key": "s"}, "secret_access_key", "s"),
        ({"s3.session-token": "t"}, "session_token", "t"),
        ({"s3.profile-name": "p"}, "profile", "p"),
        ({"client.profile-name": "p"}, "profile", "p"),
        ({"s3.anonymous": "true"}, "is_anonymous", True),
        ({"s3.proxy-uri": "http://proxy:3128"}, "proxy", "http://proxy:3128"),
        ({"s3.connect-timeout": "2.5"}, "connect_timeout_s", 2.5),
        ({"s3.request-timeout": "7"}, "request_timeout_s", 7),
        ({"s3.retry.num-retries": "0"}, "retries", 0),
        ({"s3.multipart.part-size-bytes": "33554432"}, "part_bytes", 33554432),
        ({"s3.multipart.num-threads": "9"}, "upload_threads", 9),
        ({"s3.dualstack-enabled": "true"}, "use_dualstack", True),
        ({"s3.sse.type": "s3"}, "upload_arguments", (("ServerSideEncryption", "AES256"),)),
        ({"s3.server-side-encryption": "AES256"}, "upload_arguments", (("ServerSideEncryption", "AES256"),)),
        ({"s3.sse.type": "none"}, "upload_arguments", ()),
        (
            {"s3.sse.type": "kms", "s3.sse.key": "arn"},
            "upload_arguments",
            (("ServerSideEncryption", "aws:kms"), ("SSEKMSKeyId", "arn")),
        ),
        (
            {"s3.server-side-encryption": "aws:kms:dsse", "s3.sse-kms-key-id": "arn"},
            "upload_arguments",
            (("ServerSideEncryption", "aws:kms:dsse"), ("SSEKMSKeyId", "arn")),
        ),
        (
            {"s3.acl": "bucket-owner-full-control", "s3.write.storage-class": "STANDARD_IA"},
            "upload_arguments",
            (("ACL", "bucket-owner-full-control"), ("StorageClass", "STANDARD_IA")),
        ),
    ],
)
def test_property_is_used(properties: dict[str, str], attribute: str, value: object) -> None:
    """A user's setting would be taken and do nothing."""
    assert getattr(s3_settings(properties), attribute) == value


@pytest.mark.parametrize("name", ["s3.role-arn", "client.role-arn", "client.assume-role.arn"])
def test_role_is_assumed_by_any_of_its_names(name: str) -> None:
    """Files would be written as another principal than the user says."""
    assert s3_settings({name: "arn:r"}).role == AssumedRole(arn="arn:r")


def test_role_has_session_name_external_id_region_and_duration() -> None:
    """A role of another account could not be assumed."""
    properties = {
        "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
        "client.assume-role.arn": "arn:r",
        "client.assume-role.session-name": "nightly",
        "client.assume-role.external-id": "42",
        "client.assume-role.region": "eu-west-1",
        "client.assume-role.timeout-sec": "900",
    }

    expected = AssumedRole(arn="arn:r", session_name="nightly", external_id="42", region="eu-west-1", duration_s=900)
    assert s3_settings(properties).role == expected


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"s3.sse.tpye": "kms"}, r"s3\.sse\.tpye is not known \(do you mean s3\.sse\.type\?\)"),
        ({"s3.sse.md5": "x"}, r"s3\.sse\.md5 is not known"),
        ({"s3.sse.type": "custom"}, "keys of your own"),
        ({"s3.sse.key": "arn"}, r"s3\.sse-kms-key-id \(s3\.sse\.key\) is set, and s3\.server-side-encryption"),
        ({"s3.sse.type": "s3", "s3.sse.key": "arn"}, "the encryption is not by KMS"),
        ({"s3.acess-key-id": "k"}, r"do you mean s3\.access-key-id"),
        ({"s3.access-grants.enabled": "true"}, "would not be heeded"),
        ({"client.assume-role.tags.a": "b"}, r"client\.assume-role\.tags\.a is not known"),
        ({"s3.access-key-id": "k"}, "belong together"),
        ({"s3.path-style-access": "true", "s3.force-virtual-addressing": "true"}, "are both true"),
        ({"client.assume-role.external-id": "42"}, "and no role"),
        ({"s3.anonymous": "maybe"}, r"s3\.anonymous is 'maybe': expected true or false"),
        ({"s3.connect-timeout": "0"}, "expected seconds above 0"),
        ({"s3.retry.num-retries": "-1"}, "expected a whole number, 0 or more"),
        ({"s3.multipart.part-size-bytes": "1000"}, "at least 5242880"),
        ({"s3.signer": "S3V4RestSigner"}, "not supported: let it vend credentials"),
        ({"s3.remote-signing-enabled": "true"}, "not supported: let it vend credentials"),
        ({"client.credentials-provider": "com.acme.P"}, "names a Java class"),
        ({"client.factory": "com.acme.F"}, "names a Java class"),
    ],
)
def test_property_that_cannot_be_heeded_is_refused(properties: dict[str, str], problem: str) -> None:
    """Files would be written without the protection that somebody asked for, or as somebody else."""
    with pytest.raises(OptionError, match=problem):
        s3_settings(properties)


def test_all_wrong_properties_are_named_at_once() -> None:
    """A user would fix one setting for each run of a job."""
    with pytest.raises(OptionError) as raised:
        s3_settings({"s3.sse.tpye": "kms", "s3.anonymous": "maybe", "s3.request-timeout": "soon"})

    assert all(name in str(raised.value) for name in ("s3.sse.tpye", "s3.anonymous", "s3.request-timeout"))


@pytest.mark.parametrize(
    "name",
    [
        "s3.session-token-expires-at-ms",
        "s3.signer.uri",
        "s3.checksum-enabled",
        "client.refresh-credentials-endpoint",
        "s3.cross-region-access-enabled",
    ],
)
def test_property_that_needs_nothing_done_passes_in_silence(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A catalog's usual answer would stop every write, or fill the log."""
    assert s3_settings({name: "x"}) == S3Settings()
    assert caplog.records == []


def test_unknown_property_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A user would not learn that a setting does nothing."""
    with caplog.at_level(logging.WARNING):
        s3_settings({"s3.colour": "blue"})

    assert "s3.colour is not used" in caplog.text


def test_secret_in_the_name_of_a_property_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """A key that is pasted into the name of a property would be in logs and errors."""
    with caplog.at_level(logging.WARNING), pytest.raises(OptionError) as caught:
        s3_settings({f"s3.colour={SECRET}": "x", f"s3.sse.key={SECRET}": "x"})

    assert "s3.colour" in caplog.text
    assert SECRET not in caplog.text + str(caught.value)


def test_properties_of_other_parts_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A catalog's own properties would stop every write."""
    assert s3_settings({"uri": "x", "gcs.colour": "blue"}) == S3Settings()
    assert caplog.records == []


def test_settings_show_no_secret() -> None:
    """A log or an error would hold keys."""
    settings = s3_settings({"s3.access-key-id": SECRET, "s3.secret-access-key": SECRET, "s3.session-token": SECRET})

    assert SECRET not in repr(settings)


def test_a_wrong_secret_property_is_refused_without_its_value() -> None:
    """An error would hold a key."""
    with pytest.raises(OptionError) as raised:
        s3_settings({"s3.secret-acces-key": SECRET})

    assert SECRET not in str(raised.value)
