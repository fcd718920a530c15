"""The values of change feeds that travel: `ChangeFeed` in the plan, `TaskKeys` in a task's message.

Frozen and picklable. Imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.types import NestedField

# Keys that a message shows at most.
MAX_EXAMPLES = 5
# Columns that tasks fill in if they are asked for.
EXTRACTED_AT, EPOCH_ID, OPERATION, DIFF = "_extracted_at", "_epoch_id", "_operation", "_diff"
METADATA_COLUMNS = (EXTRACTED_AT, EPOCH_ID, OPERATION, DIFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """How rows of a DataFrame are to be read as changes of keys.

    Attributes:
        key_ids: Field ids of the key columns, in the order in which they were named; all are top-level columns.
        sequence: Columns of the DataFrame whose values order events of one key, the first one counts most; with the
            DataFrame's names and types, and ids of their own. Empty if nothing orders them.
        operation_column: The DataFrame's column that says what a row does, None if all rows are upserts.
        delete_when: Predicate on columns of the DataFrame; rows that satisfy it are deletes. None for none.
        is_enforced: Whether a tie is an error; else any one of the tied rows wins.
        trusts_inserts: Whether an insert tells of a key that the table does not have, so that nothing must be deleted.
        keeps_deleted: Whether a delete leaves a row of its key, which a column of the table marks.
        counts_stored: Whether a row that the table has wins over events of a lower sequence. Then `sequence` has the
            types and ids of the table's columns, and what is deleted by key tells its sequence.
        are_identifiers: Whether the keys are the table's identifier fields; else they are optional, and it has none.
    """

    key_ids: tuple[int, ...]
    sequence: tuple[NestedField, ...] = ()
    operation_column: str | None = None
    delete_when: str | None = None
    is_enforced: bool = True
    trusts_inserts: bool = False
    keeps_deleted: bool = False
    counts_stored: bool = False
    are_identifiers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMark:
    """The column that marks rows of deleted keys.

    Attributes:
        column: Its name, as the DataFrame spells it if it has it.
        is_time: Whether it says when the key was deleted, null if it was not; else true or false.
        has_zone: Whether such a time is an instant; else it is the time in UTC.
    """

    column: str
    is_time: bool = False
    has_zone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumns:
    """Columns that tasks fill in, beside or in place of those that the DataFrame has.

    Attributes:
        names: Which of `METADATA_COLUMNS`, in the order in which they were asked for.
        instant_us: When the write was planned, in microseconds since 1970 in UTC: the same in all tasks.
        number: Number of the micro-batch, or of the batch if the application numbers it; else None.
        mark: The column that marks rows of deleted keys, None if there is none.
        operation_column: The DataFrame's column that says what a row does; None if there is none, and in a write by
            keys, whose feed says so.
        delete_when: Predicate on columns of the DataFrame that marks deletes; None in these two cases, too.
    """

    names: tuple[str, ...]
    instant_us: int
    number: int | None = None
    mark: DeleteMark | None = None
    operation_column: str | None = None
    delete_when: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyExamples:
    """Keys that cannot be written.

    Attributes:
        count: How many there are.
        examples: Some of them, as text.
    """

    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKeys:
    """What a task says of the keys it met.

    Attributes:
        count: How many different keys there were.
        modulus: Every row's Spark hash of its key, minus the task's number, is a multiple of it: 0 if there was no
            row, 1 if that says nothing.
        evidence: For every key its digest, its sequence and what became of it, as `evidence` encodes it: first the
            rows of all data files, file after file, in their order, then keys without a row. None if the task
            met more keys than it may report.
        tied_count: How many keys have a winner in the task that is a tie; evidence says which.
        tied_keys: Some of them as text.
        null_keys: Rows with a null in a key column.
        unknown_operations: How many rows had each word that is no operation.
    """

    count: int
    modulus: int
    evidence: bytes | None = field(default=None, repr=False)
    tied_count: int = 0
    tied_keys: tuple[str, ...] = ()
    null_keys: KeyExamples = KeyExamples()
    unknown_operations: Mapping[str, int] = field(default_factory=dict)
