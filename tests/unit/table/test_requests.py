"""The catalog request that changes a schema: what it requires, what it carries, and what becomes of the table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.update import RemovePropertiesUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType
from pyspark.sql import types as spark
from support.tables.metadata import metadata_of

from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.table.compatibility import ROOT_ID
from iceberg_ds.table.requests import AddSchema
from iceberg_ds.table.schema_evolution import SchemaChanges, changed_schema, metadata_with, schema_request

MAPPING = "schema.name-mapping.default"
ID, NAME = NestedField(1, "id", LongType()), NestedField(2, "name", StringType())
NEW = spark.StructField("new", spark.LongType())


def table(*schemas: Sequence[NestedField], **properties: str) -> TableMetadata:
    """Return a table that has had these columns, the last ones now; `a_b` is property `a.b`."""
    numbered = [Schema(*fields, schema_id=number) for number, fields in enumerate(schemas)]
    return metadata_of(schemas=numbered, properties={key.replace("_", "."): text for key, text in properties.items()})


def changed(metadata: TableMetadata, changes: SchemaChanges) -> Schema:
    """Return the changed schema."""
    return changed_schema(metadata, changes, case_sensitive=None)


def test_request_is_refused_if_another_writer_has_changed_the_schema() -> None:
    """One of two columns that were added at the same moment would be lost, or both would share an id."""
    metadata = table([ID])
    request = schema_request(metadata, changed(metadata, SchemaChanges(added={ROOT_ID: [NEW]})), table_name="db.t")
    others = SchemaChanges(added={ROOT_ID: [spark.StructField("other", spark.LongType())]})
    after = metadata_with(metadata, changed(metadata, others), table_name="db.t")

    for requirement in request.requirements:
        requirement.validate(metadata)
    refusing = []
    for requirement in request.requirements:
        try:
            requirement.validate(after)
        except CommitFailedException:
            refusing.append(requirement.type)
    assert refusing == ["assert-current-schema-id", "assert-last-assigned-field-id"]


def test_new_schema_has_the_next_id_and_tells_the_last_column_id() -> None:
    """PyIceberg's catalogs take schema ids as they come, and some REST catalogs insist on the last column id."""
    metadata = table([ID, NAME], [ID]).model_copy(update={"last_column_id": 7})
    schema = changed(metadata, SchemaChanges(added={ROOT_ID: [NEW]}))

    added, current = schema_request(metadata, schema, table_name="db.t").updates

    assert isinstance(added, AddSchema)
    assert added.schema_.schema_id == 2
    assert added.last_column_id == 8
    assert '"last-column-id":8' in added.model_dump_json()
    assert current == SetCurrentSchemaUpdate(schema_id=-1)
    after = metadata_with(metadata, schema, table_name="db.t")
    assert after.current_schema_id == 2
    assert after.last_column_id == 8
    assert len(after.schemas) == 3


def test_schema_that_the_table_has_had_is_taken_up_under_its_id() -> None:
    """The metadata would grow with every change to and fro."""
    metadata = table([ID], [ID, NAME])

    request = schema_request(metadata, changed(metadata, SchemaChanges(dropped={2})), table_name="db.t")

    assert request.updates == (SetCurrentSchemaUpdate(schema_id=0),)
    assert metadata_with(metadata, metadata.schemas[0], table_name="db.t").current_schema_id == 0


def test_schema_that_differs_in_a_comment_or_key_is_another_one() -> None:
    """A comment would be lost, or a key come back."""
    commented = NestedField(1, "id", LongType(), doc="once", required=True)
    keyed = Schema(NestedField(1, "id", LongType(), required=True), schema_id=1, identifier_field_ids=[1])
    metadata = metadata_of(schemas=[keyed, Schema(commented, schema_id=2), Schema(commented, NAME, schema_id=3)])

    request = schema_request(metadata, Schema(NestedField(1, "id", LongType(), required=True)), table_name="db.t")

    assert isinstance(request.updates[0], AddSchema)
    assert request.updates[0].schema_.schema_id == 4


