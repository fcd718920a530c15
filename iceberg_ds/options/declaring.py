"""How options are declared, once each: a dataclass field for every option, with its type, default, parser and doc.

Parsing, error texts and the tables in the docs follow from these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, TypeVar, cast, overload

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What a field that declares an option does not say by itself.

    Attributes:
        field: The field's name.
        name: The option's name, as users spell it; ends with `*` for a group of options with one prefix.
        parse: Turns the text into the value, or raises ValueError with what it expects.
        default: What the docs show as the default.
        doc: What the option means.
    """

    field: str
    name: str
    parse: Callable[[str], object]
    default: str
    doc: str

    @property
    def prefix(self) -> str | None:
        """The prefix of a group's names, or None for a single option."""
        return self.name.removesuffix("*") if self.name.endswith("*") else None

    @classmethod
    def of(cls, declared: Field[Any]) -> Option:
        """Return the option that `option` or `group` declares."""
        default = declared.default
        shown = str(default).lower() if isinstance(default, bool) else default
        return cls(
            field=declared.name,
            name=declared.metadata["name"] or declared.name.replace("_", "-"),
            parse=declared.metadata["parse"],
            default=declared.metadata["shown"] or (f"`{shown}`" if isinstance(shown, str | int) else "none"),
            doc=declared.metadata["doc"],
        )


@overload
def option(parse: Callable[[str], T], doc: str, *, shown: str = ..., name: str = ...) -> T | None: ...
@overload
def option(parse: Callable[[str], T], doc: str, *, default: T, shown: str = ..., name: str = ...) -> T: ...
def option(
    parse: Callable[[str], T], doc: str, *, default: T | None = None, shown: str = "", name: str = ""
) -> T | None:
    """Declare an option.

    Args:
        parse: Turns the text into the value, or raises ValueError with what it expects.
        doc: What the option means.
        default: The value if the option is not given.
        shown: The default that the docs show, if that is not `default`.
        name: The option's name, if it is not the field's name with dashes.
    """
    metadata = {"parse": parse, "doc": doc, "shown": shown, "name": name}
    return field(default=default, metadata=metadata)


def group(prefix: str, doc: str, *, is_shown: bool = True) -> Mapping[str, str]:
    """Declare a group of options with one prefix, whose values stay texts; `is_shown` is false for secret values."""
    metadata = {"parse": str, "doc": doc, "shown": "", "name": f"{prefix}*"}
    return cast("Mapping[str, str]", field(default_factory=dict, repr=is_shown, metadata=metadata))


def options_table(options: Iterable[Option]) -> str:
    """Return the options as a Markdown table for the docs."""
    rows = [f"| `{option.name}` | {option.default} | {option.doc} |" for option in options]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])
