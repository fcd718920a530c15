"""Sinks that write through a REST catalog, the recording one for most."""

from __future__ import annotations

from itertools import count

from support.catalogs.rest_fake import RestFake
from support.tables.sink import NAME, Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

_names = count()

# For servers that hang; others may take their time on a busy machine.
QUICK = {"rest.client.socket-timeout-ms": "1000", "rest.client.connection-timeout-ms": "1000"}


def sink_of(fake: RestFake, **properties: str) -> Sink:
    """Return what writes to table `db.t` of the catalog, over a connection of its own."""
    return rest_sink({"uri": fake.uri, **{key.replace("__", "."): value for key, value in properties.items()}})


def rest_sink(properties: dict[str, str], table: str = NAME) -> Sink:
    """Return what writes to a table of the catalog with these properties, over a connection of its own."""
    raw = {f"catalog.{key}": value for key, value in {"type": "rest", **properties}.items()}
    options = parse_options({"table": table, "catalog": f"rest{next(_names)}", **raw})
    return Sink(catalog=connect(catalog_settings(options)), options=options)
