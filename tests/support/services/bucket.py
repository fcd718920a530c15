"""A bucket of the S3 server that one test has to itself: its objects, its uploads under way, and what it was asked."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from botocore.session import Session
from pyiceberg.io import FileIO
from support.services.servers import ObjectStore

from iceberg_ds.io.files import ObjectIO

# The server writes a request's line after its answer, and another request may have its own line sooner.
_LATE_LINES_S = 0.05
_LOG_TIMEOUT_S = 30
_LINE = re.compile(r"\| vgw \|\s*(\d+) \|[^|]*\|[^|]*\|\s*(\w+)\s*\|\s*(/\S*)\s*\|[^|]*\|\s*(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket.

    Attributes:
        store: The server.
        name: Its name.
    """

    store: ObjectStore
    name: str

    @property
    def location(self) -> str:
        """Its location."""
        return self.store.bucket(self.name)

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of its owner."""
        return self.store.properties

    @property
    def client(self) -> Any:
        """The owner's client."""
        return _client(tuple(self.properties.items()))

    def io(self, **properties: str) -> FileIO:
        """Return the owner's door to files, with some properties more."""
        return ObjectIO({**self.properties, **properties})

    def object_keys(self) -> list[str]:
        """Return the keys of all objects."""
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def pending_uploads(self) -> list[str]:
        """Return the keys of all uploads that were begun and neither completed nor aborted."""
        answer = self.client.list_multipart_uploads(Bucket=self.name)
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    def requests(self) -> list[str]:
        """Return every request so far for an object or for the bucket, in the order of the server's answers.

        They read like `PUT`, `HEAD`, `PUT part`, `POST uploads` and `GET list`.
        """
        return [request for request, _ in self.traffic()]

    def traffic(self) -> list[tuple[str, str]]:
        """Return the same, each with the key of the object that it was for, empty if for the bucket."""
        marker = f"end-of-requests-{time.monotonic_ns()}"
        self.client.delete_object(Bucket=self.name, Key=marker)  # what the log shows before it is complete
        deadline = time.monotonic() + _LOG_TIMEOUT_S
        while marker not in self._log() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(_LATE_LINES_S)
        log = self._log()
        asked = []
        for _, method, path, query in _LINE.findall(log):
            bucket, _, key = path.lstrip("/").partition("/")
            if bucket == self.name and "end-of-requests-" not in key:
                asked.append((_described(method, key, query), key))
        return asked

    def _log(self) -> str:
        return (self.store.folder.parent / "server.log").read_text(errors="replace")


def s3_client(properties: Mapping[str, str]) -> Any:
    """Return a client of Amazon's own library, which the sink has nothing to do with."""
    return Session().create_client(
        "s3",
        region_name=properties.get("s3.region", "us-east-1"),
        endpoint_url=properties["s3.endpoint"],
        aws_access_key_id=properties["s3.access-key-id"],
        aws_secret_access_key=properties["s3.secret-access-key"],
    )


@cache
def _client(properties: tuple[tuple[str, str], ...]) -> Any:
    return s3_client(dict(properties))


def _described(method: str, key: str, query: str) -> str:
    words = [name for name in ("uploads", "delete", "partNumber", "uploadId", "list-type") if name in query]
    names = {"partNumber": "part", "uploadId": "upload", "list-type": "list"}
    what = names.get(words[0], words[0]) if words else ("" if key else "bucket")
    return f"{method} {what}".strip()
