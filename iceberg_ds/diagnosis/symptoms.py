"""Pure: why one exception of another library was raised.

The libraries need not be installed: exceptions are told by the names of their classes and modules, by the codes
that they carry and, where they carry none, by their texts.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Callable, Mapping

from iceberg_ds.diagnosis.causes import Cause

# What stores and AWS services call an error.
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
# They say less than what they were raised for.
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
    (r"readonly database|read-only", Cause.READ_ONLY),
    (r"unexpected JSON payload|Invalid JSON|RESTError 404", Cause.NOT_THIS_SERVICE),
)
# What catalogs say of a warehouse that they do not know, whatever the status.
_WAREHOUSE = re.compile(
    r"warehouse.*(not ?found|unknown|not exist|not known)|(unknown|find|no such) warehouse", re.IGNORECASE
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in _TEXTS)
# Whose texts are read: an error of a program would be taken for one of a service if it spoke of a time-out.
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
    """Return what a service says in the text of `error`, empty if it is no error of a service.

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


# From what tells most to what tells least.
SYMPTOMS: tuple[Callable[[BaseException], Cause | None], ...] = (
    _by_warehouse,
    _by_code,
    _by_class,
    _by_text,
    _by_status,
    _by_errno,
    _by_general_class,
)
