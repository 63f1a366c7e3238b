"""One stage as it grows, and what of a staging partition belongs to it. Pure.

Owns the form of the records in `__staging`, the count of what a writer sent, and the filter by
which its batches are found again among those of other writers. It must never let a batch in that
could not be published: it has no producer and no transaction of its own, and is no marker.

    key    u8 kind: 0 batch, 1 footer | 16 bytes stage id
    value  of a batch: 16 bytes topic id | u32 partition | the batch
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tidelog.broker.staged.footer import Footer, StagedTarget, encode_footer
from tidelog.broker.staged.limits import SINK_ID_BYTES_MAX, TARGETS_MAX
from tidelog.broker.staged.token import STAGE_ID_BYTES, StageId, Token
from tidelog.wire.batch import BatchHeader, checksum, extend_checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_PRODUCER_ID, Offset, PartitionId, PartitionKey, TopicId
from tidelog.wire.refusals import invalid

_BATCH: Final = 0
_FOOTER: Final = 1
_KEY: Final = struct.Struct(">B16s")
_TARGET: Final = struct.Struct(">16sI")

StagedRecord = tuple[int, bytes, bytes]
"""Offset, key and value of a record of a staging partition."""


def batch_record(stage_id: StageId, target: PartitionKey, batch: bytes) -> tuple[bytes, bytes]:
    """Key and value of a staged batch."""
    return _KEY.pack(_BATCH, stage_id), _TARGET.pack(target.topic_id, target.partition) + batch


def footer_record(footer: Footer) -> tuple[bytes, bytes]:
    """Key and value of a stage's last record."""
    return _KEY.pack(_FOOTER, footer.stage_id), encode_footer(footer)


class _Tally(msgspec.Struct):
    first_offset: int
    last_offset: int
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
    checksum: int = 0


class Stage:
    """One writer's batches, as they were appended to the staging partition."""

    def __init__(self, stage_id: StageId, sink_id: str, batch_id: int, keep_until_ms: int) -> None:
        """INVALID_ARGUMENT for a sink or a batch that cannot be."""
        tried = f"stage for sink {sink_id!r}"
        assert len(stage_id) == STAGE_ID_BYTES, f"a stage id has {STAGE_ID_BYTES} bytes"
        if not 0 < len(sink_id.encode()) <= SINK_ID_BYTES_MAX:
            raise invalid(tried, f"a sink id has 1 to {SINK_ID_BYTES_MAX} bytes")
        if batch_id < 0:
            raise invalid(tried, f"the batch id is {batch_id}")
        self._stage_id, self._sink_id, self._batch_id = stage_id, sink_id, batch_id
        self._keep_until_ms = keep_until_ms
        self._tried = tried
        self._tallies: dict[PartitionKey, _Tally] = {}

    def check(self, target: PartitionKey, header: BatchHeader) -> None:
        """Refuses a batch, before it is appended, that no publish could take."""
        if header.producer_id != NO_PRODUCER_ID or header.is_transactional or header.is_control:
            raise invalid(
                self._tried,
                f"a batch for {target} is of producer {header.producer_id}",
                "Seal staged batches without a producer: publishing sets it.",
            )
        if header.record_count != header.last_offset_delta + 1:
            raise invalid(self._tried, f"a batch for {target} has gaps in its offsets")
        if target not in self._tallies and len(self._tallies) >= TARGETS_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=self._tried,
                happened=f"{TARGETS_MAX} partitions are staged for already",
            )

    def add(
        self, target: PartitionKey, header: BatchHeader, batch: bytes, staging_offset: int
    ) -> None:
        """The batch, which was checked, stands at this offset of the staging partition."""
        tally = self._tallies.setdefault(target, _Tally(staging_offset, staging_offset - 1))
        assert tally.last_offset < staging_offset, f"{target}: staged out of order"
        tally.last_offset = staging_offset
        tally.batch_count += 1
        tally.record_count += header.record_count
        tally.size_bytes += len(batch)
        tally.checksum = extend_checksum(tally.checksum, batch)

    def finish(self, batch_count: int, record_count: int) -> Footer:
        """The writer says that it has sent so much; INVALID_ARGUMENT if that is not what came."""
        tallies = self._tallies.values()
        found = (
            sum(each.batch_count for each in tallies),
            sum(each.record_count for each in tallies),
        )
        if found != (batch_count, record_count):
            raise invalid(
                self._tried,
                f"{found[0]} batches of {found[1]} records came, the writer has sent "
                f"{batch_count} of {record_count}",
                "Stage all of it again.",
            )
        return Footer(
            stage_id=self._stage_id,
            sink_id=self._sink_id,
            batch_id=self._batch_id,
            targets=tuple(_target(key, tally) for key, tally in self._tallies.items()),
            keep_until_ms=self._keep_until_ms,
        )


def _target(key: PartitionKey, tally: _Tally) -> StagedTarget:
    return StagedTarget(
        topic_id=key.topic_id,
        partition=key.partition,
        first_offset=Offset(tally.first_offset),
        last_offset=Offset(tally.last_offset),
        batch_count=tally.batch_count,
        record_count=tally.record_count,
        size_bytes=tally.size_bytes,
        checksum=tally.checksum,
    )


def token_of(footer: Footer, staging_partition: PartitionId, footer_offset: int) -> Token:
    """Of a stage whose footer stands there."""
    footer_sum = checksum(encode_footer(footer))
    return Token(footer.stage_id, staging_partition, Offset(footer_offset), footer_sum)


def batches_of(
    records: Iterable[StagedRecord], stage_id: StageId, target: StagedTarget, *, tried: str
) -> Iterator[bytes]:
    """The batches of one stage for one target, in their order, among the records of its range.

    The last one comes only once all of them agree with the footer: STAGED_TOKEN_MISSING if they do
    not, because what was staged is not there any more.
    """
    count, total, held = 0, 0, None
    for offset, key, value in records:
        if not target.first_offset <= offset <= target.last_offset:
            continue
        if len(key) != _KEY.size or _KEY.unpack(key) != (_BATCH, stage_id):
            continue
        topic_id, partition = _TARGET.unpack_from(value)
        if (TopicId(topic_id), partition) != (target.topic_id, target.partition):
            continue
        if held is not None:
            yield held
        held = value[_TARGET.size :]
        count, total = count + 1, extend_checksum(total, held)
    if (count, total) != (target.batch_count, target.checksum) or held is None:
        raise TidelogError(
            ErrorCode.STAGED_TOKEN_MISSING,
            tried=tried,
            happened=f"{count} of {target.batch_count} staged batches for {target.key} are there, "
            "or others than were staged",
        )
    yield held
