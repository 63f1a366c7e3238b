"""A cluster in memory, as the planner and the tasks of the Spark source see it.

Each record has a number of its own, so that a test can tell a record from another one that took its
offset. Truncation raises the leader epoch, as an unclean election does.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.client import TopicPartition
from tidelog.client.types.records import RawBatch
from tidelog.spark.cluster import View
from tidelog.spark.losses import Loss
from tidelog.spark.offsets import Progress, TopicProgress
from tidelog.spark.options import Place
from tidelog.wire.batch import encode_batch
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId, TopicId

BATCHES_A_POLL = 2


def error(code: ErrorCode) -> TidelogError:
    """As the SDK raises it."""
    return TidelogError(code, tried="test", happened="the model says so")


class Stored:
    """One batch."""

    def __init__(self, base: int, ids: list[int], epoch: int) -> None:
        self.base, self.ids, self.epoch = base, ids, epoch

    @property
    def next_offset(self) -> int:
        return self.base + len(self.ids)


class FakeLog:
    """One partition."""

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.start = self.end = self.leader_epoch = 0

    def append(self, ids: list[int]) -> None:
        self.batches.append(Stored(self.end, ids, self.leader_epoch))
        self.end += len(ids)

    def cut(self, offset: int) -> None:
        """A leader that lacks the tail is elected."""
        kept = [each for each in self.batches if each.next_offset <= max(offset, self.start)]
        self.batches = kept
        self.end = kept[-1].next_offset if kept else self.start
        self.leader_epoch += 1

    def trim(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))
        self.batches = [each for each in self.batches if each.next_offset > self.start]

    def records(self) -> dict[int, int]:
        """Offset → the record's number."""
        return {
            offset: number
            for each in self.batches
            for offset, number in enumerate(each.ids, each.base)
            if offset >= self.start
        }

    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else -1

    def end_of(self, epoch: int) -> int | None:
        """Where the epochs up to this one end; None: all of them are trimmed."""
        found = bisect_right([each.epoch for each in self.batches], epoch)
        if not found:
            return None
        return self.end if found == len(self.batches) else self.batches[found].base


class FakeTopic:
    """One topic."""

    def __init__(self, topic_id: bytes, partitions: int) -> None:
        self.topic_id = topic_id
        self.logs = [FakeLog() for _ in range(partitions)]


