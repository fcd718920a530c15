"""The errors that this package raises, named by what the caller does next.

Nothing here imports anything of the package. Every message says what could not be done, to which
thing, why with the values, and the next step; a secret appears in none of them.

    IcebergSinkError
    ├── OptionError (ValueError)            fix the options; all bad ones are named at once
    ├── SchemaMismatchError (ValueError)    fix the DataFrame or the table; all bad columns at once
    ├── TableNotFoundError (LookupError)    create the table or fix its identifier
    ├── UnsupportedTableError (ValueError)  this kind of table cannot be written safely yet
    ├── CatalogError (ConnectionError)      reach, authenticate to or unblock the catalog
    ├── RefusedRowsError (ValueError)       fix the rows; says how many and shows one
    ├── DataFileError (OSError)             a task could not write; Spark may retry it
    ├── RowCountError                       rows were lost or doubled on the way; nothing was committed; report it
    ├── CommitConflictError                 nothing was committed; no file of this write is referenced
    ├── CommitStateUnknownError             it may be committed; nothing was deleted; says how to check
    └── CommitMessageError                  task messages and table disagree; nothing was committed
"""

from __future__ import annotations


class IcebergSinkError(Exception):
    """Root of every error that this package raises on purpose."""


class OptionError(IcebergSinkError, ValueError):
    """An option is unknown, malformed, missing or contradicts another one."""


class SchemaMismatchError(IcebergSinkError, ValueError):
    """The DataFrame's columns do not fit the table's columns."""


class TableNotFoundError(IcebergSinkError, LookupError):
    """The table does not exist and may not be created."""


class UnsupportedTableError(IcebergSinkError, ValueError):
    """The table has a feature that this sink cannot write without breaking it."""


class CatalogError(IcebergSinkError, ConnectionError):
    """The catalog could not be reached, or it refused the request."""


class RefusedRowsError(IcebergSinkError, ValueError):
    """Rows of the DataFrame lie outside the range that the write replaces, or are no changes of keys."""


class DataFileError(IcebergSinkError, OSError):
    """A data file could not be written or is not where the commit expects it."""


class RowCountError(IcebergSinkError):
    """Rows that came in are missing, or there are rows that never came in: nothing was committed."""


class CommitConflictError(IcebergSinkError):
    """The commit was refused for certain: nothing of this write is in the table."""


class CommitStateUnknownError(IcebergSinkError):
    """The catalog's answer was lost, and the table does not tell the outcome: nothing was deleted."""


class CommitMessageError(IcebergSinkError):
    """The messages of the tasks are incomplete, or do not belong to this table and write."""
