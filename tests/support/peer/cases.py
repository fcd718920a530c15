"""Cases of other writers' own test suites, each with the verdict that this sink comes to.

A module of `tests/acceptance/peers` marks each test with the cases that it ports, of a writer that is named here:

    @ICEBERG.case("TestPartitionValues.testNullPartitionValue")
    def test_null_is_a_partition_of_its_own(sink: Sink) -> None: ...

    @ICEBERG.case("TestSparkDataWrite.testX", verdict=DIFFERS("columns are matched by name", see="columns.md"))
    def test_order_of_columns_does_not_count(sink: Sink) -> None: ...

The test is an ordinary one and always runs. With `PASSES` it asserts what the peer's case asserts; with `DIFFERS` it
asserts the difference: an error by type and text, or the other result. `verdict_page` makes `docs/peer-suites.md` of
the marks, which `make reference` writes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "peer-suites.md"
SUITES = REPOSITORY / "tests" / "acceptance" / "peers"

_MARK = "peer_cases"
_Test = TypeVar("_Test", bound=Callable[..., Any])

_INTRODUCTION = """# The suites of other writers

Cases from the test suites of other writers of tables, written anew for this sink. Each runs with every `make test`,
and has one of two verdicts:

- **passes**: the sink does what the peer's case asks for.
- **differs**: the sink does something else on purpose. The test asserts what it does instead, and the link leads to
  where these docs say so.

`make reference` writes this page from the tests in `tests/acceptance/peers`; `tests/acceptance/peers/test_verdicts.py`
fails if it does not say what they say.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a case of a peer comes to here.

    Attributes:
        why: What the sink does instead, and why; empty if it does the same.
        see: Where the docs say so, as a link from within `docs/`; empty if it does the same.
    """

    why: str = ""
    see: str = ""

    @property
    def passes(self) -> bool:
        """Whether the sink does what the case asks for."""
        return not self.why


PASSES = Verdict()


def DIFFERS(why: str, *, see: str) -> Verdict:  # noqa: N802, it stands beside PASSES
    """Return the verdict that the sink does something else on purpose."""
    if not why or not see:
        raise ValueError("Cannot say that a case differs: why it does, and where the docs say so, are missing.")
    return Verdict(why, see)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another writer with test suites of its own.

    Attributes:
        name: Its repository or product.
        suites: Which of its suites, in a few words.
    """

    name: str
    suites: str

    def case(self, *names: str, verdict: Verdict = PASSES) -> Callable[[_Test], _Test]:
        """Mark a test as the port of these cases, each as `Suite.case`."""
        if not names:
            raise ValueError(f"Cannot mark a test: it names no case of {self.name}.")

        def mark(test: _Test) -> _Test:
            cases = [Case(peer=self, name=name, verdict=verdict, tried=_words(test.__name__)) for name in names]
            # Marks of one test are read from the top, and applied from the bottom.
            setattr(test, _MARK, [*cases, *getattr(test, _MARK, [])])
            return test

        return mark


ICEBERG = Peer(name="apache/iceberg", suites="writes through Spark")
DELTA = Peer(name="delta-io/delta", suites="writes through Spark")
DELTA_RS = Peer(name="delta-io/delta-rs", suites="writes from Python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case of a peer's suites.

    Attributes:
        peer: The writer.
        name: The suite and the case, as the peer names them.
        verdict: What it comes to here.
        tried: What the port tries, in words.
    """

    peer: Peer
    name: str
    verdict: Verdict
    tried: str


def find_cases() -> list[Case]:
    """Return the cases of all modules, in the order of their files and lines."""
    return [case for path in sorted(SUITES.glob("test_*.py")) for case in _cases_of(path)]


def _cases_of(path: Path) -> Iterable[Case]:
    spec = importlib.util.spec_from_file_location(f"peer_suites_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return [case for test in vars(module).values() for case in getattr(test, _MARK, [])]


def verdict_page(cases: Iterable[Case]) -> str:
    """Return the page that lists the cases with their verdicts, by peer."""
    by_peer: dict[Peer, list[Case]] = {}
    for case in cases:
        by_peer.setdefault(case.peer, []).append(case)
    peers = sorted(by_peer, key=lambda peer: (peer.name, peer.suites))
    return "\n".join([_INTRODUCTION, *(_section(peer, by_peer[peer]) for peer in peers)])


def _section(peer: Peer, cases: list[Case]) -> str:
    passing = sum(case.verdict.passes for case in cases)
    lines = [
        f"## {peer.name}: {peer.suites}",
        "",
        f"{len(cases)} cases: {passing} pass, {len(cases) - passing} differ.",
        "",
        "| case | what is tried | verdict |",
        "|---|---|---|",
        *(f"| `{case.name}` | {case.tried} | {_cell(case.verdict)} |" for case in cases),
        "",
    ]
    return "\n".join(lines)


def _cell(verdict: Verdict) -> str:
    if verdict.passes:
        return "passes"
    return f"differs: {verdict.why} ([docs]({verdict.see}))"


def _words(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def repeated(cases: Iterable[Case]) -> list[str]:
    """Return the names of cases that several tests port."""
    counted = Counter((case.peer, case.name) for case in cases)
    return [name for (_, name), times in counted.items() if times > 1]
