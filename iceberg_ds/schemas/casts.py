"""Pure: one column of flat values, brought into the type that the table has in its place.

Widens, relabels, and reads text and bytes as what the table holds; a value that cannot be read is refused with
the column's name and an example, never changed. Whole columns at a time, in Arrow. Knows Arrow alone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.errors import SchemaMismatchError

_UUID_BYTES = 16
_UUID = pa.uuid()
# With dashes where they belong or with none, in whatever case.
_UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$|^[0-9a-fA-F]{32}$"
_TIME_TEXT = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_EXAMPLE_LENGTH = 60


def cast_values(values: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return flat `values` as type `target`.

    Args:
        values: Values of a type that can be written into `target`; see `spark_types.is_writable`.
        target: The type in the file.
        path: Name of the column, for errors.

    Raises:
        SchemaMismatchError: Some text is no UUID or time, or some bytes have the wrong length.
    """
    if target == _UUID:
        as_bytes = _parse_uuids if _is_text(values.type) else _with_length
        return pa.ExtensionArray.from_storage(target, as_bytes(values, target.storage_type, path))
    if pa.types.is_fixed_size_binary(target):
        return _with_length(values, target, path)
    if pa.types.is_time64(target) and _is_text(values.type):
        return _parse_times(values, target, path)
    return values.cast(target)


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _with_length(values: pa.Array, target: pa.FixedSizeBinaryType, path: str) -> pa.Array:
    length = target.byte_width
    _refuse(pc.not_equal(pc.binary_length(values), length), values, path, f"not {length} bytes long")
    return values.cast(target)


def _parse_uuids(texts: pa.Array, target: pa.FixedSizeBinaryType, path: str) -> pa.Array:
    _refuse(pc.invert(pc.match_substring_regex(texts, _UUID_TEXT)), texts, path, "no UUID")
    digits = pc.replace_substring(texts.drop_null(), "-", "")
    parsed = bytes.fromhex("".join(digits.to_pylist()))
    known = pa.Array.from_buffers(target, len(digits), [None, pa.py_buffer(parsed)])
    return pc.replace_with_mask(pa.nulls(len(texts), target), texts.is_valid(), known) if texts.null_count else known


def _parse_times(texts: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    _refuse(pc.invert(pc.match_substring_regex(texts, _TIME_TEXT)), texts, path, "no time of a day (HH:MM:SS.ffffff)")
    moments = pc.binary_join_element_wise("1970-01-01 ", texts.cast(pa.string()), "").cast(pa.timestamp("us"))
    return moments.view(pa.int64()).view(target)


def _refuse(is_bad: pa.Array, values: pa.Array, path: str, what: str) -> None:
    bad = values.filter(is_bad)
    if len(bad):
        raise SchemaMismatchError(
            f"Cannot write into column '{path}': {len(bad)} of {len(values)} values are {what}, "
            f"for example {_example(bad[0])}: convert or filter them."
        )


def _example(value: pa.Scalar) -> str:
    # Spark's strings may hold bytes that are no UTF-8.
    raw = value.as_buffer().to_pybytes()
    return repr(raw if pa.types.is_binary(value.type) else raw.decode(errors="replace"))[:_EXAMPLE_LENGTH]
