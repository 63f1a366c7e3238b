"""Carries a plan of transactions out with the coordinator's real core; the rest is a model.

Requests and answers get lost, copies of ends and of batches arrive late, the coordinator fails over
between any two steps with any part of its appends, transactions time out. What the processes saw is
judged by the checkers of transactions.
"""

from collections.abc import Generator
from typing import Final

import msgspec

from tests.chaos.support.coordinated_log import Batch, ModelLeader
from tests.chaos.support.planned_model import PlannedModel
from tests.chaos.support.transaction_model import PendingTransaction, Steps
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    Response,
)
from tidelog.broker.transactions.state.messages import (
    AddPartitions,
    Answer,
    AppendCommitted,
    AppendRecords,
    Effect,
    EndTransaction,
    InitTransactionalProducer,
    MarkersAnswered,
    OneRequest,
    ProducerIdsGranted,
    ReloadNeeded,
    RequestProducerIds,
    SendMarkers,
    StoredRecord,
    TransactionsLoaded,
    TransactionTick,
    TransactionTopics,
)
from tidelog.broker.transactions.state.records import (
    TransactionKey,
    TransactionValue,
    encode_record,
)
from tidelog.broker.transactions.state.states import Decision, Succession, TransactionState
from tidelog.chaos.checkers.transactions import TransactionOutcome
from tidelog.chaos.workloads.transactions import (
    Ending,
    Held,
    PlannedProcess,
    PlannedSend,
    PlannedTransaction,
    TransactionPlan,
    Work,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    LeaderEpoch,
    PartitionId,
    PartitionKey,
    ProducerEpoch,
    ProducerId,
    TopicId,
)

MS_A_STEP: Final = 4
LATE_STEPS_MAX: Final = 80
LOST: Final = 0.08
FAILOVER: Final = 0.004
_TOPIC: Final = TopicId(bytes(15) + b"\x01")
_IDS_GRANTED: Final = 20

_RETRIED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Asked = Generator[None, None, Response | TidelogError | None]