class FakeCluster:
    """Topics by name; asked by the planner as `Cluster` is, and by tasks as `Clients` are."""

    def __init__(self) -> None:
        self.topics_by_name: dict[str, FakeTopic] = {}
        self.named: tuple[str, ...] | None = ("t",)
        self.is_compacted_topic = False
        self.version = 1
        self.cut_away: set[int] = set()
        """Records that a truncation has removed: a reader may never have known them."""
        self.before_poll: Callable[[], None] = lambda: None
        self._ids = 0
        self._records = 0

    def create(self, name: str = "t", partitions: int = 2) -> None:
        self._ids += 1
        self.topics_by_name[name] = FakeTopic(self._ids.to_bytes(16, "big"), partitions)

    def log(self, partition: int = 0, name: str = "t") -> FakeLog:
        return self.topics_by_name[name].logs[partition]

    def append(self, count: int, partition: int = 0, name: str = "t") -> None:
        numbers = list(range(self._records, self._records + count))
        self._records += count
        self.log(partition, name).append(numbers)

    # The planner's questions.

    def look(self) -> View:
        names = sorted(self.topics_by_name) if self.named is None else self.named
        found = [name for name in names if name in self.topics_by_name]
        return View(
            partitions={
                TopicPartition(name, number): self.topics_by_name[name].topic_id
                for name in found
                for number in range(len(self.topics_by_name[name].logs))
            },
            missing=tuple(name for name in names if name not in found),
            version=self.version,
        )

    def _progress(self, view: View, offset_of: Callable[[FakeLog], int]) -> Progress:
        found: Progress = {}
        for name, topic_id in sorted(view.partitions.items()):
            progress = found.setdefault(name.topic, TopicProgress(topic_id.hex(), {}, {}))
            log = self.log(name.partition, name.topic)
            epoch = log.last_epoch()
            progress.offsets[name.partition] = offset_of(log)
            progress.leader_epochs[name.partition] = log.leader_epoch if epoch < 0 else epoch
        return found

    def earliest(self, view: View) -> Progress:
        return self._progress(view, lambda log: log.start)

    def latest(self, view: View) -> Progress:
        return self._progress(view, lambda log: log.end)

    def resolve(self, view: View, place: Place, option: str) -> tuple[Progress, list[Loss]]:
        del option
        return (self.earliest(view) if place.word == "earliest" else self.latest(view)), []

    def cuts(
        self, read: Mapping[TopicPartition, tuple[int, int]], view: View
    ) -> dict[TopicPartition, int]:
        del view
        found = {}
        for name, (offset, epoch) in read.items():
            log = self.log(name.partition, name.topic)
            end = log.end_of(epoch)
            cut_at = log.start if end is None else end
            if cut_at < offset:
                found[name] = cut_at
        return found

    def close(self) -> None:
        pass

    # What tasks hold.

    def consumer(self) -> Any:
        return FakeConsumer(self)

    def positions(self) -> Any:
        return self

    def drop_consumer(self) -> None:
        pass

    def topics(
        self, names: Any, timeout_ms: int, *, grace_ms: int, version_min: int
    ) -> dict[str, FakeTopic]:
        del timeout_ms, grace_ms
        if self.version < version_min:
            raise error(ErrorCode.UNAVAILABLE)
        return {name: self.topics_by_name[name] for name in names if name in self.topics_by_name}

    def offsets(
        self, wanted: Mapping[TopicPartition, Any], ids: Mapping[str, bytes], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAnswer]:
        del timeout_ms
        found = {}
        for name, (spec, _) in wanted.items():
            topic = self.topics_by_name[name.topic]
            if topic.topic_id != ids[name.topic]:
                raise error(ErrorCode.UNKNOWN_TOPIC_ID)
            log = topic.logs[name.partition]
            offset = log.start if spec is OffsetSpec.EARLIEST else log.end
            found[name] = OffsetAnswer(
                topic_id=TopicId(topic.topic_id),
                partition=PartitionId(name.partition),
                offset=Offset(offset),
            )
        return found

    def is_compacted(self, topic: str) -> bool:
        del topic
        return self.is_compacted_topic


class FakeConsumer:
    """Never moves by itself; what it was sent before a trim or a cut it still delivers."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._position: int | None = None

    def assign(self, names: list[TopicPartition]) -> None:
        if names:
            self._name = names[0]

    def seek(self, name: TopicPartition, offset: int, topic_id: bytes) -> None:
        assert name == self._name
        self._position, self._topic_id = offset, topic_id

    def poll_batches(self, timeout_ms: int, *, include_left_out: bool) -> list[RawBatch]:
        del timeout_ms
        assert include_left_out, "a range counts what is left out too"
        self._cluster.before_poll()
        topic = self._cluster.topics_by_name.get(self._name.topic)
        if topic is None:
            raise error(ErrorCode.UNKNOWN_TOPIC)
        if topic.topic_id != self._topic_id:
            raise error(ErrorCode.NO_OFFSET_FOR_PARTITION)
        log = topic.logs[self._name.partition]
        position = self._position
        assert position is not None
        if not log.start <= position <= log.end:
            raise error(ErrorCode.OFFSET_OUT_OF_RANGE)
        wanted = [each for each in log.batches if each.next_offset > position][:BATCHES_A_POLL]
        if wanted:
            self._position = wanted[-1].next_offset
        return [self._raw(each, log, position) for each in wanted]

    def _raw(self, stored: Stored, log: FakeLog, position: int) -> RawBatch:
        records = [(0, None, b"%d" % number, ()) for number in stored.ids]
        return RawBatch(
            topic_partition=self._name,
            data=encode_batch(records, base_offset=stored.base, leader_epoch=stored.epoch),
            high_watermark=log.end,
            first_offset=max(position, stored.base),
            next_offset=stored.next_offset,
            leader_epoch=stored.epoch,
        )
