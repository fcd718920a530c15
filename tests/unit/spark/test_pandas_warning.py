"""PySpark's warning of pandas is not shown, whatever threads run side by side, and the process's filters stay."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor

from iceberg_ds.spark.pandas_warning import without_pandas_warning

TEXT = "PySpark does not yet fully support pandas >= 3.0.0."


def warn_after(seconds: float) -> None:
    """Build a plan for some time, and warn as PySpark does."""
    with without_pandas_warning():
        time.sleep(seconds)
        warnings.warn(TEXT, FutureWarning, stacklevel=2)


def test_threads_do_not_take_each_others_filters() -> None:
    """Where warnings are errors, one of two writes side by side would fail; and all later warnings be lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)

        with ThreadPoolExecutor(2) as side_by_side:
            list(side_by_side.map(warn_after, [0.1, 0.2, 0.05]))

        assert warnings.filters == before
