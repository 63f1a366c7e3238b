"""A transactional producer against a coordinator that loses, delays and repeats: nothing tears.

The coordinator here is a plain model of the contract, written for this test alone. Whatever is
lost, repeated or let go late, and whoever aborts or takes over meanwhile: a commit that returned is
there whole, an abort that returned left nothing, and the producer always gets on once the network
works, or says that it is fenced.
"""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.core import TransactionCore
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    CallDone,
    CoordinatorFailed,
    CoordinatorFound,
    DecideWanted,
    DropRecords,
    EndWanted,
    FindCoordinator,
    Flush,
    Flushed,
    InitializeWanted,
    Member,
    OffsetsWanted,
    PrepareWanted,
    RecordsAdded,
    RecordsFailed,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendOffsets,
    SendPrepare,
    TellCallWaits,
    Token,
    TransactionMessage,
    UseIdentity,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Fenced,
    Identity,
    New,
    Open,
    Prepared,
    Ready,
    Starting,
)
from tidelog.client.errors import NoAnswerError
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, TopicId

CALL_NS = 400 * NS_PER_MS
OFFSETS = (
    OffsetToCommit(
        topic_partition=TopicPartition("in", 0),
        topic_id=TopicId(bytes(16)),
        committed_offset=Offset(7),
    ),
)


def refusal(code: ErrorCode) -> TidelogError:
    return TidelogError(code, tried="call the model", happened="it refused")


class Coordinator:
    """The contract of one transactional id, and the partitions behind it."""

    def __init__(self) -> None:
        self.current = Identity(7, 0)
        self.last: Identity | None = None
        self.last_decision: Decision | None = None
        """None: it was aborted by a timeout or by somebody who took over."""
        self.is_prepared = False
        self.decided: tuple[Identity, Decision] | None = None
        """The last token, which may be decided the same way again."""
        self.added: list[str] = []
        self.visible: list[str] = []

    def initialize(self, expected: Identity | None) -> Identity:
        if self.is_prepared:
            raise refusal(ErrorCode.TRANSACTION_PREPARED)
        if expected is not None and expected not in (self.current, self.last):
            raise refusal(ErrorCode.FENCED_PRODUCER_EPOCH)
        if expected is None or expected == self.current:
            self._next(None)
        return self.current

    def add(self, identity: Identity, what: str) -> None:
        if identity == self.current and self.is_prepared:
            raise refusal(ErrorCode.TRANSACTION_PREPARED)
        if identity == self.last and self.last_decision is None:
            raise refusal(ErrorCode.TRANSACTION_ABORTED)
        if identity != self.current:
            raise refusal(ErrorCode.FENCED_PRODUCER_EPOCH)
        self.added.append(what)

    def end(self, identity: Identity, decision: Decision) -> Identity:
        if identity == self.current:
            if self.is_prepared:
                raise refusal(ErrorCode.TRANSACTION_PREPARED)
            self._next(decision)
        else:
            self._repeated(identity, decision)
        return self.current

    def _repeated(self, identity: Identity, decision: Decision) -> None:
        if identity != self.last or self.added:
            raise refusal(ErrorCode.FENCED_PRODUCER_EPOCH)
        if self.last_decision is None:
            raise refusal(ErrorCode.TRANSACTION_ABORTED)
        if self.last_decision is not decision:
            raise refusal(ErrorCode.INVALID_TRANSACTION_STATE)

    def prepare(self, identity: Identity) -> None:
        if identity == self.last and self.last_decision is None:
            raise refusal(ErrorCode.TRANSACTION_ABORTED)
        if identity != self.current:
            raise refusal(ErrorCode.FENCED_PRODUCER_EPOCH)
        self.is_prepared = True

    def decide(self, token: Token, decision: Decision) -> None:
        if token.identity == self.current and self.is_prepared:
            self._next(decision)
            self.decided = token.identity, decision
        elif self.decided != (token.identity, decision):
            raise refusal(ErrorCode.INVALID_TRANSACTION_STATE)

    def time_out(self) -> None:
        if self.added and not self.is_prepared:
            self._next(None)

    def _next(self, decision: Decision | None) -> None:
        if decision is Decision.COMMIT:
            self.visible += self.added
        self.added = []
        self.is_prepared = False
        self.last, self.last_decision = self.current, decision
        epoch = self.current.producer_epoch
        self.current = Identity(self.current.producer_id, epoch + 1)


