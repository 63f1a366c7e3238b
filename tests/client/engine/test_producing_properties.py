"""A transactional producer whole, both cores joined, against leaders and a coordinator that lose,
delay and repeat: what it says is committed is stored whole and once, under one identity."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.engine.test_transaction_properties import Coordinator, refusal
from tests.client.support.engine_world import ProducerWorld
from tests.client.support.sequence_model import PARTITIONS, Brokers, Log, Sent
from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.produce.batch import Acknowledgement
from tidelog.client.engine.produce.messages import BatchSealed
from tidelog.client.engine.transaction.core import TransactionCore
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    CallDone,
    CoordinatorFailed,
    CoordinatorFound,
    EndWanted,
    FindCoordinator,
    InitializeWanted,
    SendEnd,
    SendInitialize,
)
from tidelog.client.engine.transaction.phases import Decision, Fenced, Identity, New, Ready
from tidelog.client.engine.transaction.producing import ProducingCore
from tidelog.client.errors import NoAnswerError
from tidelog.wire.errors import ErrorCode, TidelogError

CALL_MS = 20_000
MOVES = (
    *("serve",) * 6,
    *("answer",) * 5,
    *("commit",) * 5,
    *("connect", "connect", "metadata"),
    *("wait",) * 3,
    *("break_stream", "elect"),
)


class Deciding(Coordinator):
    """Remembers every decision, for whoever reads the logs."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: dict[Identity, Decision] = {}

    def _next(self, decision: Decision | None) -> None:
        self.decisions[self.current] = decision or Decision.ABORT
        super()._next(decision)


