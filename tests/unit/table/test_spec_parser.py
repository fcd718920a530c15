"""The texts of `partition-by` and `sort-by`: what they mean, that they survive a round trip, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import NestedField

from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.spec_parser import PartitionTerm, SortTerm, find_source, parse_partition_by, parse_sort_by

ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST

ONE_TERM: list[tuple[str, Transform[Any, Any], str]] = [
    ("region", IdentityTransform(), "region"),
    ("identity(region)", IdentityTransform(), "region"),
    ("day", IdentityTransform(), "day"),
    ("bucket", IdentityTransform(), "bucket"),
    ("year(ts)", YearTransform(), "ts"),
    ("years(ts)", YearTransform(), "ts"),
    ("month(ts)", MonthTransform(), "ts"),
    ("months(ts)", MonthTransform(), "ts"),
    ("day(ts)", DayTransform(), "ts"),
    ("days(ts)", DayTransform(), "ts"),
    ("hour(ts)", HourTransform(), "ts"),
    ("hours(ts)", HourTransform(), "ts"),
    ("DAYS ( ts )", DayTransform(), "ts"),
    ("bucket(16, id)", BucketTransform(16), "id"),
    ("Bucket(id,16)", BucketTransform(16), "id"),
    ("bucket(2147483647, id)", BucketTransform(2**31 - 1), "id"),
    ("truncate(4, s)", TruncateTransform(4), "s"),
    ("truncate(s, 4)", TruncateTransform(4), "s"),
    ("truncate(4, `16`)", TruncateTransform(4), "`16`"),
    ("a.b.c", IdentityTransform(), "a.b.c"),
    ("day(a.b)", DayTransform(), "a.b"),
    ("`a.b`", IdentityTransform(), "`a.b`"),
    ("`a.b`.c", IdentityTransform(), "`a.b`.c"),
    ("`region`", IdentityTransform(), "region"),
    ("`x``y`", IdentityTransform(), "`x``y`"),
    ("day(`two words`)", DayTransform(), "`two words`"),
    ("größe", IdentityTransform(), "größe"),
    ("列", IdentityTransform(), "列"),
    ("`\U0001f600`", IdentityTransform(), "`\U0001f600`"),
    ("my-column", IdentityTransform(), "`my-column`"),
    ("\n region\t", IdentityTransform(), "region"),
]


@pytest.mark.parametrize(("text", "transform", "source"), ONE_TERM)
def test_term_is_understood_and_gives_back_its_text(text: str, transform: Transform[Any, Any], source: str) -> None:
    """A table would be partitioned by something else than what was asked for."""
    terms = parse_partition_by(text)

    assert terms == (PartitionTerm(transform, source),)
    assert parse_partition_by(str(terms[0])) == terms


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("bucket(16, id) as id_b", "id_b", "bucket(16, id) as id_b"),
        ("day(ts) AS `my ``day`", "my `day", "day(ts) as `my ``day`"),
        ("region As as", "as", "region as as"),
        ("a.b as c", "c", "a.b as c"),
    ],
)
def test_term_may_name_its_field_and_gives_back_its_text(text: str, name: str, shown: str) -> None:
    """Partition fields would have other names than the ones that were asked for."""
    (term,) = parse_partition_by(text)

    assert term.name == name
    assert str(term) == shown
    assert parse_partition_by(shown) == (term,)


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_no_text_is_no_partitioning_and_no_order(text: str) -> None:
    """A table could not be said to have no partitions, or rows would be sorted by nothing, without a word."""
    assert parse_partition_by(text) == ()
    with pytest.raises(ValueError, match="the end stands where a column is needed, expected columns or transforms"):
        parse_sort_by(text)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("day(ts) as", "the end stands where a column is needed"),
        ("day(ts) as d, region as d", "the name d is given to several partition fields"),
        ("day(ts) as d, region as D", "the name D, d is given to several partition fields"),
        ("day(ts) as d, day(ts) as e", "day(ts) is given more than once"),
        ("day(ts) as d desc", "'desc' after day(ts) as d is not understood"),
        ("day(ts) d", "'d' after day(ts) is not understood"),
    ],
)
def test_bad_name_of_a_field_is_refused(text: str, fragment: str) -> None:
    """People would have to guess what is wrong with an option."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is checked below
        parse_partition_by(text)

    assert fragment in str(refused.value)


def test_names_belong_to_partition_fields_alone() -> None:
    """A sort order would seem to have names."""
    with pytest.raises(ValueError, match="'as' after id asc nulls first is not understood"):
        parse_sort_by("id as key")


def test_terms_are_separated_by_commas_and_keep_their_order() -> None:
    """Partitions would nest in another order, or terms be lost."""
    terms = parse_partition_by("days(ts), bucket(16, id),truncate(s, 4) , region")

    assert [str(term) for term in terms] == ["day(ts)", "bucket(16, id)", "truncate(4, s)", "region"]


@pytest.mark.parametrize(
    ("text", "direction", "nulls"),
    [
        ("id", ASC, FIRST),
        ("id asc", ASC, FIRST),
        ("id ASC NULLS LAST", ASC, LAST),
        ("id nulls last", ASC, LAST),
        ("id desc", DESC, LAST),
        ("id Desc Nulls First", DESC, FIRST),
    ],
)
def test_sort_term_has_icebergs_default_directions(text: str, direction: SortDirection, nulls: NullOrder) -> None:
    """Rows with nulls would be sorted to the other end than other engines of the same table do."""
    terms = parse_sort_by(text)

    assert terms == (SortTerm("id", IdentityTransform(), direction, nulls),)
    assert parse_sort_by(str(terms[0])) == terms


