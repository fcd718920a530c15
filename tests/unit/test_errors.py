"""The errors: their tree, their roots and their trip between processes."""

from __future__ import annotations

import pickle
import re

import pytest

import iceberg_ds
from iceberg_ds import errors

DRAWN = re.compile(r"^    (?:├── |└── )?(\w+)(?: \((\w+)\))?", re.MULTILINE)


def own_errors() -> dict[str, type[Exception]]:
    """Return the error classes of the module by name."""
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.IcebergSinkError)
    }


def test_drawn_tree_is_the_real_tree() -> None:
    """A user who reads which errors there are would miss one, or catch one that does not exist."""
    drawn = dict(DRAWN.findall(errors.__doc__ or ""))

    built_in = {
        name: next((base.__name__ for base in error.__bases__ if base.__module__ == "builtins"), "")
        for name, error in own_errors().items()
    }
    assert drawn == built_in | {"IcebergSinkError": ""}


@pytest.mark.parametrize("name", sorted(own_errors()))
def test_every_error_is_public_and_has_the_root(name: str) -> None:
    """A user could not catch an error by name, or all of them at once."""
    error = getattr(iceberg_ds, name)

    assert issubclass(error, iceberg_ds.IcebergSinkError)
    assert name in iceberg_ds.__all__


@pytest.mark.parametrize("name", sorted(own_errors()))
def test_error_keeps_its_message_when_pickled(name: str) -> None:
    """A task's error would reach the driver without saying what went wrong."""
    error = own_errors()[name]("Cannot write to db.t: disk full.")

    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes

    assert type(arrived) is type(error)
    assert str(arrived) == "Cannot write to db.t: disk full."
