"""Variable-length integers: zigzag, then seven bits a byte, lowest first, top bit = more follow.

Owns the one cache of encoded numbers. Encoding looks small numbers up; decoding of the long forms
is here, the short ones are written out where records are read, since a call costs more than they.
"""

from typing import Final

from tidelog.wire.batch.layout import INT64_MAX, INT64_MIN, UINT64_MAX

VARINT_BYTES_MAX: Final = 10
"""A 64-bit number; a reader accepts any number in more bytes than it needs, up to these."""

_CACHED_MAGNITUDE_MAX: Final = 8_192


def encode_varint(number: int) -> bytes:
    """The encoded form of a number, of which 64 bits are kept, as of a sum in Java."""
    if not INT64_MIN <= number <= INT64_MAX:
        number = ((number - INT64_MIN) & UINT64_MAX) + INT64_MIN
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class _VarintCache(dict[int, bytes]):
    """Numbers encoded with constant bytes before and after; each computed at its first use.

    Large ones are not kept, so that the caches stay small whatever is encoded.
    """

    def __init__(self, *, before: bytes = b"", after: bytes = b"") -> None:
        super().__init__()
        self._before = before
        self._after = after

    def __missing__(self, number: int) -> bytes:
        encoded = self._before + encode_varint(number) + self._after
        if -_CACHED_MAGNITUDE_MAX <= number <= _CACHED_MAGNITUDE_MAX:
            self[number] = encoded
        return encoded


VARINTS: Final[dict[int, bytes]] = _VarintCache()

NULL_THEN_VARINTS: Final[dict[int, bytes]] = _VarintCache(before=b"\x01")
"""The length -1 of a key that is null, then the length of a value."""

LEADS: Final[dict[int, bytes]] = _VarintCache(after=b"\x00")
"""The length of a record, then its attributes, always 0."""

LEADS_AFTER_PLAIN: Final[dict[int, bytes]] = _VarintCache(before=b"\x00", after=b"\x00")
"""The same after a record without headers: its header count, 0, goes first."""

_counted: list[bytes] = []


def counted_varints(count: int) -> list[bytes]:
    """The encoded forms of 0, 1, 2 …, at least `count` of them: a batch's offset deltas."""
    have = len(_counted)
    if have < count:
        # A slice of fixed place: two threads at once write the same bytes and never shorten it.
        _counted[have:count] = [encode_varint(number) for number in range(have, count)]
    assert len(_counted) >= count, f"{len(_counted)} offset deltas for {count} records"
    return _counted


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it; errors as of `decode_zigzag`."""
    number, position = decode_zigzag(data, position)
    return (number >> 1) ^ -(number & 1), position


def decode_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position` as it is encoded, unsigned, and the position after it.

    IndexError beyond the end of the data, ValueError if it is longer than ten bytes. Bits above 64
    are dropped, as in Java.
    """
    number = data[position]
    if number < 0x80:
        return number, position + 1
    byte = data[position + 1]
    number += (byte << 7) - 0x80
    if byte < 0x80:
        return number, position + 2
    number &= 0x3FFF
    position += 2
    for shift in range(14, 7 * VARINT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & UINT64_MAX, position
    raise ValueError("a number is longer than ten bytes")
