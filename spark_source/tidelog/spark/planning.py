"""Which offsets a batch reads, and how they are split into tasks.

Pure: from positions to positions.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidelog.client import TopicPartition
from tidelog.spark.losses import Loss, cut_below, topic_gone, trimmed, unnamed
from tidelog.spark.offsets import Progress, TopicProgress

NO_EPOCH: Final = -1
NO_VERSION: Final = -1


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition from `start` up to and without `end`."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader_epoch: int = NO_EPOCH
    """No record of the range is of a later one; -1: not known."""
    metadata_version: int = NO_VERSION
    """Of the metadata by which the range was planned; -1: not known."""

    @property
    def length(self) -> int:
        """How many offsets."""
        return self.end - self.start

    @property
    def place(self) -> str:
        """As errors name the partition."""
        return f"{self.topic}-{self.partition}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the partitions that a checkpoint knows."""

    losses: tuple[Loss, ...] = ()
    restarts: Progress = {}
    """Where reading begins of partitions that cannot be read on from where they stood."""


def plan_ranges(
    start: Progress, end: Progress, metadata_version: int = NO_VERSION
) -> list[OffsetRange]:
    """What lies between two positions, without empty ranges.

    A partition that `start` does not know is read from its beginning: whoever planned otherwise
    has said so in the offset's base.
    """
    ranges = []
    for topic, ended in sorted(end.items()):
        begun = start.get(topic)
        begins = begun.offsets if begun and begun.topic_id == ended.topic_id else {}
        for partition, end_offset in sorted(ended.offsets.items()):
            start_offset = begins.get(partition, 0)
            if end_offset > start_offset:
                ranges.append(
                    OffsetRange(
                        topic=topic,
                        topic_id=ended.topic_id,
                        partition=partition,
                        start=start_offset,
                        end=end_offset,
                        leader_epoch=ended.leader_epochs.get(partition, NO_EPOCH),
                        metadata_version=metadata_version,
                    )
                )
    return ranges


