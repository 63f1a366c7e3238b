"""What a zstd frame declares, read before it is decompressed.

Owns the check that decompression will not need more memory than it may: a decoder sets its window
aside as soon as it has read twelve bytes of a frame, whatever follows.
"""

from typing import Final

from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch
from tidelog.wire.batch.limits import ZSTD_WINDOW_BYTES_MAX

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SINGLE_SEGMENT_BIT: Final = 0x20
_CHECKSUM_BIT: Final = 0x04
_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)
_CONTENT_BYTES_BYTES: Final = (0, 2, 4, 8)
_BLOCK_HEADER_BYTES: Final = 3
_CHECKSUM_BYTES: Final = 4
_RAW, _REPEATED = 0, 1


def check_zstd_frame(data: bytes, cap: int, tried: str) -> int | None:
    """The declared number of decompressed bytes, if there is one.

    Refuses whatever is not exactly one frame, needs too large a window, or is known to become more
    bytes than the cap.
    """
    try:
        content_bytes, at = _read_frame_header(data, tried)
        at, least_bytes = _skip_blocks(data, at, cap)
    except IndexError:
        raise CorruptBatch(tried=tried, happened="its zstd frame is cut off") from None
    at += _CHECKSUM_BYTES if data[4] & _CHECKSUM_BIT else 0
    known_bytes = max(content_bytes or 0, least_bytes)
    if known_bytes > cap:
        raise BatchTooLarge(
            tried=tried,
            happened=f"{len(data)} compressed bytes become at least {known_bytes}, "
            f"{cap} are admitted",
        )
    if at != len(data):
        raise CorruptBatch(tried=tried, happened=f"its zstd frame ends at byte {at}")
    return content_bytes


def _read_frame_header(data: bytes, tried: str) -> tuple[int | None, int]:
    if not data.startswith(_MAGIC):
        raise CorruptBatch(tried=tried, happened="it does not begin with a zstd frame")
    descriptor = data[4]
    at = 5
    is_single_segment = descriptor & _SINGLE_SEGMENT_BIT != 0
    if not is_single_segment:
        _check_window(data[at], tried)
        at += 1
    at += _DICTIONARY_ID_BYTES[descriptor & 3]
    size = _CONTENT_BYTES_BYTES[descriptor >> 6]
    if size == 0 and not is_single_segment:
        return None, at
    size = size or 1
    content_bytes = int.from_bytes(data[at : at + size], "little")
    # Two bytes count from 256 on: less fits into one.
    return content_bytes + (256 if size == 2 else 0), at + size


def _check_window(described: int, tried: str) -> None:
    base = 1 << (10 + (described >> 3))
    window_bytes = base + base // 8 * (described & 7)
    if window_bytes > ZSTD_WINDOW_BYTES_MAX:
        raise BatchTooLarge(
            tried=tried,
            happened=f"its zstd frame needs a window of {window_bytes} bytes, "
            f"the limit is {ZSTD_WINDOW_BYTES_MAX}",
        )


def _skip_blocks(data: bytes, at: int, cap: int) -> tuple[int, int]:
    """Where the blocks end, and the bytes that they become for certain; stops beyond the cap."""
    least_bytes = 0
    is_last = False
    while not is_last and least_bytes <= cap:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        at += _BLOCK_HEADER_BYTES
        is_last = head & 1 != 0
        kind, size = head >> 1 & 3, head >> 3
        if kind in {_RAW, _REPEATED}:
            least_bytes += size
        at += 1 if kind == _REPEATED else size
    return at, least_bytes
