"""A table in a real catalog and a real store names code and hosts: nobody believes it, and its rows land all the same.

`tests/unit/catalog/test_hostile_tables.py` has the rest, which needs no server.
"""

from __future__ import annotations

import secrets

from support.services.servers import CatalogService
from support.tables.hostile_tables import Canary, give_properties, listening
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options


def test_rows_of_a_hostile_table_go_to_the_users_store(service: CatalogService) -> None:
    """Whoever may set a table's properties would get the user's credentials and rows."""
    options = parse_options({**service.options, "table": f"hostile_{secrets.token_hex(4)}.t"})
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    sink.append(1)
    with listening() as listener:
        give_properties(sink, **listener.properties)
        sink.append(2)
        sink.overwrite([{"id": 1, "name": "again"}], replace_where="id = 1")
        ids = sink.ids()

    assert ids == [1, 2]
    assert listener.received == []
    assert Canary.calls == []
