"""Texts of users in Spark's SQL: what is said of one that Spark does not understand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

from iceberg_ds.errors import OptionError
from iceberg_ds.secrets import masked_problem


@contextmanager
def refusing_sql(text: str, cause: str) -> Iterator[None]:
    """Refuse a text if Spark does not understand it in this block, which has to ask for a schema.

    Spark Connect finds an error only when it is asked.

    Args:
        text: The text.
        cause: What cannot be done, and what the text is not, without a full stop.

    Raises:
        OptionError: Spark does not understand it; says why, without secrets.
    """
    try:
        yield
    except (AnalysisException, ParseException) as problem:
        reason = masked_problem(text, str(problem).strip().splitlines()[0])
        raise OptionError(f"{cause}: {reason}") from None


def expression(text: str) -> Column:
    """Return an expression of a user, which has to be a whole one.

    Spark takes a word behind an expression for its name: `id < 5 and`, whose second condition is missing, would be
    `id < 5`. In brackets no name may follow.

    Raises:
        ParseException: It is none; with Spark Connect only when Spark is asked.
    """
    F.expr(text)  # not only in brackets: the text may close them
    return F.expr(f"({text}\n)")
