"""A table whose properties name code and hosts, and what notices if anybody believes them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from support.tables.sink import Sink

from iceberg_ds.table.locations import PROVIDER

HOST = "127.0.0.1"


class Canary:
    """A class that notes that somebody made an object of it, and fails."""

    calls: list[tuple[Any, ...]] = []  # noqa: RUF012  # of all objects

    def __init__(self, *arguments: Any) -> None:
        self.calls.append(arguments)
        raise AssertionError("code that a table names has run")


CANARY = f"{Canary.__module__}.{Canary.__name__}"


@dataclass(slots=True, kw_only=True)
class Listener:
    """A host that a table names.

    Attributes:
        address: Its address, with its port.
        received: The beginning of what each connection sent; empty for one that sent nothing.
    """

    address: str
    received: list[bytes] = field(default_factory=list)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table by which PyIceberg would send it credentials and rows."""
        url = f"http://{self.address}"
        return {
            "py-io-impl": CANARY,
            "py-catalog-impl": CANARY,
            "uri": url,
            "token": "of-the-table",
            "s3.endpoint": url,
            "s3.proxy-uri": url,
            "s3.signer": CANARY,
            "s3.access-key-id": "of-the-table",
            "s3.secret-access-key": "of-the-table",
            "client.region": "of-the-table",
            "client.refresh-credentials-enabled": "true",
            "client.refresh-credentials-endpoint": url,
            "gcs.service.host": url,
            "gcs.oauth2.token": "of-the-table",
            "gcs.oauth2.refresh-credentials-endpoint": url,
            "adls.account-host": self.address,
            "adls.connection-string": f"BlobEndpoint={url}",
            "hdfs.host": HOST,
            "hdfs.port": self.address.rpartition(":")[2],
            "hf.endpoint": url,
            "oss.endpoint": url,
            # Other spellings, which a list of forbidden names would let through.
            "PY-IO-IMPL": CANARY,
            " py-io-impl ": CANARY,
            "S3.Endpoint": url,
            " s3.endpoint": url,
            "catalog.s3.endpoint": url,
            "table-property.s3.endpoint": url,
            "fs.s3a.endpoint": url,
            "rest.authorization-url": url,
            "oauth2-server-uri": url,
            f" {PROVIDER}": CANARY,
            PROVIDER.upper(): CANARY,
        }


@contextmanager
def listening() -> Iterator[Listener]:
    """Listen to all who come, and hang up."""
    with socket.create_server((HOST, 0)) as server:
        listener = Listener(address=f"{HOST}:{server.getsockname()[1]}")

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # the end of the test
                    return
                with connection:
                    connection.settimeout(1)
                    try:
                        listener.received.append(connection.recv(4096))
                    except OSError:
                        listener.received.append(b"")

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join(timeout=5)


def give_properties(sink: Sink, **properties: str) -> None:
    """Set properties of the table, as anybody may who can alter it; `PROVIDER` under the name `provider`."""
    named = {PROVIDER if key == "provider" else key: text for key, text in properties.items()}
    table = sink.catalog.load_table(sink.options.table)
    unmoved = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    sink.catalog.send(table, unmoved, (SetPropertiesUpdate(updates=named),))
