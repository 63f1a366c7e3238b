"""The task that owns the coordinator's core of one partition of `__groups` on this broker.

Owns the inbox, those who wait, and the life of a core: made anew whenever this broker begins to
lead, loaded from the log, thrown away when it leads no more or an append has failed. Handlers
submit and await; one that is cancelled drops its answer only. It must never answer what the core
has not said, nor begin a core while appends of the one before may still reach the log.

What a broker without contact to a controller may answer, `proof` says.

    led ─▶ appends of before are settled ─▶ load ─▶ serve ─┬─ led no more ─▶ NOT_COORDINATOR
     ▲                                                     └─ append failed ─▶ told by the core
     └──────────────────────────── still led, after a pause ──────┘
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.groups.coordinator.log import CoordinatorLog
from tidelog.broker.groups.coordinator.proof import LeadershipProof
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.answers import Response
from tidelog.broker.groups.state.messages import (
    NOBODY,
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
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
)
from tidelog.broker.groups.state.notes import DepartureReason
from tidelog.broker.shared.errors import fresh
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter, count
from tidelog.broker.shared.node_time import HouseTime
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionKey

WAITING_MAX: Final = 10_000
"""Requests that one coordinator has accepted and not answered."""
ANSWER_MS: Final = 30_000
"""Longest wait for an answer; what was submitted goes on."""
RELOAD_MS: Final = 1_000
"""Between a failure and the next loading; twice as long after each that fails as well."""
RELOAD_MS_MAX: Final = 60_000
STEPS_A_TURN: Final = 64
"""Messages that a core is told before the loop may turn."""
NS_PER_MS: Final = 1_000_000
_DEPOSED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_PARTITION,
    }
)
"""Of a partition that this broker does not lead in that epoch."""

_Told = Message | Completion | Tick
_EXPECTED: Final = (DepartureReason.LEFT, DepartureReason.REMOVED, DepartureReason.REPLACED)
"""Departures that somebody wanted."""


class GroupCoordinator:
    """`run()` is the owning task, as long as the partition has a replica here."""

    def __init__(
        self,
        clock: Clock,
        time: HouseTime,
        key: PartitionKey,
        *,
        open_log: Callable[[PartitionKey, LeaderEpoch], CoordinatorLog],
        make_core: Callable[[], GroupCoordinatorCore],
        is_in_contact: Callable[[], bool],
        on_resigned: Callable[[PartitionKey, TidelogError], None],
        events: EventLog,
        meter: Meter,
    ) -> None:
        self._meter = meter
        self._on_resigned = on_resigned
        self.key = key
        self._open_log = open_log
        self._clock = clock
        self._time = time
        self._make_core = make_core
        self._is_in_contact = is_in_contact
        self._events = events
        self._topics: tuple[GroupTopic, ...] = ()
        self._brokers: Mapping[BrokerId, BrokerState] = {}
        self._settings = SettingsChanged(defaults=GroupSettings())
        self._led: LeaderEpoch | None = None
        """What the image says."""
        self._changed = asyncio.Event()
        self._log: CoordinatorLog | None = None
        self._core: GroupCoordinatorCore | None = None
        """There once it is loaded, and `_proof` with it."""
        self._proof: LeadershipProof | None = None
        self._rebalances = 0
        """Of the present core, as far as they are counted."""
        self._inbox: list[_Told] = []
        self._news = asyncio.Event()
        self._is_tick_due = False
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._proving = 0
        """Requests that wait until it is shown that this broker leads."""
        self._last_request_id = 0
        self._failed_loads = 0
        """One after the other."""
        self._appending: dict[asyncio.Future[Appended], None] = {}
        self._settled = asyncio.Event()

    # -- asked ---------------------------------------------------------------------------------

    @property
    def core(self) -> GroupCoordinatorCore | None:
        """To be looked at; None: not led here, or not loaded yet."""
        return self._core

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition."""
        return self._led is not None

    def lead(self, leader_epoch: LeaderEpoch | None) -> None:
        """What the image says: this broker leads the partition in the epoch, or not at all."""
        if leader_epoch == self._led:
            return
        self._led = leader_epoch
        # Nobody is answered as a coordinator from here on that this broker is not any more.
        self._resign(not_coordinator(self.key))
        self._changed.set()

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

    def tick(self, now_ms: int) -> None:
        """Monotonic time has passed."""
        core = self._core
        if core is None or self._is_tick_due:
            return
        if core.next_deadline_ms() <= now_ms:
            self._is_tick_due = True
            wall_ms, may_expire = self._time.wall_ms(), self._time.may_expire
            self._tell(Tick(now_ms=now_ms, wall_ms=wall_ms, may_expire=may_expire))

    async def ask(self, request: AnyRequest, caller: Caller = NOBODY) -> Response:
        """Submit a request and wait for its answer."""
        self._check_asked()
        if not self._is_in_contact() and self._proof is not None:
            self._proving += 1
            try:
                await self._proof.wait()
            finally:
                self._proving -= 1
            self._check_asked()
        self._last_request_id += 1
        request_id = self._last_request_id
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self._tell(
            Asked(
                request=request,
                request_id=request_id,
                now_ms=self._now_ms(),
                wall_ms=self._time.wall_ms(),
                caller=caller,
            )
        )
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                return await answer
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"ask the coordinator of {self.key}",
                happened=f"what it has to store is not committed after {ANSWER_MS} ms",
                hint="`tidelog topic describe __groups` shows which replicas are missing.",
            ) from None

    def _check_asked(self) -> None:
        """Whether it can be asked now."""
        if self._led is None:
            raise not_coordinator(self.key)
        if self._core is None:
            raise loading(self.key)
        if len(self._waiting) + self._proving >= WAITING_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"ask the coordinator of {self.key}",
                happened=f"{WAITING_MAX} requests wait for it already",
            )

    # -- its life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            leader_epoch = self._led
            if leader_epoch is None:
                await self._changed.wait()
                continue
            failure = await self._hold(leader_epoch)
            await self._wait_settled()
            if failure is not None and self._led == leader_epoch:
                self._events.warning("group_coordinator_failed", partition=self.key, error=failure)
                await self._pause(leader_epoch)

    async def _pause(self, leader_epoch: LeaderEpoch) -> None:
        """Before the next try, unless another broker is to try instead."""
        pause_ms = min(RELOAD_MS << min(self._failed_loads, 10), RELOAD_MS_MAX)
        self._failed_loads += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                while self._led == leader_epoch:
                    self._changed.clear()
                    await self._changed.wait()

    async def _hold(self, leader_epoch: LeaderEpoch) -> TidelogError | None:
        """Coordinate as long as the image says so; the failure that ended it earlier."""
        failures: list[TidelogError] = []
        async with TaskScope() as scope:
            work = scope.start(self._work(leader_epoch, failures), name="group coordinator")
            work.add_done_callback(lambda _: self._changed.set())
            while self._led == leader_epoch and not work.done():
                await self._changed.wait()
                self._changed.clear()
            scope.cancel()
        return failures[0] if failures else None

    async def _work(self, leader_epoch: LeaderEpoch, failures: list[TidelogError]) -> None:
        started_ns = self._clock.monotonic_ns()
        log = self._open_log(self.key, leader_epoch)
        core = self._make_core()
        self._rebalances = 0
        error = not_coordinator(self.key)
        try:
            count = await log.load(core.apply)
            self._failed_loads = 0
            self._log, self._core = log, core
            self._proof = LeadershipProof(log, self._time.wall_ms)
            self._perform(core.step(self._settings))
            now_ms, wall_ms = self._now_ms(), self._time.wall_ms()
            self._perform(core.step(LoadEnded(now_ms=now_ms, wall_ms=wall_ms)))
            self._perform(core.step(self._topics_changed()))
            self._perform(core.step(self._brokers_changed()))
            self._events.info(
                "group_coordinator_loaded",
                partition=self.key,
                leader_epoch=leader_epoch,
                records=count,
                took_ms=(self._clock.monotonic_ns() - started_ns) // NS_PER_MS,
            )
            await self._serve(core)
        except TidelogError as failure:
            error = failure
            failures.append(failure)
        finally:
            if self._led == leader_epoch or self._core is core:
                self._resign(error)

    async def _serve(self, core: GroupCoordinatorCore) -> None:
        """Tell the core what comes, do what it says, until it is of no more use."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._inbox:
                told, self._inbox = self._inbox[:STEPS_A_TURN], self._inbox[STEPS_A_TURN:]
                for each in told:
                    self._perform(self._step(core, each))
                self._tell_notes(core)
                if self._inbox:
                    await asyncio.sleep(0)

    def _tell_notes(self, core: GroupCoordinatorCore) -> None:
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

    def _step(self, core: GroupCoordinatorCore, told: _Told) -> list[Effect]:
        match told:
            case Tick():
                self._is_tick_due = False
                return core.tick(told)
            case AppendCommitted() | AppendFailed():
                return core.completed(told)
            case _:
                return core.step(told)

    def _resign(self, error: TidelogError) -> None:
        """Whoever waits is told to look elsewhere, or to ask again."""
        was_there = self._core is not None
        self._core = self._log = self._proof = None
        self._inbox.clear()
        self._is_tick_due = False
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(fresh(error))
        if was_there:
            self._on_resigned(self.key, error)

    # -- effects -------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecords():
                    self._append(effect)
                case Answer():
                    self._answer(effect)
                case ReloadNeeded():
                    raise fresh(effect.error)
                case _:
                    assert_never(effect)

    def _answer(self, effect: Answer) -> None:
        answer = self._waiting.pop(effect.request_id, None)
        if answer is None or answer.done():
            return
        if isinstance(effect.result, TidelogError):
            answer.set_exception(fresh(effect.result))
        else:
            answer.set_result(effect.result)

    def _append(self, effect: AppendRecords) -> None:
        log = self._log
        assert log is not None, "a core that appends is loaded"
        try:
            records = [(each.key, each.value) for each in effect.records]
            appended = log.append(records, self._time.wall_ms())
        except TidelogError as error:
            self._tell(AppendFailed(error=self._told(error)))
            return
        self._appending[appended] = None
        appended.add_done_callback(lambda done: self._on_appended(done, effect.token, log))

    def _on_appended(
        self, done: "asyncio.Future[Appended]", token: int, log: CoordinatorLog
    ) -> None:
        del self._appending[done]
        self._settled.set()
        failure = done.exception()
        assert failure is None or isinstance(failure, TidelogError), "an owner refuses typed"
        if log is not self._log:
            return
        try:
            if failure is not None:
                raise failure
            log.check(done.result())
        except TidelogError as error:
            self._tell(AppendFailed(error=self._told(error)))
        else:
            self._tell(AppendCommitted(token=token))

    async def _wait_settled(self) -> None:
        """Until no append of a core that is gone can reach the log any more, or move in it."""
        while self._appending:
            self._settled.clear()
            await self._settled.wait()

    def _told(self, error: TidelogError) -> TidelogError:
        """What a client of the coordinator is told of the failure of an append."""
        if error.code in _DEPOSED:
            return not_coordinator(self.key)
        return TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=f"coordinate {self.key}",
            happened=f"{error.happened} ({error.code.name}, while trying to {error.tried})",
        )

    def _topics_changed(self) -> TopicsChanged:
        return TopicsChanged(
            topics=self._topics, now_ms=self._now_ms(), wall_ms=self._time.wall_ms()
        )

    def _brokers_changed(self) -> BrokersChanged:
        return BrokersChanged(
            brokers=self._brokers, now_ms=self._now_ms(), wall_ms=self._time.wall_ms()
        )

    def _tell(self, told: _Told) -> None:
        self._inbox.append(told)
        self._news.set()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS


def not_coordinator(key: PartitionKey) -> TidelogError:
    """NOT_COORDINATOR."""
    return TidelogError(
        ErrorCode.NOT_COORDINATOR,
        tried=f"coordinate {key}",
        happened="this broker does not lead the partition of the groups' topic",
    )


def loading(key: PartitionKey) -> TidelogError:
    """COORDINATOR_NOT_AVAILABLE, for a moment."""
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried=f"coordinate {key}",
        happened="what was stored of its groups is being loaded",
    )
