"""Which offsets a batch reads, and how they are split into tasks.

Pure: from positions to positions.
"""

import itertools

import msgspec

from tidelog.spark.offsets import Progress, TopicProgress
from tidelog.wire.errors import ErrorCode, TidelogError


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition from `start` up to and without `end`."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """How many offsets."""
        return self.end - self.start


def plan_ranges(start: Progress, end: Progress) -> list[OffsetRange]:
    """What lies between two positions, without empty ranges.

    Every partition of `end` is in `start` too: `with_new_partitions` saw to it.
    """
    ranges = []
    for topic, ended in sorted(end.items()):
        begun = start[topic]
        for partition, end_offset in sorted(ended.offsets.items()):
            start_offset = begun.offsets[partition]
            if end_offset > start_offset:
                ranges.append(
                    OffsetRange(
                        topic=topic,
                        topic_id=ended.topic_id,
                        partition=partition,
                        start=start_offset,
                        end=end_offset,
                    )
                )
    return ranges


def limit_rows(start: Progress, latest: Progress, max_rows: int) -> Progress:
    """Move on from `start` by at most `max_rows`, each partition by its share of what is there.

    As long as anything is there, at least one record is planned.
    """
    assert max_rows >= 1, f"a limit of {max_rows} rows plans nothing"
    ranges = plan_ranges(start, latest)
    total = sum(piece.length for piece in ranges)
    if total <= max_rows:
        return latest
    shares = {(piece.topic, piece.partition): piece.length * max_rows // total for piece in ranges}
    rest = max_rows - sum(shares.values())
    for piece in ranges:
        key = (piece.topic, piece.partition)
        extra = min(rest, piece.length - shares[key], 1)
        shares[key] += extra
        rest -= extra
    return _moved(start, latest, shares)


def split_ranges(ranges: list[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Cut large ranges so that there are about `min_partitions` tasks, each of like size."""
    if min_partitions is None or not ranges or min_partitions <= len(ranges):
        return ranges
    total = sum(piece.length for piece in ranges)
    pieces = []
    for whole in ranges:
        count = max(1, round(min_partitions * whole.length / total))
        cuts = [whole.start + whole.length * number // count for number in range(count + 1)]
        pieces += [
            msgspec.structs.replace(whole, start=low, end=high)
            for low, high in itertools.pairwise(cuts)
            if high > low
        ]
    return pieces


def with_new_partitions(start: Progress, beginnings: Progress) -> Progress:
    """Let topics and partitions that appeared since begin at the first record they keep.

    A topic that was created again under its name is a new topic.
    """
    extended = dict(start)
    for topic, beginning in beginnings.items():
        begun = start.get(topic)
        if begun is None or begun.topic_id != beginning.topic_id:
            extended[topic] = beginning
            continue
        extended[topic] = msgspec.structs.replace(
            begun,
            offsets={**beginning.offsets, **begun.offsets},
            leader_epochs={**beginning.leader_epochs, **begun.leader_epochs},
        )
    return extended


def has_new_partitions(start: Progress, end: Progress) -> bool:
    """Whether `end` names a topic or partition that `start` knows nothing of."""
    return any(
        topic not in start
        or start[topic].topic_id != progress.topic_id
        or progress.offsets.keys() - start[topic].offsets.keys()
        for topic, progress in end.items()
    )


def never_back(start: Progress, latest: Progress) -> Progress:
    """The newest position, no partition before `start`: an end that was planned stays planned."""
    joined = {topic: _joined(start.get(topic), latest.get(topic)) for topic in {**start, **latest}}
    return {topic: progress for topic, progress in sorted(joined.items()) if progress is not None}


def check_nothing_lost(start: Progress, latest: Progress) -> None:
    """Raises for a topic that is gone or was created again, and for an end that moved back."""
    for topic, begun in sorted(start.items()):
        found = latest.get(topic)
        if found is None or found.topic_id != begun.topic_id:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                tried=f"go on reading {topic} from a checkpoint",
                happened=f"the topic with id {begun.topic_id} is gone"
                + ("" if found is None else f"; {topic} was created again as {found.topic_id}"),
                hint="records may be lost: begin with a new checkpoint, or set failOnDataLoss "
                "to false to go on with what is there",
            )
        for partition, offset in sorted(begun.offsets.items()):
            if found.offsets.get(partition, 0) < offset:
                raise TidelogError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    tried=f"go on reading {topic}-{partition} from offset {offset}",
                    happened=f"it ends at {found.offsets.get(partition, 0)} now",
                    hint="records were lost: begin with a new checkpoint, or set "
                    "failOnDataLoss to false to wait until the partition has grown again",
                )


def _moved(start: Progress, latest: Progress, shares: dict[tuple[str, int], int]) -> Progress:
    return {
        topic: msgspec.structs.replace(
            ended,
            offsets={
                partition: min(offset, start[topic].offsets[partition])
                + shares.get((topic, partition), 0)
                for partition, offset in ended.offsets.items()
            },
        )
        for topic, ended in latest.items()
    }


def _joined(begun: TopicProgress | None, found: TopicProgress | None) -> TopicProgress | None:
    if begun is None or found is None or begun.topic_id != found.topic_id:
        return found if found is not None else begun
    offsets = dict(begun.offsets)
    epochs = dict(begun.leader_epochs)
    for partition, offset in found.offsets.items():
        # The epoch moves only together with the offset: else a change of leader alone would look
        # to Spark like new data.
        if partition not in offsets or offset > offsets[partition]:
            offsets[partition] = offset
            epochs[partition] = found.leader_epochs[partition]
    return TopicProgress(topic_id=begun.topic_id, offsets=offsets, leader_epochs=epochs)