def test_sort_terms_take_transforms_and_columns_called_like_keywords() -> None:
    """Tables could not be sorted by buckets, or by a column with the name of a direction."""
    terms = parse_sort_by("bucket(16, id) asc, desc desc, nulls nulls last")

    assert terms == (
        SortTerm("id", BucketTransform(16), ASC, FIRST),
        SortTerm("desc", IdentityTransform(), DESC, LAST),
        SortTerm("nulls", IdentityTransform(), ASC, LAST),
    )
    assert ", ".join(map(str, terms)) == ("bucket(16, id) asc nulls first, desc desc nulls last, nulls asc nulls last")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (",", "',' stands where a column is needed"),
        ("a,", "the end stands where a column is needed"),
        ("a,,b", "',' stands where a column is needed"),
        ("a..b", "'.' stands where a column is needed"),
        ("a.", "the end stands where a column is needed"),
        ("day(", "the end stands where a column is needed"),
        ("day()", "')' stands where a column is needed"),
        ("day(a", "the parenthesis after day is not closed"),
        ("day(a b)", "the parenthesis after day is not closed"),
        ("day(a, b)", "day takes one column"),
        ("day(1, a)", "day takes one column"),
        ("bucket(id)", "bucket takes one column and one number"),
        ("bucket(16)", "bucket takes one column and one number"),
        ("bucket(16, 17)", "bucket takes one column and one number"),
        ("bucket(-1, id)", "bucket takes one column and one number"),
        ("bucket(0, id)", "the number of bucket is 0, expected 1 to 2147483647"),
        ("truncate(2147483648, s)", "the number of truncate is 2147483648"),
        ("zorder(a)", "zorder is not a transform: use identity, year, years"),
        ("void(a)", "void is not a transform"),
        ("day(day(ts))", "the parenthesis after day is not closed"),
        ("`a", "'`' stands where a column is needed"),
        ("``", "'`' stands where a column is needed"),
        ("16", "16 is a number where a column is needed: put a column's name in backticks"),
        ("a, b, a", "a is given more than once"),
        ("days(ts), day(ts)", "day(ts) is given more than once"),
    ],
)
def test_bad_text_is_refused_with_the_place_and_what_is_expected(text: str, fragment: str) -> None:
    """People would have to guess what is wrong with an option."""
    for parse in (parse_partition_by, parse_sort_by):
        with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is checked below
            parse(text)

        assert fragment in str(refused.value)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a desc last", "'last' after a desc nulls last is not understood"),
        ("a nulls", "'nulls' after a needs first or last"),
        ("a up", "'up' after a asc nulls first is not understood"),
        ("a desc, a", "a is given more than once"),
    ],
)
def test_bad_direction_is_refused(text: str, fragment: str) -> None:
    """Rows would be sorted otherwise than asked, without a word."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is checked below
        parse_sort_by(text)

    assert fragment in str(refused.value)


def test_direction_in_partition_by_is_refused() -> None:
    """A text for the other option would be taken for something."""
    with pytest.raises(ValueError, match="'desc' after ts is not understood"):
        parse_partition_by("ts desc")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3))
def test_any_name_can_be_quoted(names: list[str]) -> None:
    """Columns with odd names could not be partitioned by."""
    (term,) = parse_partition_by(f"bucket(4, {identifier_text(names)})")

    innermost = NestedField(len(names), names[-1], ice.LongType())
    for field_id in range(len(names) - 1, 0, -1):
        innermost = NestedField(field_id, names[field_id - 1], ice.StructType(innermost))
    assert term.source == identifier_text(names)
    assert find_source(term.source, Schema(innermost)).field_id == len(names)


NESTED = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "ID", ice.LongType()),
    NestedField(3, "Region", ice.StringType()),
    NestedField(4, "s", ice.StructType(NestedField(5, "Ts", ice.TimestampType()))),
    NestedField(6, "s.t", ice.StringType()),
    NestedField(7, "l", ice.ListType(8, ice.StructType(NestedField(9, "x", ice.LongType())))),
)


@pytest.mark.parametrize(
    ("source", "field_id"), [("id", 1), ("ID", 2), ("region", 3), ("S.ts", 5), ("s.Ts", 5), ("`s.t`", 6)]
)
def test_source_is_found_by_its_exact_name_else_in_any_case(source: str, field_id: int) -> None:
    """A table would be partitioned by another column than the one that was named."""
    assert find_source(source, NESTED).field_id == field_id


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ("Id", "'Id' could be any of 'id', 'ID'"),
        ("x", "there is no column x among id, ID, Region, s, `s.t`, l"),
        ("s.u", "there is no column u among Ts"),
        ("l.x", "column l is list<struct<9: x: optional long>>, and only structs have fields of their own"),
        ("region.x", "column Region is string, and only structs have fields"),
    ],
)
def test_source_that_is_not_there_is_named_beside_those_that_are(source: str, fragment: str) -> None:
    """People would have to guess why a column is not found."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is checked below
        find_source(source, NESTED)

    assert fragment in str(refused.value)
