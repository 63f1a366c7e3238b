"""The task that owns the coordinator's core of one partition of an internal topic on this broker.

Owns the inbox, those who wait, and the life of a core: made anew whenever this broker begins to
lead, loaded from the log, thrown away when it leads no more or an append has failed. Handlers
submit and await; one that is cancelled drops its answer only. It must never answer what the core
has not said, nor begin a core while appends of the one before may still reach the log.

What a broker without contact to a controller may answer, `proof` says.

    led ─▶ appends of before are settled ─▶ load ─▶ serve ─┬─ led no more ─▶ NOT_COORDINATOR
     ▲                                                     └─ append failed ─▶ told by the core
     └──────────────────────────── still led, after a pause ──────┘

What a kind of coordinator tells its core, and what it does for it, its own class says.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from tidelog.broker.coordination.log import CoordinatorLog, KeyValue, Producer, TakeMarker
from tidelog.broker.coordination.places import CoordinatedKind
from tidelog.broker.coordination.proof import LeadershipProof
from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.shared.errors import fresh
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

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
DEPOSED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_PARTITION,
    }
)
"""Of a partition that this broker does not lead in that epoch."""


class CoordinatorCore(Protocol):
    """What the life of any core needs of it."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Takes in a stored record, while it loads."""
        ...

    def next_deadline_ms(self) -> int:
        """Monotonic: when time matters to it next."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What every coordinator of a broker is given."""

    clock: Clock
    time: HouseTime
    open_log: Callable[[PartitionKey, LeaderEpoch], CoordinatorLog]
    is_in_contact: Callable[[], bool]
    on_resigned: Callable[[PartitionKey, TidelogError], None]
    events: EventLog
    meter: Meter


CoreT = TypeVar("CoreT", bound=CoordinatorCore)
ToldT = TypeVar("ToldT")
"""What a core is told."""
ResponseT = TypeVar("ResponseT")
"""What a core answers."""


