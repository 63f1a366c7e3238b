"""What a clean stop leaves, so that the next start reads one file and no partition: the format.

Pure. Owns the bytes of `log_checkpoint`. It must never be believed in part: a file that is damaged
anywhere, cut off, or of a newer format tells nothing, and the logs are opened the long way.

    head     magic, format version, checksum
    frames   length u32, checksum u32, msgpack of `CleanLog`; one for each partition
    foot     the frame of length 0: its checksum field holds the number of frames before it

The file is written once all logs are flushed, and consumed by the next start: removed, and the
removal made durable, before anything else is written. So what it tells is what lies on the disk.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import astuple, replace

from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.transactions.open import Ended
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_OFFSET, Offset, PartitionId, PartitionKey, TopicId

NAME: Final = "log_checkpoint"
NEW_NAME: Final = "log_checkpoint.new"
MAGIC: Final = b"TIDECLEAN"
FORMAT_VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one partition. A log that takes more is left out, and opened the long way."""


class CleanSegment(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One segment. With a sidecar its summary tells all but for the last field."""

    base_offset: Offset
    generation: int
    summary: Summary | None = None
    size_bytes: int = 0
    next_offset: Offset = Offset(0)
    max_timestamp: int = -1
    first_timestamp: int = -1
    is_sealed: bool = True
    producers_at_end: bytes | None = None
    """As `ProducerState.encode` has it; only of a sealed segment."""
    index: bytes = b""
    """The entries of its index, three i64 each, big endian."""
    producers_before: bytes | None = None
    """The state at its beginning; None: it is not known."""
    are_producers_whole: bool = True
    """Whether its sidecar tells of all producers that the log knew."""
    transactions: bytes = b""
    """As `SegmentTransactions.encode` has it; empty: it holds nothing of any."""


class CleanLog(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One partition; everything of it was flushed."""

    topic_id: TopicId
    partition: PartitionId
    log_start_offset: Offset
    log_end_offset: Offset
    segments: tuple[CleanSegment, ...]
    leader_epochs: tuple[EpochStart, ...]
    producers: bytes
    """As `ProducerState.encode` has it."""
    high_watermark: Offset = NO_OFFSET
    """Of one of several replicas; -1: all of it is committed."""
    ended: tuple[Ended, ...] = ()
    """Transactions of which the markers are not committed."""

    @property
    def committed_offset(self) -> int:
        """Up to where it is."""
        return self.log_end_offset if self.high_watermark < 0 else self.high_watermark

    @property
    def key(self) -> PartitionKey:
        """Which partition."""
        return PartitionKey(self.topic_id, self.partition)


_HEAD: Final = struct.Struct(">9sB")
_SUM: Final = struct.Struct(">I")
_FRAME: Final = struct.Struct(">II")
_SEGMENTS: Final = CleanLog.__struct_fields__.index("segments")
_HEAD_BYTES: Final = _HEAD.size + _SUM.size
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(CleanLog)


def encode_pieces(logs: Iterable[CleanLog]) -> Iterator[bytes]:
    """The file, piece by piece, so that it need not be held whole."""
    head = _HEAD.pack(MAGIC, FORMAT_VERSION)
    yield head + _SUM.pack(checksum(head))
    count = 0
    for log in logs:
        body = _ENCODER.encode(_stored(log))
        if len(body) > FRAME_BYTES_MAX:
            continue
        count += 1
        yield _FRAME.pack(len(body), checksum(body)) + body
    yield _FRAME.pack(0, count)


def _stored(log: CleanLog) -> tuple[object, ...]:
    """Without the last field of a log, or of a segment, that tells nothing of transactions: then it
    is what releases wrote that knew of none."""
    *fields, ended = astuple(replace(log, segments=()))
    fields[_SEGMENTS] = tuple(
        each if each.transactions else astuple(each)[:-1] for each in log.segments
    )
    return (*fields, ended) if ended else tuple(fields)


class CheckpointReader:
    """Takes the file in pieces of any size; `logs` counts once `finish` has returned."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._has_head = False
        self._has_foot = False
        self._taken_bytes = 0
        self.logs: dict[PartitionKey, CleanLog] = {}

    def take(self, data: bytes) -> None:
        """The next piece; STORAGE_CORRUPT at the first damage."""
        self._rest += data
        if not self._has_head and not self._take_head():
            return
        position = 0
        while (end := self._take_frame(position)) is not None:
            position = end
        del self._rest[:position]
        self._taken_bytes += position

    def finish(self) -> dict[PartitionKey, CleanLog]:
        """All logs; STORAGE_CORRUPT if the file was cut off."""
        if not self._has_foot or self._rest:
            raise self._damage("it does not end where its foot is")
        return self.logs

    def _take_head(self) -> bool:
        if len(self._rest) < _HEAD_BYTES:
            return False
        head = bytes(self._rest[: _HEAD.size])
        (stored,) = _SUM.unpack_from(self._rest, _HEAD.size)
        magic, version = _HEAD.unpack(head)
        if magic != MAGIC or checksum(head) != stored:
            raise self._damage("it does not begin as such a file does")
        if version != FORMAT_VERSION:
            raise self._damage(f"it has format {version}, this release reads {FORMAT_VERSION}")
        del self._rest[:_HEAD_BYTES]
        self._taken_bytes += _HEAD_BYTES
        self._has_head = True
        return True

    def _take_frame(self, position: int) -> int | None:
        """Where the frame ends; None: the rest of it, or of the file, is still to come."""
        if self._has_foot or len(self._rest) - position < _FRAME.size:
            return None
        length: int
        stored: int
        length, stored = _FRAME.unpack_from(self._rest, position)
        start = position + _FRAME.size
        if length == 0:
            if stored != len(self.logs):
                raise self._damage(f"it has {len(self.logs)} frames, its foot counts {stored}")
            self._has_foot = True
            return start
        if length > FRAME_BYTES_MAX:
            raise self._damage(f"a frame of {length} bytes, at most {FRAME_BYTES_MAX} are written")
        if len(self._rest) < start + length:
            return None
        body = bytes(self._rest[start : start + length])
        if checksum(body) != stored:
            raise self._damage("a frame does not fit its checksum")
        self._take_log(body)
        return start + length

    def _take_log(self, body: bytes) -> None:
        try:
            log = _DECODER.decode(body)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise self._damage(f"a frame cannot be read: {error}") from error
        if log.key in self.logs:
            raise self._damage(f"it tells of {log.key} twice")
        self.logs[log.key] = log

    def _damage(self, happened: str) -> TidelogError:
        return TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"read {NAME}",
            happened=f"damage behind byte {self._taken_bytes}: {happened}",
        )
