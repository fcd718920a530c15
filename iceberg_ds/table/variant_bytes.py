"""Pure: how the parts of a variant lie in its bytes.

Sources: Parquet spec, "Variant Binary Encoding".
"""

from __future__ import annotations

import itertools

# The two low bits of a value's first byte; the other six bits of a flat value are its type.
SHORT_TEXT, OBJECT, ARRAY = 1, 2, 3
NULL = b"\x00"
# Bytes of a flat value, its first byte included, by type; values of other types say how many they have.
_SIZES = {0: 1, 1: 1, 2: 1, 3: 2, 4: 3, 5: 5, 6: 9, 7: 9, 8: 6, 9: 10, 10: 18, 11: 5, 12: 9, 13: 9, 14: 5,
          17: 9, 18: 9, 19: 9, 20: 17}  # fmt: skip
_LONG = 4  # bytes of the size of a large object or array; a small one's has a byte


def unsigned_at(text: bytes, at: int, width: int) -> int:
    """Return the number without a sign that so many bytes are.

    Raises:
        IndexError: The bytes end before.
    """
    if at + width > len(text):
        raise IndexError(at + width)
    return int.from_bytes(text[at : at + width], "little")


def names_in(metadata: bytes) -> list[bytes]:
    """Return the names of the fields, by their ids.

    Raises:
        IndexError: The bytes end before.
    """
    width = (metadata[0] >> 6) + 1
    count = unsigned_at(metadata, 1, width)
    ends = [unsigned_at(metadata, 1 + width * (1 + place), width) for place in range(count + 1)]
    begin = 1 + width * (count + 2)
    if begin + max(ends) > len(metadata):
        raise IndexError(begin + max(ends))
    return [metadata[begin + one : begin + other] for one, other in itertools.pairwise(ends)]


def size_at(value: bytes, at: int) -> int:
    """Return how many bytes a value that is neither an object nor an array has, its first byte included.

    Raises:
        IndexError: The bytes end before it says so.
    """
    info = value[at] >> 2
    if value[at] & 3 == SHORT_TEXT:
        return 1 + info
    return _SIZES.get(info) or 5 + unsigned_at(value, at + 1, 4)


def parts_at(value: bytes, at: int) -> tuple[list[int], list[int]]:
    """Return the ids of the names of an object's fields, none of an array's elements, and where the values begin.

    Raises:
        IndexError: The bytes end before.
    """
    kind, info = value[at] & 3, value[at] >> 2
    is_large, offset_width = info >> (4 if kind == OBJECT else 2) & 1, (info & 3) + 1
    id_width = (info >> 2 & 3) + 1 if kind == OBJECT else 0
    count_width = _LONG if is_large else 1
    ids_at = at + 1 + count_width
    count = unsigned_at(value, at + 1, count_width)
    offsets_at = ids_at + count * id_width
    begin = offsets_at + (count + 1) * offset_width
    ids = [unsigned_at(value, ids_at + place * id_width, id_width) for place in range(count if id_width else 0)]
    offsets = [unsigned_at(value, offsets_at + place * offset_width, offset_width) for place in range(count)]
    return ids, [begin + offset for offset in offsets]
