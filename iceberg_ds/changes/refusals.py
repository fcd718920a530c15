"""Pure: why the rows of a write may not be committed, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from iceberg_ds.changes.collisions import Settlement
from iceberg_ds.changes.operations import count_words, describe_words
from iceberg_ds.changes.values import MAX_EXAMPLES, TaskKeys


def why_refused(tasks: Sequence[TaskKeys], settlement: Settlement, key_names: Sequence[str]) -> list[str]:
    """Return the reasons, each with its next step; none if the write may be committed.

    Args:
        tasks: The reports of all tasks.
        settlement: What they come to.
        key_names: Names of the key columns.
    """
    return [
        *_null_keys(tasks),
        *_unknown_operations(tasks),
        *_ties(settlement),
        *_unproven(tasks, settlement, key_names),
        *_unreported(tasks, settlement),
    ]


def _null_keys(tasks: Sequence[TaskKeys]) -> list[str]:
    count = sum(task.null_keys.count for task in tasks)
    examples = [text for task in tasks for text in task.null_keys.examples][:MAX_EXAMPLES]
    if not count:
        return []
    return [f"{count} rows have a null in a key column ({'; '.join(examples)}): filter them, or choose other keys"]


def _unknown_operations(tasks: Sequence[TaskKeys]) -> list[str]:
    words: Counter[str] = Counter()
    for task in tasks:
        count_words(words, dict(task.unknown_operations))
    if not words:
        return []
    named = ", ".join(f"{word} ({count} rows)" for word, count in words.most_common())
    return [f"the operation column has {named}, and known words are {describe_words()}: filter or translate them"]


def _ties(settlement: Settlement) -> list[str]:
    if not settlement.tied_count:
        return []
    examples = f" ({'; '.join(settlement.tied_keys)})" if settlement.tied_keys else ""
    reason = (
        f"{settlement.tied_count} keys have several rows of which none comes last{examples}: give sequence-by=... with "
        "columns that order them, or keys-not-enforced=true if any of them will do"
    )
    return [reason]


def _unproven(tasks: Sequence[TaskKeys], settlement: Settlement, key_names: Sequence[str]) -> list[str]:
    if not settlement.unproven:
        return []
    number = settlement.unproven[0]
    named = ", ".join(repr(name) for name in key_names)
    reason = (
        f"{len(settlement.unproven)} tasks (such as {number}, with {tasks[number].count} keys) have too many keys to "
        "compare and may have keys that others have, too: distribute the rows by key with "
        f"iceberg_ds.distribute(df, keys=[{named}])"
    )
    return [reason]


def _unreported(tasks: Sequence[TaskKeys], settlement: Settlement) -> list[str]:
    if not settlement.unreported:
        return []
    number = settlement.unreported[0]
    reason = (
        f"{len(settlement.unreported)} tasks (such as {number}, with {tasks[number].count} keys) have too many keys to "
        "tell which of their rows are late: write fewer rows at once, or with more tasks (spark.default.parallelism)"
    )
    return [reason]
