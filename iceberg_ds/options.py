"""The one table of options, and their parsing into `SinkOptions`.

Parsing, the README's table and the error texts all come from `OPTIONS`. Option keys reach us in
lower case because Spark lower-cases them; values arrive as strings. Precedence is applied by
`planning`: write option, then table property, then default; so an option that was not given is
None here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_ds.errors import OptionError
from iceberg_ds.secrets import mask_properties, mask_url

CATALOG_PREFIX = "catalog."
COMPRESSION_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
DEFAULT_WAREHOUSE = Path("iceberg-warehouse")

# Spark itself puts these beside the user's options.
SPARK_KEYS = frozenset({"path", "checkpointlocation", "queryname"})


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _positive_integer(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("expected a whole number above 0")
    return int(text)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text.lower()

    return parse


def _identifier(text: str) -> tuple[str, ...]:
    levels = tuple(text.split("."))
    if len(levels) == 1 or not all(level.strip() for level in levels):
        raise ValueError("expected namespace and table separated by a dot, such as db.events")
    return levels


def _warehouse(text: str) -> str:
    if "://" in text:
        raise ValueError("expected a local folder; for object stores configure a catalog with catalog.* options")
    return embedded_warehouse(Path(text))


def embedded_warehouse(folder: Path) -> str:
    """Return the absolute path of an embedded warehouse.

    Raises:
        ValueError: The path cannot be part of a URL, which the locations of tables are.
    """
    path = str(folder.expanduser().absolute())
    if any(character in path for character in "?#"):
        raise ValueError("expected a path without ? and #, which cannot stand in the locations of tables")
    return path


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its key, its default as the README shows it, its parser and one sentence of doc."""

    name: str
    default: str
    parse: Callable[[str], object]
    doc: str


OPTIONS: tuple[Option, ...] = (
    Option(
        name="table",
        default='required, or `save("db.t")` / `start("db.t")`',
        parse=_identifier,
        doc="Identifier of the table, levels separated by dots.",
    ),
    Option(
        name="catalog",
        default="`default`",
        parse=_name,
        doc="Name of a catalog that PyIceberg's configuration file or environment knows, or the name to give the one "
        "that `catalog.*` describes.",
    ),
    Option(
        name="catalog.*",
        default="none",
        parse=str,
        doc="Any PyIceberg catalog or storage property, for example `catalog.uri`, `catalog.warehouse`, "
        "`catalog.s3.endpoint`.",
    ),
    Option(
        name="warehouse",
        default="`./iceberg-warehouse`",
        parse=_warehouse,
        doc="Local folder of the embedded catalog (SQLite and files), which is used when no catalog is configured.",
    ),
    Option(
        name="create-table",
        default="`true`",
        parse=_boolean,
        doc="Create namespace and table on the first write; `false` refuses to write to a missing table.",
    ),
    Option(
        name="target-file-size-bytes",
        default="table property `write.target-file-size-bytes`, then 536870912",
        parse=_positive_integer,
        doc="Size in bytes of compressed data at which a task starts its next file.",
    ),
    Option(
        name="compression-codec",
        default="table property `write.parquet.compression-codec`, then `zstd`",
        parse=_one_of(*COMPRESSION_CODECS),
        doc=f"Parquet compression: {', '.join(COMPRESSION_CODECS)}.",
    ),
    Option(
        name="compression-level",
        default="table property `write.parquet.compression-level`, then the codec's own",
        parse=_integer,
        doc="Level of `zstd`, `gzip` or `brotli`.",
    ),
    Option(
        name="write-format",
        default="`parquet`",
        parse=_one_of("parquet"),
        doc="File format of the data files; anything but `parquet` is refused.",
    ),
)

_BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one write, parsed; None means that the option was not given.

    `catalog_properties` may hold credentials: it is masked in `repr` and never leaves the driver.
    """

    table: tuple[str, ...]
    catalog: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str | None = None
    create_table: bool = True
    target_file_size_bytes: int | None = None
    compression_codec: str | None = None
    compression_level: int | None = None

    def __str__(self) -> str:
        return f"{self!r} with catalog properties {mask_properties(self.catalog_properties)}"


def parse_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse the options of one write.

    Args:
        raw: Options as Spark hands them over: lower-case keys, string values.

    Raises:
        OptionError: Names every unknown, malformed, missing or contradicting option at once.
    """
    values: dict[str, object] = {}
    catalog_properties: dict[str, str] = {}
    problems: list[str] = []
    for key, text in raw.items():
        if key.startswith(CATALOG_PREFIX) and key != CATALOG_PREFIX:
            catalog_properties[key.removeprefix(CATALOG_PREFIX)] = text
        elif key in _BY_NAME:
            _parse_into(values, _BY_NAME[key], text, problems)
        elif key not in SPARK_KEYS:
            problems.append(_unknown(key))
    _take_table_from_path(values, raw.get("path"), problems)
    if problems:
        raise OptionError("Cannot write with these options:\n" + "\n".join(f"  - {problem}" for problem in problems))
    values.pop("write-format", None)
    return SinkOptions(
        **{name.replace("-", "_"): value for name, value in values.items()},  # type: ignore[arg-type]  # parsers give the types
        catalog_properties=catalog_properties,
    )


def _parse_into(values: dict[str, object], option: Option, text: str, problems: list[str]) -> None:
    try:
        values[option.name] = option.parse(text)
    except ValueError as problem:
        problems.append(f"option '{option.name}' is {mask_url(text)!r}: {problem}")


def _unknown(key: str) -> str:
    known = [option.name for option in OPTIONS if not option.name.endswith("*")]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(known)}, {CATALOG_PREFIX}*"
    return f"unknown option '{key}': {hint}"


def _take_table_from_path(values: dict[str, object], path: str | None, problems: list[str]) -> None:
    """`save("db.t")` arrives as option `path`; it names the table unless `table` says something else."""
    if path is None:
        if "table" not in values and not any("option 'table'" in problem for problem in problems):
            problems.append('no table is named: use save("db.t"), start("db.t") or option("table", "db.t")')
        return
    try:
        from_path = _identifier(path)
    except ValueError as problem:
        problems.append(f"the table in save() or start() is {path!r}: {problem}")
        return
    if values.setdefault("table", from_path) != from_path:
        problems.append(f"option 'table' and the table in save() or start() differ ({path!r}): give one of them")


def options_table() -> str:
    """Return the options as the Markdown table that stands in the README."""
    rows = [f"| `{option.name}` | {option.default} | {option.doc} |" for option in OPTIONS]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])
