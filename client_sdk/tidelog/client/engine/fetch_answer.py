"""Is a fetch answer what was asked for? And the errors that a reader is told.

Owns the check of the fetch sum: bytes of another partition, or changed on the way, never pass.
"""

from collections.abc import Iterator, Sequence

from tidelog.client.engine.fetch_messages import (
    OffsetAnswer,
    OffsetsArrived,
    OffsetSpec,
    PartitionBatches,
)
from tidelog.client.errors import LogTruncationError
from tidelog.client.types import TopicPartition
from tidelog.wire.batch import BatchHeader, CorruptBatch, checksum, fetch_sum, iterate_headers
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId


def verified_headers(
    part: PartitionBatches, name: TopicPartition, fetch_offset: int | None, *, verify: bool
) -> list[BatchHeader]:
    """The headers of all batches of a part that has some."""
    headers = [header for _, header in iterate_headers(part.batches, is_compacted=True)]
    if not verify:
        return headers
    crc = checksum(part.batches)
    expected = fetch_sum(TopicId(part.topic_id), part.partition, headers[0].base_offset, crc)
    if expected != part.fetch_sum:
        raise CorruptBatch(
            tried=f"read {name.topic}-{name.partition} at offset {fetch_offset}",
            happened=f"the answer's sum is {part.fetch_sum:#010x}, its bytes give {expected:#010x}",
        )
    return headers


def check_epochs(headers: Sequence[BatchHeader], name: TopicPartition, latest: int) -> None:
    """The leader epochs of a log ascend: what falls is not the log that was read so far."""
    for header in headers:
        if header.leader_epoch < latest:
            raise CorruptBatch(
                tried=f"read {name.topic}-{name.partition} at offset {header.base_offset}",
                happened=f"the batch is of leader epoch {header.leader_epoch}, "
                f"the one before it of {latest}",
            )
        latest = header.leader_epoch


def no_offset(name: TopicPartition) -> TidelogError:
    """There is no position, and no rule where to begin."""
    return TidelogError(
        ErrorCode.NO_OFFSET_FOR_PARTITION,
        tried=f"read {name.topic}-{name.partition}",
        happened="it has no position, and auto_offset_reset is none",
    )


def told(
    message: OffsetsArrived,
) -> Iterator[tuple[TopicPartition, int, OffsetAnswer | TidelogError]]:
    """What a broker answered for each partition; one that it left out is asked for again."""
    query, answers = message.query, message.answers
    for place, name in enumerate(query.partitions):
        missing = TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"find the offset of {name.topic}-{name.partition}",
            happened="the broker's answer does not speak of it",
        )
        answer = answers[place] if place < len(answers) else missing
        yield name, query.generations[place], answer


def recreated(name: TopicPartition) -> TidelogError:
    """The position is of a topic that is not there any more."""
    return TidelogError(
        ErrorCode.NO_OFFSET_FOR_PARTITION,
        tried=f"read {name.topic}-{name.partition}",
        happened=f"topic {name.topic!r} was deleted and created again, and auto_offset_reset is "
        "none",
        hint="seek to where reading is to begin in the new topic, 0 for all of it",
    )


def truncated(
    name: TopicPartition, position: int, epoch: int, divergent_offset: int
) -> LogTruncationError:
    """Records that were read are not in the log any more."""
    return LogTruncationError(
        topic_partition=name,
        offset=position,
        leader_epoch=epoch,
        divergent_offset=divergent_offset,
    )


def reset_of(auto_offset_reset: str) -> OffsetSpec | None:
    """What the option says."""
    specs = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST, "none": None}
    assert auto_offset_reset in specs, f"unchecked auto_offset_reset {auto_offset_reset!r}"
    return specs[auto_offset_reset]
