"""Real servers that speak as Google Cloud Storage and as Azure, and a bucket or a container there for one test.

Each stands behind a proxy that notes what is asked and lets requests fail on demand. The server of Google's interface
lets everybody in; Azure's checks signatures and tokens.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import urllib.request
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from pyiceberg.io import FileIO
from support.faults.kinds import Kind, Way
from support.faults.proxy import FaultProxy, WireFault, serve_faults
from support.services.server_process import HOST, Server, accepts, free_port
from support.services.servers import install_services
from support.services.tls_files import TlsFiles

from iceberg_ds.io.files import ObjectIO

ACCOUNT = "lake"
ACCOUNT_KEY = b64encode(b"the key of the account of the tests").decode()
# Azure's name of the account; nobody looks it up.
AZURE_HOST = f"{ACCOUNT}.dfs.core.windows.net"
BLOCK = 8 * 1024 * 1024
_EVERY = frozenset(range(1, 1000))


@dataclass(frozen=True, kw_only=True)
class CloudBucket(ABC):
    """A bucket or a container that one test has to itself.

    Attributes:
        name: Its name.
        proxy: The proxy before the server.
    """

    name: str
    proxy: FaultProxy
    # What a request is for, and how its method and target read; `{0}` is the bucket's name.
    REQUESTS: ClassVar[Mapping[str, str]]

    @property
    @abstractmethod
    def location(self) -> str:
        """Its location."""

    @property
    @abstractmethod
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of its owner, through the proxy."""

    @property
    def properties_of_fsspec(self) -> dict[str, str]:
        """Those that PyIceberg's own FileIO needs beside them."""
        return {}

    @abstractmethod
    def object_keys(self) -> list[str]:
        """Return the keys of all objects; asked behind the proxy's back."""

    def io(self, **properties: str) -> FileIO:
        """Return the owner's door to files, with some properties more."""
        return ObjectIO({**self.properties, **properties})

    def requests(self) -> list[str]:
        """Return what has been asked for this bucket since the last `forget`, by the names in `REQUESTS`."""
        asked = [str(request) for request, _ in self.proxy.requests]
        mine = [text for text in asked if re.search(rf"/{self.name}(/|\?|$)", text)]
        return [self._kind_of(text) for text in mine]

    def forget(self) -> None:
        """Count requests anew, and let none fail."""
        self.proxy.begin()

    def refuse(self, *kinds: str, status: int = 403) -> None:
        """Answer all requests of these kinds with a refusal; they are not carried out."""
        how = Kind(way=Way.STATUS, status=status)
        self.proxy.begin(*(WireFault(request=self._pattern(kind), numbers=_EVERY, kind=how) for kind in kinds))

    def _pattern(self, kind: str) -> str:
        return self.REQUESTS[kind].format(re.escape(self.name))

    def _kind_of(self, text: str) -> str:
        return next((kind for kind in self.REQUESTS if re.fullmatch(self._pattern(kind), text)), text)


class GcsBucket(CloudBucket):
    """A bucket of Google Cloud Storage's server."""

    REQUESTS: ClassVar = {
        "write": r"POST /upload/storage/v1/b/{0}/o\?(?=.*uploadType=multipart).*",
        "part": r"POST /upload/storage/v1/b/{0}/o\?(?=.*upload_id=).*",
        "begin": r"POST /upload/storage/v1/b/{0}/o\?(?=.*uploadType=resumable).*",
        "cancel": r"DELETE /upload/storage/v1/b/{0}/o\?(?=.*upload_id=).*",
        "read": r"GET /download/storage/v1/b/{0}/o/.*",
        "look": r"GET /storage/v1/b/{0}/o/.*",
        "list": r"GET /storage/v1/b/{0}/o(\?.*)?",
        "delete": r"DELETE /storage/v1/b/{0}/o/.*",
    }

    @property
    def location(self) -> str:
        """Its location."""
        return f"gs://{self.name}"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of its owner, through the proxy."""
        return {"gcs.service.host": self.proxy.uri, "gcs.oauth2.token": "of-the-owner", "gcs.project-id": "tests"}

    @property
    def properties_of_fsspec(self) -> dict[str, str]:
        """Those that PyIceberg's own FileIO needs beside them."""
        return {"gcs.oauth2.token": "anon"}  # any other one gcsfs has checked by a server of Google's

    def object_keys(self) -> list[str]:
        """Return the keys of all objects; asked behind the proxy's back."""
        found = _call("GET", f"{self.proxy.upstream}/storage/v1/b/{self.name}/o")
        return [str(entry["name"]) for entry in found.get("items", [])]


