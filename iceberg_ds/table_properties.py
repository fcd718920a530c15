"""Pure: what properties of a table hold; what nobody can make sense of counts as not set, and fails no commit."""

from __future__ import annotations

from collections.abc import Mapping


def whole_number(properties: Mapping[str, str], name: str, otherwise: int) -> int:
    """Return the whole number, 0 or more, that a table's property holds, and `otherwise` if it holds none."""
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else otherwise


def write_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those of a table's properties that say how and where files are written."""
    return {name: value for name, value in properties.items() if name.startswith("write.")}
