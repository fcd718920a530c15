"""Passes connections on to a server as if it were far away: each answer comes later by a time to travel.

    python distant_store.py TARGET_PORT MILLISECONDS

Prints its own port on loopback, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

_CHUNK_BYTES = 1 << 20


class _Travel:
    """One connection: an answer begins `delay_s` after the last byte of what it answers."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._has_asked = False

    async def ask(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on what the client sends."""
        while data := await source.read(_CHUNK_BYTES):
            self._has_asked = True
            target.write(data)
            await target.drain()
        target.close()

    async def answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on what the server sends, later."""
        while data := await source.read(_CHUNK_BYTES):
            if self._has_asked:
                self._has_asked = False
                await asyncio.sleep(self._delay_s)
            target.write(data)
            await target.drain()
        target.close()


async def serve(target_port: int, delay_s: float) -> None:
    """Serve until the standard input ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        travel = _Travel(delay_s)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target_port)
        await asyncio.gather(travel.ask(reader, far_writer), travel.answer(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))
