"""What the user is told of a commit that was given up before anything was sent to the catalog."""

from __future__ import annotations

import errno

import pytest
from support.tables.metadata import identity

from iceberg_ds.commit.outcomes import given_up
from iceberg_ds.errors import CommitConflictError, DataFileError


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.ENOTDIR, errno.EINVAL])
def test_path_that_the_store_does_not_take_is_no_conflict(number: int) -> None:
    """A user would run the write again, which cannot help, and look for other writers, of which there are none."""
    error = given_up(identity(), 0, OSError(number, "no such name"))

    assert type(error) is DataFileError
    assert "nothing was sent to the catalog" in str(error)
    assert "Shorten" in str(error)
    assert "writers" not in str(error)


def test_store_that_fails_for_an_unknown_reason_is_no_matter_of_other_writers() -> None:
    """A user would raise commit.retry.num-retries, which cannot help."""
    error = given_up(identity(), 0, OSError("boom"))

    assert type(error) is CommitConflictError
    assert "boom" in str(error)
    assert "num-retries" not in str(error)