class World:
    """One producer, one coordinator, and a network that a random source bends."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_ns = 0
        self.core = TransactionCore("pay", Backoff(initial_ms=5, max_ms=20))
        self.coordinator = Coordinator()
        self.is_healed = False
        self.identity: Identity | None = None
        self.kept_back: list[Any] = []
        self.records: list[str] = []
        """Of the open transaction, as the user appended them."""
        self.to_send: list[tuple[Identity, str]] = []
        self.done: dict[int, CallDone] = {}
        self.calls = 0
        self.names = 0
        self.pending: list[TransactionMessage] = []
        self.answers: list[tuple[int, Answered]] = []
        """On their way, with the times at which they come."""
        self.is_flushing = False
        self.is_refused = False
        """A record of the open transaction was refused for good."""
        self.inits_without_last = 0
        """One that is delayed takes over from the producer that has sent it: safe, and for good."""

    def say(self, message: TransactionMessage) -> None:
        self.pending.append(message)
        while self.pending:
            self._perform(self.core.step(self.pending.pop(0), self.now_ns))

    def _perform(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case FindCoordinator():
                    self.pending.append(self._found(effect))
                case UseIdentity():
                    self.identity = effect.identity
                case Flush():
                    self.is_flushing = True
                case DropRecords():
                    # What is on its way may still arrive.
                    self.kept_back += self.to_send
                    self.to_send, self.is_flushing = [], False
                case TellCallWaits():
                    pass  # Nobody reads a log here.
                case CallDone():
                    assert effect.call not in self.done, "a call is answered once"
                    self.done[effect.call] = effect
                case _:
                    self._ask(effect)

    def _is(self, percent: int) -> bool:
        return not self.is_healed and self.random.randrange(100) < percent

    def _found(self, effect: FindCoordinator) -> TransactionMessage:
        if self._is(20):
            error = refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return CoordinatorFailed(of=effect.of, error=error)
        return CoordinatorFound(of=effect.of, address="b1")

    def _ask(self, effect: Any) -> None:
        """The request arrives, or not; the answer comes at once, later, or too late."""
        delay_ns = self.random.randrange(2 * CALL_NS) if self._is(30) else NS_PER_MS
        self.answers.append((self.now_ns + delay_ns, self._asked(effect)))

    def _asked(self, effect: Any) -> Answered:
        lost = NoAnswerError(ErrorCode.UNAVAILABLE, tried="ask the model", happened="it is silent")
        if self._is(10):
            error = refusal(self.random.choice([ErrorCode.NOT_COORDINATOR, ErrorCode.UNAVAILABLE]))
            return Answered(number=effect.number, error=error)
        if self._is(20):
            self.kept_back.append(effect)
            return Answered(number=effect.number, error=lost, is_doubtful=True)
        answer = self.deliver(effect)
        if self._is(10):
            self.deliver(effect)
        if self._is(20):
            return Answered(number=effect.number, error=lost, is_doubtful=True)
        return answer

    def deliver(self, effect: Any) -> Answered:
        """The coordinator gets a request."""
        identity = None
        try:
            match effect:
                case SendInitialize():
                    self.inits_without_last += effect.expected is None
                    identity = self.coordinator.initialize(effect.expected)
                case SendOffsets():
                    self.coordinator.add(effect.identity, "offsets")
                case SendEnd():
                    identity = self.coordinator.end(effect.identity, effect.decision)
                case SendPrepare():
                    self.coordinator.prepare(effect.identity)
                case SendDecide():
                    self.coordinator.decide(effect.token, effect.decision)
        except TidelogError as error:
            return Answered(number=effect.number, error=error)
        return Answered(number=effect.number, identity=identity)

    def let_go(self) -> None:
        """Something that was kept back arrives; nobody hears the answer."""
        if not self.kept_back:
            return
        late = self.kept_back.pop(self.random.randrange(len(self.kept_back)))
        if isinstance(late, tuple):
            try:
                self.coordinator.add(*late)
            except TidelogError:
                return
        else:
            self.deliver(late)

    def append(self) -> None:
        assert self.identity is not None
        self.names += 1
        name = f"r{self.names}"
        self.records.append(name)
        self.to_send.append((self.identity, name))
        self.say(RecordsAdded())
        if self._is(50):
            self.advance()

    def send_one(self) -> None:
        identity, name = self.to_send.pop(0)
        try:
            if self._is(10):
                self.is_refused = True
                raise refusal(ErrorCode.BATCH_TOO_LARGE)
            self.coordinator.add(identity, name)
        except TidelogError as error:
            self.say(RecordsFailed(error))

    def advance(self) -> None:
        """Time passes until something happens; records go out one by one meanwhile."""
        if self._is(20):
            self.let_go()
        if self._is(3):
            self.coordinator.time_out()
        if self.to_send and (self.is_flushing or self._is(30)):
            self.send_one()
        elif self.is_flushing:
            self.is_flushing = False
            self.say(Flushed())
        due_ns = [due for due, _ in self.answers]
        if (deadline_ns := self.core.next_deadline_ns()) is not None:
            due_ns.append(deadline_ns)
        self.now_ns = max(self.now_ns + NS_PER_MS, min(due_ns, default=0))
        come = [answer for due, answer in self.answers if due <= self.now_ns]
        self.answers = [each for each in self.answers if each[0] > self.now_ns]
        for answer in come:
            self.say(answer)
        self._perform(self.core.tick(self.now_ns))
        while self.pending:
            self._perform(self.core.step(self.pending.pop(0), self.now_ns))

    def call(self, kind: type, **more: Any) -> CallDone:
        """One call of the user's, until it returns."""
        self.calls += 1
        number = self.calls
        deadline_ns = self.now_ns + (CALL_NS if not self.is_healed else 100 * CALL_NS)
        self.say(kind(call=number, deadline_ns=deadline_ns, **more))
        while number not in self.done:
            assert self.now_ns <= deadline_ns, f"{self.core.phase}: a call outlives its time"
            self.advance()
        return self.done[number]

    def must_be_whole(self) -> None:
        """What the user saw committed is visible, once."""
        assert not self.is_refused, "something of it was refused"
        found = [each for each in self.coordinator.visible if each in self.records]
        assert sorted(found) == sorted(self.records), f"{found} of {self.records}"

    def must_be_gone(self) -> None:
        assert not set(self.records) & set(self.coordinator.visible)


