"""Pure: reads the properties of a store, and finds those that would have no effect.

A property that protects data, and that is unknown or not supported, is refused: otherwise a file could be stored
unencrypted although the user asked for encryption. Other unknown properties are only named in the log.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from iceberg_ds.errors import OptionError
from iceberg_ds.secrets import MASK, is_secret

logger = logging.getLogger(__name__)

_LIKENESS = 0.8

_Value = TypeVar("_Value")


def _refuse_nothing(_name: str, _value: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProperties:
    """The known properties of one kind of store.

    Attributes:
        store: Name of the store in errors.
        prefixes: Prefixes of the properties' names.
        used: Names of the properties that have an effect.
        nothing_to_do: Matches names of properties that are valid and need no action.
        protects: Matches names of properties that protect data, so that unknown ones are refused.
        why_refused: Returns why a property, given by name and value, is not supported, or None.
    """

    store: str
    prefixes: tuple[str, ...]
    used: frozenset[str]
    nothing_to_do: re.Pattern[str]
    protects: re.Pattern[str]
    why_refused: Callable[[str, str], str | None] = _refuse_nothing

    def problem_of(self, name: str, value: str) -> str | None:
        """Return why an unknown property must be rejected, or None."""
        if not name.startswith(self.prefixes) or name in self.used:
            return None
        refusal = self.why_refused(name, value)
        if refusal is not None or self.nothing_to_do.match(name):
            return refusal
        near = difflib.get_close_matches(name, self.used, n=1, cutoff=_LIKENESS)
        if near or self.protects.match(name):
            return f"{name} is not known" + (f" (do you mean {near[0]}?)" if near else " and would not be heeded")
        logger.warning("Property %s is not used for %s", name, self.store)
        return None


class PropertyReader:
    """Reads properties and collects their problems."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.problems: list[str] = []

    def text(self, *names: str) -> str | None:
        """Return the value of the first of the names that has one, or None."""
        return next((str(self._properties[name]) for name in names if self._properties.get(name)), None)

    def value(self, names: tuple[str, ...], parse: Callable[[str], _Value], *, default: _Value) -> _Value:
        """Return the parsed value, or the default if there is none or it cannot be parsed."""
        text = self.text(*names)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as problem:
            self.problems.append(f"{names[0]} is '{MASK if is_secret(names[0]) else text}': {problem}")
            return default

    def check(self, known: KnownProperties) -> None:
        """Refuse wrong properties, and unknown ones that must not be ignored.

        Raises:
            OptionError: There are such properties; the message names all of them.
        """
        found = [known.problem_of(name, str(self._properties[name])) for name in sorted(self._properties)]
        problems = [*self.problems, *(problem for problem in found if problem is not None)]
        if problems:
            raise OptionError(f"Cannot open {known.store}: {'; '.join(problems)}.")