def limit_rows(start: Progress, latest: Progress, max_rows: int) -> Progress:
    """Move on from `start` by at most `max_rows`, each partition by its share of what is there.

    As long as anything is there, at least one record is planned. Every partition of `latest` is in
    `start` too.
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


def compare(
    begun: Progress,
    found: Progress,
    cuts: Mapping[TopicPartition, int],
    is_named: Callable[[str], bool] = lambda _: True,
) -> Comparison:
    """What is lost of what was read: topics that are gone, logs that were truncated.

    `cuts`: where logs part from what was read of them, as their leaders tell. `is_named`: whether
    the options still ask for a topic; a partition that they leave out is not in `found`.
    """
    losses: list[Loss] = []
    restarts: Progress = {}
    for topic, was in sorted(begun.items()):
        now = found.get(topic)
        if now is None and not is_named(topic):
            losses.append(unnamed(topic))
            continue
        if now is None or now.topic_id != was.topic_id:
            again_as = None if now is None else now.topic_id
            losses.append(topic_gone(topic, was.topic_id, again_as=again_as))
            continue
        back: dict[int, int] = {}
        for partition, offset in sorted(was.offsets.items()):
            end = now.offsets.get(partition)
            if end is None:
                losses.append(unnamed(f"{topic}-{partition}"))
                continue
            cut_at = min(end, cuts.get(TopicPartition(topic, partition), offset))
            if cut_at < offset:
                losses.append(cut_below(f"{topic}-{partition}", offset, cut_at))
                back[partition] = cut_at
        if back:
            epochs = {partition: now.leader_epochs[partition] for partition in back}
            restarts[topic] = TopicProgress(was.topic_id, back, epochs)
    return Comparison(losses=tuple(losses), restarts=restarts)


def to_compare(begun: Progress, found: Progress) -> dict[TopicPartition, tuple[int, int]]:
    """Whose leaders must say whether what was read is still there: offset and leader epoch each.

    As long as the epoch of the last record is the same, nothing was truncated below it.
    """
    asked = {}
    for topic, was in begun.items():
        now = found.get(topic)
        if now is None or now.topic_id != was.topic_id:
            continue
        for partition, offset in was.offsets.items():
            epoch = was.leader_epochs.get(partition, NO_EPOCH)
            is_same = now.leader_epochs.get(partition, epoch) == epoch
            if offset > 0 and epoch != NO_EPOCH and not is_same:
                asked[TopicPartition(topic, partition)] = (offset, epoch)
    return asked


def new_partitions(begun: Progress, found: Progress) -> Progress:
    """Topics and partitions of `found` that `begun` knows nothing of.

    A topic that was created again under its name is a new topic.
    """
    fresh: Progress = {}
    for topic, now in found.items():
        was = begun.get(topic)
        known = was.offsets.keys() if was and was.topic_id == now.topic_id else ()
        added = {number: offset for number, offset in now.offsets.items() if number not in known}
        if added:
            epochs = {number: now.leader_epochs[number] for number in added}
            fresh[topic] = TopicProgress(now.topic_id, added, epochs)
    return fresh


def trimmed_unread(fresh: Progress, begun: Progress) -> list[Loss]:
    """Partitions that came since and have lost records before they were read at all.

    Of a topic that was created again the loss of the old one is told already.
    """
    return [
        trimmed(f"{topic}-{partition}", 0, offset)
        for topic, progress in sorted(fresh.items())
        if topic not in begun or begun[topic].topic_id == progress.topic_id
        for partition, offset in sorted(progress.offsets.items())
        if offset > 0
    ]


def trimmed_since(begins: Progress, beginnings: Progress) -> tuple[list[Loss], Progress]:
    """Partitions whose log begins above where reading would go on: the losses, and the places."""
    losses: list[Loss] = []
    lifted: Progress = {}
    for topic, kept in sorted(beginnings.items()):
        was = begins.get(topic)
        if was is None or was.topic_id != kept.topic_id:
            continue
        above = {
            partition: kept.offsets[partition]
            for partition, offset in sorted(was.offsets.items())
            if kept.offsets.get(partition, 0) > offset
        }
        losses += [
            trimmed(f"{topic}-{partition}", was.offsets[partition], offset)
            for partition, offset in above.items()
        ]
        if above:
            epochs = {partition: was.leader_epochs[partition] for partition in above}
            lifted[topic] = TopicProgress(was.topic_id, above, epochs)
    return losses, lifted


def count_rows(start: Progress, end: Progress) -> int:
    """How many offsets lie between two positions."""
    return sum(piece.length for piece in plan_ranges(start, end))


def overlaid(under: Progress, over: Progress) -> Progress:
    """What `over` says of a partition counts; another topic of the same name replaces all of it."""
    joined = dict(under)
    for topic, progress in over.items():
        below = under.get(topic)
        if below is None or below.topic_id != progress.topic_id:
            joined[topic] = progress
            continue
        joined[topic] = TopicProgress(
            progress.topic_id,
            {**below.offsets, **progress.offsets},
            {**below.leader_epochs, **progress.leader_epochs},
        )
    return joined


def capped(found: Progress, ends: Progress) -> Progress:
    """What was there when an AvailableNow run began: no partition beyond its end then."""
    kept: Progress = {}
    for topic, now in found.items():
        fixed = ends.get(topic)
        if fixed is None or fixed.topic_id != now.topic_id:
            continue
        offsets = {
            number: min(offset, fixed.offsets[number])
            for number, offset in now.offsets.items()
            if number in fixed.offsets
        }
        kept[topic] = msgspec.structs.replace(now, offsets=offsets)
    return kept


def never_back(start: Progress, latest: Progress) -> Progress:
    """The newest position, no partition before `start`: an end that was planned stays planned."""
    joined = {topic: _joined(start.get(topic), latest.get(topic)) for topic in {**start, **latest}}
    return {topic: progress for topic, progress in sorted(joined.items()) if progress is not None}


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
    return TopicProgress(begun.topic_id, offsets, epochs)
