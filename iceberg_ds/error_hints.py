"""Pure: why a catalog or a store could not be used, and what to do about it.

Three steps: which cause an exception stands for (symptoms), which service raised it, and what to look at next.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """Why a catalog or a store could not be used; the value says it in words."""

    UNKNOWN_HOST = "the host name does not resolve"
    UNREACHABLE = "nothing answers at the address"
    TIMED_OUT = "the service does not answer in time"
    TLS = "the connection cannot be encrypted, or the certificate is not trusted"
    NOT_THIS_SERVICE = "something else than this service answers at the address"
    NO_CREDENTIALS = "there are no credentials"
    UNAUTHORIZED = "the credentials are not accepted"
    EXPIRED_CREDENTIALS = "the credentials have expired"
    CLOCK_SKEW = "the clock of this machine differs too much from the service's"
    FORBIDDEN = "the right is missing"
    NO_SUCH_BUCKET = "the bucket or container does not exist"
    WRONG_REGION = "the bucket is in another region"
    NO_SUCH_WAREHOUSE = "the catalog does not know the warehouse"
    NO_SUCH_DATABASE = "the database of the catalog does not exist"
    NO_SUCH_NAMESPACE = "the namespace does not exist"
    NO_SUCH_TABLE = "the table does not exist"
    NO_SUCH_FILE = "the file does not exist"
    ENCRYPTION_KEY = "the key that encrypts the files cannot be used"
    REFUSED = "the service refuses the request, and does not say why"
    THROTTLED = "the service is asked too often"
    LOCKED = "somebody else holds a lock for too long"
    SERVICE_FAILED = "the service itself failed"
    DISK_FULL = "the disk is full"
    READ_ONLY = "the disk or the database can only be read"
    BAD_PATH = "the store takes no file of that name"
    MISSING_PACKAGE = "a package is not installed"
    CONFIGURATION = "a setting is missing or malformed"
    UNKNOWN = "none of the known causes"


# Causes that only a person can remove: to try again is to fail again.
LASTING = frozenset(
    {
        Cause.TLS,
        Cause.NOT_THIS_SERVICE,
        Cause.NO_CREDENTIALS,
        Cause.UNAUTHORIZED,
        Cause.FORBIDDEN,
        Cause.NO_SUCH_BUCKET,
        Cause.WRONG_REGION,
        Cause.ENCRYPTION_KEY,
        Cause.READ_ONLY,
        Cause.BAD_PATH,
        Cause.MISSING_PACKAGE,
        Cause.CONFIGURATION,
    }
)


class Service(Enum):
    """The service that was asked; the value is its name in texts."""

    REST = "the REST catalog"
    HIVE = "the Hive Metastore"
    SQL = "the database of the SQL catalog"
    GLUE = "Glue"
    STS = "the token service"
    S3 = "the S3 store"
    GCS = "Google Cloud Storage"
    AZURE = "Azure storage"
    FILES = "the local disk"
    UNKNOWN = "the service"


# Error codes of stores and AWS services.
_CODES = {
    "InvalidAccessKeyId": Cause.UNAUTHORIZED,
    "SignatureDoesNotMatch": Cause.UNAUTHORIZED,
    "InvalidSignatureException": Cause.UNAUTHORIZED,
    "UnrecognizedClientException": Cause.UNAUTHORIZED,
    "InvalidClientTokenId": Cause.UNAUTHORIZED,
    "IncompleteSignature": Cause.UNAUTHORIZED,
    "InvalidToken": Cause.UNAUTHORIZED,
    "AuthFailure": Cause.UNAUTHORIZED,
    "AuthenticationFailed": Cause.UNAUTHORIZED,
    "401": Cause.UNAUTHORIZED,
    "ExpiredToken": Cause.EXPIRED_CREDENTIALS,
    "ExpiredTokenException": Cause.EXPIRED_CREDENTIALS,
    "RequestExpired": Cause.EXPIRED_CREDENTIALS,
    "TokenRefreshRequired": Cause.EXPIRED_CREDENTIALS,
    "RequestTimeTooSkewed": Cause.CLOCK_SKEW,
    "AccessDenied": Cause.FORBIDDEN,
    "AccessDeniedException": Cause.FORBIDDEN,
    "AllAccessDisabled": Cause.FORBIDDEN,
    "AuthorizationFailure": Cause.FORBIDDEN,
    "AuthorizationPermissionMismatch": Cause.FORBIDDEN,
    "403": Cause.FORBIDDEN,
    "NoSuchBucket": Cause.NO_SUCH_BUCKET,
    "ContainerNotFound": Cause.NO_SUCH_BUCKET,
    "FilesystemNotFound": Cause.NO_SUCH_BUCKET,
    "PermanentRedirect": Cause.WRONG_REGION,
    "TemporaryRedirect": Cause.WRONG_REGION,
    "AuthorizationHeaderMalformed": Cause.WRONG_REGION,
    "IllegalLocationConstraintException": Cause.WRONG_REGION,
    "301": Cause.WRONG_REGION,
    "NoSuchKey": Cause.NO_SUCH_FILE,
    "KeyTooLongError": Cause.BAD_PATH,
    "BlobNotFound": Cause.NO_SUCH_FILE,
    "404": Cause.NO_SUCH_FILE,
    "400": Cause.REFUSED,
    "SlowDown": Cause.THROTTLED,
    "Throttling": Cause.THROTTLED,
    "ThrottlingException": Cause.THROTTLED,
    "TooManyRequests": Cause.THROTTLED,
    "RequestLimitExceeded": Cause.THROTTLED,
    "429": Cause.THROTTLED,
    "InternalError": Cause.SERVICE_FAILED,
    "InternalServiceException": Cause.SERVICE_FAILED,
    "ServiceUnavailable": Cause.SERVICE_FAILED,
    "GlueEncryptionException": Cause.ENCRYPTION_KEY,
}
# Names of exception classes, of any library.
_CLASSES = {
    "SSLError": Cause.TLS,
    "ClientConnectorCertificateError": Cause.TLS,
    "NameResolutionError": Cause.UNKNOWN_HOST,
    "ClientConnectorDNSError": Cause.UNKNOWN_HOST,
    "ReadTimeout": Cause.TIMED_OUT,
    "ConnectTimeout": Cause.TIMED_OUT,
    "ReadTimeoutError": Cause.TIMED_OUT,
    "ConnectTimeoutError": Cause.TIMED_OUT,
    "ServerTimeoutError": Cause.TIMED_OUT,
    "NoCredentialsError": Cause.NO_CREDENTIALS,
    "PartialCredentialsError": Cause.NO_CREDENTIALS,
    "CredentialRetrievalError": Cause.NO_CREDENTIALS,
    "DefaultCredentialsError": Cause.NO_CREDENTIALS,
    "TokenRetrievalError": Cause.EXPIRED_CREDENTIALS,
    "SSOTokenLoadError": Cause.EXPIRED_CREDENTIALS,
    "UnauthorizedSSOTokenError": Cause.EXPIRED_CREDENTIALS,
    "AuthorizationExpiredError": Cause.EXPIRED_CREDENTIALS,
    "RefreshError": Cause.UNAUTHORIZED,
    "UnauthorizedError": Cause.UNAUTHORIZED,
    "OAuthError": Cause.UNAUTHORIZED,
    "ClientAuthenticationError": Cause.UNAUTHORIZED,
    "ForbiddenError": Cause.FORBIDDEN,
    "InsufficientPrivilege": Cause.FORBIDDEN,
    "NoSuchNamespaceError": Cause.NO_SUCH_NAMESPACE,
    "NoSuchTableError": Cause.NO_SUCH_TABLE,
    "TooManyRequestsError": Cause.THROTTLED,
    "WaitingForLockException": Cause.LOCKED,
    "ServiceUnavailableError": Cause.SERVICE_FAILED,
    "ServerError": Cause.SERVICE_FAILED,
    "CommitStateUnknownException": Cause.SERVICE_FAILED,
    "ProfileNotFound": Cause.CONFIGURATION,
    "NoRegionError": Cause.CONFIGURATION,
    "MissingSchema": Cause.CONFIGURATION,
    "InvalidSchema": Cause.CONFIGURATION,
    "InvalidURL": Cause.CONFIGURATION,
    "ArgumentError": Cause.CONFIGURATION,
    "NoSuchModuleError": Cause.MISSING_PACKAGE,
    "NotInstalledError": Cause.MISSING_PACKAGE,
    "JSONDecodeError": Cause.NOT_THIS_SERVICE,
}
# Classes that say less than the error that they were raised for.
_GENERAL_CLASSES = {
    "EndpointConnectionError",
    "NewConnectionError",
    "ClientConnectorError",
    "ServiceRequestError",
    "TransportError",
    "ConnectionClosedError",
    "ConnectionError",
}
_STATUSES = {
    400: Cause.REFUSED,
    401: Cause.UNAUTHORIZED,
    403: Cause.FORBIDDEN,
    404: Cause.NOT_THIS_SERVICE,
    405: Cause.NOT_THIS_SERVICE,
    407: Cause.UNAUTHORIZED,
    419: Cause.EXPIRED_CREDENTIALS,
    429: Cause.THROTTLED,
}
_ERRNOS = {
    errno.ECONNREFUSED: Cause.UNREACHABLE,
    errno.EHOSTUNREACH: Cause.UNREACHABLE,
    errno.ENETUNREACH: Cause.UNREACHABLE,
    errno.ECONNRESET: Cause.UNREACHABLE,
    errno.EPIPE: Cause.UNREACHABLE,
    errno.ETIMEDOUT: Cause.TIMED_OUT,
    errno.EACCES: Cause.FORBIDDEN,
    errno.EPERM: Cause.FORBIDDEN,
    errno.ENOENT: Cause.NO_SUCH_FILE,
    errno.ENOSPC: Cause.DISK_FULL,
    errno.EDQUOT: Cause.DISK_FULL,
    errno.EROFS: Cause.READ_ONLY,
    errno.ENAMETOOLONG: Cause.BAD_PATH,
    errno.ENOTDIR: Cause.BAD_PATH,
    errno.EISDIR: Cause.BAD_PATH,
    errno.ELOOP: Cause.BAD_PATH,
    errno.EINVAL: Cause.BAD_PATH,
}
# Texts of errors that carry no code: PyArrow's, databases', Thrift's and catalogs'. The first that fits counts.
_TEXTS: tuple[tuple[str, Cause], ...] = (
    (r"curlCode: 6\b|resolve host|failed to resolve|translate host name|not known", Cause.UNKNOWN_HOST),
    (r"curlCode: (60|35|77)\b|CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|certificate|SSL error", Cause.TLS),
    (r"curlCode: 28\b|timed? ?out|timeout (was reached|expired)", Cause.TIMED_OUT),
    (r"curlCode: 7\b|Connection refused|Could not connect|TSocket read 0 bytes", Cause.UNREACHABLE),
    (r"ExpiredToken|token (has |is )?expired|expired token", Cause.EXPIRED_CREDENTIALS),
    (r"REQUEST_TIME_TOO_SKEWED|RequestTimeTooSkewed", Cause.CLOCK_SKEW),
    (r"PermanentRedirect|AuthorizationHeaderMalformed|HTTP status 301|IllegalLocationConstraint", Cause.WRONG_REGION),
    (r"INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|InvalidToken|HTTP status 401", Cause.UNAUTHORIZED),
    (r"password authentication failed|role \S+ does not exist|no password supplied", Cause.UNAUTHORIZED),
    (r"\bKMS\b|KMS\.", Cause.ENCRYPTION_KEY),
    (r"NO_SUCH_BUCKET|bucket does not exist", Cause.NO_SUCH_BUCKET),
    (r"database \S+ does not exist|unable to open database file", Cause.NO_SUCH_DATABASE),
    (r"ACCESS_DENIED|permission denied|no pg_hba.conf entry|not authorized", Cause.FORBIDDEN),
    (r"SLOW_DOWN|HTTP status 503|reduce your request rate", Cause.THROTTLED),
    (r"INTERNAL_FAILURE|HTTP status 5\d\d", Cause.SERVICE_FAILED),
    (r"HTTP status 400", Cause.REFUSED),
    (r"Invalid endpoint", Cause.CONFIGURATION),
    (r"database is locked|lock .*not (be )?acquired", Cause.LOCKED),
    (r"disk is full|No space left", Cause.DISK_FULL),
    (r"KeyTooLong|KEY_TOO_LONG|File name too long", Cause.BAD_PATH),
    (r"readonly database|read-only", Cause.READ_ONLY),
    (r"unexpected JSON payload|Invalid JSON|RESTError 404", Cause.NOT_THIS_SERVICE),
)
# What catalogs say of a warehouse that they do not know, with any status.
_WAREHOUSE = re.compile(
    r"warehouse.*(not ?found|unknown|not exist|not known)|(unknown|find|no such) warehouse", re.IGNORECASE
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in _TEXTS)
# Modules whose texts are read: else an error of a program that speaks of a time-out would count as one of a service.
_SPEAKING = (
    *("pyiceberg.", "pydantic", "botocore.", "thrift.", "hive_metastore.", "psycopg2.", "sqlalchemy.", "sqlite3."),
    *("azure.", "gcsfs.", "google."),
)
_NAMES = re.compile(r"'[^']*'|\w+://\S+")
_FIRST_SERVER_ERROR = 500


def module_of(error: BaseException) -> str:
    """Return the module that the class of `error` comes from, with a dot at its end."""
    return f"{type(error).__module__}."


def _class_names(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


def _by_code(error: BaseException) -> Cause | None:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore's
        return _by_aws_code(response.get("Error", {}))
    if not module_of(error).startswith(("azure.", "gcsfs.", "aiohttp.")):
        return None
    said = (getattr(error, name, None) for name in ("error_code", "code", "status_code", "status"))
    return next((_CODES[str(code)] for code in said if str(code) in _CODES), None)


def _by_aws_code(said: Mapping[str, str]) -> Cause | None:
    code = str(said.get("Code", ""))
    # Where KMS refuses, S3 says that access is denied.
    if code.startswith("KMS.") or "kms:" in str(said.get("Message", "")).lower():
        return Cause.ENCRYPTION_KEY
    return _CODES.get(code) or (Cause.SERVICE_FAILED if re.fullmatch(r"5\d\d", code) else None)


def _by_warehouse(error: BaseException) -> Cause | None:
    is_of_catalog = module_of(error).startswith("pyiceberg.")
    return Cause.NO_SUCH_WAREHOUSE if is_of_catalog and _WAREHOUSE.search(text_of(error)) else None


def _by_class(error: BaseException) -> Cause | None:
    kinds = (
        (ssl.SSLError, Cause.TLS),
        (socket.gaierror, Cause.UNKNOWN_HOST),
        (TimeoutError, Cause.TIMED_OUT),
        (ImportError, Cause.MISSING_PACKAGE),
    )
    if (cause := next((cause for kind, cause in kinds if isinstance(error, kind)), None)) is not None:
        return cause
    # urllib3 derives a refused connection from a time-out.
    named = next((name for name in _class_names(error) if name in _CLASSES or name in _GENERAL_CLASSES), "")
    return _CLASSES.get(named)


def _by_text(error: BaseException) -> Cause | None:
    text = text_of(error)
    return next((cause for pattern, cause in _COMPILED if pattern.search(text)), None)


def text_of(error: BaseException) -> str:
    """Return what a service says in the text of `error`, or an empty text if it is no error of a service.

    Names of files are left out: they may be anything.
    """
    is_of_service = isinstance(error, (OSError, ValueError)) or module_of(error).startswith(_SPEAKING)
    return _NAMES.sub("", str(error)) if is_of_service else ""


def _by_status(error: BaseException) -> Cause | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if not isinstance(status, int):
        return None
    return _STATUSES.get(status) or (Cause.SERVICE_FAILED if status >= _FIRST_SERVER_ERROR else None)


def _by_errno(error: BaseException) -> Cause | None:
    return _ERRNOS.get(error.errno or 0) if isinstance(error, OSError) else None


def _by_general_class(error: BaseException) -> Cause | None:
    return Cause.UNREACHABLE if _GENERAL_CLASSES.intersection(_class_names(error)) else None


# From the most telling to the least.
SYMPTOMS: tuple[Callable[[BaseException], Cause | None], ...] = (
    _by_warehouse,
    _by_code,
    _by_class,
    _by_text,
    _by_status,
    _by_errno,
    _by_general_class,
)


_GLUE_OPERATION = re.compile(r"(Get|Create|Update|Delete|BatchGet)(Table|Database|Partition|Catalog)")
_STS_OPERATION = re.compile(r"AssumeRole|GetCallerIdentity|GetSessionToken")
_MODULES = (
    ("thrift.", Service.HIVE),
    ("hive_metastore.", Service.HIVE),
    ("sqlalchemy.", Service.SQL),
    ("psycopg2", Service.SQL),
    ("sqlite3", Service.SQL),
    ("gcsfs.", Service.GCS),
    ("google.", Service.GCS),
    ("azure.", Service.AZURE),
    ("adlfs.", Service.AZURE),
)
_LOCATIONS = (
    (re.compile(r"AWS Error|\bs3[an]?://"), Service.S3),
    (re.compile(r"\bgc?s://"), Service.GCS),
    (re.compile(r"\b(abfss?|wasbs?)://"), Service.AZURE),
)
_LIBRARIES = (
    (("botocore.", "boto3.", "aiobotocore."), Service.S3),
    (("requests.", "pyiceberg.", "urllib3.", "pydantic"), Service.REST),
)


def service_of(error: BaseException) -> Service | None:
    """Return the service that `error` surely comes from, or None if it could be several."""
    if (operation := getattr(error, "operation_name", None)) is not None:
        known = ((_GLUE_OPERATION, Service.GLUE), (_STS_OPERATION, Service.STS), (re.compile(""), Service.S3))
        return next(service for pattern, service in known if pattern.match(str(operation)))
    for module, service in _MODULES:
        if module_of(error).startswith(module):
            return service
    if not isinstance(error, OSError):
        return None
    return next((service for pattern, service in _LOCATIONS if pattern.search(str(error))), _disk(error))


def _disk(error: OSError) -> Service | None:
    is_own = module_of(error) == "builtins." and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
    return Service.FILES if is_own else None


def likely_service_of(error: BaseException) -> Service | None:
    """Return the service that the library of `error` mostly talks to."""
    return next((service for modules, service in _LIBRARIES if module_of(error).startswith(modules)), None)


# How the address of each service is set.
_ADDRESS = {
    Service.REST: "'uri' (and 'oauth2-server-uri', if it is set)",
    Service.HIVE: "'uri' (thrift://host:9083)",
    Service.SQL: "'uri' (as in postgresql+psycopg2://user@host:5432/database)",
    Service.GLUE: "'glue.endpoint' and 'glue.region'",
    Service.STS: "'client.assume-role.region', and AWS_ENDPOINT_URL_STS in the environment",
    Service.S3: "'s3.endpoint' (for Amazon's own S3 leave it out) and 's3.region'",
    Service.GCS: "'gcs.service.host'",
    Service.AZURE: "'adls.account-name' and 'adls.account-host'",
}
# The properties that say who is asking.
_CREDENTIALS = {
    Service.REST: "'token', or 'credential' (client-id:client-secret) with 'scope' and 'oauth2-server-uri'",
    Service.HIVE: "the Kerberos ticket, or user and password in 'uri'",
    Service.SQL: "user and password in 'uri'",
    Service.GLUE: "'glue.access-key-id', 'glue.secret-access-key' and 'glue.session-token', or 'glue.profile-name'",
    Service.STS: "the credentials that assume the role: 'client.access-key-id' and 'client.secret-access-key', or "
    "those of the environment",
    Service.S3: "'s3.access-key-id', 's3.secret-access-key' and 's3.session-token', or 's3.profile-name'",
    Service.GCS: "'gcs.oauth2.token', or the default credentials of the machine (GOOGLE_APPLICATION_CREDENTIALS)",
    Service.AZURE: "'adls.account-key', 'adls.sas-token' or 'adls.client-id' with 'adls.client-secret' and "
    "'adls.tenant-id'",
}
# What a principal must be allowed to do.
_RIGHTS = {
    Service.REST: "Let the catalog's administrator grant the principal to list and load the table, to commit to it and "
    "to create tables in the namespace; check 'scope' and 'warehouse'.",
    Service.HIVE: "Let the Hive Metastore allow the user to read and alter the table and to create tables in the "
    "database.",
    Service.SQL: "Grant the database user SELECT, INSERT, UPDATE and DELETE on iceberg_tables and "
    "iceberg_namespace_properties, and CREATE for the first start; a database that knows only some machines must know "
    "this one.",
    Service.GLUE: "Allow glue:GetDatabase, glue:GetTable, glue:CreateTable, glue:UpdateTable (and glue:CreateDatabase) "
    "on the catalog, the database and the table, and where Lake Formation guards them, there too; check "
    "'glue.id'.",
    Service.STS: "Allow sts:AssumeRole on the role of 'client.assume-role.arn', and let its trust policy name these "
    "credentials and the id of 'client.assume-role.external-id'.",
    Service.S3: "Allow s3:PutObject, s3:GetObject, s3:DeleteObject and s3:AbortMultipartUpload on the table's location "
    "(docs/storage.md has a policy). A store that answers 403 without a word may also "
    "mean a wrong 's3.access-key-id' or 's3.secret-access-key'.",
    Service.GCS: "Grant the role Storage Object User (storage.objects.create, get, list, delete) on the bucket.",
    Service.AZURE: "Grant the role Storage Blob Data Contributor on the container.",
    Service.FILES: "Let the user that Spark runs as write in that folder.",
}
_PACKAGES = {
    Service.REST: "'iceberg-ds[sigv4]' if the catalog wants signed requests",
    Service.HIVE: "'iceberg-ds[hive]'",
    Service.SQL: "'iceberg-ds[postgres]', or the driver that 'uri' names",
    Service.GLUE: "'iceberg-ds[glue]'",
    Service.GCS: "'iceberg-ds[gcs]'",
    Service.AZURE: "'iceberg-ds[azure]'",
}
_TIME_OUTS = {
    Service.REST: " 'rest.client.connection-timeout-ms' and 'rest.client.socket-timeout-ms' say how long to wait.",
    Service.S3: " 's3.connect-timeout' and 's3.request-timeout' say how long to wait.",
    Service.SQL: " 'uri' may end with ?connect_timeout=10.",
}
_TLS = {
    Service.REST: "name the file of the authority that signed the certificate in 'ssl.cabundle', or in "
    "REQUESTS_CA_BUNDLE in the environment",
    Service.S3: "name the file of the authority that signed the certificate in AWS_CA_BUNDLE in the environment of the "
    "driver and of every executor",
    Service.GLUE: "name the file of the authority that signed the certificate in AWS_CA_BUNDLE in the environment",
    Service.SQL: "name the file of the authority in 'uri', as in ?sslmode=verify-full&sslrootcert=/path/ca.pem",
}
_OF_ONE_SERVICE = {
    (Cause.WRONG_REGION, Service.S3): "Set 's3.region' to the bucket's region, and leave out 's3.endpoint', or name "
    "that region's.",
    (Cause.WRONG_REGION, Service.GLUE): "Set 'glue.region' to the region of the catalog.",
    (Cause.REFUSED, Service.REST): "Read what the catalog says; if it says nothing, check 'uri', 'warehouse' and the "
    "table's identifier.",
}
_SETTINGS = {
    Service.GLUE: "Set 'glue.region' (or AWS_REGION in the environment), and check 'glue.profile-name'.",
    Service.S3: "Set 's3.region' (or AWS_REGION in the environment), and check 's3.profile-name' and the form of "
    "'s3.endpoint' (http://host:port).",
}
# What to do, for any service; {service}, {address} and {credentials} are filled in.
_STEPS = {
    Cause.UNKNOWN_HOST: "Check the spelling of the host in {address}, and that this machine's name service knows it.",
    Cause.UNREACHABLE: "Check host and port in {address}, that {service} runs, and that no firewall or proxy is "
    "between.",
    Cause.TIMED_OUT: "Check host and port in {address}, and whether a firewall swallows the connection or {service} is "
    "overloaded.",
    Cause.NOT_THIS_SERVICE: "Check {address}: path, port, and http or https are those of another service.",
    Cause.NO_CREDENTIALS: "Give {credentials}; without them the environment, profiles and the machine's own role are "
    "asked, and have none.",
    Cause.UNAUTHORIZED: "Check {credentials}: the key or the secret is wrong, or was revoked.",
    Cause.EXPIRED_CREDENTIALS: "Get new ones and give {credentials}. For jobs that outlive them use credentials that "
    "renew themselves: a profile, a role, or a catalog that vends them.",
    Cause.CLOCK_SKEW: "Set the clock of the machine that failed (with NTP): signed requests may differ from "
    "{service}'s clock by a few minutes.",
    Cause.WRONG_REGION: "Set the region that the service's answer names.",
    Cause.NO_SUCH_BUCKET: "Create it, or correct its name in 'warehouse', in option 'location' or in the table's "
    "location; {address} must be of the store that has it.",
    Cause.NO_SUCH_WAREHOUSE: "Check 'warehouse': it must be a name that this catalog knows, or be left out.",
    Cause.NO_SUCH_DATABASE: "Create the database, or correct its name in {address}; the folder of an SQLite file must "
    "exist.",
    Cause.NO_SUCH_NAMESPACE: "Create the namespace, or correct the table's identifier; with create-table=true a write "
    "creates it.",
    Cause.NO_SUCH_TABLE: "Create the table, or correct its identifier; with create-table=true a write creates it.",
    Cause.NO_SUCH_FILE: "Check that the file was not deleted, and that {address} is of the store that has it.",
    Cause.ENCRYPTION_KEY: "Allow kms:GenerateDataKey and kms:Decrypt on the key of 's3.sse.key' (or of the bucket's "
    "default encryption), and check that it is enabled and in the bucket's region.",
    Cause.REFUSED: "Credentials that have expired and a wrong region often look like that: check {credentials}, and "
    "{address}.",
    Cause.THROTTLED: "Write fewer files (fewer tasks, iceberg_ds.distribute), or ask for a higher limit; then try "
    "again.",
    Cause.LOCKED: "Find out who holds the lock; with Hive see 'lock-check-min-wait-time' and 'lock-check-retries'.",
    Cause.SERVICE_FAILED: "Look into the log of {service}, and try again.",
    Cause.DISK_FULL: "Free space there, or point 'warehouse' or spark.local.dir to another disk.",
    Cause.READ_ONLY: "Make it writable for the user that Spark runs as, or name another place.",
    Cause.BAD_PATH: "Shorten what makes the path: the name of the table, of its namespace, or a partition's value; "
    "or give a new table another place with option 'location'. Where the path has a folder, there must be no file.",
}
_TO_CHECK = "Check that {service} runs, that {address} is right and that you may use it."
_ANY_ADDRESS = "its address"
_ANY_CREDENTIALS = "its credentials"


def next_step(cause: Cause, service: Service) -> str:
    """Return one or two sentences that say what to look at."""
    return (
        _OF_ONE_SERVICE.get((cause, service))
        or _special(cause, service)
        or _STEPS.get(cause, _TO_CHECK).format(
            service=service.value,
            address=_ADDRESS.get(service, _ANY_ADDRESS),
            credentials=_CREDENTIALS.get(service, _ANY_CREDENTIALS),
        )
        + (_TIME_OUTS.get(service, "") if cause is Cause.TIMED_OUT else "")
    )


def _special(cause: Cause, service: Service) -> str | None:
    """Return what to do if that differs as a whole from service to service, or None if it does not."""
    if cause is Cause.FORBIDDEN:
        return _RIGHTS.get(service, "Let the service's administrator grant the right.")
    if cause is Cause.TLS:
        trust = _TLS.get(service, "let this machine trust the authority that signed the certificate")
        address = _ADDRESS.get(service, _ANY_ADDRESS)
        return f"If the service has a private certificate authority, {trust}. Check http or https in {address}."
    if cause is Cause.MISSING_PACKAGE:
        return f"Install {_PACKAGES.get(service, 'the package that is named')} on the driver and on every executor."
    if cause is not Cause.CONFIGURATION:
        return None
    return _SETTINGS.get(service, f"Check {_ADDRESS.get(service, 'the setting that is named')}.")


__all__ = ["Cause", "ErrorHint", "Service", "advice", "catalog_service", "hint_for"]

_OWN_MODULES = "iceberg_ds."
_TYPES = {"rest": Service.REST, "hive": Service.HIVE, "sql": Service.SQL, "glue": Service.GLUE}
_SCHEMES = (("http", "rest"), ("thrift", "hive"), ("sqlite", "sql"), ("postgresql", "sql"))
_CREDENTIAL_CAUSES = (Cause.UNAUTHORIZED, Cause.FORBIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorHint:
    """Why a catalog or store could not be used.

    Attributes:
        cause: The reason.
        next_step: One or two sentences that say what to look at, with the names of properties.
    """

    cause: Cause
    next_step: str


def hint_for(error: BaseException, asked: Service | None = None) -> ErrorHint:
    """Return why `error` was raised and what to do.

    Args:
        error: What was raised, with its causes and contexts.
        asked: The service that was asked, or None if unknown; what the exception tells counts more.
    """
    chain = list(causes_of(error))
    cause = next((cause for tell in SYMPTOMS for link in chain if (cause := tell(link)) is not None), Cause.UNKNOWN)
    if cause in _CREDENTIAL_CAUSES and any("expired" in text_of(link).lower() for link in chain):
        cause = Cause.EXPIRED_CREDENTIALS
    return ErrorHint(cause=cause, next_step=next_step(cause, _service(chain, asked)))


def advice(error: BaseException, *, otherwise: str = "") -> str:
    """Return the next step after `error`, or `otherwise` if its cause is unknown; see `hint_for`."""
    found = hint_for(error)
    return otherwise if found.cause is Cause.UNKNOWN else found.next_step


def catalog_service(properties: Mapping[str, object]) -> Service | None:
    """Return the service behind a catalog with these properties, or None if they do not tell."""
    uri = str(properties.get("uri", "")).lower()
    kind = properties.get("type") or next((kind for scheme, kind in _SCHEMES if uri.startswith(scheme)), "")
    return _TYPES.get(str(kind).lower())


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what it was raised for, without the errors of this package, which only retell others."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if not type(link).__module__.startswith(_OWN_MODULES):
            yield link
        link = link.__cause__ or link.__context__


def _service(chain: list[BaseException], asked: Service | None) -> Service:
    sure = next((service for link in chain if (service := service_of(link)) is not None), None)
    likely = next((service for link in chain if (service := likely_service_of(link)) is not None), None)
    return sure or asked or likely or Service.UNKNOWN
