"""The loop in which requests to S3 are made: at the end of the interpreter, and in a process that was forked."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from iceberg_ds.io.io_loop import io_loop

AT_EXIT = """
import asyncio, atexit
from iceberg_ds.io.io_loop import io_loop
loop = io_loop()
find = lambda: asyncio.run_coroutine_threadsafe(loop.getaddrinfo("localhost", 80), loop).result()
find()
atexit.register(lambda: print(find()[0][4][1]))
"""


FORKING = """
import asyncio, os
from iceberg_ds.io.io_loop import io_loop
async def answer():
    return 42
def ask(loop):
    return asyncio.run_coroutine_threadsafe(answer(), loop).result()
parents = io_loop()
child = os.fork()
if child == 0:
    own = io_loop()
    is_right = parents.is_closed() and not parents.is_running() and own is not parents
    os._exit(ask(own) if is_right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ask(parents), io_loop() is parents)
"""


def output_of(program: str) -> str:
    """Return what a program prints, in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_hosts_are_found_while_the_interpreter_ends() -> None:
    """Parts of a file that is open then would stay in the store: what removes them could not connect."""
    assert output_of(AT_EXIT) == "80\n"


def test_loop_of_the_parent_is_closed_in_a_forked_process() -> None:
    """A child that ends would close the connections that its parent waits for, or wait for ever itself."""
    assert output_of(FORKING) == "42 42 True\n"


def test_loop_knows_its_own_thread() -> None:
    """What is collected as garbage there would wait for itself."""
    loop = io_loop()

    async def ask() -> bool:
        return loop.is_mine()

    assert asyncio.run_coroutine_threadsafe(ask(), loop).result()
    assert not loop.is_mine()
