"""The words of a diagnosis: why a service could not be used, and which service it was. Values only."""

from __future__ import annotations

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
    MISSING_PACKAGE = "a package is not installed"
    CONFIGURATION = "a setting is missing or malformed"
    UNKNOWN = "none of the known causes"


# What nobody but a person mends: to try again is to fail again.
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
        Cause.MISSING_PACKAGE,
        Cause.CONFIGURATION,
    }
)


class Service(Enum):
    """What was asked; the value is how texts call it."""

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
