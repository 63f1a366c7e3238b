"""Brokers that store numbered batches, lose requests and answers, and change leaders: a model.

What is sent over a stream lies on its wire until the broker takes it, in order. A stream that
breaks loses any suffix of its wire, and every answer; the rest of its wire is still taken, late and
beside what newer streams carry. A leader change may lose what is not committed. Nothing of it is
the code under test but the engine that is driven.
"""

from collections.abc import Sequence
from random import Random

import msgspec

from tests.client.support.engine_world import ProducerWorld, failure, view
from tidelog.client.engine.produce.batch import Acknowledgement, Outcome
from tidelog.client.engine.produce.messages import (
    AllocateProducerId,
    Answered,
    BreakStream,
    ConnectFailed,
    FetchMetadata,
    LeaderHint,
    MetadataArrived,
    MetadataFailed,
    OpenStream,
    ProducerEffect,
    ProducerIdAllocated,
    ProducerIdentity,
    ProducerIdFailed,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TopicWanted,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset

PARTITIONS = 2
WINDOW = 16
SEQUENCES = 1 << 31
REFUSALS = (
    ErrorCode.RESOURCE_EXHAUSTED,
    ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS,
    ErrorCode.BATCH_TOO_LARGE,
    ErrorCode.ROUTE_MISMATCH,
)
UNKNOWNS = (ErrorCode.DEADLINE_EXCEEDED, ErrorCode.INDETERMINATE, ErrorCode.STORAGE_FAILED)


class Sent(msgspec.Struct, frozen=True):
    """A batch as its bytes say; the engine may number it anew later."""

    number: int
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    leader_epoch: int


class OnWire(msgspec.Struct, frozen=True):
    """A request on its way."""

    broker_id: int
    stream: int
    correlation_id: int
    batches: tuple[Sent, ...]


class Pending(msgspec.Struct):
    """A request that the broker has taken: what it will answer, as far as it knows."""

    request: OnWire
    outcomes: list[Outcome | None]
    hints: list[LeaderHint | None]
    waits_for: list[int | None]
    """Per batch the end of the log that has to be committed."""


class Log:
    """One partition, wherever it is led."""

    def __init__(self) -> None:
        self.entries: list[Sent] = []
        self.committed = 0
        self.known_from = 0
        """What stands before is not in the producer state any more."""
        self.leader = 1
        self.leader_epoch = 0

    def judge(self, sent: Sent) -> ErrorCode | int | None:
        """An error; the place of the batch that it is a copy of; None: it is the next one."""
        known = [
            (place, entry)
            for place, entry in enumerate(self.entries)
            if place >= self.known_from and entry.producer_id == sent.producer_id
        ]
        if not known:
            return None if sent.base_sequence == 0 else ErrorCode.UNKNOWN_PRODUCER_ID
        epoch = max(entry.producer_epoch for _, entry in known)
        if sent.producer_epoch < epoch:
            return ErrorCode.FENCED_PRODUCER_EPOCH
        if sent.producer_epoch > epoch:
            return None if sent.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE
        window = [each for each in known if each[1].producer_epoch == epoch][-WINDOW:]
        for place, entry in window:
            if (entry.base_sequence, entry.count) == (sent.base_sequence, sent.count):
                return place
        last = window[-1][1]
        behind = (sent.base_sequence - last.base_sequence - last.count) % SEQUENCES
        if behind == 0:
            return None
        is_old = behind > SEQUENCES // 2
        return ErrorCode.DUPLICATE_SEQUENCE if is_old else ErrorCode.OUT_OF_ORDER_SEQUENCE

    def offset(self, place: int) -> int:
        """Of the first record of the entry."""
        return sum(entry.count for entry in self.entries[:place])


class Brokers:
    """Two brokers, driven by numbers that a test draws."""

    def __init__(self, world: ProducerWorld, *, may_lose_committed: bool = False) -> None:
        self.world = world
        self.may_lose_committed = may_lose_committed
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.wires: dict[int, list[OnWire]] = {}
        self.pending: list[Pending] = []
        self.opening: list[OpenStream] = []
        self.open: dict[int, int] = {}
        """Broker by stream."""
        self.is_asked = False
        self.is_id_asked = False
        self.ids_given = 0
        self.version = 0
        self.old_leaders = [(1, 0)] * PARTITIONS
        self.is_calm = False

    # What the engine does.

    def take(self, effects: Sequence[ProducerEffect]) -> None:
        """Note what is to be done."""
        for effect in effects:
            match effect:
                case SendProduce():
                    self._send(effect)
                case OpenStream():
                    self.opening.append(effect)
                case FetchMetadata():
                    self.is_asked = True
                case AllocateProducerId():
                    assert not self.is_id_asked, "one request for an id at a time"
                    self.is_id_asked = True
                case BreakStream():
                    self._drop(effect.stream)
                case _:
                    pass

    def _send(self, effect: SendProduce) -> None:
        batches = tuple(
            Sent(
                batch.number,
                batch.partition,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                len(batch.columns),
                epoch,
            )
            for batch, epoch in zip(effect.batches, effect.leader_epochs, strict=True)
        )
        wire = self.wires.setdefault(effect.stream, [])
        wire.append(OnWire(effect.broker_id, effect.stream, effect.correlation_id, batches))

    def _drop(self, stream: int) -> None:
        self.open.pop(stream, None)
        self.pending = [each for each in self.pending if each.request.stream != stream]

    # What happens, by a drawn number.

    def produce(self, chance: int) -> None:
        """A few records for a partition, sealed or not."""
        if "t" not in self.world.accumulator.routes:
            return
        for _ in range(1 + chance % 3):
            self.world.append("t", chance // 3 % PARTITIONS, 20)
        if chance % 5:
            self.take(self.world.seal_all())

    def metadata(self, chance: int) -> None:
        """The truth, what was true before the last change, or nothing."""
        if not self.is_asked and chance % 3:
            return
        self.is_asked = False
        if chance % 5 == 0 and not self.is_calm:
            error = failure(ErrorCode.UNAVAILABLE)
            self.take(self.world.step(MetadataFailed(error=error)))
            return
        self.version += 1
        leaders = [(log.leader, log.leader_epoch) for log in self.logs]
        if chance % 5 == 1 and not self.is_calm:
            leaders = self.old_leaders
        self.take(self.world.step(MetadataArrived(view=view({"t": leaders}, self.version))))

    def give_id(self, chance: int) -> None:
        """An answer to the request for a producer id."""
        if not self.is_id_asked:
            return
        self.is_id_asked = False
        if chance % 3 == 0 and not self.is_calm:
            error = failure(ErrorCode.UNAVAILABLE)
            self.take(self.world.step(ProducerIdFailed(error=error)))
            return
        self.ids_given += 1
        identity = ProducerIdentity(
            producer_id=self.ids_given, producer_epoch=0, batches_in_flight_max=WINDOW
        )
        self.take(self.world.step(ProducerIdAllocated(identity=identity)))

    def connect(self, chance: int) -> None:
        """The oldest opening comes to something."""
        if not self.opening:
            return
        effect = self.opening.pop(0)
        if chance % 4 == 0 and not self.is_calm:
            failed = ConnectFailed(
                broker_id=effect.broker_id,
                stream=effect.stream,
                error=failure(ErrorCode.UNAVAILABLE),
            )
            self.take(self.world.step(failed))
            return
        self.open[effect.stream] = effect.broker_id
        opened = StreamOpened(broker_id=effect.broker_id, stream=effect.stream)
        self.take(self.world.step(opened))

    def serve(self, chance: int) -> None:
        """A broker takes the next request of some stream; of broken ones less often."""
        streams = [stream for stream in sorted(self.wires) if self.wires[stream]]
        if chance // 13 % 8 and not self.is_calm:
            streams = [stream for stream in streams if stream in self.open]
        if not streams:
            return
        stream = streams[chance % len(streams)]
        request = self.wires[stream].pop(0)
        pending = Pending(request, [], [], [])
        for place, sent in enumerate(request.batches):
            self._store(pending, sent, request.broker_id, chance // 11 + 7 * place)
        if stream in self.open:
            self.pending.append(pending)

    def _store(self, pending: Pending, sent: Sent, broker_id: int, chance: int) -> None:
        log = self.logs[sent.partition]
        said: ErrorCode | int | None = None
        hint = None
        if (broker_id, sent.leader_epoch) != (log.leader, log.leader_epoch):
            said = self._misdirected(log, sent, broker_id, chance)
            if said is not ErrorCode.UNKNOWN_LEADER_EPOCH and chance % 3 == 0:
                hint = LeaderHint(leader_id=log.leader, leader_epoch=LeaderEpoch(log.leader_epoch))
        elif chance % 9 == 0 and not self.is_calm:
            said = REFUSALS[chance // 9 % len(REFUSALS)]
        else:
            said = log.judge(sent)
        if said is None:
            said = len(log.entries)
            log.entries.append(sent)
        is_error = isinstance(said, ErrorCode)
        pending.outcomes.append(failure(said) if isinstance(said, ErrorCode) else None)
        pending.hints.append(hint)
        pending.waits_for.append(None if is_error else int(said) + 1)

    def _misdirected(self, log: Log, sent: Sent, broker_id: int, chance: int) -> ErrorCode:
        if broker_id != log.leader:
            # One that has not heard of its successor writes what nobody will keep.
            is_deaf = chance % 4 == 0 and sent.leader_epoch < log.leader_epoch
            return ErrorCode.INDETERMINATE if is_deaf else ErrorCode.NOT_LEADER
        is_old = sent.leader_epoch < log.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH

    def commit(self, chance: int) -> None:
        """The watermark moves, to the end or on its way there."""
        log = self.logs[chance % PARTITIONS]
        left = len(log.entries) - log.committed
        log.committed += left if self.is_calm else chance // 2 % (left + 1)

    def answer(self, chance: int) -> None:
        """Some request is answered: complete, or because the broker waits no longer."""
        ready = [each for each in self.pending if self._is_complete(each)]
        if chance % 6 == 0 and not self.is_calm and self.pending:
            ready = self.pending
        if not ready:
            return
        pending = ready[chance // 6 % len(ready)]
        self.pending.remove(pending)
        request = pending.request
        answered = Answered(
            broker_id=request.broker_id,
            stream=request.stream,
            correlation_id=request.correlation_id,
            outcomes=tuple(
                self._outcome(pending, place, chance) for place in range(len(request.batches))
            ),
            hints=tuple(pending.hints),
        )
        self.take(self.world.step(answered))

    def _is_complete(self, pending: Pending) -> bool:
        return all(
            outcome is not None or (end or 0) <= self.logs[sent.partition].committed
            for outcome, end, sent in zip(
                pending.outcomes, pending.waits_for, pending.request.batches, strict=True
            )
        )

    def _outcome(self, pending: Pending, place: int, chance: int) -> Outcome:
        said, end = pending.outcomes[place], pending.waits_for[place]
        if said is not None:
            return said
        assert end is not None, "a batch is refused or stored"
        log = self.logs[pending.request.batches[place].partition]
        if end > log.committed:
            return failure(UNKNOWNS[chance // 36 % len(UNKNOWNS)])
        return Acknowledgement(base_offset=Offset(log.offset(end - 1)))

    def break_stream(self, chance: int) -> None:
        """Any suffix of the wire is lost, and all answers; the rest is taken later."""
        if not self.open:
            return
        stream = sorted(self.open)[chance % len(self.open)]
        broker_id = self.open[stream]
        wire = self.wires.get(stream, [])
        del wire[chance // 5 % (len(wire) + 1) :]
        self._drop(stream)
        broken = StreamBroken(
            broker_id=broker_id, stream=stream, error=failure(ErrorCode.UNAVAILABLE)
        )
        self.take(self.world.step(broken))

    def elect(self, chance: int) -> None:
        """The other broker leads, and holds at least what is committed."""
        log = self.logs[chance % PARTITIONS]
        self.old_leaders = [(each.leader, each.leader_epoch) for each in self.logs]
        log.leader, log.leader_epoch = 3 - log.leader, log.leader_epoch + 1
        kept = log.committed
        if self.may_lose_committed and chance % 3 == 0:
            kept = chance // 3 % (kept + 1)
        kept += chance // 7 % (len(log.entries) - kept + 1)
        del log.entries[kept:]
        log.committed = min(log.committed, kept)
        log.known_from = min(log.known_from, kept)
        partition = chance % PARTITIONS
        for pending in self.pending:
            for place, sent in enumerate(pending.request.batches):
                if sent.partition == partition and pending.outcomes[place] is None:
                    pending.outcomes[place] = failure(ErrorCode.INDETERMINATE)

    def forget(self, chance: int) -> None:
        """The partition forgets its producers, as after a long silence. Not while the first batch
        of an epoch is under way: a copy of that would be taken for a new producer's."""
        partition = chance % PARTITIONS
        lane = self.world.core.lanes.get(("t", partition))
        numbers = [sent.base_sequence for sent in self.underway(partition)]
        if lane is not None:
            numbers += [batch.base_sequence for batch in (*lane.in_flight, *lane.refused)]
            numbers += [batch.base_sequence for batch in lane.waiting]
        if 0 not in numbers:
            self.logs[partition].known_from = len(self.logs[partition].entries)

    def wait(self, chance: int) -> None:
        """Time passes: mostly little, sometimes up to the request's or the delivery timeout."""
        duration_ms = chance % 300
        if chance % 17 == 0 and not self.is_calm:
            duration_ms = (5_000, 29_000, 61_000)[chance // 17 % 3]
        self.take(self.world.tick(duration_ms))

    # The end.

    def underway(self, partition: int) -> list[Sent]:
        """Copies on any wire."""
        return [
            sent
            for wire in self.wires.values()
            for request in wire
            for sent in request.batches
            if sent.partition == partition
        ]

    def calm_down(self, random: Random) -> None:
        """No faults any more: everything comes to its end."""
        self.is_calm = True
        self.take(self.world.seal_all())
        calm = (self.metadata, self.give_id, self.connect, self.serve, self.answer, self.wait)
        for _ in range(3_000):
            random.choice(calm)(random.randrange(1, 10_000))
            for partition in range(PARTITIONS):
                self.commit(partition)
            if not self.world.core.lanes and not any(self.wires.values()):
                return

    def begin(self) -> None:
        """The topic is wanted and found."""
        self.take(self.world.step(TopicWanted(topic="t")))
        self.metadata(2)
