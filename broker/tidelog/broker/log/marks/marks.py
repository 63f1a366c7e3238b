"""What a data directory knows to be durable of its partitions: small entries, one behind the other.

Pure. The last whole entry of a kind counts, so that a mark can also go down: before a log is cut
below what was flushed, the lower mark is written and flushed.

Where a log begins is told by two entries, one directly behind the other: the leader epoch that
moved the start there, then the start. A start without such an entry right before it was stored by
an earlier version: then nobody knows who moved it, which is the safe reading
(`replication/log_start`). One right behind a damaged entry is not believed: a crash has torn them
apart before anybody acted on them, or the epoch has rotted, and then both stand in the other file
(`marks.file`). An epoch without a start behind it says nothing.

An entry that tells of a flush is written after the flush has ended, and becomes durable with the
next round: a crash of the machine may lose the marks of the last round, and then less is known; the
death of the process alone loses none.

A file that is made anew ends with a stamp, which names the broker epoch; what comes later is behind
it. By it a start tells a file that has lost its beginning, or is older, from the one that it left
(`epoch_file`).

    topic id (16) | partition u32 | kind u8 | zero (3) | value i64 | CRC-32C over the rest u32
"""

import enum
import struct
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.wire.batch import checksum
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

_BODY: Final = struct.Struct(">16sIB3xq")
_SUM: Final = struct.Struct(">I")
ENTRY_BYTES: Final = _BODY.size + _SUM.size
NO_STAMP: Final = -1


class MarkKind(enum.IntEnum):
    """Stored numbers: a kind that is not known is skipped."""

    FLUSHED = 1
    """Everything below the offset is durable."""
    LOG_START = 2
    """The log begins here; what lies below may be gone."""
    GAPS = 3
    """From this offset on offsets may ascend with gaps: a follower copies a compacted log."""
    COMMITTED = 4
    """The high watermark of one of several replicas was here, or further: what is above it in a log
    that is opened again may be uncommitted."""
    LOG_START_EPOCH = 5
    """The leader epoch that moved the start which the next entry tells."""
    STAMP = 6
    """Of the directory, not of a partition: the broker epoch under which the file was made. All
    entries before it were durable before the file got its name."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """One entry."""

    key: PartitionKey
    kind: MarkKind
    value: int


class PartitionMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What the file tells of one partition."""

    flushed_offset: int = 0
    log_start_offset: int = 0
    log_start_epoch: int = -1
    """Whose leader moved the start there; -1: not known, or never moved."""
    committed_offset: int = 0
    gaps_from: int = -1
    """-1: offsets are contiguous."""


NO_MARKS: Final = PartitionMarks()
_DIRECTORY: Final = PartitionKey(TopicId(bytes(16)), PartitionId(0))
"""Of whom a stamp tells: the id is no topic's."""
_FIELDS: Final = {
    MarkKind.FLUSHED: "flushed_offset",
    MarkKind.LOG_START: "log_start_offset",
    MarkKind.GAPS: "gaps_from",
    MarkKind.COMMITTED: "committed_offset",
}
_KINDS: Final = {int(kind) for kind in MarkKind}


def encode_marks(marks: Iterable[Mark]) -> bytes:
    """Entries in the order given."""
    pieces = []
    for mark in marks:
        assert mark.value >= 0, f"{mark.key}: no offset is below zero: {mark.value}"
        body = _BODY.pack(mark.key.topic_id, mark.key.partition, mark.kind, mark.value)
        pieces += [body, _SUM.pack(checksum(body))]
    return b"".join(pieces)


def marks_of(key: PartitionKey, known: PartitionMarks) -> list[Mark]:
    """The entries that tell as much, for a file that is made anew."""
    marks = []
    if known.flushed_offset > 0:
        marks.append(Mark(key, MarkKind.FLUSHED, known.flushed_offset))
    if known.log_start_offset > 0:
        marks += start_marks(key, known.log_start_offset, known.log_start_epoch)
    if known.committed_offset > 0:
        marks.append(Mark(key, MarkKind.COMMITTED, known.committed_offset))
    if known.gaps_from >= 0:
        marks.append(Mark(key, MarkKind.GAPS, known.gaps_from))
    return marks


def start_marks(key: PartitionKey, offset: int, leader_epoch: int) -> list[Mark]:
    """Where a log begins, and by which leader's word if that is known."""
    start = Mark(key, MarkKind.LOG_START, offset)
    if leader_epoch < 0:
        return [start]
    return [Mark(key, MarkKind.LOG_START_EPOCH, leader_epoch), start]


def decode_marks(data: bytes) -> Mapping[PartitionKey, PartitionMarks]:
    """What the last whole entry of each kind says of each partition; torn entries are skipped."""
    found: dict[PartitionKey, PartitionMarks] = {}
    before: tuple[PartitionKey, int] | None = None
    """What the entry before says of the next one, if it is a LOG_START_EPOCH."""
    is_behind_damage = False
    for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        epoch_of, before = before, None
        is_torn_off, is_behind_damage = is_behind_damage, False
        body = data[position : position + _BODY.size]
        (stored,) = _SUM.unpack_from(data, position + _BODY.size)
        if checksum(body) != stored:
            is_behind_damage = True
            continue
        topic_id, partition, kind, value = _BODY.unpack(body)
        if kind == MarkKind.LOG_START and is_torn_off:
            continue
        if kind not in _KINDS:
            continue
        if kind == MarkKind.STAMP:
            continue
        key = PartitionKey(TopicId(topic_id), PartitionId(partition))
        if kind == MarkKind.LOG_START_EPOCH:
            before = (key, value)
            found.setdefault(key, NO_MARKS)
            continue
        known = found.get(key, NO_MARKS)
        told = {_FIELDS[MarkKind(kind)]: value}
        if kind == MarkKind.LOG_START:
            # Of another start the epoch that was known before says nothing.
            is_marked = epoch_of is not None and epoch_of[0] == key
            told["log_start_epoch"] = epoch_of[1] if is_marked and epoch_of else -1
        found[key] = msgspec.structs.replace(known, **told)
    return found


def stamp(epoch: int) -> Mark:
    """The last entry of a file that is made under the broker epoch."""
    return Mark(_DIRECTORY, MarkKind.STAMP, epoch)


def stamped_epoch(data: bytes) -> int:
    """Under which broker epoch the file was made; `NO_STAMP` where it has no stamp, or where an
    entry before the stamp cannot be made out: one of those was durable, and is damaged.

    Behind the stamp a crash of the machine may have torn anything.
    """
    for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        body = data[position : position + _BODY.size]
        (stored,) = _SUM.unpack_from(data, position + _BODY.size)
        if checksum(body) != stored:
            return NO_STAMP
        _, _, kind, value = _BODY.unpack(body)
        if kind == MarkKind.STAMP:
            return int(value)
    return NO_STAMP