class CoordinatedModel(PlannedModel):
    """One plan, carried out once."""

    def __init__(self, plan: TransactionPlan, seed: int) -> None:
        super().__init__(plan, seed)
        self._keys = {
            name: PartitionKey(_TOPIC, PartitionId(at)) for at, name in enumerate(self.names)
        }
        self._names_of = {key: name for name, key in self._keys.items()}
        self.leaders = {name: ModelLeader(self, name) for name in self.names}
        self._log: list[StoredRecord] = []
        self._appends: list[AppendRecords] = []
        self._answers: dict[int, Response | TidelogError] = {}
        self._last_request = 0
        self._next_producer_id = 1_000
        self._coordinator_epoch = 0
        self.failovers = 0
        self.timeouts = 0
        self.rotations = 0
        self.surprises = 0
        """Refusals of an end that only another producer of the same id, or a bug, could explain."""
        self._identity: dict[str, Identity] = {}
        self._sequences: dict[str, int] = {}
        self._is_failed: dict[str, bool] = {}
        """Whether a record of the open transaction was refused for good: it can only abort."""
        self._running = len(plan.processes)
        for number, process in enumerate(plan.processes):
            if process.first_epoch > 0:
                self._log.append(_at_epoch(process, number))
        self._core = TransactionCoordinatorCore()
        self.work.append(self._clock())
        self._load()

    def settle(self) -> None:
        """What is left open holds readers back: the drain ends before it."""

    @property
    def left_open(self) -> list[str]:
        """Partitions of which the last stable offset hangs."""
        return [name for name, partition in self.partitions.items() if partition.first_open]

    def _process(self, planned: PlannedProcess) -> Steps:
        process = planned.transactional_id
        positions = dict.fromkeys(planned.reads, 0)
        self.builder.assign(process, positions, at_ns=self.now_ns)
        yield from self._take_over(planned, expected=None)
        for transaction in planned.transactions:
            yield from self.wait()
            self.builder.begin(process, at_ns=self.now_ns)
            self._sequences[process] = 0
            self._is_failed[process] = False
            if planned.work is Work.FOLD:
                yield from self._fold(planned, transaction, positions)
            else:
                for step in transaction.steps:
                    if isinstance(step, PlannedSend):
                        yield from self._send(process, step.partition, step.value)
                    else:
                        yield from self._consume(process, positions, step)
            if transaction.held is Held.SEND:
                self._hold_batch(process, self.names[0])
            yield from self.wait(2 + transaction.pause_ms // 10)
            yield from self._conclude(planned, transaction)
            if planned.work is Work.FOLD:
                yield from self._wait_for_offsets(process)
                positions = {planned.reads[0]: self._folded.get(process, (0, 0))[0]}
                self.builder.seek(process, positions, at_ns=self.now_ns)
        self._running -= 1

    def _send(self, process: str, partition: str, value: str) -> Steps:
        """Sent again until it is stored or refused for good, as an idempotent producer does."""
        self.builder.send(process, partition, value, at_ns=self.now_ns)
        if self._is_failed[process]:
            return
        batch = Batch(process, self._identity[process], self._sequences[process], value)
        self._sequences[process] += 1
        while True:
            yield from self.wait()
            stored = yield from self._store(partition, batch)
            yield from self.wait()
            if isinstance(stored, int) and not self.random.chance(LOST):
                self.builder.acknowledge(process, value, offset=stored, at_ns=self.now_ns)
                return
            if isinstance(stored, TidelogError) and stored.code not in _RETRIED:
                self._is_failed[process] = True
                return

    def _store(
        self, partition: str, batch: Batch
    ) -> Generator[None, None, int | TidelogError | None]:
        """What a leader does with a batch: the fence first, the coordinator, the fence again."""
        leader = self.leaders[partition]
        refusal = TidelogError(ErrorCode.FENCED_PRODUCER_EPOCH, tried="append", happened="fenced")
        if leader.is_fenced(batch.identity):
            return refusal
        if leader.offset_of(batch) is None and not leader.is_open(batch.identity):
            answer = yield from self._call(
                AddPartitions(
                    transactional_id=batch.transactional_id,
                    identity=batch.identity,
                    keys=(self._keys[partition],),
                )
            )
            if not isinstance(answer, AddPartitionsAnswer):
                return answer if isinstance(answer, TidelogError) else None
            # The abort's marker may have landed before it is the batch's turn.
            yield from self.wait(6)
            if leader.is_fenced(batch.identity):
                return refusal
        known = leader.offset_of(batch)
        return leader.append(batch) if known is None else known

    def _hold_batch(self, process: str, partition: str) -> None:
        """A batch stays on its way; its producer gives up and aborts, and it arrives later."""
        value = self.value(f"{process}/late")
        self.builder.send(process, partition, value, at_ns=self.now_ns)
        batch = Batch(process, self._identity[process], self._sequences[process], value)
        self._is_failed[process] = True
        self.work.append(self._late_batch(partition, batch))

    def _late_batch(self, partition: str, batch: Batch) -> Steps:
        yield from self.wait(LATE_STEPS_MAX)
        yield from self._store(partition, batch)

    def _conclude(self, planned: PlannedProcess, transaction: PlannedTransaction) -> Steps:
        process = planned.transactional_id
        if transaction.ending is Ending.VANISH:
            self.builder.end(process, TransactionOutcome.UNKNOWN, at_ns=self.now_ns)
            yield from self._take_over(planned, expected=None)
            return
        is_commit = transaction.ending is Ending.COMMIT and not self._is_failed[process]
        (self.builder.commit if is_commit else self.builder.abort)(process, at_ns=self.now_ns)
        request = EndTransaction(
            transactional_id=process,
            identity=self._identity[process],
            decision=Decision.COMMIT if is_commit else Decision.ABORT,
        )
        if transaction.held is Held.END:
            self.work.append(self._late_end(request))
        is_answer_lost = transaction.held is Held.ANSWER
        while True:
            answer = yield from self._call(request)
            if is_answer_lost:
                is_answer_lost = False
                continue
            if isinstance(answer, EndAnswer):
                self.rotations += answer.identity.producer_id != request.identity.producer_id
                self._identity[process] = answer.identity
                outcome = TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED
                self.builder.end(process, outcome, at_ns=self.now_ns)
                return
            if isinstance(answer, TidelogError) and answer.code not in _RETRIED:
                is_aborted = answer.code is ErrorCode.TRANSACTION_ABORTED
                self.timeouts += is_aborted
                self.surprises += not is_aborted
                outcome = TransactionOutcome.ABORTED if is_aborted else TransactionOutcome.UNKNOWN
                self.builder.end(process, outcome, at_ns=self.now_ns)
                yield from self._take_over(
                    planned, expected=request.identity if is_aborted else None
                )
                return
            yield from self.wait()

    def _late_end(self, request: EndTransaction) -> Steps:
        """A copy of an end that was on its way for long."""
        yield from self.wait(LATE_STEPS_MAX)
        yield from self._call(request)

    def _take_over(self, planned: PlannedProcess, *, expected: Identity | None) -> Steps:
        process = planned.transactional_id
        while True:
            answer = yield from self._call(
                InitTransactionalProducer(
                    transactional_id=process,
                    transaction_timeout_ms=planned.timeout_ms,
                    expected=expected,
                )
            )
            if isinstance(answer, InitAnswer):
                self._identity[process] = answer.identity
                return
            is_final = isinstance(answer, TidelogError) and answer.code not in _RETRIED
            assert not is_final, f"{process} cannot go on: {answer}"
            yield from self.wait()

    def _propose(self, process: str, output: str, folded: tuple[int, int]) -> None:
        pending = self.leaders[output].open.get(self._identity[process].producer_id)
        if pending is not None and not self._is_failed[process]:
            self._proposed[pending] = (process, folded)

    def _wait_for_offsets(self, process: str) -> Steps:
        """Committed offsets are told once no transaction has any staged."""
        while any(owner == process for owner, _ in self._proposed.values()):
            yield

    def _call(self, request: OneRequest) -> Asked:
        """One request and its answer, of which either may be lost: None."""
        yield from self.wait(2)
        if self.random.chance(LOST):
            return None
        self._last_request += 1
        number, failovers = self._last_request, self.failovers
        self._perform(
            self._core.step(
                msgspec.structs.replace(
                    request, request_id=number, now_ms=self._now_ms, wall_ms=self._now_ms
                )
            )
        )
        while number not in self._answers:
            if failovers != self.failovers:
                return None
            yield
        answer = self._answers.pop(number)
        yield from self.wait(2)
        return None if self.random.chance(LOST) else answer

    @property
    def _now_ms(self) -> int:
        return self.now_ns * MS_A_STEP

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer():
                    self._answers[effect.request_id] = effect.result
                case AppendRecords():
                    self._appends.append(effect)
                    self.work.append(self._commit(effect, self.failovers))
                case SendMarkers():
                    self.work.append(self._deliver(effect, self.failovers))
                case RequestProducerIds():
                    self.work.append(self._grant(self.failovers))
                case ReloadNeeded():
                    raise AssertionError("no append fails here, and nobody else coordinates")

    def _commit(self, append: AppendRecords, failovers: int) -> Steps:
        """Appends are committed in their order, each in its own time."""
        yield from self.wait(3)
        while failovers == self.failovers and self._appends[0] is not append:
            yield
        if failovers != self.failovers:
            return
        self._appends.pop(0)
        self._log += append.records
        self._perform(self._core.completed(AppendCommitted(token=append.token)))

    def _deliver(self, send: SendMarkers, failovers: int) -> Steps:
        """Each marker in its own time; answers get lost, and then it is sent again."""
        for key in send.keys:
            yield from self.wait(4)
            error: TidelogError | None = None
            if self.random.chance(LOST):
                error = TidelogError(ErrorCode.NOT_LEADER, tried="mark", happened="moved")
            elif send.coordinator_epoch == self._coordinator_epoch:
                pending = self.leaders[self._names_of[key]].mark(
                    send.identity, send.decision, send.coordinator_epoch
                )
                self._settle_proposal(pending, send.decision)
                if self.random.chance(LOST):
                    error = TidelogError(ErrorCode.NOT_LEADER, tried="mark", happened="unheard")
            if failovers == self.failovers:
                self._perform(
                    self._core.step(
                        MarkersAnswered(
                            send_id=send.send_id,
                            results=((key, error),),
                            now_ms=self._now_ms,
                            wall_ms=self._now_ms,
                        )
                    )
                )

    def _settle_proposal(self, pending: PendingTransaction | None, decision: Decision) -> None:
        proposed = None if pending is None else self._proposed.pop(pending, None)
        if proposed is not None and decision is Decision.COMMIT:
            self._folded[proposed[0]] = proposed[1]

    def _grant(self, failovers: int) -> Steps:
        yield from self.wait(4)
        first, self._next_producer_id = (
            self._next_producer_id,
            self._next_producer_id + _IDS_GRANTED,
        )
        if failovers == self.failovers:
            self._perform(
                self._core.step(
                    ProducerIdsGranted(
                        first=ProducerId(first),
                        count=_IDS_GRANTED,
                        now_ms=self._now_ms,
                        wall_ms=self._now_ms,
                    )
                )
            )

    def _clock(self) -> Steps:
        """Time passes for the coordinator, and now and then another broker takes its place."""
        while self._running > 0 or self._is_busy():
            yield
            if self.random.chance(FAILOVER):
                self._fail_over()
            if self._core.next_deadline_ms() <= self._now_ms:
                self._perform(
                    self._core.tick(TransactionTick(now_ms=self._now_ms, wall_ms=self._now_ms))
                )

    def _is_busy(self) -> bool:
        described = self._core.describe()
        return described.in_progress + described.ending + described.appends_in_flight > 0

    def _fail_over(self) -> None:
        """Any first part of the appends in flight is in the log; the others never were."""
        self.failovers += 1
        for append in self._appends[: self.random.below(len(self._appends) + 1)]:
            self._log += append.records
        self._appends.clear()
        self._answers.clear()
        self._core = TransactionCoordinatorCore()
        self._load()

    def _load(self) -> None:
        self._coordinator_epoch += 1
        for record in self._log:
            self._core.apply(record.key, record.value)
        loaded = TransactionsLoaded(
            coordinator_epoch=LeaderEpoch(self._coordinator_epoch),
            now_ms=self._now_ms,
            wall_ms=self._now_ms,
        )
        topics = TransactionTopics(
            partition_counts={_TOPIC: len(self.names)},
            now_ms=self._now_ms,
            wall_ms=self._now_ms,
        )
        for message in (loaded, topics):
            self._perform(self._core.step(message))


def _at_epoch(process: PlannedProcess, number: int) -> StoredRecord:
    """An id that has been used for long: its next epochs are the last of its producer id."""
    value = TransactionValue(
        state=TransactionState.EMPTY,
        current=Identity(ProducerId(number), ProducerEpoch(process.first_epoch)),
        last=None,
        succession=Succession.NONE,
        next_producer_id=None,
        timeout_ms=process.timeout_ms,
        started_ms=-1,
        updated_ms=0,
        topics=(),
        principal="",
        decided=None,
    )
    return encode_record(TransactionKey(process.transactional_id), value)