def one_transaction(world: World) -> None:
    """Begin, add, end; whatever fails is brought to an end before the next one."""
    core = world.core
    if isinstance(core.phase, New):
        world.call(InitializeWanted)
        return
    begun = world.call(BeginWanted)
    if begun.error is None:
        world.records, world.is_refused = [], False
        for _ in range(world.random.randrange(4)):
            if isinstance(core.phase, Open):
                world.append()
        if world._is(30) and isinstance(core.phase, Open):
            world.call(OffsetsWanted, member=Member(group="g"), offsets=OFFSETS)
        if world.random.randrange(6) == 0 and isinstance(core.phase, Open):
            in_two_phases(world)
            return
    end(world)


def end(world: World) -> None:
    """Commit or abort until it is known what became of it."""
    for _ in range(200):
        if isinstance(world.core.phase, Ready | Fenced | New | Prepared | Starting):
            return
        if world.random.randrange(3) == 0:
            begun = world.call(BeginWanted)
            assert begun.error is not None, "what became of the one before is not known"
        if isinstance(world.core.phase, Open) and world.random.randrange(3) == 0:
            world.append()
        decision = world.random.choice(list(Decision))
        ended = world.call(EndWanted, decision=decision)
        if ended.error is None and decision is Decision.COMMIT:
            world.must_be_whole()
        elif ended.error is None:
            world.must_be_gone()
        elif "had decided: commit" in ended.error.happened:
            world.must_be_whole()
        elif "had decided: abort" in ended.error.happened:
            world.must_be_gone()
    raise AssertionError(f"it never ends: {world.core.phase}")


def in_two_phases(world: World) -> None:
    prepared = world.call(PrepareWanted)
    if prepared.error is not None:
        end(world)
        return
    if not prepared.token:
        return
    decision = world.random.choice(list(Decision))
    for _ in range(200):
        decided = world.call(DecideWanted, token=prepared.token, decision=decision)
        if decided.error is None:
            break
        assert decided.error.code is ErrorCode.DEADLINE_EXCEEDED, decided.error
    if decision is Decision.COMMIT:
        world.must_be_whole()
    else:
        world.must_be_gone()


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nothing_tears_whatever_is_lost_late_or_repeated(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(8):
        one_transaction(world)
        if world._is(30):
            world.let_go()
    counts = {each: world.coordinator.visible.count(each) for each in world.coordinator.visible}
    assert all(count == 1 for name, count in counts.items() if name != "offsets")
    world.is_healed = True
    if isinstance(world.core.phase, Fenced):
        assert world.inits_without_last > 1, "nobody took over"
        return
    end(world)
    one_transaction(world)
    if isinstance(world.core.phase, Ready):
        one_transaction(world)
    if isinstance(world.core.phase, Starting):
        assert world.call(BeginWanted).error is None
    assert isinstance(world.core.phase, Open | Ready | Prepared)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_one_whose_id_was_taken_over_is_fenced_and_never_tears(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(3):
        one_transaction(world)
    if world.coordinator.is_prepared:
        return
    world.coordinator.initialize(None)
    world.coordinator.initialize(None)
    visible = list(world.coordinator.visible)
    world.is_healed = True
    for _ in range(6):
        if not isinstance(world.core.phase, Fenced):
            one_transaction(world)
    if not isinstance(world.core.phase, New):
        assert world.coordinator.visible[: len(visible)] == visible
