"""Puts a header with right lengths and a right checksum around any bytes.

Owns what a malicious writer can do: everything behind a checksum that fits.
"""

import struct
from typing import Final

from tidelog.wire.batch import Codec, checksum

_LENGTH_AT: Final = 8
_PREFIX_BYTES: Final = 12
_CHECKSUM_AT: Final = 17
_SUMMED_AT: Final = 21


def seal_body(body: bytes, *, codec: Codec, record_count: int) -> bytes:
    """A batch without producer around a body as the codec left it."""
    summed = struct.pack(
        ">hiqqqhii", codec, record_count - 1, 1_000, 1_000, -1, -1, -1, record_count
    )
    return repair(bytearray(struct.pack(">qiibI", 0, 0, -1, 2, 0) + summed + body))


def repair(batch: bytearray) -> bytes:
    """The batch with batch length and checksum set to what its bytes are."""
    if len(batch) >= _SUMMED_AT:
        struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - _PREFIX_BYTES)
        struct.pack_into(">I", batch, _CHECKSUM_AT, checksum(batch[_SUMMED_AT:]))
    return bytes(batch)
