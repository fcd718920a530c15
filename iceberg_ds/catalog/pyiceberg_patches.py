"""Everything that the sink changes in PyIceberg for the process, all but one in force only inside the sink's own calls.

PyIceberg's catalogs use functions and classes of their modules, and none of these can be passed in. So these names are
replaced, once for the process, by ones that check the caller: within `MetadataFiles.at_hand`, which surrounds the
sink's loads and commits, they do what the sink needs; for any other caller, such as a user's own `table.append()` in
the same process, they do what PyIceberg does. No other module assigns to names of another package; a test checks this.

Replaced are:

* `serializers.FromInputFile.table_metadata` and `serializers.ToOutputFile.table_metadata`: each load and each commit
  would read and write a table's whole history, however little is new (apache/iceberg-python#3162);
* `rest.TableResponse` and `rest.CommitTableResponse`: the garbage collector would walk all of a long history, several
  times, while it is parsed;
* `rest.CommitTableRequest`: the request would leave out what a subclass of an update adds, and Nessie refuses a
  schema without `last-column-id`.

One change holds for every caller: types are parsed by `types.IcebergType.handle_primitive_type`, and in lists and maps
by their constructors, which do not know `variant` (apache/iceberg-python#1819). Metadata that could not be loaded for
it can be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps

from pyiceberg import serializers
from pyiceberg.types import IcebergType, ListType, MapType

from iceberg_ds.catalog.metadata_files import read_metadata, write_metadata
from iceberg_ds.table.variant import VariantType

_VARIANT = VariantType()


def share_metadata_files() -> None:
    """Let calls of the sink read and write metadata files through the files that they have at hand."""
    serializers.FromInputFile.table_metadata = staticmethod(read_metadata)  # type: ignore[method-assign]
    serializers.ToOutputFile.table_metadata = staticmethod(write_metadata)  # type: ignore[method-assign]


def fit_rest_messages() -> None:
    """Let calls of the sink parse the answers of REST servers without pauses, and send every field to them."""
    # These imports load the REST catalog's libraries.
    from pyiceberg.catalog import rest  # noqa: PLC0415

    from iceberg_ds.catalog.rest import (  # noqa: PLC0415
        QuickCommitTableResponse,
        QuickTableResponse,
        commit_table_request,
    )

    rest.TableResponse = QuickTableResponse  # type: ignore[misc]
    rest.CommitTableResponse = QuickCommitTableResponse  # type: ignore[attr-defined]  # not exported
    rest.CommitTableRequest = commit_table_request  # type: ignore[assignment,attr-defined]


@cache
def know_variants() -> None:
    """Let PyIceberg parse the type `variant`."""
    parse: Callable[..., IcebergType] = IcebergType.handle_primitive_type.__func__

    def parse_any(cls: type[IcebergType], value: object, handler: object) -> IcebergType:
        return _VARIANT if value == str(_VARIANT) else parse(cls, value, handler)

    IcebergType.handle_primitive_type = classmethod(parse_any)  # type: ignore[assignment,method-assign]
    ListType.__init__ = _parsing(ListType.__init__)  # type: ignore[method-assign]
    MapType.__init__ = _parsing(MapType.__init__)  # type: ignore[method-assign]


def _parsing(construct: Callable[..., None]) -> Callable[..., None]:
    @wraps(construct)
    def parse_and_construct(self: IcebergType, *arguments: object, **data: object) -> None:
        known = {name: _VARIANT if value == str(_VARIANT) else value for name, value in data.items()}
        construct(self, *arguments, **known)

    return parse_and_construct
