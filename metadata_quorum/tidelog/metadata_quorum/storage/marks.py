"""What is known to be durable, as bytes: one entry after a flush of the journal. Pure.

A mark says that every block up to `sequence` was flushed, and what the log and the hard state were
then. It tells a torn tail from damage (docs/adr/0011-quorum-storage.md), and stands in for a lost
tail. Each entry is written twice, side by side: one flipped bit takes no mark away. A mark also
names the boot of the machine that its writer lived in, as a tag: in the same boot nothing that was
written can be missing.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM, HardState
from tidelog.metadata_quorum.storage.state_layout import STATE_BYTES, decode_state, encode_state
from tidelog.wire.batch import checksum
from tidelog.wire.ids import LogIndex, Term

FILE_NAME: Final = "marks"
_MAGIC: Final = b"TQM1"
BOOT_TAG_BYTES: Final = 16
NO_BOOT: Final = bytes(BOOT_TAG_BYTES)
"""The boot is not known: it is never the same as another."""

_BODY: Final = struct.Struct(f"<4sQQQQQQQ{STATE_BYTES}s{BOOT_TAG_BYTES}sQ")
_SUM: Final = struct.Struct("<I")
COPY_BYTES: Final = _BODY.size + _SUM.size
ENTRY_BYTES: Final = 2 * COPY_BYTES


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What a flush has made durable."""

    sequence: int
    """Of the newest block that is durable."""
    since_sequence: int
    """Of the mark before."""
    lowest_from: LogIndex
    """The lowest index that a block behind `since_sequence` cut the log from; 0: there is none."""
    base_index: LogIndex
    """Before the log's first entry, and that entry's term."""
    base_term: Term
    end_index: LogIndex
    """The log's last entry, and its term."""
    end_term: Term
    hard_state: HardState
    boot: bytes = NO_BOOT
    """`boot_tag` of the boot in which everything behind this mark was written."""
    segment_bytes: int = 0
    """How long the newest segment was; 0: not known, or there was none."""


FIRST_MARK: Final = Mark(
    sequence=0,
    since_sequence=0,
    lowest_from=NO_INDEX,
    base_index=NO_INDEX,
    base_term=NO_TERM,
    end_index=NO_INDEX,
    end_term=NO_TERM,
    hard_state=HardState(),
)


def boot_tag(boot_id: str) -> bytes:
    """BOOT_TAG_BYTES that stand for a boot id of any length; NO_BOOT for an empty one."""
    if not boot_id:
        return NO_BOOT
    return hashlib.blake2b(boot_id.encode(), digest_size=BOOT_TAG_BYTES).digest()


def encode_mark(mark: Mark) -> bytes:
    """ENTRY_BYTES."""
    body = _BODY.pack(
        _MAGIC,
        mark.sequence,
        mark.since_sequence,
        mark.lowest_from,
        mark.base_index,
        mark.base_term,
        mark.end_index,
        mark.end_term,
        encode_state(mark.hard_state),
        mark.boot,
        mark.segment_bytes,
    )
    return 2 * (body + _SUM.pack(checksum(body)))


def newest_mark(data: bytes) -> Mark | None:
    """The whole copy of the highest sequence, the last one of equal ones; None: there is none."""
    newest = None
    for mark in _whole_marks(data):
        if newest is None or mark.sequence >= newest.sequence:
            newest = mark
    return newest


def _whole_marks(data: bytes) -> Iterator[Mark]:
    """Copies stand at multiples of their size."""
    for position in range(0, len(data) - COPY_BYTES + 1, COPY_BYTES):
        body = data[position : position + _BODY.size]
        (stored,) = _SUM.unpack_from(data, position + _BODY.size)
        if body[:4] == _MAGIC and checksum(body) == stored:
            yield _decode(body)


def _decode(body: bytes) -> Mark:
    fields = _BODY.unpack(body)
    return Mark(
        sequence=fields[1],
        since_sequence=fields[2],
        lowest_from=LogIndex(fields[3]),
        base_index=LogIndex(fields[4]),
        base_term=Term(fields[5]),
        end_index=LogIndex(fields[6]),
        end_term=Term(fields[7]),
        hard_state=decode_state(fields[8]),
        boot=fields[9],
        segment_bytes=fields[10],
    )
