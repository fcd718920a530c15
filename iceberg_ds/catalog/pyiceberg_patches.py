"""Everything that the sink changes in PyIceberg for the process, in force only inside the sink's own calls.

PyIceberg's catalogs use functions and classes of their modules, and none of these can be passed in. So these names are
replaced, once for the process and when the first catalog is connected, by ones that look who calls: within
`MetadataFiles.at_hand`, which surrounds the sink's loads and commits, they do what the sink needs; for any other
caller, such as a user's own `table.append()` in the same process, they call what stood in their place before. If
somebody else, such as a test, takes a replacement back, the next load or commit puts it in again. No other module
assigns to names of another package; a test compares PyIceberg before and after.

Replaced are:

* `serializers.FromInputFile.table_metadata` and `serializers.ToOutputFile.table_metadata`: each load and each commit
  would read and write a table's whole history, however little is new (apache/iceberg-python#3162);
* `TableResponse.model_validate_json` and `CommitTableResponse.model_validate_json`: the garbage collector would walk
  all of a long history, several times, while it is parsed;
* `CommitTableRequest.model_dump_json`: the request would leave out what a subclass of an update adds, and Nessie
  refuses a schema without `last-column-id`;
* `types.IcebergType.handle_primitive_type`, and the constructors of lists and maps: they do not know the type `variant`
  (apache/iceberg-python#1819), and a table that has one could not be loaded.

One thing is added: how an update of the sink's own class, `UpgradeFormatVersion`, is carried out, since PyIceberg
refuses version 3 (apache/iceberg-python#1551).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import getattr_static
from threading import Lock
from typing import Any

from pyiceberg import serializers
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.table import CommitTableRequest, CommitTableResponse
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import _apply_table_update, _TableMetadataUpdateContext
from pyiceberg.types import IcebergType, ListType, MapType

from iceberg_ds.catalog.metadata_files import files_at_hand
from iceberg_ds.snapshots.version_3 import in_version
from iceberg_ds.table.requests import UpgradeFormatVersion
from iceberg_ds.table.variant import VariantType, are_variants_known

_VARIANT = VariantType()


# All that was ever put in place of a name of a class, the newest last.
_replaced: dict[tuple[type, str], list[object]] = {}
_lock = Lock()
# What is to be in force: each puts in what is missing of it.
_wanted: list[Callable[[], None]] = []


def keep_in_force() -> None:
    """Put in again what somebody else has taken back since a catalog was connected."""
    for put_in in _wanted:
        put_in()


def share_metadata_files() -> None:
    """Let calls of the sink read and write metadata files through the files that they have at hand."""
    _want(_share_metadata_files)


def fit_rest_messages() -> None:
    """Let calls of the sink parse the answers of REST servers without pauses, and send every field to them."""
    _want(_fit_rest_messages)


def know_variants() -> None:
    """Let PyIceberg parse the type `variant` within `knowing_variants`."""
    _want(_know_variants)


def _want(put_in: Callable[[], None]) -> None:
    if put_in not in _wanted:
        _wanted.append(put_in)
    put_in()


def _replace(
    owner: type, name: str, replacing: Callable[[Callable[..., Any]], object], *, is_of_class: bool = False
) -> None:
    """Put in place of a function of a class what `replacing` makes of it, unless that is there.

    Args:
        owner: The class.
        name: Name of the function.
        replacing: Returns what replaces it.
        is_of_class: Whether it is called with the class.
    """
    made = _replaced.setdefault((owner, name), [])
    if made and owner.__dict__.get(name) is made[-1]:  # as nearly always: each load and each commit looks
        return
    with _lock:
        now = getattr_static(owner, name)
        if any(now is one for one in made):  # somebody has put it back, after another one had taken its place
            made.remove(now)
            made.append(now)
        else:
            made.append(replacing(_function_of(now, is_of_class=is_of_class)))
            setattr(owner, name, made[-1])


def _function_of(now: Any, *, is_of_class: bool) -> Callable[..., Any]:  # noqa: ANN401  # what a user has put there, too
    """Return the function beneath what stands at a name of a class, to be called with the class if others are."""
    beneath: Callable[..., Any] = now.__func__ if isinstance(now, classmethod | staticmethod) else now
    if not is_of_class or isinstance(now, classmethod):
        return beneath

    @wraps(beneath)
    def without_class(_: type, *given: object, **named: object) -> object:
        return beneath(*given, **named)

    return without_class


def _share_metadata_files() -> None:
    _replace(serializers.FromInputFile, "table_metadata", lambda read: staticmethod(_reading(read)))
    _replace(serializers.ToOutputFile, "table_metadata", lambda write: staticmethod(_writing(write)))


def _reading(read: Callable[..., TableMetadata]) -> Callable[..., TableMetadata]:
    @wraps(read)
    def reading(input_file: InputFile, *options: object, **named: object) -> TableMetadata:
        files = files_at_hand()
        return read(input_file, *options, **named) if files is None else files.read(input_file)

    return reading


def _writing(write: Callable[..., None]) -> Callable[..., None]:
    @wraps(write)
    def writing(metadata: TableMetadata, output_file: OutputFile, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002  # PyIceberg's signature
        files = files_at_hand()
        if files is None:
            write(metadata, output_file, overwrite)
        else:
            files.write(metadata, output_file, overwrite=overwrite)

    return writing


def _fit_rest_messages() -> None:
    # These imports load the REST catalog's libraries.
    from pyiceberg.catalog.rest import TableResponse  # noqa: PLC0415

    from iceberg_ds.catalog.rest_messages import dumping_whole, parsing_quickly  # noqa: PLC0415

    _replace(
        TableResponse,
        "model_validate_json",
        lambda parse: classmethod(parsing_quickly(parse, tells_unparsed=True)),
        is_of_class=True,
    )
    _replace(
        CommitTableResponse,
        "model_validate_json",
        lambda parse: classmethod(parsing_quickly(parse, tells_unparsed=False)),
        is_of_class=True,
    )
    _replace(CommitTableRequest, "model_dump_json", dumping_whole)


def _know_variants() -> None:
    _replace(IcebergType, "handle_primitive_type", lambda parse: classmethod(_parsing_any(parse)), is_of_class=True)
    _replace(ListType, "__init__", _parsing)
    _replace(MapType, "__init__", _parsing)


@cache
def know_upgrades() -> None:
    """Let PyIceberg carry out the sink's own updates of the format version."""
    _apply_table_update.register(UpgradeFormatVersion, _upgraded)


def _upgraded(
    update: UpgradeFormatVersion, metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    if metadata.format_version > update.format_version:
        raise ValueError(f"Cannot downgrade v{metadata.format_version} table to v{update.format_version}")
    if metadata.format_version == update.format_version:
        return metadata
    context.add_update(update)
    return in_version(metadata, update.format_version)


def _parsing_any(parse: Callable[..., IcebergType]) -> Callable[..., IcebergType]:
    @wraps(parse)
    def parse_any(cls: type[IcebergType], value: object, handler: object) -> IcebergType:
        return _VARIANT if _is_variant(value) else parse(cls, value, handler)

    return parse_any


def _parsing(construct: Callable[..., None]) -> Callable[..., None]:
    @wraps(construct)
    def parse_and_construct(self: IcebergType, *arguments: object, **data: object) -> None:
        known = {name: _VARIANT if _is_variant(value) else value for name, value in data.items()}
        construct(self, *arguments, **known)

    return parse_and_construct


def _is_variant(value: object) -> bool:
    return value == "variant" and are_variants_known()
