"""The coordinator of the transactional ids of one partition of `__transactions`. Pure.

Owns the dispatch of what comes in, and the order of what goes out: records before the answers that
show them, and answers and markers only when everything is committed that they show. Its theory of
operation stands at the head of the package.
"""

from typing import Final, assert_never

import msgspec

from tidelog.broker.transactions.core import (
    admin,
    ending,
    markers,
    partitions,
    takeover,
    two_phase,
)
from tidelog.broker.transactions.core.upkeep import TransactionUpkeep, Work
from tidelog.broker.transactions.state import limits, replay
from tidelog.broker.transactions.state.answers import Response
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.invariants import check
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    AddPartitions,
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    Completion,
    DecidePrepared,
    DescribeTransaction,
    Effect,
    EndTransaction,
    InitTransactionalProducer,
    ListTransactions,
    MarkersAnswered,
    Message,
    Notice,
    OneRequest,
    PreparedElsewhere,
    PrepareTransaction,
    ProducerIdsGranted,
    ReloadNeeded,
    RequestProducerIds,
    TransactionSettingsChanged,
    TransactionsLoaded,
    TransactionTick,
    TransactionTopics,
)
from tidelog.broker.transactions.state.notes import TransactionNotes
from tidelog.broker.transactions.state.pending import PendingAppends
from tidelog.broker.transactions.state.records import decode_record
from tidelog.broker.transactions.state.refusals import LOADING
from tidelog.broker.transactions.state.timers import TransactionTimers
from tidelog.broker.transactions.state.transaction import Transactions
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.errors import ErrorCode, TidelogError


class CoordinatorDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A core in numbers."""

    is_loaded: bool
    is_failed: bool
    transactional_ids: int
    in_progress: int
    prepared: int
    ending: int
    appends_in_flight: int
    answers_waiting: int
    producer_ids: int


class TransactionCoordinatorCore:
    """Takes `apply` while loading, then `step`, `tick`, `completed`."""

    def __init__(self) -> None:
        transactions = Transactions()
        self._world: Final = TransactionWorld(
            transactions=transactions, timers=TransactionTimers(transactions)
        )
        self._pending: Final = PendingAppends()
        self._upkeep: Final = TransactionUpkeep(self._world)
        self._is_loaded = False
        self._are_topics_known = False
        self._failure: TidelogError | None = None

    @property
    def transactions(self) -> Transactions:
        """To look at, not to change."""
        return self._world.transactions

    @property
    def notes(self) -> TransactionNotes:
        """What it noticed: for metrics and the node's log."""
        return self._world.notes

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Replays a stored record. STORAGE_CORRUPT or UNSUPPORTED_VERSION stop the load."""
        assert not self._is_loaded, "a record is replayed while loading, never later"
        record = decode_record(key, value)
        if record is not None:
            replay.apply(self._world.transactions, *record)

    def step(self, message: Message) -> list[Effect]:
        """Takes one message."""
        if not isinstance(message, AnyRequest):
            return [] if self._failure is not None else self._on_notice(message)
        if self._failure is not None:
            return [Answer(request_id=message.request_id, result=self._failure)]
        if not self._are_topics_known:
            return [Answer(request_id=message.request_id, result=LOADING)]
        self._world.see_time(message.now_ms, message.wall_ms)
        return self._on_request(message) + self._replenish()

    def _on_notice(self, message: Notice) -> list[Effect]:
        world = self._world
        match message:
            case TransactionSettingsChanged():
                world.settings = message.settings
                return []
            case PreparedElsewhere():
                world.prepared_elsewhere = dict(message.by_principal)
                return []
            case ProducerIdsGranted():
                world.see_time(message.now_ms, message.wall_ms)
                world.producer_ids.grant(message.first, message.count)
                return self._replenish()
            case TransactionsLoaded():
                return self._on_loaded(message)
            case TransactionTopics():
                assert self._is_loaded, "topics come once everything is loaded"
                world.see_time(message.now_ms, message.wall_ms)
                return self._on_topics(message)
            case MarkersAnswered():
                world.see_time(message.now_ms, message.wall_ms)
                return self._on_markers(message)
            case _:
                assert_never(message)

    def _on_loaded(self, message: TransactionsLoaded) -> list[Effect]:
        assert not self._is_loaded, "a core is loaded once"
        self._is_loaded = True
        self._world.coordinator_epoch = message.coordinator_epoch
        self._world.see_time(message.now_ms, message.wall_ms)
        self._upkeep.on_loaded()
        check(self._world.transactions)
        return self._replenish()

    def _on_topics(self, message: TransactionTopics) -> list[Effect]:
        is_first = not self._are_topics_known
        self._are_topics_known = True
        self._world.partition_counts = dict(message.partition_counts)
        # The first view is as new as this broker's leadership, so that no partition of a decision
        # that was loaded is taken for deleted because the metadata have not arrived.
        work = self._upkeep.continue_ends() if is_first else self._upkeep.on_topics()
        return self._perform(work)

    def _on_markers(self, message: MarkersAnswered) -> list[Effect]:
        deposed = [error for _, error in message.results if markers.is_deposed(error)]
        if deposed:
            # Whoever leads the partition now decides about its transactions. It is asked neither
            # whether that is so nor why: what it has read holds everything that was answered here.
            return self._fail(_step_down(deposed[0]))
        name = self._world.sends.get(message.send_id)
        if name is None:
            return []
        transaction = self._world.transactions.by_id[name]
        is_done = markers.take_answers(self._world, transaction, message.send_id, message.results)
        return self._perform([self._upkeep.complete(transaction)]) if is_done else []

    def _on_request(self, request: AnyRequest) -> list[Effect]:
        if isinstance(request, ListTransactions):
            return self._answer(None, request.request_id, admin.list_transactions(self._world))
        draft = TransactionDraft(self._world.transactions, request.transactional_id)
        result: Response | TidelogError
        is_refused = False
        try:
            result = self._dispatch(draft, request)
        except TidelogError as refusal:
            result, is_refused = refusal, True
        assert not (is_refused and draft.records), f"{result} changed something"
        effects = self._append(draft)
        return effects + self._answer(request.transactional_id, request.request_id, result)

    def _dispatch(self, draft: TransactionDraft, request: OneRequest) -> Response | TidelogError:
        world = self._world
        match request:
            case InitTransactionalProducer():
                return takeover.on_init(world, draft, request)
            case AddPartitions():
                return partitions.on_add(world, draft, request)
            case EndTransaction():
                return ending.on_end(world, draft, request)
            case PrepareTransaction():
                return two_phase.on_prepare(world, draft, request)
            case DecidePrepared():
                return two_phase.on_decide(world, draft, request)
            case AbortTransaction():
                return admin.on_abort(world, draft, request)
            case DescribeTransaction():
                return admin.on_describe(draft, request)
            case _:
                assert_never(request)

    def _append(self, draft: TransactionDraft) -> list[Effect]:
        if not draft.records:
            return []
        token = self._pending.begin(draft.transactional_id)
        return [AppendRecords(token=token, records=draft.records)]

    def _perform(self, work: list[Work]) -> list[Effect]:
        effects: list[Effect] = []
        for each in work:
            effects += self._append(each) if isinstance(each, TransactionDraft) else [each]
        return effects

    def _answer(
        self, transactional_id: str | None, request_id: int, result: Response | TidelogError
    ) -> list[Effect]:
        """Answers now, or once the last append is committed of which it may show something."""
        answer = Answer(request_id=request_id, result=result)
        token = self._pending.last_of(transactional_id)
        if token == 0:
            return [answer]
        self._pending.wait(token, answer)
        return []

    def _replenish(self) -> list[Effect]:
        if self._is_loaded and self._world.producer_ids.take_request():
            return [RequestProducerIds(count=limits.PRODUCER_IDS_REQUESTED)]
        return []

    def tick(self, tick: TransactionTick) -> list[Effect]:
        """Does what time has brought: timeouts, attempts of markers, expiry."""
        if self._failure is not None or not self._are_topics_known:
            return []
        self._world.see_time(tick.now_ms, tick.wall_ms)
        work = self._upkeep.on_tick(may_expire=tick.may_expire)
        return self._perform(work) + self._replenish()

    def next_deadline_ms(self) -> int:
        """Monotonic: when `tick` is due. It may come earlier; then it finds nothing to do."""
        return self._upkeep.next_deadline_ms()

    def completed(self, completion: Completion) -> list[Effect]:
        """Takes what came of an append."""
        if self._failure is not None:
            return []
        match completion:
            case AppendCommitted():
                return self._on_committed(completion.token)
            case AppendFailed():
                return self._fail(completion.error)
            case _:
                assert_never(completion)

    def _on_committed(self, token: int) -> list[Effect]:
        answers, settled = self._pending.on_committed(token)
        effects: list[Effect] = [*answers]
        for name in settled:
            transaction = self._world.transactions.by_id.get(name)
            # Only now may a decision leave this broker: one that is not committed can be taken back
            # by a failover, and a marker can not.
            if (
                transaction is not None
                and transaction.value.is_ending
                and transaction.markers is None
            ):
                effects += self._perform(self._upkeep.begin_markers(transaction))
        return effects

    def _fail(self, error: TidelogError) -> list[Effect]:
        self._failure = error
        return [*self._pending.refuse_all(error), ReloadNeeded(error=error)]

    def describe(self) -> CoordinatorDescription:
        """For operators and tests."""
        values = [each.value for each in self._world.transactions.by_id.values()]
        return CoordinatorDescription(
            is_loaded=self._are_topics_known,
            is_failed=self._failure is not None,
            transactional_ids=len(values),
            in_progress=sum(1 for each in values if not each.is_idle),
            prepared=len(self._world.transactions.prepared),
            ending=sum(1 for each in values if each.is_ending),
            appends_in_flight=self._pending.append_count,
            answers_waiting=self._pending.answer_count,
            producer_ids=len(self._world.producer_ids),
        )


def _step_down(error: TidelogError | None) -> TidelogError:
    assert error is not None, "nobody steps down without a reason"
    return TidelogError(
        ErrorCode.NOT_COORDINATOR,
        tried="send a transaction's marker",
        happened=f"another broker coordinates it now: {error.happened}",
    )
