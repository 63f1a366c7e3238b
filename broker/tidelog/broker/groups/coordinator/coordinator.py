"""The coordinator of the groups of one partition of `__groups` on this broker.

Owns what its core is told: requests, topics, brokers, settings, time. Its life is that of any
coordinator's task. It must never answer what the core has not said.
"""

from collections.abc import Callable, Mapping
from typing import Final, assert_never

from tidelog.broker.coordination.log import CoordinatorLog, Producer, TakeMarker
from tidelog.broker.coordination.task import DEPOSED, PartitionCoordinator, Surroundings
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.answers import Response
from tidelog.broker.groups.state.messages import (
    NOBODY,
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    AppendRefused,
    Asked,
    BrokersChanged,
    BrokerState,
    Caller,
    Completion,
    Effect,
    GroupSettings,
    GroupTopic,
    LoadEnded,
    Message,
    ReloadNeeded,
    SettingsChanged,
    Tick,
    TopicsChanged,
    TransactionVerified,
    VerifyTransaction,
)
from tidelog.broker.groups.state.notes import DepartureReason
from tidelog.broker.groups.state.places import GROUPS
from tidelog.broker.groups.state.records import MEANINGLESS
from tidelog.broker.shared.errors import fresh
from tidelog.broker.shared.meter import count
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.ports import TaskScope
from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.marker import Marker, MarkerType
from tidelog.wire.calls.groups import FetchOffsets
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionKey

_Told = Message | Completion | Tick
_EXPECTED: Final = (DepartureReason.LEFT, DepartureReason.REMOVED, DepartureReason.REPLACED)
"""Departures that somebody wanted."""
_DECISION_OF: Final = {MarkerType.COMMIT: Decision.COMMIT, MarkerType.ABORT: Decision.ABORT}
_REFUSED: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FENCED_PRODUCER_EPOCH,
        ErrorCode.INVALID_TRANSACTION_STATE,
    }
)
"""Of a batch that its partition does not take in its turn: it was not written."""
VERIFICATION_MS: Final = 3_000
"""How long a transaction's coordinator may be asked for a SendOffsets: whoever sent them waits for
five seconds, and is to hear what is missing."""


def marker_taker(core: GroupCoordinatorCore) -> TakeMarker:
    """What a core that loads is told of ends of transactions."""

    def take(header: BatchHeader, marker: Marker) -> None:
        end = Identity(header.producer_id, header.producer_epoch)
        core.apply_marker(end, _DECISION_OF[marker.type])

    return take


