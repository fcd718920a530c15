"""Everything that the sink changes in PyIceberg for the process, in force only inside the sink's own calls.

PyIceberg's catalogs use functions and classes of their modules, and none of these can be passed in. So these names are
replaced, once for the process and when the first catalog is connected, by ones that look who calls: within
`MetadataFiles.at_hand`, which surrounds the sink's loads and commits, they do what the sink needs; for any other
caller, such as a user's own `table.append()` in the same process, they call what stood in their place before. No other
module assigns to names of another package; a test compares PyIceberg before and after.

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


@cache
def share_metadata_files() -> None:
    """Let calls of the sink read and write metadata files through the files that they have at hand."""
    read: Callable[..., TableMetadata] = serializers.FromInputFile.table_metadata
    write: Callable[..., None] = serializers.ToOutputFile.table_metadata

    @wraps(read)
    def reading(input_file: InputFile, *options: object, **named: object) -> TableMetadata:
        files = files_at_hand()
        return read(input_file, *options, **named) if files is None else files.read(input_file)

    @wraps(write)
    def writing(metadata: TableMetadata, output_file: OutputFile, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002  # PyIceberg's signature
        files = files_at_hand()
        if files is None:
            write(metadata, output_file, overwrite)
        else:
            files.write(metadata, output_file, overwrite=overwrite)

    serializers.FromInputFile.table_metadata = staticmethod(reading)  # type: ignore[method-assign]
    serializers.ToOutputFile.table_metadata = staticmethod(writing)  # type: ignore[method-assign]


@cache
def fit_rest_messages() -> None:
    """Let calls of the sink parse the answers of REST servers without pauses, and send every field to them."""
    # These imports load the REST catalog's libraries.
    from pyiceberg.catalog.rest import TableResponse  # noqa: PLC0415

    from iceberg_ds.catalog.rest_messages import dumping_whole, parsing_quickly  # noqa: PLC0415

    for kind, tells_unparsed in ((TableResponse, True), (CommitTableResponse, False)):
        parse: Callable[..., Any] = kind.model_validate_json.__func__  # type: ignore[union-attr]
        quick = classmethod(parsing_quickly(parse, tells_unparsed=tells_unparsed))
        kind.model_validate_json = quick  # type: ignore[assignment,method-assign]
    CommitTableRequest.model_dump_json = dumping_whole(CommitTableRequest.model_dump_json)  # type: ignore[method-assign]


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


@cache
def know_variants() -> None:
    """Let PyIceberg parse the type `variant` within `knowing_variants`."""
    parse: Callable[..., IcebergType] = IcebergType.handle_primitive_type.__func__

    @wraps(parse)
    def parse_any(cls: type[IcebergType], value: object, handler: object) -> IcebergType:
        return _VARIANT if _is_variant(value) else parse(cls, value, handler)

    IcebergType.handle_primitive_type = classmethod(parse_any)  # type: ignore[assignment,method-assign]
    ListType.__init__ = _parsing(ListType.__init__)  # type: ignore[method-assign]
    MapType.__init__ = _parsing(MapType.__init__)  # type: ignore[method-assign]


def _parsing(construct: Callable[..., None]) -> Callable[..., None]:
    @wraps(construct)
    def parse_and_construct(self: IcebergType, *arguments: object, **data: object) -> None:
        known = {name: _VARIANT if _is_variant(value) else value for name, value in data.items()}
        construct(self, *arguments, **known)

    return parse_and_construct


def _is_variant(value: object) -> bool:
    return value == "variant" and are_variants_known()
