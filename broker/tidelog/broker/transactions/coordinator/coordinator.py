"""The coordinator of the transactional ids of one partition of `__transactions` on this broker.

Owns what its core is told: requests, topics, settings, time, producer ids, what became of markers;
and what is done for it: appends, markers, requests for ids. Its life is that of any coordinator's
task. It must never answer what the core has not said, nor tell a core of markers that the one
before it has sent.
"""

from collections.abc import Callable, Mapping
from typing import Final, assert_never

import msgspec

from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.broker.coordination.proof import LeadershipProof
from tidelog.broker.coordination.task import PartitionCoordinator, Surroundings
from tidelog.broker.shared.errors import fresh
from tidelog.broker.transactions.coordinator.id_blocks import ProducerIdBlocks
from tidelog.broker.transactions.coordinator.marker_sender import MarkerSender, Results
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.answers import Response
from tidelog.broker.transactions.state.messages import (
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    Completion,
    Effect,
    MarkersAnswered,
    Message,
    PreparedElsewhere,
    ProducerIdsGranted,
    ReloadNeeded,
    RequestProducerIds,
    SendMarkers,
    TransactionSettings,
    TransactionSettingsChanged,
    TransactionsLoaded,
    TransactionTick,
    TransactionTopics,
)
from tidelog.broker.transactions.state.notes import NoteKind, TransactionNote
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.broker.transactions.state.records import MEANINGLESS
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey, ProducerId, TopicId

_Told = Message | Completion | TransactionTick
_EXPECTED: Final = (NoteKind.TAKEN_OVER, NoteKind.ROTATED, NoteKind.EXPIRED)
"""Notes of what somebody wanted, or what is ordinary."""


