"""What a compaction is told and what it answers: the agreement with whoever schedules it. Pure.

Owns arguments and result of the job `COMPACT_JOB`. Both cross a process boundary within one node of
one release and are never stored.
"""

from typing import Final

import msgspec

from tidelog.broker.log.names import UNFINISHED_SUFFIX, SegmentKey
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.wire.ids import Offset

COMPACT_JOB: Final = "tidelog.broker.log.jobs.compact:compact"
"""The name that the worker runs it by."""

MAP_BYTES_MAX: Final = 256 * 1024 * 1024
"""Memory of the map of keys; about a million of them. One worker process holds one at a time."""

OFFSETS_PER_SEGMENT_MAX: Final = 2**31 - 1
"""A segment never spans more: deltas of its offsets fit 31 bits, as Kafka's indexes want it."""


class CompactArguments(msgspec.Struct, frozen=True, kw_only=True):
    """One round over neighbouring sealed segments of one log."""

    segments: tuple[Summary, ...]
    """Neighbours in the log's order, each with its sidecar. The first is the log's first one,
    unless nothing in here is dirty."""
    first_dirty_offset: int
    """Keys of the records from here on go into the map; below, they were compared already."""
    now_ms: int
    delete_retention_ms: int
    is_from_start: bool = True
    """The first segment is the log's first one."""
    aborted: bytes = b""
    """The aborted transactions that the segments hold batches of, as `encode_aborted` has them:
    their markers may lie behind."""
    may_expire: bool = True
    """False: the node's clock may be wrong. Tombstones stay, and get no horizon from it."""
    segment_bytes: int
    """Neighbours are joined as long as they have no more bytes than this together."""
    map_bytes_max: int = MAP_BYTES_MAX


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """One new segment instead of one or more old ones; its files are flushed, names unfinished."""

    made: Summary
    """`made.replaces` names the segments that it stands for, in order."""

    @property
    def removed(self) -> tuple[SegmentKey, ...]:
        """The segments that go, in order."""
        partition = self.made.key.partition
        return tuple(
            SegmentKey(partition, Offset(each.base_offset), each.generation)
            for each in self.made.replaces
        )

    @property
    def unfinished_log_path(self) -> str:
        """Renamed to `made.key.path` after the sidecar: that is when it counts."""
        return self.made.key.path + UNFINISHED_SUFFIX

    @property
    def unfinished_sidecar_path(self) -> str:
        """Renamed first, to `made.key.sidecar_path`."""
        return self.made.key.sidecar_path + UNFINISHED_SUFFIX


class CompactResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one round made. Its caller swaps in ascending order, each durable before the next."""

    replacements: tuple[Replacement, ...]
    cleaned_below: int
    damaged_sidecar: SegmentKey | None = None
    """Nothing was made, because this segment's sidecar has to be made again first."""
    damage: str = ""
    """What is wrong with it."""
    is_map_full: bool = False
    """The dirty part did not fit into the map: another round is worth planning at once."""
    records_read: int = 0
    records_kept: int = 0
    batches_unreadable: int = 0
    """Copied as they are: their checksum is right, but their records contradict the header."""
    bytes_read: int = 0
    bytes_written: int = 0


def encode_arguments(arguments: CompactArguments) -> bytes:
    """For `Worker.run`."""
    return _ENCODER.encode(arguments)


def decode_arguments(data: bytes) -> CompactArguments:
    """In the worker."""
    return _ARGUMENTS.decode(data)


def encode_result(result: CompactResult) -> bytes:
    """In the worker."""
    return _ENCODER.encode(result)


def decode_result(data: bytes) -> CompactResult:
    """What `Worker.run` returned."""
    return _RESULT.decode(data)


_ENCODER: Final = msgspec.msgpack.Encoder()
_ARGUMENTS: Final = msgspec.msgpack.Decoder(CompactArguments)
_RESULT: Final = msgspec.msgpack.Decoder(CompactResult)
