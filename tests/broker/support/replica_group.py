"""Three replicas of a partition under a controller and a producer, in any order of events.

The cores are the real ones. Controller, replication and producer are played by the shortest rules
that are right: a leader is one of the replicas in sync; a follower compares epochs before it
copies; the producer sends again from its oldest batch that is not acknowledged. Messages between
them wait in queues and are delivered, or lost, when the story says so.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from tests.broker.support.core_model import failure, key_of
from tests.broker.support.replica_core import ReplicaCore
from tidelog.broker.directory.core.messages import Appended, Done, Refuse, Tick
from tidelog.broker.directory.core.partition import Following, Leading
from tidelog.broker.log.state.log import PartitionLog
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode

KEY = key_of(0)
BROKERS = (1, 2, 3)
IN_FLIGHT_MAX = 4
NO_OFFSET = -1
"""Of a batch that is stored, nobody knows where."""
SENT_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.INDETERMINATE,
        ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS,
        ErrorCode.UNAVAILABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.STORAGE_FULL,
    }
)


class Position(msgspec.Struct, frozen=True):
    """What a follower tells its leader."""

    follower: int
    epoch: int
    end: int
    flushed: int


class View(msgspec.Struct, frozen=True):
    """The controller's decision, as brokers learn it."""

    leader: int
    epoch: int
    in_sync: tuple[int, ...]


class Broker:
    """One replica, and what it knows."""

    def __init__(self, number: int, core: ReplicaCore, view: View) -> None:
        self.number = number
        self.core = core
        self.view = view
        self.joining: int | None = None
        """Whom a leader waits for already, and has asked the controller to take in."""
        self.positions: deque[Position] = deque()
        """On their way to this one."""
        self.cutting: int | None = None
        """The token of a cut that was asked for."""
        self.highest_watermark = 0
        """Since its start."""

    @property
    def log(self) -> PartitionLog:
        """Its log."""
        return self.core.log()

    @property
    def is_leading(self) -> bool:
        """Whether it believes that it leads."""
        return self.view.leader == self.number


