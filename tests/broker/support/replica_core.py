"""One replica of a partition: a core with its disk, that can die and be opened again."""

from collections.abc import Iterator

from tests.broker.support.core_model import CoreModel, key_of
from tidelog.broker.directory.core.messages import (
    AddPartition,
    AppendBatch,
    Appended,
    CommitTo,
    Follow,
    Lead,
    RestartLog,
)
from tidelog.broker.directory.core.partition import Leading
from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.log.marks.marks import MarkKind
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import PartitionLog
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import iterate_headers, read_header
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionKey,
)

KEY = key_of(0)
SYNC = TopicSettings(in_sync_replicas_min=2)
REPLICATED = TopicSettings(in_sync_replicas_min=2, is_flush_sync=False)
StoredBatch = tuple[int, int, bytes]
"""Base offset, the offset behind it, and its bytes."""


class ReplicaCore(CoreModel):
    """The model of a core that holds one of several replicas, and plays its disk."""

    def __init__(self, topic: TopicSettings, log: PartitionLog | None = None) -> None:
        super().__init__(partitions=0)
        self.topic = topic
        log = log or PartitionLog(KEY, LeaderEpoch(0))
        self.tell(AddPartition(log=log, settings=topic, is_sole=False))

    # -- what replication asks for ---------------------------------------------------------------

    def lead(self, epoch: int, *others: int, in_sync: int | None = None) -> None:
        """Lead, with these others to wait for."""
        self.tell(
            Lead(
                key=KEY,
                leader_epoch=LeaderEpoch(epoch),
                others=tuple(BrokerId(each) for each in others),
                in_sync_count=1 + len(others) if in_sync is None else in_sync,
            )
        )

    def follow(self, epoch: int) -> None:
        """Follow in this epoch."""
        self.tell(Follow(key=KEY, leader_epoch=LeaderEpoch(epoch)))

    def follower_at(
        self, broker: int, end: int, flushed: int | None = None, epoch: int = 1
    ) -> None:
        """A follower tells where it stands."""
        self.tell(
            FollowerAt(
                key=KEY,
                broker_id=BrokerId(broker),
                broker_epoch=BrokerEpoch(1),
                leader_epoch=LeaderEpoch(epoch),
                partition_epoch=PartitionEpoch(0),
                log_end_offset=Offset(end),
                flushed_offset=Offset(end if flushed is None else flushed),
            )
        )

    def commit_to(self, offset: int, epoch: int = 1) -> None:
        """The leader's watermark is known."""
        self.tell(CommitTo(key=KEY, leader_epoch=LeaderEpoch(epoch), offset=Offset(offset)))

    def restart_at(self, offset: int, *, start_epoch: int = -1) -> int:
        """Empty the log, and go on there; the token."""
        token = self.new_token()
        self.asked[token] = restart = RestartLog(
            token=token, key=KEY, offset=Offset(offset), start_epoch=LeaderEpoch(start_epoch)
        )
        self.tell(restart)
        return token

    def copy_of(self, batches: list[StoredBatch], behind: int) -> list[int]:
        """Append batches that a leader has stored; their tokens."""
        tokens = []
        for _, end, data in batches:
            token = self.new_token()
            append = AppendBatch(
                token=token,
                key=KEY,
                batch=data,
                header=read_header(data),
                is_flush_awaited=False,
                append_time_ms=-1,
                is_replica=True,
                behind=behind,
            )
            self.sent[token] = append
            self.tell(append)
            tokens.append(token)
            behind = end
        return tokens

    @property
    def write_has_promises(self) -> bool:
        """Whether a cut, a trim or a restart waits for the marks of the write in flight."""
        write = self.core.state.write
        return write is not None and bool(write.promises)

    # -- what lies on its disk -------------------------------------------------------------------

    def stored(self, start: int = 0) -> Iterator[StoredBatch]:
        """The batches of its log from the offset on, as its files hold them."""
        for segment in self.log().segments:
            if segment.next_offset <= start:
                continue
            content = self.files.get(segment.key, b"")[: segment.size_bytes]
            for position, header in iterate_headers(content, is_compacted=True):
                if header.base_offset >= start:
                    data = content[position : position + header.size_bytes]
                    yield header.base_offset, header.next_offset, data

    def opened_again(self, *, keeps: float, is_machine: bool, epoch: int) -> "ReplicaCore":
        """The replica after its death: of a machine's what was not flushed is lost but for a part,
        the death of the process alone loses nothing that was written."""
        files: dict[SegmentKey, bytes] = {}
        for key, content in self.files.items():
            durable = min(self.durable_bytes.get(key, 0), len(content))
            length = len(content)
            if is_machine:
                length = durable + int(keeps * (len(content) - durable))
            if length or key in self.durable_bytes:
                files[key] = _whole(content[:length])
        marks = dict(self.durable_marks if is_machine else self.written_marks)
        log = _opened(files, marks, epoch)
        again = ReplicaCore(self.topic, log)
        again.files = {segment.key: files[segment.key] for segment in log.segments}
        again.durable_bytes = {key: len(content) for key, content in again.files.items()}
        marks[KEY, MarkKind.FLUSHED] = log.flushed_offset
        marks[KEY, MarkKind.COMMITTED] = log.high_watermark
        again.written_marks, again.durable_marks = dict(marks), dict(marks)
        again.marks = {KEY: log.flushed_offset}
        again.adopted.update(dict.fromkeys(again.files))
        return again

    def _check_acknowledged(self, effect: Appended) -> None:
        role = self.core.state.partitions[KEY].role
        if self.topic.is_flush_sync or (isinstance(role, Leading) and role.in_sync_count == 1):
            super()._check_acknowledged(effect)


