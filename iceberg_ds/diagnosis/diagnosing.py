"""`diagnose`: what an exception of a catalog or a store means, and what its reader is to do about it.

Pure. It looks at the whole chain of exceptions, because the outer ones say what failed and the inner ones why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from iceberg_ds.diagnosis.causes import Cause, Service
from iceberg_ds.diagnosis.next_steps import next_step
from iceberg_ds.diagnosis.service_symptoms import likely_service_of, service_of
from iceberg_ds.diagnosis.symptoms import SYMPTOMS, text_of

__all__ = ["Cause", "Diagnosis", "Service", "advice", "catalog_service", "diagnose"]

_OWN_MODULES = "iceberg_ds."
_TYPES = {"rest": Service.REST, "hive": Service.HIVE, "sql": Service.SQL, "glue": Service.GLUE}
_SCHEMES = (("http", "rest"), ("thrift", "hive"), ("sqlite", "sql"), ("postgresql", "sql"))
_CREDENTIAL_CAUSES = (Cause.UNAUTHORIZED, Cause.FORBIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a catalog or store could not be used.

    Attributes:
        cause: The reason.
        next_step: One or two sentences that say what to look at, with the names of properties.
        service: Which service it was, UNKNOWN if the exception does not tell.
    """

    cause: Cause
    next_step: str
    service: Service = Service.UNKNOWN


def diagnose(error: BaseException, asked: Service | None = None) -> Diagnosis:
    """Return why `error` was raised and what to do.

    Args:
        error: What was raised, with its causes and contexts.
        asked: The service that was asked, None if that is not known; what the exception tells counts more.
    """
    chain = list(_chain(error))
    service = _service(chain, asked)
    cause = next((cause for tell in SYMPTOMS for link in chain if (cause := tell(link)) is not None), Cause.UNKNOWN)
    if cause in _CREDENTIAL_CAUSES and any("expired" in text_of(link).lower() for link in chain):
        cause = Cause.EXPIRED_CREDENTIALS
    return Diagnosis(cause=cause, next_step=next_step(cause, service), service=service)


def advice(error: BaseException, asked: Service | None = None, *, otherwise: str = "") -> str:
    """Return the next step after `error`, or `otherwise` if its cause is not known; see `diagnose`."""
    found = diagnose(error, asked)
    return otherwise if found.cause is Cause.UNKNOWN else found.next_step


def catalog_service(properties: Mapping[str, object]) -> Service | None:
    """Return the service behind a catalog with these properties, None if they do not tell."""
    uri = str(properties.get("uri", "")).lower()
    kind = properties.get("type") or next((kind for scheme, kind in _SCHEMES if uri.startswith(scheme)), "")
    return _TYPES.get(str(kind).lower())


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what it was raised for, without the errors of this package, which only retell."""
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