class Group:
    """See the module."""

    def __init__(self, topic: TopicSettings) -> None:
        self.topic = topic
        self.view = View(1, 1, BROKERS)
        self.brokers = {
            number: Broker(number, ReplicaCore(topic), View(1, 0, BROKERS)) for number in BROKERS
        }
        self.batches: list[bytes] = []
        """What the producer has sealed: number n begins at sequence n."""
        self.acknowledged: dict[int, int] = {}
        """Number of a batch, and the offset that it has."""
        self.next_number = 0
        """Of the batch to be sent next: one that is not acknowledged."""
        self.in_flight: dict[tuple[int, int], int] = {}
        """By broker and token."""
        self.is_losing_allowed = topic.is_flush_sync
        for number in BROKERS:
            self.learn(number)

    # -- the controller --------------------------------------------------------------------------

    def elect(self, number: int) -> None:
        """A replica in sync leads from now on; brokers learn it later."""
        if number in self.view.in_sync:
            self.view = View(number, self.view.epoch + 1, self.view.in_sync)

    def learn(self, number: int) -> None:
        """The broker sees the controller's present decision."""
        broker = self.brokers[number]
        if broker.view == self.view:
            return
        self._judge(broker)
        is_new = broker.view.epoch != self.view.epoch
        broker.view = self.view
        if is_new or broker.joining in self.view.in_sync:
            broker.joining = None
        if broker.is_leading:
            self._lead(broker)
        elif is_new:
            broker.core.follow(self.view.epoch)

    def _lead(self, broker: Broker) -> None:
        others = [each for each in broker.view.in_sync if each != broker.number]
        if broker.joining is not None:
            others.append(broker.joining)
        broker.core.lead(broker.view.epoch, *others, in_sync=len(broker.view.in_sync))

    def shrink(self, leader: int, follower: int) -> None:
        """A leader that is none to the controller any more is refused."""
        broker = self.brokers[leader]
        if broker.view != self.view or not broker.is_leading or follower == leader:
            return
        if follower in self.view.in_sync:
            in_sync = tuple(each for each in self.view.in_sync if each != follower)
            self.view = View(leader, self.view.epoch, in_sync)

    def ask_to_expand(self, leader: int, follower: int) -> None:
        """The leader waits for the follower from now on, then asks."""
        broker = self.brokers[leader]
        role = broker.core.core.state.partitions[KEY].role
        if not broker.is_leading or broker.joining is not None or not isinstance(role, Leading):
            return
        log = broker.log
        if follower in broker.view.in_sync or follower == leader:
            return
        position = next(
            (
                each
                for each in reversed(broker.positions)
                if (each.follower, each.epoch) == (follower, broker.view.epoch)
            ),
            None,
        )
        if position is None:
            return
        counted = position.flushed if self.topic.is_flush_sync else position.end
        if counted >= log.high_watermark and counted >= log.led_from:
            broker.joining = follower
            self._lead(broker)

    def expand(self, leader: int) -> None:
        """The controller takes in whom the leader has asked for, unless it knows better."""
        broker = self.brokers[leader]
        if broker.joining is None or broker.view != self.view or not broker.is_leading:
            return
        in_sync = (*self.view.in_sync, broker.joining)
        self.view = View(leader, self.view.epoch, in_sync)

    # -- replication -----------------------------------------------------------------------------

    def fetch(self, number: int, count: int) -> None:
        """A follower compares its log with its leader's, then copies some batches or cuts."""
        follower = self.brokers[number]
        leader = self.brokers[follower.view.leader]
        if follower.is_leading or leader.view.epoch != follower.view.epoch:
            return
        if not isinstance(follower.core.core.state.partitions[KEY].role, Following):
            return
        log, source = follower.log, leader.log
        if self._is_cutting(follower) or log.is_being_cut or source.is_being_cut:
            return
        if follower.core.core.state.queue or follower.core.core.state.write is not None:
            return
        if log.log_end_offset < source.log_start_offset or (
            log.log_start_offset == log.log_end_offset != source.log_start_offset
        ):
            follower.cutting = follower.core.restart_at(source.log_start_offset)
            return
        cut_offset = _parted_at(log, source)
        if cut_offset is not None:
            assert cut_offset >= log.high_watermark, "what is committed is not its leader's"
            follower.cutting = follower.core.cut(cut_offset)
            return
        batches = list(source_batches(leader, log.log_end_offset))[:count]
        if batches:
            follower.core.copy_of(batches, log.log_end_offset)
        follower.core.commit_to(source.high_watermark, epoch=follower.view.epoch)
        if log.log_start_offset < source.log_start_offset <= log.high_watermark:
            follower.core.trim(source.log_start_offset, start_epoch=source.log_start_epoch)

    def trim(self, number: int, share: float) -> None:
        """A leader gives up some of what is committed, but for the last batch of it."""
        broker = self.brokers[number]
        log = broker.log
        if broker.is_leading and log.high_watermark - 1 > log.log_start_offset:
            kept = log.high_watermark - 1 - log.log_start_offset
            broker.core.trim(log.log_start_offset + int(share * kept))

    def _is_cutting(self, follower: Broker) -> bool:
        if follower.cutting is None:
            return False
        answer = follower.core.answers.get(follower.cutting)
        if answer is None:
            return True
        assert isinstance(answer, Done | Refuse), "a cut is done or refused"
        follower.cutting = None
        return False

    def tell_position(self, number: int) -> None:
        """A follower says where it stands: the message is on its way."""
        follower = self.brokers[number]
        leader = self.brokers[follower.view.leader]
        if follower.is_leading or follower.log.is_being_cut or leader.view != follower.view:
            return
        log, source = follower.log, leader.log
        if source.is_being_cut or _parted_at(log, source) is not None:
            return
        if log.log_end_offset < source.log_start_offset:
            return
        flushed = min(log.flushed_offset, log.log_end_offset)
        leader.positions.append(Position(number, follower.view.epoch, log.log_end_offset, flushed))

    def hear_position(self, number: int) -> None:
        """The oldest message arrives."""
        leader = self.brokers[number]
        if leader.positions:
            position = leader.positions.popleft()
            leader.core.follower_at(
                position.follower, position.end, position.flushed, epoch=position.epoch
            )
            self._judge(leader)

    # -- the producer ----------------------------------------------------------------------------

    def produce(self) -> None:
        """Send the next batch to whom the controller names, or to one that led before."""
        if len(self.in_flight) >= IN_FLIGHT_MAX:
            return
        if self.next_number == len(self.batches):
            self.batches.append(_sealed(self.next_number))
        self.send_to(self.view.leader)

    def send_to(self, number: int) -> None:
        """Send the next batch to this broker."""
        if self.next_number >= len(self.batches):
            return
        core = self.brokers[number].core
        token = core.new_token()
        self.in_flight[number, token] = self.next_number
        core.submit(token, self.batches[self.next_number], 0)
        self.next_number += 1
        self._hear(number)

    def send_again(self) -> None:
        """The producer's patience is at an end: it goes on from its oldest batch."""
        self.in_flight.clear()
        self._go_back()

    def _go_back(self) -> None:
        self.next_number = self._oldest()

    def _oldest(self) -> int:
        """The first batch that is not acknowledged."""
        unknown = (n for n in range(len(self.batches)) if n not in self.acknowledged)
        return next(unknown, len(self.batches))

    def _hear(self, number: int) -> None:
        """Answers of this broker, in the order in which they were asked for."""
        core = self.brokers[number].core
        for place in [place for place in self.in_flight if place[0] == number]:
            answer = core.answers.get(place[1])
            if answer is None or place not in self.in_flight:
                continue
            batch = self.in_flight.pop(place)
            if isinstance(answer, Appended):
                before = self.acknowledged.setdefault(batch, answer.base_offset)
                assert before in (NO_OFFSET, answer.base_offset), f"batch {batch} has two offsets"
                continue
            assert isinstance(answer, Refuse), "a batch is stored or refused"
            if answer.error.code is ErrorCode.DUPLICATE_SEQUENCE:
                self.acknowledged.setdefault(batch, NO_OFFSET)
                continue
            assert answer.error.code in SENT_AGAIN, f"{answer.error}"
            oldest = self._oldest()
            assert batch != oldest or answer.error.code not in (
                ErrorCode.OUT_OF_ORDER_SEQUENCE,
                ErrorCode.UNKNOWN_PRODUCER_ID,
            ), f"the oldest batch is refused: {answer.error}"
            self.send_again()

    # -- machines --------------------------------------------------------------------------------

    def work(self, number: int, what: str) -> None:
        """Something of this broker's disk ends."""
        core = self.brokers[number].core
        if what == "write" and core.write is not None:
            core.end_write()
        elif what == "flush" and core.has_flush:
            core.end_flush()
        elif what == "full" and core.write is not None and not core.write_has_promises:
            core.end_write(failure(ErrorCode.STORAGE_FULL))
            core.end_truncate()
        elif what == "cut" and core.cuts:
            core.end_cut()
        elif what == "tick":
            core.tell(Tick(now_ms=core.core.state.now_ms + 500))
        elif what == "roll":
            core.roll()
        self._judge(self.brokers[number])

    def die(self, number: int, *, is_machine: bool, keeps: float) -> None:
        """The broker dies and is opened again; it knows the controller's decision then.

        Where nothing is flushed before it is acknowledged, one whose machine dies is not in sync
        any more: it cannot be told how much of its log it has lost.
        """
        broker = self.brokers[number]
        if is_machine and not self.topic.is_flush_sync:
            others = tuple(each for each in self.view.in_sync if each != number)
            if not others:
                return
            self.view = msgspec.structs.replace(self.view, in_sync=others)
        if self.view.leader == number:
            others = tuple(each for each in self.view.in_sync if each != number)
            self.elect(others[0] if others else number)
        for place in [place for place in self.in_flight if place[0] == number]:
            del self.in_flight[place]
        self._go_back()
        core = broker.core.opened_again(keeps=keeps, is_machine=is_machine, epoch=broker.view.epoch)
        view = View(0, -1, ())
        self.brokers[number] = Broker(number, core, view)
        self.learn(number)

    # -- what must hold --------------------------------------------------------------------------

    def _judge(self, broker: Broker) -> None:
        self._hear(broker.number)
        log, cut = broker.log, broker.core.core.state.partitions[KEY].cut
        if cut is not None and cut.restart is not None:
            # It is empty soon, and may go on below: another leader has trimmed what lay between.
            broker.highest_watermark = 0
            return
        assert log.high_watermark >= broker.highest_watermark, "a watermark has fallen"
        if log.high_watermark > broker.highest_watermark and broker.is_leading:
            assert len(broker.view.in_sync) >= self.topic.in_sync_replicas_min, (
                "a watermark moves while too few are in sync"
            )
        broker.highest_watermark = log.high_watermark

    def check(self) -> None:
        """After every event."""
        for number in BROKERS:
            self._judge(self.brokers[number])
        self._check_same()
        self._check_leader()

    def _check_same(self) -> None:
        """Logs are equal as far as two of them are committed."""
        logs = [
            {base: data for base, _, data in broker.core.stored()}
            for broker in self.brokers.values()
        ]
        marks = [broker.log.high_watermark for broker in self.brokers.values()]
        starts = [broker.log.log_start_offset for broker in self.brokers.values()]
        for one in range(len(logs)):
            for other in range(one):
                bound = min(marks[one], marks[other])
                for base in range(max(starts[one], starts[other]), bound):
                    assert logs[one].get(base) == logs[other].get(base), (
                        f"offset {base} of brokers {BROKERS[one]} and {BROKERS[other]}"
                    )

    def _check_leader(self) -> None:
        """Every replica in sync holds what was acknowledged, where it was; a leader, durably what
        is committed."""
        for number in self.view.in_sync:
            broker = self.brokers[number]
            stored = {base: data for base, _, data in broker.core.stored()}
            for batch, base in self.acknowledged.items():
                if base < broker.log.log_start_offset:
                    continue
                found = stored.get(base)
                assert found is not None, f"broker {number} has lost batch {batch} at {base}"
                assert found[21:] == self.batches[batch][21:], f"offset {base} is another batch"
            bodies = [data[21:] for data in stored.values()]
            assert len(bodies) == len(set(bodies)), f"broker {number} stores a batch twice"
            order = [self.batches.index(_original(self.batches, body)) for body in bodies]
            assert order == sorted(order), f"broker {number} stores {order}"
        leader = self.brokers[self.view.leader]
        if self.topic.is_flush_sync and leader.view == self.view:
            for number in self.view.in_sync:
                # The mark of a cut lowers what is known to be flushed, not what is.
                durable = sum(self.brokers[number].core.durable_bytes.values())
                start = max(self.brokers[number].log.log_start_offset, leader.log.log_start_offset)
                assert durable >= _bytes_within(leader, start, leader.log.high_watermark), (
                    f"broker {number} has not flushed what is committed"
                )

    def heal(self) -> None:
        """Everything works again: all that was sent is acknowledged in the end."""
        for _ in range(200):
            self._round()
            if not self.in_flight:
                self._go_back()
                if self.next_number == len(self.batches) and len(self.view.in_sync) == 3:
                    break
                self.send_to(self.view.leader)
        assert len(self.acknowledged) == len(self.batches), "some batch is never acknowledged"
        for _ in range(3):
            self._round()
        self._check_whole()

    def _round(self) -> None:
        """Everybody does what is to be done, once."""
        for number in BROKERS:
            self.learn(number)
            self.brokers[number].core.drain()
            self._judge(self.brokers[number])
        leader = self.view.leader
        for number in BROKERS:
            self.fetch(number, 100)
            self.brokers[number].core.drain()
            self.tell_position(number)
        for number in BROKERS:
            if number not in self.view.in_sync:
                self.ask_to_expand(leader, number)
        while self.brokers[leader].positions:
            self.hear_position(leader)
        self.expand(leader)
        self.check()

    def _check_whole(self) -> None:
        ends = {broker.log.log_end_offset for broker in self.brokers.values()}
        marks = {broker.log.high_watermark for broker in self.brokers.values()}
        assert len(ends | marks) == 1, f"logs end at {ends}, are committed up to {marks}"
        states = [broker.log.producers for broker in self.brokers.values()]
        if not any(broker.log.log_start_offset for broker in self.brokers.values()):
            assert states[0] == states[1] == states[2], "the replicas know different producers"
        last = [state.producers[0].batches[-1] for state in states if len(state)]
        assert len(last) in (0, 3), "a replica knows no producer"
        assert last == last[:1] * len(last), "the replicas know different last batches"


