"""Requests of a commit to the catalog, as values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

# Id by which a request names a schema, spec or order that it adds itself.
LAST_ADDED = -1


class AddSchema(AddSchemaUpdate):
    """PyIceberg's update with `last-column-id`, which PyIceberg's own lacks and some REST catalogs require.

    Source: REST catalog spec, `AddSchemaUpdate`; `catalog.rest_messages` puts the entry into the message.
    """

    last_column_id: int = Field(alias="last-column-id")


class UpgradeFormatVersion(UpgradeFormatVersionUpdate):
    """PyIceberg's update; `pyiceberg_patches` carries it out for version 3, too, which PyIceberg 0.12 refuses."""


class AssertNoOthers(AssertTableUUID):
    """The table has nothing of some kind beside what is in `names`.

    The REST catalog spec has no such requirement: only for catalogs whose requests this process carries out itself.
    """

    names: frozenset[str]

    @abstractmethod
    def found(self, metadata: TableMetadata) -> frozenset[str]:
        """Return the names of all that a table has of that kind."""

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]  # as all requirements do
        """Raise `CommitFailedException` if there is another one."""
        super().validate(base_metadata)
        if base_metadata is not None and (others := self.found(base_metadata) - self.names):
            raise CommitFailedException(f"Requirement failed: '{min(others)}' was created meanwhile")


class AssertNoOtherRefs(AssertNoOthers):
    """The table has no branch or tag beside those in `names`."""

    def found(self, metadata: TableMetadata) -> frozenset[str]:
        """Return the names of the branches and tags."""
        return frozenset(metadata.refs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """What one attempt sends to the catalog, which applies the whole request or refuses it."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def joined(requests: Sequence[CommitRequest]) -> CommitRequest | None:
    """Return one request that does what all requests do, each made from the table as the one before leaves it.

    Returns:
        None without requests. Of each kind of requirement, the first one in `requests` is kept: only its request has
        seen that part of the table as the catalog has it.
    """
    if not requests:
        return None
    required: dict[type[TableRequirement], TableRequirement] = {}
    for request in requests:
        for requirement in request.requirements:
            required.setdefault(type(requirement), requirement)
    return CommitRequest(
        requirements=tuple(required.values()),
        updates=tuple(update for request in requests for update in request.updates),
    )


def spec_request(metadata: TableMetadata, spec: PartitionSpec, *, is_default: bool = True) -> CommitRequest:
    """Return the request that adds a partition spec, unless the table has it, and makes it default if `is_default`."""
    is_known = spec.spec_id in metadata.specs()
    default = SetDefaultSpecUpdate(spec_id=spec.spec_id if is_known else LAST_ADDED)
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            AssertLastAssignedPartitionId(
                last_assigned_partition_id=metadata.last_partition_id or PARTITION_FIELD_ID_START - 1
            ),
        ),
        updates=(*(() if is_known else (AddPartitionSpecUpdate(spec=spec),)), *((default,) if is_default else ())),
    )
