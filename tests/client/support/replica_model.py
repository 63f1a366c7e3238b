"""Three brokers with replicas of two partitions, as a consumer meets them: leaders change, brokers
hear of it at different times, watermarks lag, streams break and lose what was on its way.

A model, not a server: what a broker answers follows the words of fetch.proto, a record is a number,
a log is a list.
"""

from collections import deque
from random import Random

import msgspec

from tidelog.client.engine.cluster.metadata import BrokerView, ClusterView, PartitionView, TopicView
from tidelog.client.engine.fetch.messages import PartitionBatches, SendFetch
from tidelog.wire.batch import checksum, encode_batch, fetch_sum
from tidelog.wire.calls.fetch import Divergence, FetchPosition
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery, OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

TOPIC_ID = b"i" * 16
PARTITIONS = 2
BROKERS = (1, 2, 3)
NOBODY = -1


class Entry(msgspec.Struct, frozen=True):
    """A record: its number, the epoch that wrote it, where its batch begins."""

    value: int
    epoch: int
    batch_base: int


class Role(msgspec.Struct, frozen=True):
    """What metadata says of a partition."""

    leader: int
    epoch: int
    in_sync: tuple[int, ...]


def refusal(code: ErrorCode) -> TidelogError:
    return TidelogError(code, tried="read", happened="as the model says")


class ModelLog:
    """One replica."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.high_watermark = 0
        self.role = Role(NOBODY, -1, ())
        """As this broker knows it."""
        self.confirmed: dict[int, int] = {}
        """Where followers stand, in this epoch."""

    @property
    def end(self) -> int:
        return len(self.entries)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The last epoch at or below the one given, and where it ends."""
        below = [place for place, each in enumerate(self.entries) if each.epoch <= epoch]
        if not below:
            return -1, 0
        return self.entries[below[-1]].epoch, below[-1] + 1

    def cut(self, offset: int) -> None:
        del self.entries[offset:]
        self.high_watermark = min(self.high_watermark, offset)

    def read(self, offset: int, batches_max: int) -> tuple[bytes, int, int]:
        """Whole batches below the watermark, where they begin, and where to go on."""
        first = place = self.entries[offset].batch_base
        data = b""
        while place < self.high_watermark and batches_max:
            base, epoch = self.entries[place].batch_base, self.entries[place].epoch
            values = [each.value for each in self.entries if each.batch_base == base]
            records = [(0, None, b"%d" % value, ()) for value in values]
            data += encode_batch(records, base_offset=base, leader_epoch=epoch)
            place += len(values)
            batches_max -= 1
        return data, first, place


class Session:
    """What a broker remembers of one stream, and what is on its way on it."""

    def __init__(self, broker_id: int, rack: str) -> None:
        self.broker_id = broker_id
        self.rack = rack
        self.requests: deque[SendFetch] = deque()
        self.answers: deque[tuple[int, tuple[PartitionBatches, ...]]] = deque()
        self.positions: dict[int, FetchPosition] = {}
        self.credit = 0
        self.epoch = 0

    def take_request(self) -> None:
        request = self.requests.popleft()
        for _, partition in request.removed:
            self.positions.pop(partition, None)
        for position in request.positions:
            self.positions[position.partition] = position
        self.credit += request.credit_bytes
        self.epoch = max(self.epoch, request.session_epoch)


