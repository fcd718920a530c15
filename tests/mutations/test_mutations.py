"""A mutation makes the tests fail that are there for the promise which it breaks.

Here the five that everything else rests on; `make test-mutations` tries them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from mutations.catalogue import MUTATIONS
from mutations.mutating import REPOSITORY, Mutation, MutationError, fit, mutate, run
from mutations.run_mutations import AT_ONCE, Outcome, try_out, unproven_guarantees
from support.exhaustive import EXHAUSTIVE

_NAMES_OF_EVERY_RUN = (
    "an epoch is not looked up before it is committed",
    "files are deleted without proof",
)
OF_EVERY_RUN = [mutation for mutation in MUTATIONS if mutation.name in _NAMES_OF_EVERY_RUN]
ABORT = "unit/commit/test_abort.py"
HARMLESS = Mutation(
    name="a word of a docstring is another one",
    file="commit/commit.py",
    before="How the files of a write become rows of the table",
    after="How the files of a job become rows of the table",
    tests=(f"{ABORT}::test_without_any_message_nothing_is_done",),
)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Outcome]]]:
    """Return what becomes of the mutations that were asked for, by name; they are tried while the tests wait."""
    asked = [item.callspec.params for item in request.session.items if isinstance(item, pytest.Function) and _has(item)]
    wanted = [mutation for params in asked if isinstance(mutation := params.get("mutation"), Mutation)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {mutation.name: pool.submit(try_out, mutation, mutation.tests) for mutation in wanted}


def _has(item: pytest.Function) -> bool:
    return hasattr(item, "callspec")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutation", OF_EVERY_RUN, ids=lambda mutation: mutation.name)
def test_mutation_is_noticed(outcomes: dict[str, Future[Outcome]], mutation: Mutation) -> None:
    """A promise could be broken, and every test would still pass."""
    outcome = outcomes[mutation.name].result()

    assert outcome.is_noticed, str(outcome)


@pytest.mark.parametrize("known", MUTATIONS, ids=lambda known: known.name)
def test_mutation_fits_the_package_and_names_tests_that_exist(known: Mutation) -> None:
    """It would be found out only by the next run of them all."""
    fit(known)

    for test in (*known.tests, *known.spark_tests):
        file, _, function = test.partition("::")
        assert not function or f"def {function}(" in (REPOSITORY / "tests" / file).read_text()
        assert (REPOSITORY / "tests" / file).exists()


def test_five_promises_are_tried_in_every_run() -> None:
    """One that was renamed would not be tried any more."""
    assert len(OF_EVERY_RUN) == len(_NAMES_OF_EVERY_RUN)


@EXHAUSTIVE
@pytest.mark.timeout(1800)
def test_tests_pass_on_a_copy_of_the_package_as_it_is(tmp_path: Path) -> None:
    """What fails anyway would count as noticed."""
    tests = sorted({test for mutation in OF_EVERY_RUN for test in mutation.tests})

    noticed = run(tests, tmp_path)

    assert not noticed.failed, noticed.report


@EXHAUSTIVE
def test_harmless_change_survives(tmp_path: Path) -> None:
    """A run in which tests fail for another reason would count as noticed."""
    assert run(HARMLESS.tests, tmp_path, HARMLESS).passed == HARMLESS.tests


def test_mutation_that_does_not_fit_is_told() -> None:
    """A mutation of a line that has changed would test nothing."""
    with pytest.raises(MutationError, match="stands there 0 times"):
        mutate("another text", HARMLESS)
    with pytest.raises(MutationError, match="stands there 2 times"):
        mutate(HARMLESS.before * 2, HARMLESS)


@EXHAUSTIVE
def test_test_that_does_not_exist_is_told(tmp_path: Path) -> None:
    """A test that was renamed would never be asked again."""
    with pytest.raises(MutationError, match="could not be run"):
        run([f"{ABORT}::test_that_was_renamed"], tmp_path)


def test_guarantee_that_no_mutation_breaks_is_told() -> None:
    """The page of guarantees would name a test for one that passes without it."""
    known = MUTATIONS[0].tests[0]

    assert unproven_guarantees(f"| one | `tests/{known}` |\n| two | `tests/unit/test_x.py` |\n") == ["unit/test_x.py"]
