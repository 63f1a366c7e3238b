"""Variable-length integers: zigzag, then seven bits a byte, lowest first, top bit = more follow.

Owns the one cache of encoded numbers. Encoding looks small numbers up; decoding of the long forms
is here, the short ones are written out where records are read, since a call costs more than they.
"""

from typing import Final

from tidelog.wire.batch.layout import INT64_MAX, INT64_MIN

VARINT_BYTES_MAX: Final = 10
"""A 64-bit number; a reader accepts any number in more bytes than it needs, up to these."""

_CACHED_MAGNITUDE_MAX: Final = 8_192


def encode_varint(number: int) -> bytes:
    """The encoded form of a signed 64-bit number."""
    assert INT64_MIN <= number <= INT64_MAX, f"{number} does not fit 64 bits"
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class _VarintCache(dict[int, bytes]):
    """Encoded numbers, each computed at its first use; large ones are not kept."""

    def __missing__(self, number: int) -> bytes:
        encoded = encode_varint(number)
        if -_CACHED_MAGNITUDE_MAX <= number <= _CACHED_MAGNITUDE_MAX:
            self[number] = encoded
        return encoded


VARINTS: Final[dict[int, bytes]] = _VarintCache()


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it; IndexError beyond the end of the data.

    ValueError if it is longer than ten bytes or does not fit 64 bits.
    """
    rest = 0
    shift = 0
    while True:
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * VARINT_BYTES_MAX:
            raise ValueError("a number is longer than ten bytes")
    if rest >> 64:
        raise ValueError("a number does not fit 64 bits")
    return (rest >> 1) ^ -(rest & 1), position
