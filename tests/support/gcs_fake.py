"""A small Google Cloud Storage on loopback: the part of its JSON interface that gcsfs uses for objects.

Written from Google's description of that interface; no proof of how the real store behaves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit


class FakeGcs:
    """The store.

    Attributes:
        objects: Bytes of each object, by bucket and key.
        sessions: Bytes so far of each resumable upload that is neither finished nor cancelled, by its number.
        requests: Method and kind of each request.
        tokens: The bearer tokens that were sent.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.sessions: dict[str, tuple[tuple[str, str], bytearray]] = {}
        self.requests: list[str] = []
        self.tokens: set[str] = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of it."""
        return {"gcs.service.host": self.endpoint, "gcs.oauth2.token": "of-the-user", "gcs.project-id": "p"}


@contextmanager
def serve_gcs() -> Iterator[FakeGcs]:
    """Serve the store until the end of the block."""
    fake = FakeGcs()
    thread = Thread(target=fake.server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        thread.join()
        fake.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: FakeGcs
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        url, query, body = self._taken()
        bucket = re.search(r"/b/([^/]+)/o", url)
        if "upload_id" in query:
            self._continue(query["upload_id"], body)
        elif bucket is None:
            self._answer(404, {"error": {"code": 404, "message": f"unknown: {url}"}})
        elif query.get("uploadType") == "resumable":
            self._note("POST resumable")
            number = str(len(self.store.sessions) + len(self.store.requests))
            self.store.sessions[number] = ((bucket.group(1), json.loads(body)["name"]), bytearray())
            self._answer(200, {}, Location=f"{self.store.endpoint}/upload/x?uploadType=resumable&upload_id={number}")
        else:
            self._note("POST multipart")
            _, description, content, _ = body.split(b"--==0==", 3)
            name = json.loads(description.partition(b"\n\n")[2])["name"]
            self._finish((bucket.group(1), name), content.partition(b"\n\n")[2][:-1])

    def do_GET(self) -> None:
        url, query, _ = self._taken()
        found = re.search(r"/b/([^/]+)/o(?:/(.+))?$", url)
        place = (found.group(1), unquote(found.group(2) or "")) if found else ("", "")
        if found is not None and found.group(2) is None:
            self._note("GET list")
            self._answer(200, {"items": [], "prefixes": []})
        elif place not in self.store.objects:
            self._note("GET missing")
            self._answer(404, {"error": {"code": 404, "message": "No such object"}})
        elif query.get("alt") == "media" or "/download/" in url:
            self._note("GET media")
            self._send_bytes(self.store.objects[place])
        else:
            self._note("GET description")
            self._answer(200, _description(place, self.store.objects[place]))

    def do_DELETE(self) -> None:
        url, query, _ = self._taken()
        if "upload_id" in query:
            self._note("DELETE session")
            self.store.sessions.pop(query["upload_id"], None)
            self._answer(204, None)
            return
        self._note("DELETE object")
        found = re.search(r"/b/([^/]+)/o/(.+)$", url)
        place = (found.group(1), unquote(found.group(2))) if found else ("", "")
        self._answer(404 if self.store.objects.pop(place, None) is None else 204, None)

    def _taken(self) -> tuple[str, dict[str, str], bytes]:
        self.store.tokens.add(self.headers.get("Authorization", "").removeprefix("Bearer "))
        parts = urlsplit(self.path)
        query = {key: found[0] for key, found in parse_qs(parts.query).items()}
        return parts.path, query, self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _continue(self, number: str, body: bytes) -> None:
        self._note("POST part")
        place, so_far = self.store.sessions[number]
        so_far += body
        if self.headers["Content-Range"].endswith("/*"):
            self._answer(308, None, Range=f"bytes=0-{len(so_far) - 1}")
        else:
            del self.store.sessions[number]
            self._finish(place, bytes(so_far))

    def _finish(self, place: tuple[str, str], data: bytes) -> None:
        if "ifGenerationMatch=0" in self.path and place in self.store.objects:
            self._answer(412, {"error": {"code": 412, "message": "conditionNotMet"}})
            return
        self.store.objects[place] = data
        self._answer(200, _description(place, data))

    def _send_bytes(self, data: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(asked.group(1)), int(asked.group(2) or len(data) - 1)) if asked else (0, len(data) - 1)
        part = data[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)

    def _answer(self, status: int, content: object, **headers: str) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _note(self, request: str) -> None:
        self.store.requests.append(request)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _description(place: tuple[str, str], data: bytes) -> dict[str, str]:
    bucket, name = place
    return {"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(data)), "generation": "1"}