def test_ids_that_another_writer_has_taken_meanwhile_are_a_conflict() -> None:
    """The values of two columns would be mixed up."""
    planned_for = table([ID])
    schema = changed(planned_for, SchemaChanges(added={ROOT_ID: [NEW]}))
    # Another writer has added a column and dropped it again.
    metadata = planned_for.model_copy(update={"last_column_id": 2})

    with pytest.raises(CommitConflictError, match="another writer has added columns meanwhile"):
        schema_request(metadata, schema, table_name="db.t")


def test_name_mapping_learns_new_fields_at_every_depth() -> None:
    """New columns of files without field ids would read as null."""
    x = NestedField(9, "x", LongType())
    fields = [
        NestedField(3, "s", StructType(x)),
        NestedField(4, "l", ListType(5, StructType(NestedField(10, "x", LongType())))),
        NestedField(6, "m", MapType(7, StringType(), 8, StructType(NestedField(11, "x", LongType())))),
    ]
    before = metadata_of(schemas=[Schema(*fields)])
    mapping = create_mapping_from_schema(before.schema()).model_dump_json()
    metadata = metadata_of(schemas=[Schema(*fields)], properties={MAPPING: mapping})
    inner = spark.StructField("deep", spark.StructType([NEW]))

    schema = changed(metadata, SchemaChanges(added={parent: [inner] for parent in (3, 5, 8, ROOT_ID)}))

    after = metadata_with(metadata, schema, table_name="db.t").name_mapping()
    assert after is not None
    assert after.model_dump() == create_mapping_from_schema(schema).model_dump()


def test_name_mapping_gives_the_name_of_a_replaced_column_to_the_new_one() -> None:
    """Values of the old type would be read as the new one."""
    mapping = '[{"field-id": 1, "names": ["id", "ident"]}, {"field-id": 2, "names": ["name"]}]'
    metadata = metadata_of(schemas=[Schema(ID, NAME)], properties={MAPPING: mapping})

    schema = changed(metadata, SchemaChanges(replaced={1: spark.StructField("id", spark.StringType())}))

    after = metadata_with(metadata, schema, table_name="db.t").name_mapping()
    assert after is not None
    assert {field.field_id: field.names for field in after} == {1: ["ident"], 2: ["name"], 3: ["id"]}


def test_table_without_a_name_mapping_gets_none() -> None:
    """Files would be read by names that were never meant to count."""
    metadata = table([ID])
    schema = changed(metadata, SchemaChanges(added={ROOT_ID: [NEW]}))

    updates = schema_request(metadata, schema, table_name="db.t").updates

    assert not [update for update in updates if isinstance(update, SetPropertiesUpdate)]


def test_name_mapping_that_does_not_parse_is_refused() -> None:
    """Columns of files without field ids would be mixed up."""
    metadata = metadata_of(schemas=[Schema(ID)], properties={MAPPING: "?"})
    schema = changed(metadata, SchemaChanges(added={ROOT_ID: [NEW]}))

    with pytest.raises(
        UnsupportedTableError, match=r"Cannot change the schema of db\.t.*schema\.name-mapping\.default"
    ):
        schema_request(metadata, schema, table_name="db.t")


def test_metrics_modes_go_with_their_columns() -> None:
    """Java's library refuses to change properties that name a column which the table lacks."""
    metadata = table(
        [ID, NAME, NestedField(3, "s", StructType(NestedField(4, "x", LongType())))],
        write_metadata_metrics_column_name="none",
        write_metadata_metrics_column_id="full",
        write_metadata_metrics_column_s_x="counts",
    )

    request = schema_request(metadata, changed(metadata, SchemaChanges(dropped={2, 3})), table_name="db.t")

    assert request.updates[-1] == RemovePropertiesUpdate(
        removals=["write.metadata.metrics.column.name", "write.metadata.metrics.column.s.x"]
    )
    after = metadata_with(metadata, changed(metadata, SchemaChanges(dropped={2, 3})), table_name="db.t")
    assert after.properties == {"write.metadata.metrics.column.id": "full"}
