"""Bodies of requests to S3, which the store takes at its own pace, or not at all."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any
from unittest.mock import Mock

import pytest
from aiobotocore.httpchecksum import AioAwsChunkedWrapper
from aiohttp import ServerTimeoutError
from aiohttp.abc import AbstractStreamWriter
from botocore.httpchecksum import Crc32Checksum

from iceberg_ds.io.s3_session import PacedBody

DATA = bytes(range(256)) * 16 * 1024  # 4 MiB: 16 pieces
PATIENCE_S = 0.5


class Line(AbstractStreamWriter):
    """A connection.

    Args:
        takes_s: How long it takes 256 KiB.
    """

    def __init__(self, takes_s: float) -> None:
        self.taken = b""
        self.opened = Mock()
        self._takes_s = takes_s
        self._buffered_bytes = 0

    @property
    def transport(self) -> Any:
        """What is under it."""
        return self.opened

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Buffer a piece."""
        self.taken += chunk
        self._buffered_bytes += len(chunk)

    async def drain(self) -> None:
        """Send what is buffered."""
        waited_s = self._takes_s * self._buffered_bytes / (256 * 1024)
        self._buffered_bytes = 0
        await asyncio.sleep(waited_s)

    async def write_eof(self, chunk: bytes = b"") -> None:
        """End what was sent."""

    async def write_headers(self, status_line: str, headers: object) -> None:
        """Send nothing."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Compress nothing."""

    def enable_chunking(self) -> None:
        """Send as it comes."""


def send(body: object, line: Line) -> bytes:
    """Send a body over a line; return what the line took."""
    asyncio.run(PacedBody(body, PATIENCE_S).write(line))
    return line.taken


@pytest.mark.parametrize("body", [DATA, BytesIO(DATA)], ids=["bytes", "stream"])
def test_slow_line_that_moves_is_not_cut_off(body: object) -> None:
    """A large file on a slow line would never arrive, however often it is sent again."""
    line = Line(takes_s=PATIENCE_S / 5)

    assert send(body, line) == DATA
    line.opened.abort.assert_not_called()


def test_line_that_takes_nothing_is_cut_off() -> None:
    """A task would wait for ever, and each attempt would keep its connection and what is buffered."""
    line = Line(takes_s=60)

    with pytest.raises(ServerTimeoutError, match=r"The store took nothing for 0\.5 s"):
        send(DATA, line)

    line.opened.abort.assert_called_once_with()


def test_body_is_sent_from_its_beginning_each_time() -> None:
    """A file whose request was redirected or retried would lack its beginning."""
    body = BytesIO(DATA)
    body.seek(100)

    assert [send(body, Line(takes_s=0)) == DATA for _ in range(2)] == [True, True]


def test_checksum_follows_a_body_that_is_sent_over_tls() -> None:
    """S3 would refuse every file, because botocore's stream with a checksum is read in another way."""
    data = DATA[: 640 * 1024]  # one chunk
    body = AioAwsChunkedWrapper(BytesIO(data), Crc32Checksum, "x-amz-checksum-crc32")
    sent = send(body, Line(takes_s=0))

    assert sent.startswith(b"%x\r\n" % len(data) + data)
    assert b"0\r\nx-amz-checksum-crc32:" in sent
    assert send(body, Line(takes_s=0)) == sent
