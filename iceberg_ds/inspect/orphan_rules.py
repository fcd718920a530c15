"""Pure: which of the listed files are looked at as orphans, and which two paths are one file to the user.

A path is told by its key (`contents.file_key`). A user may say that more schemes, or more authorities, are one, and
what becomes of a listed file whose path is that of a file of the table but for these two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from posixpath import basename
from typing import Literal, TypeAlias, get_args

from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.contents import SAME_SCHEMES, file_key, within_store
from iceberg_ds.io.listing import is_metadata_file
from iceberg_ds.io.places import why_not_a_place

PrefixMismatchMode: TypeAlias = Literal["error", "ignore", "delete"]
# Folders in which tables of Delta and Hudi say which files they have.
FOLDERS_OF_FORMATS = frozenset({"_delta_log", ".hoodie"})
# A file of tables without a catalog; it names the current metadata.
_VERSION_HINT = "version-hint.text"
_MODES: tuple[PrefixMismatchMode, ...] = get_args(PrefixMismatchMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRules:
    """Which files may be orphans.

    Attributes:
        location: The folder whose files may be; None for all folders of the table.
        schemes: The scheme that stands for each of these, beside those that are one for every user.
        authorities: The authority that stands for each of these.
        mismatch: What becomes of a file whose path differs from a referenced one in its scheme or authority alone:
            `error` refuses, `ignore` lets it stay, `delete` takes it for an orphan.
    """

    location: str | None = None
    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)
    mismatch: PrefixMismatchMode = "error"

    @classmethod
    def of(
        cls,
        location: str | None,
        equal_schemes: Mapping[str, str] | None,
        equal_authorities: Mapping[str, str] | None,
        mismatch: PrefixMismatchMode,
    ) -> OrphanRules:
        """Return the rules that a user asks for.

        Raises:
            OptionError: One of them is malformed.
        """
        if mismatch not in _MODES:
            raise refused(f"prefix_mismatch_mode is {mismatch!r}, expected {', '.join(_MODES[:-1])} or {_MODES[-1]}")
        if location is not None and (reason := why_not_a_place(f"{location.rstrip('/')}/")) is not None:
            raise refused(f"location is {location!r}, which names no one folder: {reason}")
        schemes = {_known(scheme): _known(one) for scheme, one in _flat("equal_schemes", equal_schemes).items()}
        return cls(
            location=location,
            schemes={scheme: one for scheme, one in schemes.items() if scheme != one},
            authorities=_flat("equal_authorities", equal_authorities),
            mismatch=mismatch,
        )

    def key(self, path: str) -> str:
        """Return the key of a file: one form for all spellings of its path."""
        key = file_key(path)
        if not (self.schemes or self.authorities):
            return key
        scheme, _, rest = key.partition("://")
        authority, slash, below = rest.partition("/")
        return f"{self.schemes.get(scheme, scheme)}://{self.authorities.get(authority, authority)}{slash}{below}"

    def folder(self, location: str) -> str:
        """Return the prefix that the keys of all files below a folder share."""
        return self.key(f"{location.rstrip('/')}/x").removesuffix("x")

    def check_location(self, folders: Mapping[str, str]) -> None:
        """Refuse a location that is in none of the table's folders.

        Args:
            folders: The table's folders, by their keys.

        Raises:
            OptionError: The location is outside of them.
        """
        if self.location is not None and not self.folder(self.location).startswith(tuple(folders)):
            raise refused(
                f"location {self.location} is not within the table's folders ({', '.join(sorted(folders.values()))}): "
                "files elsewhere may be another table's. Give one of these folders, or one below"
            )

    def is_looked_at(self) -> Callable[[str], bool]:
        """Return a function that says whether the file with a key may be an orphan."""
        if self.location is None:
            return lambda _: True
        below = self.folder(self.location)
        return lambda key: key.startswith(below)


EVERY_FILE = OrphanRules()


def split_key(key: str) -> tuple[str, str]:
    """Return the store of a file, which is scheme and authority, and its place within the store; together its key."""
    place = within_store(key)
    return key.removesuffix(place), place


def is_of_other_format(key: str) -> bool:
    """Return whether a file is in a folder in which tables of other formats say which files they have."""
    return not FOLDERS_OF_FORMATS.isdisjoint(key.split("/")[:-1])


def is_hidden(key: str, own: Collection[str]) -> bool:
    """Return whether readers ignore a file of this name, or tables without a catalog need it."""
    below = key.removeprefix(max((folder for folder in own if key.startswith(folder)), key=len, default=""))
    return basename(key) == _VERSION_HINT or any(map(_step_hides, below.split("/")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What the folder of a file tells of it.

    Attributes:
        store: Scheme and authority, as of `split_key`.
        place: The folder's place within the store, with the slash at its end unless it is the store itself.
        is_hidden: Whether `is_hidden` holds for all files in it.
        is_of_other_format: Whether `is_of_other_format` holds for all files in it.
    """

    store: str
    place: str
    is_hidden: bool
    is_of_other_format: bool

    @classmethod
    def of(cls, folder: str, rules: OrphanRules, own: Collection[str]) -> Folder:
        """Return what a folder tells.

        Args:
            folder: Path of the folder, without the slash between it and the names of its files.
            rules: How keys are made.
            own: Keys of the table's folders.
        """
        key = rules.key(f"{folder}/x")
        store, place = split_key(key)
        return cls(
            store=store,
            place=place.removesuffix("x"),
            is_hidden=is_hidden(key, own),
            is_of_other_format=is_of_other_format(key),
        )

    def hides(self, name: str) -> bool:
        """Return whether `is_hidden` holds for the file of this name."""
        return self.is_hidden or name == _VERSION_HINT or _step_hides(name)

    def tells_of_others(self, name: str) -> bool:
        """Return whether the file of this name may show that others have files in its folder."""
        return self.is_of_other_format or is_metadata_file(name) or name == "metadata"


def _step_hides(step: str) -> bool:
    return step.startswith(".") or (step.startswith("_") and "=" not in step)


def refused(reason: str) -> OptionError:
    """Return the error for an argument of `remove_orphan_files` that cannot be followed."""
    return OptionError(f"Cannot remove orphan files: {reason}.")


def _known(scheme: str) -> str:
    return SAME_SCHEMES.get(scheme, scheme)


def _flat(name: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """Return a mapping whose keys may have several names in them, such as `s3a,s3n`, with a key for each."""
    if given is not None and not isinstance(given, Mapping):
        raise refused(f"{name} is {given!r}, expected a mapping such as {{'s3a,s3n': 's3'}}")
    flat: dict[str, str] = {}
    for names, one in (given or {}).items():
        every = [part.strip() for part in str(names).split(",")]
        if not all(every) or not isinstance(one, str) or any("/" in text for text in (*every, one)):
            raise refused(f"{name} has {names!r}: {one!r}, expected names without slashes")
        flat |= dict.fromkeys(every, one.strip())
    return flat