class ModelCluster:
    """The truth, and what each broker has heard of it."""

    def __init__(self, random: Random, *, is_clean: bool) -> None:
        self.random = random
        self.is_clean = is_clean
        self.version = 1
        self.truth = [Role(1, 0, BROKERS) for _ in range(PARTITIONS)]
        self.logs = {
            (broker, number): ModelLog() for broker in BROKERS for number in range(PARTITIONS)
        }
        self.committed = [0] * PARTITIONS
        """The highest watermark that any leader ever had."""
        self.written = 0
        self.fenced: int = NOBODY
        self.follower_reads = 0
        for broker in BROKERS:
            self.learn(broker)

    # What happens.

    def produce(self, number: int) -> None:
        """Whoever believes that it leads appends a batch."""
        for broker in BROKERS:
            log = self.logs[broker, number]
            if log.role.leader == broker and self.random.random() < 0.8:
                base = log.end
                for _ in range(self.random.randint(1, 3)):
                    self.written += 1
                    log.entries.append(Entry(self.written, log.role.epoch, base))

    def replicate(self, number: int, follower: int) -> None:
        """One pull: cut what has parted, copy a batch or two, learn the watermark, confirm."""
        log = self.logs[follower, number]
        source = self.logs[log.role.leader, number] if log.role.leader in BROKERS else None
        if source is None or log.role.leader == follower or source.role.epoch != log.role.epoch:
            return
        while log.entries:
            epoch, end = source.end_of(log.entries[-1].epoch)
            if epoch == log.entries[-1].epoch and end >= log.end:
                break
            log.cut(min(end, log.end_of(epoch)[1]))
        for _ in range(self.random.randint(1, 3)):
            if log.end < source.end:
                base = source.entries[log.end].batch_base
                log.entries += [each for each in source.entries if each.batch_base == base]
        log.high_watermark = max(log.high_watermark, min(source.high_watermark, log.end))
        source.confirmed[follower] = log.end
        self.commit(number, log.role.leader)

    def commit(self, number: int, leader: int) -> None:
        log = self.logs[leader, number]
        others = [each for each in log.role.in_sync if each != leader]
        reached = min([log.end, *(log.confirmed.get(each, 0) for each in others)])
        log.high_watermark = max(log.high_watermark, reached)
        self.committed[number] = max(self.committed[number], log.high_watermark)

    def learn(self, broker: int) -> None:
        """The broker's metadata catch up."""
        for number in range(PARTITIONS):
            log, role = self.logs[broker, number], self.truth[number]
            if log.role.epoch != role.epoch:
                log.confirmed = {}
            log.role = role

    def elect(self, number: int) -> None:
        """Another leader of those in sync."""
        role = self.truth[number]
        others = [each for each in role.in_sync if each != role.leader]
        if others:
            self.truth[number] = Role(self.random.choice(others), role.epoch + 1, role.in_sync)
            self.version += 1

    def elect_unclean(self, number: int) -> None:
        """Anybody leads, whatever it lacks."""
        if not self.is_clean:
            leader = self.random.choice(BROKERS)
            self.truth[number] = Role(leader, self.truth[number].epoch + 1, (leader,))
            self.version += 1

    def change_in_sync(self, number: int) -> None:
        """The leader lets somebody in or out; it knows at once."""
        role = self.truth[number]
        log = self.logs[role.leader, number]
        if log.role != role:
            return
        other = self.random.choice([each for each in BROKERS if each != role.leader])
        if other in role.in_sync:
            in_sync = tuple(each for each in role.in_sync if each != other)
        elif self.logs[other, number].role.epoch == role.epoch and (
            log.confirmed.get(other, -1) >= max(log.high_watermark, log.end_of(role.epoch - 1)[1])
        ):
            in_sync = tuple(sorted((*role.in_sync, other)))
        else:
            return
        self.truth[number] = log.role = Role(role.leader, role.epoch, in_sync)
        self.version += 1
        self.commit(number, role.leader)

    def heal(self) -> None:
        """Everybody knows everything, and has it."""
        self.fenced = NOBODY
        for broker in BROKERS:
            self.learn(broker)
        for _ in range(200):
            for number in range(PARTITIONS):
                for broker in BROKERS:
                    self.replicate(number, broker)
        for number in range(PARTITIONS):
            self.commit(number, self.truth[number].leader)
            for broker in BROKERS:
                self.replicate(number, broker)

    # What a client hears.

    def view(self) -> ClusterView:
        return ClusterView(
            cluster_id="c",
            controller_id=1,
            brokers=tuple(
                BrokerView(broker_id=each, address=f"b{each}", is_fenced=each == self.fenced)
                for each in BROKERS
            ),
            topics=(
                TopicView(
                    name="t",
                    topic_id=TopicId(TOPIC_ID),
                    partitions=tuple(
                        PartitionView(
                            partition=PartitionId(number),
                            leader_id=role.leader,
                            leader_epoch=LeaderEpoch(role.epoch),
                        )
                        for number, role in enumerate(self.truth)
                    ),
                ),
            ),
            version=self.version,
        )

    def offset(self, broker: int, query: OffsetQuery) -> OffsetAnswer:
        log = self.logs[broker, query.partition]
        error = self._epoch_error(log, query.leader_epoch)
        if log.role.leader != broker:
            error = refusal(ErrorCode.NOT_LEADER)
        before = log.end_of(log.role.epoch - 1)[1]
        if error is None and query.spec is OffsetSpec.LATEST and log.high_watermark < before:
            error = refusal(ErrorCode.UNAVAILABLE)
        offset = 0 if query.spec is OffsetSpec.EARLIEST else log.high_watermark
        return OffsetAnswer(
            topic_id=TopicId(TOPIC_ID),
            partition=query.partition,
            offset=Offset(offset),
            error=error,
        )

    def serve(self, session: Session) -> None:
        """Take a request, or answer one partition."""
        if session.requests:
            session.take_request()
            return
        for number, position in list(session.positions.items()):
            answer = self._answer(session, number, position)
            if answer is not None:
                session.answers.append((session.epoch, (answer,)))
                return

    def _answer(
        self, session: Session, number: int, position: FetchPosition
    ) -> PartitionBatches | None:
        log = self.logs[session.broker_id, number]
        answer = self._instead(session, log, position)
        if answer is not None:
            del session.positions[number]
            return answer
        if position.fetch_offset >= log.high_watermark or session.credit <= 0:
            return None
        data, first, behind = log.read(position.fetch_offset, self.random.randint(1, 3))
        session.credit -= len(data)
        self.follower_reads += log.role.leader != session.broker_id
        session.positions[number] = msgspec.structs.replace(
            position, fetch_offset=behind, last_fetched_epoch=log.entries[behind - 1].epoch
        )
        return PartitionBatches(
            topic_id=TopicId(TOPIC_ID),
            partition=PartitionId(number),
            batches=data,
            fetch_sum=fetch_sum(TopicId(TOPIC_ID), number, first, checksum(data)),
            high_watermark=Offset(log.high_watermark),
            log_start_offset=Offset(0),
            leader_epoch=LeaderEpoch(log.role.epoch),
        )

    def _instead(
        self, session: Session, log: ModelLog, position: FetchPosition
    ) -> PartitionBatches | None:
        """An error, a parting, a nearer replica; None: it may be read."""
        broker, role = session.broker_id, log.role
        bare = PartitionBatches(topic_id=TopicId(TOPIC_ID), partition=position.partition)
        is_near = bool(session.rack) and broker in role.in_sync
        error = self._epoch_error(log, position.leader_epoch)
        if role.leader != broker and not is_near:
            error = refusal(ErrorCode.NOT_LEADER)
        if error is not None:
            is_hinted = error.code is not ErrorCode.UNKNOWN_LEADER_EPOCH
            return msgspec.structs.replace(
                bare,
                error=error,
                leader_id=role.leader if is_hinted else None,
                leader_epoch=role.epoch,
            )
        epoch, end = log.end_of(position.last_fetched_epoch)
        is_parted = epoch < position.last_fetched_epoch or end < position.fetch_offset
        if position.last_fetched_epoch >= 0 and is_parted:
            found = Divergence(leader_epoch=LeaderEpoch(epoch), end_offset=Offset(end))
            return msgspec.structs.replace(bare, divergence=found)
        if position.fetch_offset > log.end:
            return msgspec.structs.replace(bare, error=refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
        near = int(session.rack) if session.rack else NOBODY
        is_redirect = role.leader == broker and near in role.in_sync and near != broker
        if is_redirect and near != self.fenced and not position.stays_here:
            return msgspec.structs.replace(bare, preferred_replica=near)
        return None

    def _epoch_error(self, log: ModelLog, epoch: int) -> TidelogError | None:
        if epoch in (-1, log.role.epoch):
            return None
        is_old = epoch < log.role.epoch
        return refusal(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
