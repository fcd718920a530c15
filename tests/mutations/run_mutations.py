"""Would the tests notice if a promise were broken? A script; minutes, and far longer with `--spark`.

    python tests/mutations/run_mutations.py
    python tests/mutations/run_mutations.py --spark --only "second driver"

Makes one small change after the other in copies of the package, runs the tests that are expected to notice each, and
prints what they said. Exits with 1 if a change goes unnoticed by a test, does not fit the package any more, or if the
page of guarantees names a test for a guarantee that no change makes fail.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from mutations.catalogue import MUTATIONS
from mutations.mutating import REPOSITORY, Mutation, MutationError, Noticed, run

# Each run is a process of its own; more of them than cores would only wait for each other.
AT_ONCE = 2
_GUARANTEE = re.compile(r"^\| .*`tests/(?P<test>[^`]+)` \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutation.

    Attributes:
        mutation: The mutation.
        noticed: What its tests said, None if they could not be run.
        problem: Why they could not be run.
    """

    mutation: Mutation
    noticed: Noticed | None = None
    problem: str = ""

    @property
    def is_noticed(self) -> bool:
        """Whether each test that was expected to notice it did."""
        return self.noticed is not None and not self.noticed.passed

    def __str__(self) -> str:
        """Return it as lines of a table."""
        lines = [f"{'noticed ' if self.is_noticed else 'SURVIVED'} {self.mutation.file}: {self.mutation.name}"]
        if self.noticed is None:
            return "\n".join([*lines, self.problem])
        lines += [f"           {test}" for test in self.noticed.failed]
        lines += [f"  PASSES   {test}" for test in self.noticed.passed]
        return "\n".join(lines)


def try_out(mutation: Mutation, tests: Sequence[str]) -> Outcome:
    """Run tests under a mutation."""
    try:
        with tempfile.TemporaryDirectory(prefix="iceberg-ds-mutation-") as folder:
            return Outcome(mutation=mutation, noticed=run(tests, Path(folder), mutation))
    except MutationError as problem:
        return Outcome(mutation=mutation, problem=str(problem))


def try_all(wanted: Sequence[Mutation], *, with_spark: bool) -> Iterator[Outcome]:
    """Yield what becomes of each mutation."""
    chosen = [(mutation, mutation.tests + (mutation.spark_tests if with_spark else ())) for mutation in wanted]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda pair: try_out(*pair), [pair for pair in chosen if pair[1]])


def unproven_guarantees(page: str) -> list[str]:
    """Return the tests that a page names for guarantees, and that no mutation is expected to make fail."""
    proven = {test for mutation in MUTATIONS for test in (*mutation.tests, *mutation.spark_tests)}
    return [test for test in _GUARANTEE.findall(page) if test not in proven]


def main() -> int:
    """Try the mutations out, print what was noticed, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spark", action="store_true", help="also run the tests that need Spark and servers")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutations with this in their names")
    arguments = parser.parse_args()
    wanted = [mutation for mutation in MUTATIONS if arguments.only in mutation.name]
    survivors = 0
    for outcome in try_all(wanted, with_spark=arguments.spark):
        print(outcome, flush=True)  # noqa: T201
        survivors += not outcome.is_noticed
    unproven = unproven_guarantees((REPOSITORY / "docs" / "guarantees.md").read_text())
    for test in unproven:
        print(f"UNPROVEN  docs/guarantees.md names {test}, which no mutation makes fail")  # noqa: T201
    print(f"{len(wanted)} mutations, {survivors} unnoticed; {len(unproven)} guarantees unproven")  # noqa: T201
    return 1 if survivors or unproven or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
