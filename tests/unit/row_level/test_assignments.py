"""Which column, or field of a struct, an assignment names; without Spark."""

from __future__ import annotations

import pytest
from pyiceberg.types import LongType, NestedField, StructType

from iceberg_ds.errors import OptionError
from iceberg_ds.row_level.assignments import Assignments

_INNER = StructType(NestedField(field_id=20, name=" ", field_type=LongType()))
_NAMES = ("id", " ", "./x", "a b", "a.b", "c`d")
_FIELDS = (
    *(NestedField(field_id=number, name=name, field_type=LongType()) for number, name in enumerate(_NAMES, start=1)),
    NestedField(field_id=10, name="s", field_type=_INNER),
)


def assigned(name: str) -> Assignments:
    """Return an assignment to what a name means."""
    return Assignments("update db.t", _FIELDS, {name: "1"}, case_sensitive=None)


@pytest.mark.parametrize("name", ["`id`", "` `", "`./x`", "./x", "`a b`", "`a.b`", "`c``d`", "s.` `", " "])
def test_column_of_any_name_is_found(name: str) -> None:
    """A column that the table has could not be set, because no table may have such a name."""
    assert assigned(name).expressions == ["1"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nme", "there is no 'nme' (there are: id,  , ./x, a b, a.b, c`d, s)"),
        ("", "there is no ''"),
        ("s.", "there is no '' (there are:  )"),
        ("/lake/t", "there is no '/lake/t'"),
        ("`id", "each as it is or whole in backticks"),
    ],
)
def test_name_of_no_column_is_said_to_be_that(name: str, said: str) -> None:
    """The error would be about a table, such as that namespace and table are separated by a dot."""
    with pytest.raises(OptionError) as refused:
        assigned(name)

    assert f"Cannot update db.t: '{name}' is no column that can be set: " in str(refused.value)
    assert said in str(refused.value)