def _whole(content: bytes) -> bytes:
    """Without a batch that is cut off."""
    end = 0
    while end + 12 <= len(content):
        size = 12 + int.from_bytes(content[end + 8 : end + 12], "big")
        if end + size > len(content):
            break
        end += size
    return content[:end]


def _opened(
    files: dict[SegmentKey, bytes],
    marks: dict[tuple[PartitionKey, MarkKind], int],
    epoch: int,
) -> PartitionLog:
    """As an opening reads it."""
    log = PartitionLog(KEY, LeaderEpoch(epoch))
    start = Offset(marks.get((KEY, MarkKind.LOG_START), 0))
    keys = sorted(files, key=lambda key: key.base_offset)
    if keys:
        log.log_end_offset = Offset(keys[0].base_offset)
    for key in keys:
        assert key.base_offset == log.log_end_offset, "a hole between two segments"
        log.begin_segment(key)
        for _, header in iterate_headers(files[key], is_compacted=True):
            log.take_in(header)
    log.log_start_offset = start
    if log.log_end_offset < start or not keys:
        log.segments.clear()
        log.log_end_offset = start
    assert log.log_end_offset >= marks.get((KEY, MarkKind.FLUSHED), 0), (
        "what was marked as flushed is not there"
    )
    log.leader_epochs.trim(start)
    log.drop_trimmed()
    log.flushed_offset = log.high_watermark = log.log_end_offset
    log.high_watermark_position = log.end_position()
    log.hold_back(marks.get((KEY, MarkKind.COMMITTED), 0))
    return log


def leader(topic: TopicSettings = SYNC, *others: int) -> ReplicaCore:
    """Leads at epoch 1, others 2 and 3 unless told."""
    core = ReplicaCore(topic)
    core.lead(1, *(others or (2, 3)))
    return core


def filled(count: int, topic: TopicSettings = SYNC) -> ReplicaCore:
    """A leader with so many batches of one record, everywhere."""
    core = leader(topic)
    for _ in range(count):
        core.append()
        core.drain()
    core.follower_at(2, count)
    core.follower_at(3, count)
    core.drain()
    return core


def is_acknowledged(core: CoreModel, token: int) -> bool:
    return isinstance(core.answers.get(token), Appended)
