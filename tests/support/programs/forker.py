"""Programs that tests let die: forked from a process that has loaded all they need, which takes most of their time.

The process is told on its standard input, a line of JSON each, which module's `main` to run with which arguments; it
forks one that does so, and answers with its exit code. It ends with the process that has started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from functools import cache
from importlib import import_module

from support.peer.jvm_peer import TESTS

_PROGRAMS = (
    "support.programs.converter",
    "support.programs.committer",
    "support.programs.epoch_committer",
    "support.programs.feed_writer",
    "support.programs.quarantiner",
    "support.programs.rewriter",
    "support.programs.upserter",
)


def run_forked(module: str, *arguments: str) -> int:
    """Run a module's `main` in a process of its own, and return its exit code, that of a signal below 0."""
    process = _forker()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([module, arguments]) + "\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@cache
def _forker() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "support.programs.forker"]
    return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Fork a process for each line, and wait for it."""
    for module in _PROGRAMS:
        import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                module, arguments = json.loads(line)
                import_module(module).main(*arguments)
                code = 0
            except BaseException:  # a forked process must not go on as its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
