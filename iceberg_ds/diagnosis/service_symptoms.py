"""Pure: which service one exception of another library comes from.

The libraries need not be installed: exceptions are told by their modules, by what they carry and by their texts.
"""

from __future__ import annotations

import errno
import re

from iceberg_ds.diagnosis.causes import Service
from iceberg_ds.diagnosis.symptoms import module_of

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
    """Return the service that `error` surely comes from, None if it could be several."""
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
    """Return the service that the library of `error` mostly speaks with."""
    return next((service for modules, service in _LIBRARIES if module_of(error).startswith(modules)), None)