def source_batches(leader: Broker, start: int) -> Iterable[tuple[int, int, bytes]]:
    """What the leader has written from there on."""
    return leader.core.stored(start)


def _parted_at(log: PartitionLog, source: PartitionLog) -> int | None:
    """Where a follower must cut its log; None: it goes on as its leader's."""
    if not log.leader_epochs.starts:
        return None
    last = log.leader_epochs.latest
    epoch, end = source.leader_epochs.end_offset_of(last, source.log_end_offset)
    if epoch == last and end >= log.log_end_offset:
        return None
    if epoch < 0:
        # All that the leader has of these epochs is trimmed away.
        start = source.log_start_offset
        return start if log.log_end_offset > start else None
    own_end = log.leader_epochs.end_offset_of(epoch, log.log_end_offset)[1]
    return max(0, min(end, own_end))


def _sealed(number: int) -> bytes:
    return encode_batch(
        [(1, None, b"%d" % number, ())], producer_id=7, producer_epoch=0, base_sequence=number
    )


def _original(batches: list[bytes], body: bytes) -> bytes:
    return next(each for each in batches if each[21:] == body)


def _bytes_within(broker: Broker, start: int, end: int) -> int:
    return sum(
        len(data) for base, behind, data in broker.core.stored() if start <= base and behind <= end
    )