class AskingLog(Log):
    """A partition whose leader asks the coordinator before it stores what is new."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self.world = world

    def judge(self, sent: Sent) -> ErrorCode | int | None:
        found = super().judge(sent)
        if found is not None:
            return found
        if self.world.happens(20):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        identity = Identity(sent.producer_id, sent.producer_epoch)
        try:
            self.world.coordinator.add(identity, f"{sent.number}")
        except TidelogError as error:
            return error.code
        return None


class World(ProducerWorld):
    """Both cores, their brokers, and a network to the coordinator that a random source bends."""

    def __init__(self, random: Random) -> None:
        super().__init__(
            batch_bytes=100,
            in_flight_max=random.choice((1, 3, 5)),
            is_idempotent=True,
            is_transactional=True,
        )
        self.random = random
        self.is_calm = False
        self.coordinator = Deciding()
        core = TransactionCore("pay", Backoff(initial_ms=5, max_ms=20))
        self.producing = ProducingCore(self.core, core, is_transactional=True)
        self.brokers = Brokers(self)
        self.brokers.logs = [AskingLog(self) for _ in range(PARTITIONS)]
        self.done: dict[int, CallDone] = {}
        self.kept_back: list[Any] = []
        self.coming: list[Any] = []
        """Of the coordinator's answers, those that are on their way."""
        self.committed: set[int] = set()
        """Batches that the user was told to be committed."""

    def happens(self, percent: int) -> bool:
        return not self.is_calm and self.random.randrange(100) < percent

    def seal_all(self) -> Any:
        self.accumulator.seal_all()
        return self.steps()

    def steps(self, *messages: Any) -> Any:
        sealed = [BatchSealed(batch=batch) for batch in self.accumulator.take_sealed()]
        return self.perform(self.producing.steps([*sealed, *messages], self.now_ns))

    def step(self, message: Any) -> Any:
        return self.steps(message)

    def tick(self, duration_ms: int) -> Any:
        self.now_ns += duration_ms * NS_PER_MS
        return self.steps()

    def perform(self, effects: Any) -> Any:
        of_records = []
        for effect in effects:
            match effect:
                case CallDone():
                    self.done[effect.call] = effect
                case FindCoordinator():
                    self.coming.append(self._found(effect))
                case SendInitialize() | SendEnd():
                    self.coming.append(self._asked(effect))
                case _:
                    of_records.append(effect)
        return super().perform(of_records)

    def _found(self, effect: FindCoordinator) -> Any:
        if self.happens(20):
            error = refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return CoordinatorFailed(of=effect.of, error=error)
        return CoordinatorFound(of=effect.of, address="b1")

    def _asked(self, effect: Any) -> Answered:
        lost = NoAnswerError(ErrorCode.UNAVAILABLE, tried="ask the model", happened="it is silent")
        if self.happens(15):
            self.kept_back.append(effect)
            return Answered(number=effect.number, error=lost, is_doubtful=True)
        answer = self.deliver(effect)
        if self.happens(15):
            return Answered(number=effect.number, error=lost, is_doubtful=True)
        return answer

    def deliver(self, effect: Any) -> Answered:
        try:
            if isinstance(effect, SendInitialize):
                identity = self.coordinator.initialize(effect.expected)
            else:
                identity = self.coordinator.end(effect.identity, effect.decision)
        except TidelogError as error:
            return Answered(number=effect.number, error=error)
        return Answered(number=effect.number, identity=identity, batches_in_flight_max=16)

    def advance(self) -> None:
        """One thing happens."""
        if self.coming and self.random.randrange(2):
            self.brokers.take(self.steps(self.coming.pop(0)))
            return
        late = self.kept_back and self.happens(5)
        if late and not isinstance(self.kept_back[0], SendInitialize):
            self.deliver(self.kept_back.pop(0))
        if self.happens(1):
            self.coordinator.time_out()
        moves = MOVES[:-2] if self.is_calm else MOVES
        getattr(self.brokers, self.random.choice(moves))(self.random.randrange(100_000))

    def call(self, kind: type, **more: Any) -> CallDone:
        """One call of the user's, until it returns."""
        number = len(self.done) + 1
        deadline_ns = self.now_ns + CALL_MS * NS_PER_MS
        self.accumulator.seal_all()
        self.brokers.take(self.steps(kind(call=number, deadline_ns=deadline_ns, **more)))
        for _ in range(100_000):
            if number in self.done:
                return self.done[number]
            self.advance()
        raise AssertionError(f"{self.producing.phase}: a call outlives its time")

    def transaction(self) -> None:
        """Begin, write, end; an end is asked for until it is known what became of it."""
        if self.call(BeginWanted).error is not None:
            return
        identity = self.producing.transactions.identity
        assert identity is not None
        first = self.accumulator.opened_count
        for _ in range(self.random.randrange(6)):
            if self.producing.is_open and "t" in self.accumulator.routes:
                self.append("t", self.random.randrange(PARTITIONS), 20)
            if self.random.randrange(2):
                self.brokers.take(self.seal_all())
            self.advance()
        for _ in range(200):
            decision = self.random.choice(list(Decision))
            ended = self.call(EndWanted, decision=decision)
            assert not self.is_calm or ended.error is None, "nothing stands in the way"
            decided = decision if ended.error is None else None
            if ended.error is not None and ended.error.decided is not None:
                decided = Decision(ended.error.decided)
            numbers = set(range(first, self.accumulator.opened_count))
            if decided is Decision.COMMIT:
                self.committed |= numbers
                assert all(isinstance(self.outcomes[each], Acknowledgement) for each in numbers)
                assert not numbers or self.coordinator.decisions[identity] is decided
            elif decided is Decision.ABORT and numbers:
                assert self.coordinator.decisions.get(identity) is not Decision.COMMIT
            if isinstance(self.producing.phase, Ready | Fenced):
                return
        raise AssertionError(f"it never ends: {self.producing.phase}")

    def check(self) -> None:
        """What counts in the logs is what the user was told, once, in order, of one identity."""
        counted: list[int] = []
        for log in self.brokers.logs:
            last: dict[Identity, int] = {}
            for entry in log.entries:
                identity = Identity(entry.producer_id, entry.producer_epoch)
                assert entry.base_sequence == last.get(identity, 0), f"a gap before {entry}"
                last[identity] = entry.base_sequence + entry.count
                if self.coordinator.decisions.get(identity) is Decision.COMMIT:
                    counted.append(entry.number)
        assert len(counted) == len(set(counted)), "stored twice"
        assert set(counted) == self.committed


def played(seed: int) -> World:
    """A few transactions among faults, then some in calm, which all get through."""
    random = Random(seed)
    world = World(random)
    world.brokers.begin()
    while isinstance(world.producing.phase, New):
        world.call(InitializeWanted)
    for _ in range(random.randrange(1, 6)):
        world.transaction()
    world.is_calm = world.brokers.is_calm = True
    for _ in range(2):
        world.transaction()
    assert not isinstance(world.producing.phase, Fenced), "nobody took the id over"
    assert not world.core.lanes, "everything ends"
    return world


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_counts_is_what_the_user_was_told_whole_and_once(seed: int) -> None:
    played(seed).check()


@pytest.mark.slow
def test_most_transactions_of_the_model_get_through() -> None:
    """The model is no excuse: a good part of what is written is committed."""
    worlds = [played(seed) for seed in range(40)]
    written = sum(world.accumulator.opened_count for world in worlds)
    assert sum(len(world.committed) for world in worlds) > written // 5