class PartitionCoordinator(ABC, Generic[CoreT, ToldT, ResponseT]):
    """`run()` is the owning task, as long as the partition has a replica here."""

    def __init__(
        self,
        kind: CoordinatedKind,
        key: PartitionKey,
        around: Surroundings,
        *,
        make_core: Callable[[], CoreT],
        meaningless: bytes,
    ) -> None:
        self.key = key
        self._kind = kind
        self._meaningless = meaningless
        self._make_core = make_core
        self._open_log = around.open_log
        self._clock = around.clock
        self._time = around.time
        self._is_in_contact = around.is_in_contact
        self._notify_resigned = around.on_resigned
        self._events = around.events
        self._meter = around.meter
        self._led: LeaderEpoch | None = None
        """What the image says."""
        self._changed = asyncio.Event()
        self._log: CoordinatorLog | None = None
        self._core: CoreT | None = None
        """There once it is loaded, and `_proof` with it."""
        self._proof: LeadershipProof | None = None
        self._inbox: list[ToldT] = []
        self._news = asyncio.Event()
        self._is_tick_due = False
        self._waiting: dict[int, asyncio.Future[ResponseT]] = {}
        self._proving = 0
        """Requests that wait until it is shown that this broker leads."""
        self._last_request_id = 0
        self._failed_loads = 0
        """One after the other."""
        self._appending: dict[asyncio.Future[Appended], None] = {}
        self._settled = asyncio.Event()

    # -- what a kind says ------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, core: CoreT, leader_epoch: LeaderEpoch, scope: TaskScope) -> None:
        """Tell a core that is loaded what it has to know before anything else.

        What is started in the scope ends before the next core is made."""

    @abstractmethod
    def _tell_core(self, core: CoreT, told: ToldT) -> None:
        """Tell the core, and do what it says."""

    @abstractmethod
    def _time_has_passed(self, now_ms: int) -> ToldT:
        """What a core is told of time."""

    @abstractmethod
    def _is_committed(self, token: int) -> ToldT:
        """What a core is told of an append that is committed."""

    @abstractmethod
    def _has_failed(self, error: TidelogError) -> ToldT:
        """What a core is told of an append that failed."""

    def _was_refused(self, token: int, error: TidelogError) -> ToldT | None:
        """What a core is told of an append of a transaction that was refused in its turn, hence is
        not in the log; None: for this kind, or with this error, that is a failure."""
        del token, error
        return None

    def _marker_taker(self, core: CoreT) -> TakeMarker | None:
        """Who is told of ends of transactions while the core loads; None: nobody."""
        del core
        return None

    @abstractmethod
    def _take_notes(self, core: CoreT) -> None:
        """Count and log what the core noticed."""

    @abstractmethod
    def _log_loaded(self, leader_epoch: LeaderEpoch, records: int, took_ms: int) -> None:
        """Log that it coordinates."""

    @abstractmethod
    def _log_failure(self, failure: TidelogError) -> None:
        """Log that it does not, though it should."""

    # -- asked -----------------------------------------------------------------------------------

    @property
    def core(self) -> CoreT | None:
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
        self._resign(self._kind.not_coordinator(self.key))
        self._changed.set()

    def tick(self, now_ms: int) -> None:
        """Monotonic time has passed."""
        core = self._core
        if core is None or self._is_tick_due:
            return
        if core.next_deadline_ms() <= now_ms:
            self._is_tick_due = True
            self._tell(self._time_has_passed(now_ms))

    async def _submit(self, make: Callable[[int], ToldT], *, proves: str = "") -> ResponseT:
        """Submit what is made for a request's id, and wait for its answer.

        `proves`: why it has to be shown first that this broker still leads; empty: it need not,
        while this broker is in contact with a controller.
        """
        self._check_asked()
        reason = proves if self._is_in_contact() else "having heard from no controller"
        if reason and self._proof is not None:
            self._proving += 1
            try:
                await self._proof.wait(reason)
            finally:
                self._proving -= 1
            self._check_asked()
        self._last_request_id += 1
        request_id = self._last_request_id
        answer: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self._tell(make(request_id))
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                return await answer
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"ask the coordinator of {self.key}",
                happened=f"what it has to store is not committed after {ANSWER_MS} ms",
                hint=f"`tidelog topic describe {self._kind.topic_name}` shows which replicas are "
                "missing.",
            ) from None

    def _check_asked(self) -> None:
        """Whether it can be asked now."""
        if self._led is None:
            raise self._kind.not_coordinator(self.key)
        if self._core is None:
            raise self._kind.loading(self.key)
        if len(self._waiting) + self._proving >= WAITING_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=f"ask the coordinator of {self.key}",
                happened=f"{WAITING_MAX} requests wait for it already",
            )

    # -- its life --------------------------------------------------------------------------------

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
                self._log_failure(failure)
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
            work = scope.start(
                self._work(leader_epoch, failures, scope), name=f"{self._kind.noun} coordinator"
            )
            work.add_done_callback(lambda _: self._changed.set())
            while self._led == leader_epoch and not work.done():
                await self._changed.wait()
                self._changed.clear()
            scope.cancel()
        return failures[0] if failures else None

    async def _work(
        self, leader_epoch: LeaderEpoch, failures: list[TidelogError], scope: TaskScope
    ) -> None:
        started_ns = self._clock.monotonic_ns()
        log = self._open_log(self.key, leader_epoch)
        core = self._make_core()
        error = self._kind.not_coordinator(self.key)
        try:
            count = await log.load(core.apply, self._marker_taker(core))
            self._failed_loads = 0
            self._log, self._core = log, core
            self._proof = LeadershipProof(
                log, self._time.wall_ms, noun=self._kind.noun, meaningless=self._meaningless
            )
            self._begin(core, leader_epoch, scope)
            took_ms = (self._clock.monotonic_ns() - started_ns) // NS_PER_MS
            self._log_loaded(leader_epoch, count, took_ms)
            await self._serve(core)
        except TidelogError as failure:
            error = failure
            failures.append(failure)
        finally:
            if self._led == leader_epoch or self._core is core:
                self._resign(error)

    async def _serve(self, core: CoreT) -> None:
        """Tell the core what comes, do what it says, until it is of no more use."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._inbox:
                told, self._inbox = self._inbox[:STEPS_A_TURN], self._inbox[STEPS_A_TURN:]
                for each in told:
                    self._tell_core(core, each)
                self._take_notes(core)
                if self._inbox:
                    await asyncio.sleep(0)

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
            self._notify_resigned(self.key, error)

    # -- what a core wants done ------------------------------------------------------------------

    def _answer(self, request_id: int, result: ResponseT | TidelogError) -> None:
        answer = self._waiting.pop(request_id, None)
        if answer is None or answer.done():
            return
        if isinstance(result, TidelogError):
            answer.set_exception(fresh(result))
        else:
            answer.set_result(result)

    def _append(
        self, token: int, records: Sequence[KeyValue], producer: Producer | None = None
    ) -> None:
        log = self._log
        assert log is not None, "a core that appends is loaded"
        try:
            appended = log.append(records, self._time.wall_ms(), producer)
        except TidelogError as error:
            self._tell(self._has_failed(self._told(error)))
            return
        self._appending[appended] = None
        is_transactional = producer is not None
        appended.add_done_callback(
            lambda done: self._on_appended(done, token, log, is_transactional=is_transactional)
        )

    def _on_appended(
        self,
        done: "asyncio.Future[Appended]",
        token: int,
        log: CoordinatorLog,
        *,
        is_transactional: bool,
    ) -> None:
        del self._appending[done]
        self._settled.set()
        failure = done.exception()
        assert failure is None or isinstance(failure, TidelogError), "an owner refuses typed"
        if log is not self._log:
            return
        try:
            if failure is not None:
                refused = self._was_refused(token, failure) if is_transactional else None
                if refused is not None:
                    self._tell(refused)
                    return
                raise failure
            log.check(done.result())
        except TidelogError as error:
            self._tell(self._has_failed(self._told(error)))
        else:
            self._tell(self._is_committed(token))

    async def _wait_settled(self) -> None:
        """Until no append of a core that is gone can reach the log any more, or move in it."""
        while self._appending:
            self._settled.clear()
            await self._settled.wait()

    def _told(self, error: TidelogError) -> TidelogError:
        """What a client of the coordinator is told of the failure of an append."""
        if error.code in DEPOSED:
            return self._kind.not_coordinator(self.key)
        return TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=f"coordinate {self.key}",
            happened=f"{error.happened} ({error.code.name}, while trying to {error.tried})",
        )

    def _tell(self, told: ToldT) -> None:
        self._inbox.append(told)
        self._news.set()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS
