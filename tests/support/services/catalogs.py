"""The real catalogs that tests write through, over the S3 server; each function starts one and ends it with its block.

Glue is moto's, which is no proof of what Amazon's does; see `moto_server.py` for what it enforces.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from support.services.postgres import serve_database
from support.services.server_process import HOST, Server, accepts, free_port
from support.services.servers import (
    ACCESS_KEY,
    QUICK_JAVA,
    REGION,
    SECRET_KEY,
    TESTS,
    CatalogService,
    ObjectStore,
    install_services,
    java,
    peer_s3,
    spark_jars,
)


@contextmanager
def serve_rest_catalog(folder: Path, store: ObjectStore) -> Iterator[CatalogService]:
    """Serve Iceberg's REST reference server, which keeps its pointers in SQLite."""
    warehouse = f"{store.bucket('rest')}/warehouse"
    with serve_rest_reference(folder, warehouse, peer_s3(store)) as uri:
        yield _catalog("rest", store, {"type": "rest", "uri": uri, "warehouse": warehouse})


@contextmanager
def serve_rest_reference(folder: Path, warehouse: str, storage: Mapping[str, str]) -> Iterator[str]:
    """Serve the reference server with tables in `warehouse`, which it reaches by `storage`; yield its address."""
    port = free_port()
    uri = f"http://{HOST}:{port}"
    properties = {
        "rest.port": str(port),
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:file:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
        **storage,
    }
    jars = [*(install_services() / "rest").glob("*.jar"), *spark_jars("hadoop-client-*.jar")]
    path = os.pathsep.join(str(jar) for jar in jars)
    server = Server(
        name="Iceberg's REST server",
        command=[java(), *QUICK_JAVA, "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"],
        log=folder / "server.log",
        is_ready=lambda: _answers(f"{uri}/v1/config"),
        environment={**{_variable(key): value for key, value in properties.items()}, "AWS_REGION": REGION},
    )
    with server.running():
        yield uri


def _variable(key: str) -> str:
    """Return the environment variable by which the reference server takes a property."""
    return "CATALOG_" + key.replace("-", "__").replace(".", "_").upper()


@contextmanager
def serve_nessie(folder: Path, store: ObjectStore) -> Iterator[CatalogService]:
    """Serve Nessie, which keeps its versions in memory."""
    port, health = free_port(), free_port()
    location = f"{store.bucket('nessie')}/warehouse"
    s3 = "nessie.catalog.service.s3.default-options"
    properties = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": str(port),
        "quarkus.management.host": HOST,
        "quarkus.management.port": str(health),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": location,
        f"{s3}.endpoint": store.endpoint,
        f"{s3}.path-style-access": "true",
        f"{s3}.region": REGION,
        # Clients of a later time than Nessie's look for its signer at another path.
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": store.access_key,
        "store.secret": store.secret_key,
    }
    services = install_services()
    (runner,) = (services / "nessie").glob("*-runner.jar")
    settings = [f"-D{key}={value}" for key, value in properties.items()]
    uri = f"http://{HOST}:{port}/iceberg"
    server = Server(
        name="Nessie",
        command=[services / "bin" / "java", *QUICK_JAVA, *settings, "-jar", runner],
        log=folder / "server.log",
        is_ready=lambda: _answers(f"{uri}/v1/config"),
    )
    with server.running():
        yield _catalog("nessie", store, {"type": "rest", "uri": uri, "warehouse": "warehouse"})


@contextmanager
def serve_hive_metastore(folder: Path, store: ObjectStore) -> Iterator[CatalogService]:
    """Serve the Hive Metastore from the jars inside PySpark."""
    warehouse = f"{store.bucket('hive')}/warehouse"
    port = free_port()
    program = Path(__file__).with_name("hive_metastore_server.py")
    server = Server(
        name="The Hive Metastore",
        command=[sys.executable, program, str(port), folder, warehouse, store.folder],
        log=folder / "server.log",
        is_ready=lambda: accepts(port),
        environment={"PYTHONPATH": str(TESTS)},
    )
    address = {"type": "hive", "uri": f"thrift://{HOST}:{port}", "warehouse": warehouse}
    with server.running():
        catalog = _catalog("hive", store, address)
        yield CatalogService(
            name=catalog.name,
            properties={**catalog.properties, "hive.hive2-compatible": "true"},
            peer_properties=catalog.peer_properties,
        )


@contextmanager
def serve_postgres(folder: Path, store: ObjectStore) -> Iterator[CatalogService]:
    """Serve PostgreSQL as the database of a SQL catalog."""
    warehouse = f"{store.bucket('postgres')}/warehouse"
    with serve_database(folder) as database:
        address = f"{HOST}:{database.port}/{database.name}"
        yield CatalogService(
            name="postgres",
            properties={
                "type": "sql",
                "uri": f"postgresql+psycopg2://{database.user}:{database.password}@{address}",
                "warehouse": warehouse,
                **store.properties,
            },
            peer_properties={
                "type": "jdbc",
                "uri": f"jdbc:postgresql://{address}",
                "jdbc.user": database.user,
                "jdbc.password": database.password,
                "jdbc.schema-version": "V1",
                "warehouse": warehouse,
                **peer_s3(store),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moto:
    """A running moto, which plays Glue, STS and S3.

    Attributes:
        endpoint: Its address.
    """

    endpoint: str


@contextmanager
def serve_moto(folder: Path) -> Iterator[Moto]:
    """Serve moto with the one check added that its Glue lacks."""
    port = free_port()
    server = Server(
        name="moto",
        command=[sys.executable, Path(__file__).with_name("moto_server.py"), "--host", HOST, "--port", str(port)],
        log=folder / "server.log",
        is_ready=lambda: accepts(port),
    )
    with server.running():
        yield Moto(endpoint=f"http://{HOST}:{port}")


def glue_catalog(moto: Moto, store: ObjectStore) -> CatalogService:
    """Return moto's Glue as the catalog of tables in the S3 server."""
    warehouse = f"{store.bucket('glue')}/warehouse"
    return CatalogService(
        name="glue",
        properties={
            "type": "glue",
            "glue.endpoint": moto.endpoint,
            "glue.region": REGION,
            "glue.access-key-id": ACCESS_KEY,
            "glue.secret-access-key": SECRET_KEY,
            "warehouse": warehouse,
            **store.properties,
        },
        peer_properties={"type": "glue", "glue.endpoint": moto.endpoint, "warehouse": warehouse, **peer_s3(store)},
    )


def sqlite_catalog(folder: Path, store: ObjectStore) -> CatalogService:
    """Return a SQL catalog in a SQLite file, of tables in the S3 server."""
    warehouse = f"{store.bucket('sqlite')}/warehouse"
    return CatalogService(
        name="sqlite",
        properties={
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
            "warehouse": warehouse,
            **store.properties,
        },
        peer_properties={
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
            **peer_s3(store),
        },
    )


def _catalog(name: str, store: ObjectStore, address: dict[str, str]) -> CatalogService:
    """Return a catalog whose address the sink and the Spark runtime write in the same way."""
    return CatalogService(
        name=name, properties={**address, **store.properties}, peer_properties={**address, **peer_s3(store)}
    )


def _answers(address: str) -> bool:
    """Return whether a web server answers with success."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310  # an address of ours
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