class GroupCoordinator(PartitionCoordinator[GroupCoordinatorCore, _Told, Response]):
    """`run()` is the owning task, as long as the partition has a replica here."""

    def __init__(
        self,
        key: PartitionKey,
        around: Surroundings,
        *,
        make_core: Callable[[], GroupCoordinatorCore],
    ) -> None:
        super().__init__(GROUPS, key, around, make_core=make_core, meaningless=MEANINGLESS)
        self._topics: tuple[GroupTopic, ...] = ()
        self._brokers: Mapping[BrokerId, BrokerState] = {}
        self._settings = SettingsChanged(defaults=GroupSettings())
        self._rebalances = 0
        """Of the present core, as far as they are counted."""
        self._scope: TaskScope | None = None
        """Of the present core: what is started in it ends with its time."""

    # -- told ------------------------------------------------------------------------------------

    def show(self, topics: tuple[GroupTopic, ...]) -> None:
        """All topics that there are, internal ones left out."""
        self._topics = topics
        if self._core is not None:
            self._tell(self._topics_changed())

    def show_brokers(self, brokers: Mapping[BrokerId, BrokerState]) -> None:
        """All brokers that are registered."""
        self._brokers = brokers
        if self._core is not None:
            self._tell(self._brokers_changed())

    def configure(self, settings: SettingsChanged) -> None:
        """What operators have set for groups."""
        self._settings = settings
        if self._core is not None:
            self._tell(settings)

    async def ask(self, request: AnyRequest, caller: Caller = NOBODY) -> Response:
        """Submit a request and wait for its answer.

        Where a reader that is no member goes on is told when it is shown that this broker still
        leads. One that was replaced a moment ago and has not heard of it does not know what was
        committed since, and the reader's next transaction would process it twice.
        """

        def asked(request_id: int) -> Asked:
            return Asked(
                request=request,
                request_id=request_id,
                now_ms=self._now_ms(),
                wall_ms=self._time.wall_ms(),
                caller=caller,
            )

        proves = "before it says where a reader goes on" if _is_reader(request) else ""
        return await self._submit(asked, proves=proves)

    # -- what its core is told -------------------------------------------------------------------

    def _begin(
        self, core: GroupCoordinatorCore, leader_epoch: LeaderEpoch, scope: TaskScope
    ) -> None:
        del leader_epoch
        self._rebalances = 0
        self._scope = scope
        self._perform(core.step(self._settings))
        now_ms, wall_ms = self._now_ms(), self._time.wall_ms()
        self._perform(core.step(LoadEnded(now_ms=now_ms, wall_ms=wall_ms)))
        self._perform(core.step(self._topics_changed()))
        self._perform(core.step(self._brokers_changed()))

    def _tell_core(self, core: GroupCoordinatorCore, told: _Told) -> None:
        self._perform(self._step(core, told))

    def _step(self, core: GroupCoordinatorCore, told: _Told) -> list[Effect]:
        match told:
            case Tick():
                self._is_tick_due = False
                return core.tick(told)
            case AppendCommitted() | AppendRefused() | AppendFailed():
                return core.completed(told)
            case _:
                return core.step(told)

    def _time_has_passed(self, now_ms: int) -> Tick:
        wall_ms, may_expire = self._time.wall_ms(), self._time.may_expire
        return Tick(now_ms=now_ms, wall_ms=wall_ms, may_expire=may_expire)

    def _is_committed(self, token: int) -> AppendCommitted:
        return AppendCommitted(token=token)

    def _has_failed(self, error: TidelogError) -> AppendFailed:
        return AppendFailed(error=error)

    def _was_refused(self, token: int, error: TidelogError) -> AppendRefused | None:
        if error.code not in _REFUSED:
            return None
        return AppendRefused(token=token, error=error)

    def _marker_taker(self, core: GroupCoordinatorCore) -> TakeMarker:
        return marker_taker(core)

    def _topics_changed(self) -> TopicsChanged:
        return TopicsChanged(
            topics=self._topics, now_ms=self._now_ms(), wall_ms=self._time.wall_ms()
        )

    def _brokers_changed(self) -> BrokersChanged:
        return BrokersChanged(
            brokers=self._brokers, now_ms=self._now_ms(), wall_ms=self._time.wall_ms()
        )

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecords():
                    records = [(each.key, each.value) for each in effect.records]
                    self._append(effect.token, records, _pair_of(effect.producer))
                case VerifyTransaction():
                    self._verify(effect)
                case Answer():
                    self._answer(effect.request_id, effect.result)
                case ReloadNeeded():
                    raise fresh(effect.error)
                case _:
                    assert_never(effect)

    def _verify(self, effect: VerifyTransaction) -> None:
        log, scope = self._log, self._scope
        assert log is not None, "a core that asks is loaded"
        assert scope is not None, "a core that is loaded has begun"
        scope.start(self._ask_verified(effect, log), name="verify a transaction")

    async def _ask_verified(self, effect: VerifyTransaction, log: CoordinatorLog) -> None:
        """Not waited for by anybody: when this broker leads no more, whoever sent is told so."""
        error = None
        try:
            producer = effect.identity.producer_id, effect.identity.producer_epoch
            await log.verify(effect.transactional_id, producer, VERIFICATION_MS)
        except TidelogError as refusal:
            error = GROUPS.not_coordinator(self.key) if refusal.code in DEPOSED else refusal
        if log is self._log:
            self._tell(
                TransactionVerified(
                    request_id=effect.request_id,
                    error=error,
                    now_ms=self._now_ms(),
                    wall_ms=self._time.wall_ms(),
                )
            )

    # -- what is told of it ----------------------------------------------------------------------

    def _take_notes(self, core: GroupCoordinatorCore) -> None:
        notes, meter = core.notes, self._meter
        meter.group_rebalances += notes.rebalances - self._rebalances
        self._rebalances = notes.rebalances
        for each in notes.take_departures():
            count(meter.group_departures, each.reason.value)
            tell = self._events.info if each.reason in _EXPECTED else self._events.warning
            tell(
                "group_member_gone",
                group=each.group,
                member_id=each.member_id,
                reason=each.reason.value,
            )

    def _log_loaded(self, leader_epoch: LeaderEpoch, records: int, took_ms: int) -> None:
        self._events.info(
            "group_coordinator_loaded",
            partition=self.key,
            leader_epoch=leader_epoch,
            records=records,
            took_ms=took_ms,
        )

    def _log_failure(self, failure: TidelogError) -> None:
        self._events.warning("group_coordinator_failed", partition=self.key, error=failure)


def _is_reader(request: AnyRequest) -> bool:
    """Somebody that is no member asks where to go on."""
    return isinstance(request, FetchOffsets) and request.require_stable and not request.member_id


def _pair_of(producer: Identity | None) -> Producer | None:
    return None if producer is None else (producer.producer_id, producer.producer_epoch)
