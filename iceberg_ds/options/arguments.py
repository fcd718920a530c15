"""Pure: arguments of public functions, checked for their types: Python would take the text `false` for true."""

from __future__ import annotations

from dataclasses import dataclass
from types import UnionType

from iceberg_ds.errors import OptionError
from iceberg_ds.secrets import mask_value


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """What an argument has to be.

    Attributes:
        types: The types it may have.
        expected: The same in words, for errors.
    """

    types: type | UnionType
    expected: str


FLAG = ArgumentType(bool, "True or False")
TEXT = ArgumentType(str | None, "a text or None")
AGE = ArgumentType(str, "an age such as '3d'")
NUMBER = ArgumentType(int | None, "a whole number or None")


def require_types(action: str, **given: tuple[object, ArgumentType]) -> None:
    """Raise OptionError that names each argument which is not what it has to be.

    Args:
        action: What is to be done, such as `expire snapshots`, for the error.
        given: The arguments by name, each with what it has to be.
    """
    wrong = [
        f"{name} is {mask_value(repr(value))}, expected {kind.expected}"
        for name, (value, kind) in given.items()
        if not isinstance(value, kind.types)
    ]
    if wrong:
        raise OptionError(f"Cannot {action}: {'; '.join(wrong)}.")
