"""Pure: checks the properties of each kind of store, and makes of them what its filesystem is opened with.

A property that protects data, and that is unknown or not supported, is refused: otherwise a file could be stored
unencrypted although the user asked for encryption. Other unknown properties are only named in the log. The names are
those of PyIceberg and of Iceberg's Java library. Imports no library of a store.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from iceberg_ds.errors import OptionError
from iceberg_ds.parsing import boolean, count, positive_integer
from iceberg_ds.secrets import MASK, is_secret, mask_name

logger = logging.getLogger(__name__)

_LIKENESS = 0.8

_Value = TypeVar("_Value")

MIN_PART_BYTES = 5 * 1024 * 1024  # of S3, for all parts but the last
DEFAULT_PART_BYTES = 8 * 1024 * 1024
_UPLOAD_THREADS = 4
_CONNECT_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 60.0
_DEFAULT_RETRIES = 5
_SESSION_NAME = "iceberg-ds"

AddressingStyle = Literal["auto", "path", "virtual"]

# All names of each setting: PyIceberg's first, then those of Iceberg's Java library.
_ENDPOINT = ("s3.endpoint",)
_REGION = ("s3.region", "client.region")
_ACCESS_KEY_ID = ("s3.access-key-id", "client.access-key-id")
_SECRET_ACCESS_KEY = ("s3.secret-access-key", "client.secret-access-key")
_SESSION_TOKEN = ("s3.session-token", "client.session-token")
_PROFILE = ("s3.profile-name", "client.profile-name")
_ANONYMOUS = ("s3.anonymous",)
_VIRTUAL = ("s3.force-virtual-addressing",)
_PATH = ("s3.path-style-access",)
_PROXY = ("s3.proxy-uri",)
_CONNECT_TIMEOUT = ("s3.connect-timeout",)
_REQUEST_TIMEOUT = ("s3.request-timeout",)
_RETRIES = ("s3.retry.num-retries",)
_ROLE_ARN = ("s3.role-arn", "client.role-arn", "client.assume-role.arn")
_ROLE_SESSION = ("s3.role-session-name", "client.role-session-name", "client.assume-role.session-name")
_ROLE_EXTERNAL_ID = ("client.assume-role.external-id",)
_ROLE_REGION = ("client.assume-role.region",)
_ROLE_DURATION = ("client.assume-role.timeout-sec",)
_ENCRYPTION = ("s3.server-side-encryption", "s3.sse.type")
_KMS_KEY = ("s3.sse-kms-key-id", "s3.sse.key")
_PART_BYTES = ("s3.multipart.part-size-bytes",)
_THREADS = ("s3.multipart.num-threads",)
_ACL = ("s3.acl",)
_STORAGE_CLASS = ("s3.write.storage-class",)
_DUALSTACK = ("s3.dualstack-enabled",)

_S3_USED = frozenset(
    name
    for names in (
        *(_ENDPOINT, _REGION, _ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN, _PROFILE, _ANONYMOUS, _VIRTUAL),
        *(_PATH, _PROXY, _CONNECT_TIMEOUT, _REQUEST_TIMEOUT, _RETRIES, _ROLE_ARN, _ROLE_SESSION, _ROLE_EXTERNAL_ID),
        *(_ROLE_REGION, _ROLE_DURATION, _ENCRYPTION, _KMS_KEY, _PART_BYTES, _THREADS, _ACL, _STORAGE_CLASS),
        _DUALSTACK,
    )
    for name in names
)
# Valid, and without effect: the client finds the region by itself, renews credentials before they expire and sends
# checksums; the others tune parts that only the Java library has.
_S3_NOTHING_TO_DO = re.compile(
    r"s3\.(session-token-expires-at-ms|resolve-region|checksum-enabled|staging-dir|delete\.|multipart\.threshold"
    r"|preload-client-enabled|cross-region-access-enabled|remote-signing-enabled|signer\.|crt\.|analytics-"
    r"|directory-bucket|retry\.(min|max)-wait-ms)|client\.(refresh-credentials-|factory$)"
)
# It means the same as the properties of the role.
_JAVA_ROLE_FACTORY = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
_ENCRYPTIONS = {
    "none": None,
    "s3": "AES256",
    "aes256": "AES256",
    "kms": "aws:kms",
    "aws:kms": "aws:kms",
    "dsse-kms": "aws:kms:dsse",
    "aws:kms:dsse": "aws:kms:dsse",
}


def _refuse_nothing(_name: str, _value: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProperties:
    """The known properties of one kind of store.

    Attributes:
        store: Name of the store in errors.
        prefixes: Prefixes of the properties' names.
        used: Names of the properties that have an effect.
        nothing_to_do: Matches names of properties that are valid and need no action.
        protects: Matches names of properties that protect data, so that unknown ones are refused.
        why_refused: Returns why a property, given by name and value, is not supported, or None.
    """

    store: str
    prefixes: tuple[str, ...]
    used: frozenset[str]
    nothing_to_do: re.Pattern[str]
    protects: re.Pattern[str]
    why_refused: Callable[[str, str], str | None] = _refuse_nothing

    def problem_of(self, name: str, value: str) -> str | None:
        """Return why an unknown property must be rejected, or None."""
        if not name.startswith(self.prefixes) or name in self.used:
            return None
        refusal = self.why_refused(name, value)
        if refusal is not None or self.nothing_to_do.match(name):
            return refusal
        near = difflib.get_close_matches(name, self.used, n=1, cutoff=_LIKENESS)
        if near or self.protects.match(name):
            hint = f" (do you mean {near[0]}?)" if near else " and would not be heeded"
            return f"{mask_name(name)} is not known{hint}"
        logger.warning("Property %s is not used for %s", mask_name(name), self.store)
        return None


class PropertyReader:
    """Reads properties and collects their problems."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.problems: list[str] = []

    def text(self, *names: str) -> str | None:
        """Return the value of the first of the names that has one, or None."""
        return next((str(self._properties[name]) for name in names if self._properties.get(name)), None)

    def value(self, names: tuple[str, ...], parse: Callable[[str], _Value], *, default: _Value) -> _Value:
        """Return the parsed value, or the default if there is none or it cannot be parsed."""
        text = self.text(*names)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as problem:
            self.problems.append(f"{names[0]} is '{MASK if is_secret(names[0]) else text}': {problem}")
            return default

    def check(self, known: KnownProperties) -> None:
        """Refuse wrong properties, and unknown ones that must not be ignored.

        Raises:
            OptionError: There are such properties; the message names all of them.
        """
        found = [known.problem_of(name, str(self._properties[name])) for name in sorted(self._properties)]
        problems = [*self.problems, *(problem for problem in found if problem is not None)]
        if problems:
            raise OptionError(f"Cannot open {known.store}: {'; '.join(problems)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role in which requests are made, instead of as the owner of the credentials.

    Attributes:
        arn: The role.
        session_name: Name of the session in the account's logs.
        external_id: The external id that the role's trust policy asks for, or None.
        region: Region of the token service, or None for that of the storage.
        duration_s: Seconds until the role's credentials expire, or None for the service's default of an hour.
    """

    arn: str
    session_name: str = _SESSION_NAME
    external_id: str | None = None
    region: str | None = None
    duration_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How S3, or a store with the same interface, is reached.

    Attributes:
        endpoint: URL of the store, or None for Amazon's own.
        region: The region, or None for that of the environment or the profile.
        addressing_style: Whether the bucket is a part of the path or of the host name.
        access_key_id: The access key, or None for the default chain of credentials.
        secret_access_key: Secret of the access key.
        session_token: Token of temporary credentials.
        profile: Profile of the AWS configuration files, or None for that of the environment.
        is_anonymous: Whether requests are not signed.
        role: Role to assume, or None.
        upload_arguments: Encryption, ACL and storage class of every new object, by the names of S3's API.
        proxy: URL of a proxy, or None for that of the environment.
        connect_timeout_s: Seconds to wait for a connection.
        request_timeout_s: Seconds to wait for an answer.
        retries: How often a failed request is tried again.
        part_bytes: Size of a part of a multipart upload; a smaller file is one request.
        upload_threads: How many parts a process sends at the same time, over all its files.
        use_dualstack: Whether Amazon's endpoints for IPv6 and IPv4 are used.
        sends_checksums: Whether all bodies are sent with a checksum, unless the environment forbids it.
    """

    endpoint: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle = "auto"
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    profile: str | None = None
    is_anonymous: bool = False
    role: AssumedRole | None = None
    upload_arguments: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    connect_timeout_s: float = _CONNECT_TIMEOUT_S
    request_timeout_s: float = _REQUEST_TIMEOUT_S
    retries: int = _DEFAULT_RETRIES
    part_bytes: int = DEFAULT_PART_BYTES
    upload_threads: int = _UPLOAD_THREADS
    use_dualstack: bool = False
    sends_checksums: bool = True

    def for_alibaba(self) -> S3Settings:
        """Return the settings for OSS, which supports neither buckets in paths nor S3's newer checksums."""
        style: AddressingStyle = "virtual" if self.addressing_style == "auto" else self.addressing_style
        return replace(self, addressing_style=style, sends_checksums=False)

    def __repr__(self) -> str:
        return f"S3Settings(endpoint={self.endpoint!r}, region={self.region!r}, ***)"


def s3_settings(properties: Mapping[str, str]) -> S3Settings:
    """Return the settings of S3 in the properties.

    Raises:
        OptionError: Properties are wrong, contradict each other or are not supported; the message names all of them.
    """
    reader = PropertyReader(properties)
    settings = S3Settings(
        endpoint=reader.text(*_ENDPOINT),
        region=reader.text(*_REGION),
        addressing_style=_addressing_style(reader),
        access_key_id=reader.text(*_ACCESS_KEY_ID),
        secret_access_key=reader.text(*_SECRET_ACCESS_KEY),
        session_token=reader.text(*_SESSION_TOKEN),
        profile=reader.text(*_PROFILE),
        is_anonymous=reader.value(_ANONYMOUS, boolean, default=False),
        role=_role(reader),
        upload_arguments=_upload_arguments(reader),
        proxy=reader.text(*_PROXY),
        connect_timeout_s=reader.value(_CONNECT_TIMEOUT, _seconds, default=_CONNECT_TIMEOUT_S),
        request_timeout_s=reader.value(_REQUEST_TIMEOUT, _seconds, default=_REQUEST_TIMEOUT_S),
        retries=reader.value(_RETRIES, count, default=_DEFAULT_RETRIES),
        part_bytes=reader.value(_PART_BYTES, _part_bytes, default=DEFAULT_PART_BYTES),
        upload_threads=reader.value(_THREADS, positive_integer, default=_UPLOAD_THREADS),
        use_dualstack=reader.value(_DUALSTACK, boolean, default=False),
    )
    if (settings.access_key_id is None) != (settings.secret_access_key is None):
        reader.problems.append("s3.access-key-id and s3.secret-access-key belong together, and one is missing")
    reader.check(_S3)
    return settings


def _addressing_style(reader: PropertyReader) -> AddressingStyle:
    is_virtual = reader.value(_VIRTUAL, boolean, default=False)
    is_path = reader.value(_PATH, boolean, default=False)
    if is_virtual and is_path:
        reader.problems.append("s3.force-virtual-addressing and s3.path-style-access are both true")
    return "virtual" if is_virtual else "path" if is_path else "auto"


def _role(reader: PropertyReader) -> AssumedRole | None:
    arn, external_id = reader.text(*_ROLE_ARN), reader.text(*_ROLE_EXTERNAL_ID)
    if arn is None:
        if external_id is not None:
            reader.problems.append("client.assume-role.external-id is set, and no role (client.assume-role.arn)")
        return None
    duration = reader.value(_ROLE_DURATION, positive_integer, default=0)
    return AssumedRole(
        arn=arn,
        session_name=reader.text(*_ROLE_SESSION) or _SESSION_NAME,
        external_id=external_id,
        region=reader.text(*_ROLE_REGION),
        duration_s=duration or None,
    )


def _upload_arguments(reader: PropertyReader) -> tuple[tuple[str, str], ...]:
    encryption = reader.value(_ENCRYPTION, _encryption, default=None)
    kms_key = reader.text(*_KMS_KEY)
    if kms_key is not None and encryption is None:
        reader.problems.append("s3.sse-kms-key-id (s3.sse.key) is set, and s3.server-side-encryption (s3.sse.type) not")
    if kms_key is not None and encryption == "AES256":
        reader.problems.append("s3.sse-kms-key-id (s3.sse.key) is set, and the encryption is not by KMS")
    arguments = {
        "ServerSideEncryption": encryption,
        "SSEKMSKeyId": kms_key,
        "ACL": reader.text(*_ACL),
        "StorageClass": reader.text(*_STORAGE_CLASS),
    }
    return tuple((name, value) for name, value in arguments.items() if value is not None)


def _why_s3_refused(name: str, value: str) -> str | None:
    if name == "s3.signer" or (name == "s3.remote-signing-enabled" and value.lower() == "true"):
        return f"{name} asks the catalog to sign each request, which is not supported: let it vend credentials instead"
    if name in ("client.factory", "client.credentials-provider") and value != _JAVA_ROLE_FACTORY:
        return f"{name} names a Java class: use s3.profile-name, client.assume-role.arn or the default chain"
    return None


_S3 = KnownProperties(
    store="S3",
    prefixes=("s3.", "client."),
    used=_S3_USED,
    nothing_to_do=_S3_NOTHING_TO_DO,
    protects=re.compile(
        r"s3\.(sse|server|encrypt|client-side|acl|access|write\.tags|s3-access)|client\.(assume|role|cred)"
    ),
    why_refused=_why_s3_refused,
)


def _encryption(text: str) -> str | None:
    if text.lower() not in _ENCRYPTIONS:
        raise ValueError(f"expected one of {', '.join(_ENCRYPTIONS)}; keys of your own (SSE-C) are not supported")
    return _ENCRYPTIONS[text.lower()]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError("expected seconds above 0")
    return seconds


def _part_bytes(text: str) -> int:
    size = positive_integer(text)
    if size < MIN_PART_BYTES:
        raise ValueError(f"expected at least {MIN_PART_BYTES}, S3's least size of a part")
    return size


_SAS_OF_HOST = "adls.sas-token."
_GCS = KnownProperties(
    store="Google Cloud Storage",
    prefixes=("gcs.",),
    used=frozenset(
        f"gcs.{name}"
        for name in (
            *("oauth2.token", "project-id", "access", "consistency", "cache-timeout", "requester-pays"),
            *("session-kwargs", "service.host", "default-bucket-location", "version-aware"),
        )
    ),
    nothing_to_do=re.compile(r"gcs\.(oauth2\.(token-expires-at|refresh-credentials)|channel\.|delete\.)"),
    protects=re.compile(r"gcs\.(encr|decr|kms|oauth2|user-project|no-auth|credential)"),
)
_AZURE = KnownProperties(
    store="Azure",
    prefixes=("adls.",),
    used=frozenset(
        f"adls.{name}"
        for name in (
            *("connection-string", "credential", "account-name", "account-key", "sas-token", "tenant-id"),
            *("client-id", "client-secret", "account-host", "token", "anon"),
        )
    ),
    nothing_to_do=re.compile(
        r"adls\.(sas-token\.|sas-token-expires-at-ms|refresh-credentials|read\.|write\.|(blob|dfs)-storage-)"
    ),
    protects=re.compile(r"adls\.(auth|connection|encr|key|token)"),
)
# Schemes for which PyIceberg has properties of its own, and the one that fsspec names differently.
_OF_PYICEBERG = frozenset({"hdfs", "hf"})
_OTHER_NAMES = {"hdfs.kerberos_ticket": "kerb_ticket"}


def gcs_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of gcsfs; None means its own default.

    Raises:
        OptionError: Properties are wrong, or are unknown and must not be ignored.
    """
    reader = PropertyReader(properties)
    arguments: dict[str, Any] = {
        "project": reader.text("gcs.project-id"),
        "access": reader.text("gcs.access") or "full_control",
        "token": reader.text("gcs.oauth2.token"),
        "consistency": reader.text("gcs.consistency") or "none",
        "cache_timeout": reader.value(("gcs.cache-timeout",), _number, default=None),
        "requester_pays": reader.value(("gcs.requester-pays",), boolean, default=False),
        "session_kwargs": reader.value(("gcs.session-kwargs",), _object, default=None),
        "endpoint_url": reader.text("gcs.service.host"),
        "default_location": reader.text("gcs.default-bucket-location"),
        "version_aware": reader.value(("gcs.version-aware",), boolean, default=False),
    }
    reader.check(_GCS)
    return arguments


def azure_arguments(properties: Mapping[str, str], host: str) -> dict[str, Any]:
    """Return the arguments of adlfs; None means its own default.

    Args:
        properties: Properties of the store.
        host: The account's host in the location, such as `account.dfs.core.windows.net`; may be empty.

    Raises:
        OptionError: Properties are wrong, or are unknown and must not be ignored.
    """
    reader = PropertyReader(properties)
    hosts = [name.removeprefix(_SAS_OF_HOST) for name in sorted(properties) if name.startswith(_SAS_OF_HOST)]
    account = host if "." in host else next(iter(hosts), "")
    arguments: dict[str, Any] = {
        "connection_string": reader.text("adls.connection-string"),
        "credential": reader.text("adls.credential"),
        "account_name": reader.text("adls.account-name") or account.partition(".")[0] or None,
        "account_key": reader.text("adls.account-key"),
        "sas_token": reader.text("adls.sas-token", _SAS_OF_HOST + account),
        "tenant_id": reader.text("adls.tenant-id"),
        "client_id": reader.text("adls.client-id"),
        "client_secret": reader.text("adls.client-secret"),
        "account_host": reader.text("adls.account-host"),
        "anon": reader.value(("adls.anon",), boolean, default=None),
    }
    reader.check(_AZURE)
    return arguments


def _number(text: str) -> float | None:
    return float(text)


def _object(text: str) -> dict[str, Any] | None:
    parsed: object = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004  # what a property's parser raises
    return parsed


def other_arguments(properties: Mapping[str, str], scheme: str) -> dict[str, Any]:
    """Return the arguments of a filesystem's class: flags, numbers and JSON objects are parsed, others are text."""
    arguments: dict[str, Any] = {}
    prefixes = (f"{scheme}.", f"fsspec.{scheme}.") if scheme in _OF_PYICEBERG else (f"fsspec.{scheme}.",)
    for prefix in prefixes:
        for name in sorted(properties):
            if name.startswith(prefix):
                argument = _OTHER_NAMES.get(name, name.removeprefix(prefix))
                arguments[argument] = _argument(name, properties[name])
    return arguments


def _argument(name: str, text: str) -> Any:  # noqa: ANN401  # a flag, a number, a JSON object or text
    if is_secret(name):  # a password of digits is text, too
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
