"""The body of a request to S3, sent piece by piece, so that a store that stops taking it is found out.

aiohttp bounds the time of connecting and of waiting for an answer, and not of sending: a store that no longer reads
would be waited for as long as the connection lasts. A bound on the whole request would cut off slow lines, so the time
for each piece is bounded, here and not by `TCP_USER_TIMEOUT`, which only Linux has. Imports aiohttp, and no other
module of this room.
"""

from __future__ import annotations

import asyncio
import inspect
from io import BytesIO
from typing import TYPE_CHECKING, Any

from aiohttp import ServerTimeoutError
from aiohttp.payload import Payload

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

_PIECE_BYTES = 256 * 1024


class PacedBody(Payload):
    """A body that the store has to take in pieces of 256 KiB, each within a time.

    Args:
        body: Bytes, or a stream of them that can be read from its beginning again.
        patience_s: Seconds for each 256 KiB, what is buffered before them included.
    """

    def __init__(self, body: Any, patience_s: float) -> None:  # noqa: ANN401  # botocore's streams share no type
        super().__init__(BytesIO(body) if isinstance(body, (bytes, bytearray)) else body)
        self._patience_s = patience_s

    def seek(self, position: int) -> object:
        """Go to the beginning, as botocore does before it retries a request."""
        return self._value.seek(position)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError: a body is bytes."""
        raise TypeError(f"A body is not {encoding} ({errors}).")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body from its beginning.

        Raises:
            ServerTimeoutError: The store took nothing for too long; botocore retries the request.
        """
        self.seek(0)  # a redirected request sends it again
        while piece := await self._read():
            try:
                await asyncio.wait_for(_send(writer, piece), self._patience_s)
            except asyncio.TimeoutError:
                if writer.transport is not None:
                    writer.transport.abort()  # closing would wait for the store to take what is buffered
                raise ServerTimeoutError(f"The store took nothing for {self._patience_s} s") from None

    async def _read(self) -> bytes:
        piece = self._value.read(_PIECE_BYTES)  # the stream that adds checksums is asynchronous
        return bytes(await piece if inspect.isawaitable(piece) else piece)


async def _send(writer: AbstractStreamWriter, piece: bytes) -> None:
    await writer.write(piece)
    await writer.drain()
