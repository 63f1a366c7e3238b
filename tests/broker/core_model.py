"""Drives a directory's core by hand: plays the disk, knows what is durable, checks answers."""

from tidelog.broker.log.marks import MarkKind
from tidelog.broker.log.names import PartitionKey, SegmentKey
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition import invariants
from tidelog.broker.partition.core import WRITE_BYTES_MAX, DirectoryCore
from tidelog.broker.partition.messages import (
    Acknowledge,
    AddPartition,
    Advanced,
    AppendBatch,
    Effect,
    Flush,
    FlushEnded,
    Message,
    Refuse,
    Truncate,
    TruncateEnded,
    Write,
    WriteEnded,
)
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, TopicId

TOPIC = TopicId(bytes(16))


def key_of(partition: int) -> PartitionKey:
    """A partition of the only topic."""
    return PartitionKey(TOPIC, PartitionId(partition))


def failure(code: ErrorCode) -> TidelogError:
    """What a disk may answer."""
    return TidelogError(code, tried="write", happened="the disk says so")


class CoreModel:
    """A core, the bytes of its files, and what was promised to whom."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        segment_bytes: int = 1 << 30,
        write_bytes_max: int = WRITE_BYTES_MAX,
    ) -> None:
        self.core = DirectoryCore(write_bytes_max=write_bytes_max)
        self.files: dict[SegmentKey, bytes] = {}
        self.durable_bytes: dict[SegmentKey, int] = {}
        self.write: Write | None = None
        self.flush: tuple[Flush, dict[SegmentKey, int]] | None = None
        self.truncate: Truncate | None = None
        self.answers: dict[int, Acknowledge | Refuse] = {}
        self.sent: dict[int, AppendBatch] = {}
        self.marks: dict[PartitionKey, int] = {}
        self.advanced: list[PartitionKey] = []
        settings = TopicSettings(segment_bytes=segment_bytes)
        for number in range(partitions):
            log = PartitionLog(key_of(number), LeaderEpoch(0))
            self.tell(AddPartition(log=log, settings=settings))

    def append(self, partition: int = 0, *, records: int = 1, is_all: bool = True) -> int:
        """Submit a batch; its token."""
        token = len(self.sent)
        batch = encode_batch([(1, None, b"%d" % token, ())] * records)
        append = AppendBatch(
            token=token,
            key=key_of(partition),
            batch=batch,
            header=read_header(batch),
            is_flush_awaited=is_all,
            append_time_ms=5,
        )
        self.sent[token] = append
        self.tell(append)
        return token

    def end_write(self, error: TidelogError | None = None) -> None:
        """The write in flight ends: whole, or with an error and a part of it done."""
        write = self.write
        assert write is not None, "no write is in flight"
        self.write = None
        for place, each in enumerate(write.writes):
            if each.is_new:
                self.files.setdefault(each.segment, b"")
            content = b"".join(bytes(piece) for piece in each.pieces)
            if error is not None:
                content = content[: len(content) // 2] if place == 0 else b""
            self.files[each.segment] += content
        if error is None:
            for mark in write.marks:
                if mark.kind is MarkKind.FLUSHED:
                    self.marks[mark.key] = mark.value
        self.tell(WriteEnded(error=error))

    def end_flush(self, error: TidelogError | None = None) -> None:
        """The flush in flight ends; it covers what the files held when it began."""
        assert self.flush is not None, "no flush is in flight"
        _, covered = self.flush
        self.flush = None
        if error is None:
            self.durable_bytes.update(covered)
        self.tell(FlushEnded(error=error))

    def end_truncate(self, error: TidelogError | None = None) -> None:
        """The truncation in flight ends."""
        assert self.truncate is not None, "no truncation is in flight"
        for segment, size_bytes in self.truncate.lengths:
            self.files[segment] = self.files.get(segment, b"")[:size_bytes]
        self.truncate = None
        self.tell(TruncateEnded(error=error))

    def drain(self) -> None:
        """End everything well until nothing is in flight."""
        for _ in range(10_000):
            if self.truncate is not None:
                self.end_truncate()
            elif self.write is not None:
                self.end_write()
            elif self.flush is not None:
                self.end_flush()
            else:
                return
        raise AssertionError("the core never comes to rest")

    def tell(self, *messages: Message) -> list[Effect]:
        """One step; takes note of the effects."""
        effects = self.core.step(list(messages))
        for effect in effects:
            self._note(effect)
        invariants.check(self.core)
        for key, offset in self.marks.items():
            assert offset <= self.core.partitions[key].log.flushed_offset, "a mark runs ahead"
        return effects

    def log(self, partition: int = 0) -> PartitionLog:
        """The partition's state."""
        return self.core.partitions[key_of(partition)].log

    def _note(self, effect: Effect) -> None:
        match effect:
            case Write():
                assert self.write is None, "one write at a time"
                assert self.truncate is None, "nothing is written while a round is cut back"
                self.write = effect
            case Flush():
                assert self.flush is None, "one flush at a time"
                covered = {each: len(self.files[each]) for each in effect.segments}
                self.flush = (effect, covered)
            case Truncate():
                self.truncate = effect
            case Acknowledge() | Refuse():
                assert effect.token not in self.answers, "a batch is answered once"
                self.answers[effect.token] = effect
                if isinstance(effect, Acknowledge):
                    self._check_acknowledged(effect)
            case Advanced():
                self.advanced.append(effect.key)

    def _check_acknowledged(self, effect: Acknowledge) -> None:
        """acks=all only for what lies in the durable part of a file."""
        append = self.sent[effect.token]
        if not append.is_flush_awaited:
            return
        prefix = effect.base_offset.to_bytes(8, "big") + append.batch[8:12]
        for segment, content in self.files.items():
            if segment.partition == append.key:
                durable = content[: self.durable_bytes.get(segment, 0)]
                if prefix + b"\0\0\0\0" + append.batch[16:] in durable:
                    return
        raise AssertionError(f"batch {effect.token} was acknowledged before it was durable")