class TransactionCoordinator(PartitionCoordinator[TransactionCoordinatorCore, _Told, Response]):
    """`run()` is the owning task, as long as the partition has a replica here."""

    def __init__(
        self,
        key: PartitionKey,
        around: Surroundings,
        *,
        make_core: Callable[[], TransactionCoordinatorCore],
        producer_ids: ProducerIdBlocks,
        markers: MarkerSender,
    ) -> None:
        super().__init__(TRANSACTIONS, key, around, make_core=make_core, meaningless=MEANINGLESS)
        self._producer_ids = producer_ids
        self._markers = markers
        self._partition_counts: Mapping[TopicId, int] = {}
        self._settings = TransactionSettingsChanged(settings=TransactionSettings())
        self._prepared_elsewhere = PreparedElsewhere(by_principal={})
        self._scope: TaskScope | None = None
        """Of the present core: what is started there ends with it."""
        self._committed = 0
        """By the present core, as far as it is counted; and so is `_aborted`."""
        self._aborted = 0

    # -- told ------------------------------------------------------------------------------------

    def show(self, partition_counts: Mapping[TopicId, int]) -> None:
        """All topics that there are, internal ones too."""
        self._partition_counts = partition_counts
        if self._core is not None:
            self._tell(self._topics())

    def configure(self, settings: TransactionSettingsChanged) -> None:
        """What operators have set for transactions."""
        self._settings = settings
        if self._core is not None:
            self._tell(settings)

    def hear_prepared(self, by_principal: Mapping[str, int]) -> None:
        """How many transactions are prepared at all other coordinators."""
        told = PreparedElsewhere(by_principal=by_principal)
        if told == self._prepared_elsewhere:
            return
        self._prepared_elsewhere = told
        if self._core is not None:
            self._tell(told)

    def prepared(self) -> Mapping[str, int]:
        """How many are prepared here, by principal."""
        counts: dict[str, int] = {}
        if self._core is not None:
            for principal in self._core.transactions.prepared.values():
                counts[principal] = counts.get(principal, 0) + 1
        return counts

    async def ask(self, request: AnyRequest) -> Response:
        """Submit a request and wait for its answer.

        A refusal that is final waits until it is shown that this broker still led when it was
        made. A coordinator that was replaced a moment ago and has not heard of it knows nothing of
        what the next one has given out, and would tell the holder of it that it is a zombie.
        """
        proofs: list[LeadershipProof | None] = []

        def asked(request_id: int) -> AnyRequest:
            # Of the core that will answer: a later one can vouch for its own answers only.
            proofs.append(self._proof)
            return msgspec.structs.replace(
                request,
                request_id=request_id,
                now_ms=self._now_ms(),
                wall_ms=self._time.wall_ms(),
            )

        try:
            return await self._submit(asked)
        except TidelogError as error:
            if not error.retriable and error.code is not ErrorCode.INVALID_ARGUMENT:
                for proof in proofs:
                    assert proof is not None, "a core that is told something is loaded"
                    await proof.wait("before it refuses for good")
            if error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
                self._meter.transaction_fences += 1
            raise

    # -- what its core is told -------------------------------------------------------------------

    def _begin(
        self, core: TransactionCoordinatorCore, leader_epoch: LeaderEpoch, scope: TaskScope
    ) -> None:
        self._scope = scope
        self._committed = self._aborted = 0
        self._perform(core.step(self._settings))
        self._perform(core.step(self._prepared_elsewhere))
        loaded = TransactionsLoaded(
            coordinator_epoch=leader_epoch,
            now_ms=self._now_ms(),
            wall_ms=self._time.wall_ms(),
        )
        self._perform(core.step(loaded))
        # As new as the image that made this broker the leader: the keeper shows topics first.
        self._perform(core.step(self._topics()))

    def _tell_core(self, core: TransactionCoordinatorCore, told: _Told) -> None:
        self._perform(self._step(core, told))

    def _step(self, core: TransactionCoordinatorCore, told: _Told) -> list[Effect]:
        match told:
            case TransactionTick():
                self._is_tick_due = False
                return core.tick(told)
            case AppendCommitted() | AppendFailed():
                return core.completed(told)
            case _:
                return core.step(told)

    def _time_has_passed(self, now_ms: int) -> TransactionTick:
        wall_ms, may_expire = self._time.wall_ms(), self._time.may_expire
        return TransactionTick(now_ms=now_ms, wall_ms=wall_ms, may_expire=may_expire)

    def _is_committed(self, token: int) -> AppendCommitted:
        return AppendCommitted(token=token)

    def _has_failed(self, error: TidelogError) -> AppendFailed:
        return AppendFailed(error=error)

    def _topics(self) -> TransactionTopics:
        return TransactionTopics(
            partition_counts=self._partition_counts,
            now_ms=self._now_ms(),
            wall_ms=self._time.wall_ms(),
        )

    # -- what is done for it ---------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecords():
                    records = [(each.key, each.value) for each in effect.records]
                    self._append(effect.token, records)
                case Answer():
                    self._answer(effect.request_id, effect.result)
                case SendMarkers():
                    self._send(effect)
                case RequestProducerIds():
                    self._request_producer_ids(effect.count)
                case ReloadNeeded():
                    raise fresh(effect.error)
                case _:
                    assert_never(effect)

    def _send(self, effect: SendMarkers) -> None:
        log = self._log

        def on_answered(results: Results) -> None:
            # Another core has sendings of its own, under the same numbers.
            if log is self._log and log is not None:
                self._tell(
                    MarkersAnswered(
                        send_id=effect.send_id,
                        results=results,
                        now_ms=self._now_ms(),
                        wall_ms=self._time.wall_ms(),
                    )
                )

        self._markers.send(effect, on_answered)

    def _request_producer_ids(self, count: int) -> None:
        scope, log = self._scope, self._log
        assert scope is not None, "a core that asks for ids has begun"
        assert log is not None, "and it is loaded"
        fetching = self._fetch_producer_ids(count, log)
        scope.start(fetching, name="producer ids of a coordinator")

    async def _fetch_producer_ids(self, count: int, log: CoordinatorLog) -> None:
        first, granted = await self._producer_ids.take(count)
        if log is self._log:
            self._tell(
                ProducerIdsGranted(
                    first=ProducerId(first),
                    count=granted,
                    now_ms=self._now_ms(),
                    wall_ms=self._time.wall_ms(),
                )
            )

    # -- what is told of it ----------------------------------------------------------------------

    def _take_notes(self, core: TransactionCoordinatorCore) -> None:
        notes, meter = core.notes, self._meter
        meter.transactions_committed += notes.committed - self._committed
        meter.transactions_aborted += notes.aborted - self._aborted
        self._committed, self._aborted = notes.committed, notes.aborted
        for each in notes.take():
            if each.kind is NoteKind.TIMED_OUT:
                meter.transaction_timeouts += 1
            self._log_note(each)

    def _log_note(self, note: TransactionNote) -> None:
        tell = self._events.info if note.kind in _EXPECTED else self._events.warning
        tell(
            "transaction_noted",
            transactional_id=note.transactional_id,
            what=note.kind.value,
            partition=self.key,
        )

    def _log_loaded(self, leader_epoch: LeaderEpoch, records: int, took_ms: int) -> None:
        self._events.info(
            "transaction_coordinator_loaded",
            partition=self.key,
            leader_epoch=leader_epoch,
            records=records,
            took_ms=took_ms,
        )

    def _log_failure(self, failure: TidelogError) -> None:
        self._events.warning("transaction_coordinator_failed", partition=self.key, error=failure)
