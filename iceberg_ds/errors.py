"""The errors that this package raises, named by what the caller does next.

Nothing here imports anything of the package. Every message says what could not be done, to which
thing, why with the values, and the next step; a secret appears in none of them.

    IcebergSinkError
    ├── OptionError (ValueError)            fix the options; all bad ones are named at once
    ├── SchemaMismatchError (ValueError)    fix the DataFrame or the table; all bad columns at once
    ├── TableNotFoundError (LookupError)    create the table or fix its identifier
    ├── UnsupportedTableError (ValueError)  this kind of table cannot be written safely yet
    ├── OverloadedTableError                maintain the table, or raise the limit; nothing was written
    ├── CatalogError (ConnectionError)      reach, authenticate to or unblock the catalog
    ├── RefusedRowsError (ValueError)       fix the rows; says how many and shows one
    ├── DataFileError (OSError)             a task could not write; Spark may retry it
    ├── StreamHistoryError                  what is to be read next is not known, or no append; none of it was read
    ├── RowCountError                       rows were lost or doubled on the way; nothing was committed; report it
    ├── CommitConflictError                 nothing was committed; no file of this write is referenced
    ├── CommitStateUnknownError             it may be committed; nothing was deleted; says how to check
    └── CommitMessageError                  task messages and table disagree; nothing was committed
"""

from __future__ import annotations


class IcebergSinkError(Exception):
    """Root of every error that this package raises on purpose."""


class OptionError(IcebergSinkError, ValueError):
    """Options or arguments are unknown, malformed, missing or contradict each other; all are named at once.

    Next: Fix them.
    """


class SchemaMismatchError(IcebergSinkError, ValueError):
    """Columns do not fit, are missing or extra, all named at once with both types; or a null met a required column.

    Next: Fix the DataFrame or the table.
    """


class TableNotFoundError(IcebergSinkError, LookupError):
    """No such table, and it may not be created (`create-table` is `false`).

    Next: Create it, or fix its identifier.
    """


class UnsupportedTableError(IcebergSinkError, ValueError):
    """The table has a feature that this sink cannot write without breaking it.

    It is a view or encrypted, has ORC or Avro files, an unknown transform, or column types that are not written.

    Next: Write to another table.
    """


class OverloadedTableError(IcebergSinkError):
    """The table has more snapshots or small files than the write allows by `max-snapshots` or `max-small-files`.

    Nothing was written. A stream's next run writes the same rows.

    Next: Run `iceberg-ds maintain`, or raise the limit.
    """


class CatalogError(IcebergSinkError, ConnectionError):
    """The catalog could not be reached, or it refused the request; nothing was committed.

    Next: Check its address and your rights.
    """


class RefusedRowsError(IcebergSinkError, ValueError):
    """Rows do not satisfy `replace-where`, or are no changes of keys; it says how many and shows one.

    Or more rows than `max-bad-rows` cannot be written. Nothing was committed.

    Next: Filter them, or widen the predicate.
    """


class DataFileError(IcebergSinkError, OSError):
    """A task cannot write a data file, or the driver does not see the local files of a task.

    Next: Spark may try it again; on a cluster use an object store.
    """


class StreamHistoryError(IcebergSinkError):
    """What a stream of `icebergsource`, or a read of changes, is to read is not known, or no append; none was read.

    A snapshot changed rows, its history has expired, its branch was set back, or the table was replaced.

    Next: Do as it says: choose by `on-change`, or begin anew from a snapshot.
    """


class RowCountError(IcebergSinkError):
    """Rows were lost or doubled between Spark and the table; nothing was committed.

    Next: Report it.
    """


class CommitConflictError(IcebergSinkError):
    """The commit was refused for certain: nothing of this write is in the table, or only on a staging branch.

    There was a second driver, a checkpoint that was rolled back, a new checkpoint under the name of another stream,
    rows that came into a replaced range, a branch that moved on before it could be published to, or too many writers
    at once.

    Next: Do as it says: load the table and decide anew.
    """


class CommitStateUnknownError(IcebergSinkError):
    """The catalog's answer was lost, and the table does not tell the outcome: nothing was deleted.

    Next: Start the stream again, or run a batch with `txn-version` again: each finds out. For another batch look for
    the snapshot id that the error names.
    """


class CommitMessageError(IcebergSinkError):
    """Messages of tasks are missing, or do not belong to this table and write; nothing was committed.

    Next: Do as it says.
    """