class AzureContainer(CloudBucket):
    """A container of Azure's server."""

    REQUESTS: ClassVar = {
        "part": rf"PUT /{ACCOUNT}/{{0}}/.*[?&]comp=block(&.*)?",
        "finish": rf"PUT /{ACCOUNT}/{{0}}/.*[?&]comp=blocklist(&.*)?",
        "write": rf"PUT /{ACCOUNT}/{{0}}/.*",
        "list": rf"GET /{ACCOUNT}/{{0}}\?(?=.*comp=list).*",
        "read": rf"GET /{ACCOUNT}/{{0}}/.*",
        "look": rf"HEAD /{ACCOUNT}/{{0}}/.*",
        "delete": rf"DELETE /{ACCOUNT}/{{0}}/.*",
    }

    @property
    def location(self) -> str:
        """Its location."""
        return f"abfss://{self.name}@{AZURE_HOST}"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of its owner, through the proxy."""
        return {"adls.connection-string": connection_string(self.proxy.uri)}

    def object_keys(self) -> list[str]:
        """Return the keys of all objects; asked behind the proxy's back."""
        with azure_client(self.proxy.upstream) as client:
            return [str(found.name) for found in client.get_container_client(self.name).list_blobs()]


@dataclass(frozen=True, kw_only=True)
class CloudStore:
    """A running server behind its proxy.

    Attributes:
        proxy: The proxy.
    """

    proxy: FaultProxy

    def bucket(self, name: str) -> CloudBucket:
        """Make a bucket."""
        raise NotImplementedError


class Gcs(CloudStore):
    """A server that speaks as Google Cloud Storage."""

    def bucket(self, name: str) -> GcsBucket:
        """Make a bucket."""
        _call("POST", f"{self.proxy.upstream}/storage/v1/b?project=tests", {"name": name})
        return GcsBucket(name=name, proxy=self.proxy)


class Azure(CloudStore):
    """A server that speaks as Azure's blobs."""

    def bucket(self, name: str) -> AzureContainer:
        """Make a container."""
        with azure_client(self.proxy.upstream) as client:
            client.create_container(name)
        return AzureContainer(name=name, proxy=self.proxy)


@contextmanager
def serve_gcs(folder: Path) -> Iterator[Gcs]:
    """Serve Google Cloud Storage's interface from memory."""
    port = free_port()
    uri = f"http://{HOST}:{port}"
    program = install_services() / "bin" / "fake-gcs-server"
    server = Server(
        name="The server of Google Cloud Storage",
        command=[program, "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"],
        log=folder / "server.log",
        is_ready=lambda: accepts(port),
    )
    with server.running(), serve_faults(uri) as proxy:
        yield Gcs(proxy=proxy)


@contextmanager
def serve_azure(folder: Path) -> Iterator[Azure]:
    """Serve Azure's blobs from memory."""
    with serve_blobs(folder) as uri, serve_faults(uri) as proxy:
        yield Azure(proxy=proxy)


@contextmanager
def serve_blobs(folder: Path, tls: TlsFiles | None = None) -> Iterator[str]:
    """Serve Azure's blobs from memory, and yield the address.

    Args:
        folder: For its log.
        tls: Certificates, None for plain HTTP.
    """
    port = free_port()
    program = install_services() / "bin" / "azurite-blob"
    certificates = [] if tls is None else ["--cert", tls.server, "--key", tls.server_key]
    place = ["--blobHost", HOST, "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    server = Server(
        name="Azure's server",
        command=[program, *place, "--skipApiVersionCheck", "--disableTelemetry", *certificates],
        log=folder / "server.log",
        is_ready=lambda: accepts(port),
        environment={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"},
    )
    with server.running():
        yield f"{'http' if tls is None else 'https'}://{HOST}:{port}"


def connection_string(uri: str) -> str:
    """Return what leads to the account at an address."""
    scheme = uri.partition("://")[0]
    named = {
        "DefaultEndpointsProtocol": scheme,
        "AccountName": ACCOUNT,
        "AccountKey": ACCOUNT_KEY,
        "BlobEndpoint": f"{uri}/{ACCOUNT}",
    }
    return ";".join(f"{name}={text}" for name, text in named.items())


def azure_client(uri: str, **options: Any) -> BlobServiceClient:
    """Return the account owner's client."""
    return BlobServiceClient.from_connection_string(connection_string(uri), **options)


def container_token(container: str, ends_at_ms: int, rights: str = "racwdl") -> str:
    """Return a token for a container that is good until then."""
    return str(
        generate_container_sas(
            ACCOUNT,
            container,
            account_key=ACCOUNT_KEY,
            permission=ContainerSasPermissions.from_string(rights),
            expiry=dt.datetime.fromtimestamp(ends_at_ms / 1000, tz=dt.timezone.utc),
        )
    )


def _call(method: str, url: str, content: object = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310  # ours
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # ours
        return json.loads(answer.read())
