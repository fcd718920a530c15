"""Reads PyIceberg's configuration, its file and its environment variables; no error shows their contents.

The configuration holds credentials, and PyIceberg's error about a malformed one quotes its lines or a value. PyIceberg
also reads it when its modules are loaded, so the package's entry points read it first. Of the package, only the errors
are imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iceberg_ds.errors import OptionError

if TYPE_CHECKING:
    from pyiceberg.utils.config import Config


def read_configuration() -> Config:
    """Return PyIceberg's configuration as it is now.

    Raises:
        OptionError: The configuration is malformed.
    """
    from pyiceberg.utils.config import Config  # noqa: PLC0415  # finding the data source must work without PyIceberg

    with _not_shown():
        return Config()


def default_catalog(configuration: Config) -> str:
    """Return the name of the default catalog; raises as `read_configuration` does."""
    with _not_shown():
        return configuration.get_default_catalog_name()


def configured_catalog(name: str, configuration: Config | None = None) -> dict[str, Any] | None:
    """Return the properties of a catalog, text or trees of text, or None if the configuration has none.

    Args:
        name: Name of the catalog.
        configuration: What `read_configuration` has returned; None to read it now.

    Raises:
        OptionError: The configuration is malformed.
    """
    configuration = read_configuration() if configuration is None else configuration
    with _not_shown():
        return configuration.get_catalog_config(name)


@contextmanager
def _not_shown() -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # of PyIceberg, or of its YAML library
        mark = getattr(problem, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1} of the file"
        raise OptionError(
            "Cannot read PyIceberg's configuration, which is the first .pyiceberg.yaml in $PYICEBERG_HOME, the home "
            f"folder or the working folder, and the variables PYICEBERG_* of the environment: "
            f"{type(problem).__name__}{place}. Its text is not shown here, because it may hold secrets. Mend it on "
            "the machine of the driver; catalogs are objects of names and texts below 'catalog'."
        ) from None
