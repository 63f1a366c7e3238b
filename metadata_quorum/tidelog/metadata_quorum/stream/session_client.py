"""The broker's tie to the active controller: registration, heartbeats, the wish to serve or stop.

Owns the broker's epoch on this node. It must never go on under an epoch that another process has
taken over: then the node stops; unless that process is an earlier one of this node, dead by now,
whose call came late: the node registers once more. It must never want to serve under an epoch that
is not stored in the data directories yet (`controller.directory_epochs`), also when it got another
one in mid-life. One stream, one heartbeat in flight; a new stream to whoever leads. The walk "a
broker dies" begins where these heartbeats end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec

from tidelog.metadata.broker_reports import ClockVerdict, Reading, Registration
from tidelog.metadata.image.image import BrokerImage
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.metadata_quorum.controller.brokers.sessions import SESSION_TIMEOUT_MS
from tidelog.metadata_quorum.port import ImageSource
from tidelog.metadata_quorum.stream import session_wire as stream_session
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.metadata_quorum.stream.quorum_view import Leader
from tidelog.metadata_quorum.stream.session_messages import (
    Heartbeat,
    SessionState,
)
from tidelog.ports import Clock, Network, Stream
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LogIndex

REGISTER: Final = "/tidelog.v1.BrokerSessionService/RegisterBroker"
SESSION: Final = "/tidelog.v1.BrokerSessionService/BrokerSession"
REGISTER_MS: Final = 5_000
ID_IN_USE_MS: Final = 20_000
"""A predecessor that died without a word holds the id until its session ends; a controller that has
just been elected has heard of nobody, and gives everybody a session first."""
RETRY_MS: Final = 50
ANSWER_MS: Final = 2_000
INTERVAL_MS: Final = 1_500
"""Until the controller has said another one."""
LOST_MS: Final = 10_000
"""How long an image may take to show the registration that the controller refuses this one by."""
TAKEN_BACK_MAX: Final = 3
"""Calls of earlier processes of this node that may come late; then it is no late call."""
WISH_MS: Final = 100
"""Between heartbeats while a wish is open."""
MARGIN_MS: Final = 2_000
MARGIN_PART: Final = 3
"""Of the session's time, where that is short."""
UNREGISTERED: Final = BrokerEpoch(-1)
_AGAIN: Final = (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.NOT_CONTROLLER)


StoreEpoch = Callable[[BrokerEpoch], Awaitable[Mapping[bytes, BrokerEpoch]]]
"""Makes the epoch durable in every data directory that works; what is stored in each then."""


def contact_ms(session_timeout_ms: int) -> int:
    """Within this silence nobody has ended the session for it.

    The controller counts from the moment when a heartbeat comes, this broker from when it left. The
    margin is for a controller that was just elected: it holds the silence of the one before it
    against that one's broker, which heard itself until the end.
    """
    return session_timeout_ms - min(MARGIN_MS, session_timeout_ms // MARGIN_PART)


class _InUse:
    """How long the same controller has said that another process holds the id."""

    def __init__(self) -> None:
        self._told_by: Leader | None = None
        self._since_ns: int | None = None

    def waited_ms(self, told_by: Leader | None, now_ns: int) -> int:
        """It says so again."""
        if self._since_ns is None or told_by != self._told_by:
            self._told_by, self._since_ns = told_by, now_ns
        return (now_ns - self._since_ns) // 1_000_000


class NodeClock(Protocol):
    """The node's own clocks, and where it is told what the controller thinks of them."""

    def read(self) -> Reading:
        """What they show now."""
        ...

    def off_own_ms(self, now: Reading) -> int | None:
        """How far a node without others holds its clock to be off; None: it holds nothing."""
        ...

    def hear(self, verdict: ClockVerdict, told: Reading) -> None:
        """The controller has judged the clock as it was told then."""
        ...


class BrokerSession:
    """`register` once, then `run()` until cancelled; raises where the node has to stop."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        controller: ControllerClient,
        source: ImageSource,
        *,
        broker_id: BrokerId,
        cluster_id: str,
        applied_index: Callable[[], LogIndex],
        store_epoch: StoreEpoch,
        node_clock: NodeClock,
    ) -> None:
        self._network = network
        self._clock = clock
        self._controller = controller
        self._source = source
        self.broker_id: Final = broker_id
        self._registration: Registration | None = None
        """What the broker says of itself; None: it has not registered yet."""
        self._cluster_id = cluster_id
        self._applied_index = applied_index
        self._store_epoch = store_epoch
        self._stored_epoch = UNREGISTERED
        """The one that is durable in the data directories."""
        self._directories: tuple[BrokerDirectory, ...] = ()
        self._told_directories: tuple[BrokerDirectory, ...] = ()
        self._interval_ms = INTERVAL_MS
        self._sequence = 0
        self._stale_since_ns: int | None = None
        """Since when the controller refuses the epoch; None: it does not."""
        self.is_fenced = True
        """As the controller said last: the image shows it later."""
        self._wants_unfence = False
        self._wants_shut_down = False
        self._may_shut_down = asyncio.Event()
        self._news = asyncio.Event()
        self._heard_ns = clock.monotonic_ns()
        self.breaks = 0
        """Silences in which the session may have ended, as far as a heartbeat was answered since,
        and answers by which it had. Others may have been made leaders in each of them."""
        self._node_clock = node_clock
        self._taken_back = 0
        self.session_timeout_ms = SESSION_TIMEOUT_MS
        """How much silence the controller tolerates, as it said last."""
        self.epoch = UNREGISTERED
        self.trouble: TidelogError | None = None
        """Why the controller was not reached the last time; None while it answers."""

    @property
    def _registered(self) -> Registration:
        assert self._registration is not None, "a broker registers before it does anything else"
        return self._registration

    def own_epoch(self) -> BrokerEpoch:
        """Under which epoch the broker lives, once it has registered."""
        assert self.epoch != UNREGISTERED, "a broker that has not registered has no epoch"
        return self.epoch

    @property
    def silent_ms(self) -> int:
        """How old the newest heartbeat is that was answered; far below a session's time as long as
        a controller answers, which counts the session from when that heartbeat came."""
        return (self._clock.monotonic_ns() - self._heard_ns) // 1_000_000

    async def store_epoch(self) -> None:
        """Make the epoch durable where the logs are: without it the broker asks for nothing."""
        while self._stored_epoch != self.epoch:
            epoch = self.epoch
            stored = await self._store_epoch(epoch)
            self._stored_epoch = epoch
            # Should it have to register once more, this is what lies there; a directory in which
            # it could not be stored has failed.
            known = self._registered
            directories = tuple(
                BrokerDirectory(each.uuid, each.uuid in stored) for each in known.directories
            )
            self._registration = msgspec.structs.replace(
                known, stored_epochs=stored, directories=directories
            )
        self._news.set()

    async def register(self, registration: Registration) -> BrokerEpoch:
        """Make the broker known, however long it takes to find a controller."""
        assert registration.broker_id == self.broker_id, "a broker registers itself"
        self._registration = registration
        self._directories = self._told_directories = registration.directories
        return await self.register_again()

    async def register_again(self) -> BrokerEpoch:
        """Make it known once more, with what is stored in its directories by now."""
        message = stream_session.encode_registration(self._cluster_id, self._registered)
        in_use = _InUse()
        while True:
            asked_ns = self._clock.monotonic_ns()
            try:
                answer = await self._controller.call(
                    REGISTER, message, tried="register the broker", timeout_ms=REGISTER_MS
                )
            except TidelogError as error:
                self.trouble = error
                if error.code is ErrorCode.BROKER_ID_IN_USE:
                    told_by, now_ns = self._controller.leader(), self._clock.monotonic_ns()
                    if in_use.waited_ms(told_by, now_ns) >= ID_IN_USE_MS:
                        raise
                elif error.code not in _AGAIN:
                    raise
                await self._clock.sleep(WISH_MS)
                continue
            self.trouble = None
            self._heard_ns = asked_ns
            self.breaks += 1
            registered = stream_session.decode_registered(answer)
            # Of a registration that was written already the answer is the same epoch again.
            if registered.epoch < self.epoch:
                raise self._lost(f"it has epoch {registered.epoch} after {self.epoch} now")
            self.epoch = registered.epoch
            self.session_timeout_ms = registered.session_timeout_ms or SESSION_TIMEOUT_MS
            self._stale_since_ns = None
            self._told_directories = self._registered.directories
            return self.epoch

    async def wait_registered(self) -> None:
        """Until this node's image shows the registration, and with it all that came before."""
        while (known := self._known()) is None or known.epoch < self.epoch:
            await self._source.wait_version(self._source.image().version + 1)

    def want_unfence(self) -> None:
        """The logs are recovered; from now on the broker wants to serve."""
        self._wants_unfence = True
        self._news.set()

    async def wait_unfenced(self) -> None:
        """Until this node's image shows that the broker may lead."""
        while (known := self._known()) is None or known.is_fenced or known.epoch != self.epoch:
            await self._source.wait_version(self._source.image().version + 1)

    async def shut_down(self, timeout_ms: int) -> bool:
        """Let the controller move what this broker leads; whether it did so in time."""
        self._wants_shut_down = True
        self._wants_unfence = False
        self._news.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._may_shut_down.wait()
        except TimeoutError:
            return False
        return True

    def report_directories(self, directories: tuple[BrokerDirectory, ...]) -> None:
        """One of them changed; told with the next heartbeat, which is sent at once."""
        self._directories = directories
        self._news.set()

    async def run(self) -> None:
        """Heartbeats to whoever leads."""
        assert self.epoch != UNREGISTERED, "a broker registers before it opens a session"
        while True:
            leader = self._controller.leader()
            if leader is not None:
                try:
                    if self._wants_unfence:
                        await self.store_epoch()
                    await self._talk(leader)
                except TidelogError as error:
                    self.trouble = error
                    if error.code is ErrorCode.STALE_BROKER_EPOCH:
                        await self._on_stale(error)
            await self._clock.sleep(RETRY_MS)

    async def _talk(self, leader: Leader) -> None:
        """Until the stream breaks or another one leads."""
        stream = self._network.stream(leader.address, SESSION)
        try:
            # A controller that is new, or that lost the last heartbeat, learns all of them.
            self._told_directories = ()
            while not self._has_moved(leader):
                self._news.clear()
                sent_ns, told = self._clock.monotonic_ns(), self._node_clock.read()
                heartbeat = self._heartbeat(told)
                await stream.send(stream_session.encode_heartbeat(self._cluster_id, heartbeat))
                await self._receive(stream, heartbeat, told)
                self._hear(sent_ns)
                self._told_directories = heartbeat.directories or self._told_directories
                self.trouble = None
                self._stale_since_ns = None
                await self._pause()
        finally:
            stream.cancel()

    def _hear(self, sent_ns: int) -> None:
        """A heartbeat that was sent then is answered."""
        silent_ns = sent_ns - self._heard_ns
        # By the clock, which goes on while the process is stopped. Whoever answers the first
        # heartbeat after that may have been stopped as well, as the controller of this very node.
        if self.is_fenced or silent_ns >= contact_ms(self.session_timeout_ms) * 1_000_000:
            self.breaks += 1
        self._heard_ns = sent_ns

    def _heartbeat(self, told: Reading) -> Heartbeat:
        self._sequence += 1
        has_changed = self._directories != self._told_directories
        return Heartbeat(
            broker_id=self.broker_id,
            epoch=self.epoch,
            applied_index=self._applied_index(),
            wants_unfence=self._wants_unfence and self._stored_epoch == self.epoch,
            wants_shut_down=self._wants_shut_down,
            directories=self._directories if has_changed else (),
            sequence=self._sequence,
            wall_ms=told.wall_ms,
            clock_off_own_ms=self._node_clock.off_own_ms(told),
        )

    async def _receive(self, stream: Stream, heartbeat: Heartbeat, told: Reading) -> None:
        """Answers up to the one to this heartbeat."""
        sequence = -1
        while sequence < heartbeat.sequence:
            try:
                async with asyncio.timeout(ANSWER_MS / 1000):
                    data = await stream.receive()
            except TimeoutError:
                raise _left(f"no answer within {ANSWER_MS} ms") from None
            if data is None:
                raise _left("the controller ended the session")
            state = stream_session.decode_session_state(data)
            if state.error is not None:
                raise state.error
            sequence = state.sequence
            self._take_in(state)
            if sequence == heartbeat.sequence:
                self._node_clock.hear(state.clock, told)

    def _take_in(self, state: SessionState) -> None:
        self._interval_ms = state.heartbeat_interval_ms or INTERVAL_MS
        # A controller of an earlier release says it at the registration only.
        self.session_timeout_ms = state.session_timeout_ms or self.session_timeout_ms
        self.is_fenced = state.is_fenced
        if state.may_shut_down and self._wants_shut_down:
            self._may_shut_down.set()

    async def _pause(self) -> None:
        """Until the next heartbeat is due, or there is something to tell."""
        has_wish = (self._wants_unfence and self.is_fenced) or (
            self._wants_shut_down and not self._may_shut_down.is_set()
        )
        interval_ms = min(WISH_MS, self._interval_ms) if has_wish else self._interval_ms
        try:
            async with asyncio.timeout(interval_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            return

    async def _on_stale(self, error: TidelogError) -> None:
        """Whose is the registration now? Another process's: stop. Nobody's: register again."""
        self.is_fenced = True
        self.breaks += 1
        known = self._known()
        if known is None:
            await self.register_again()
            return
        is_ours = known.incarnation == self._registered.incarnation
        if known.epoch <= self.epoch:
            # This node's image is behind what the controller refused by; or it is not, and the
            # registration was lost with the end of a log: then the controller takes a new one.
            now_ns = self._clock.monotonic_ns()
            if self._stale_since_ns is None:
                self._stale_since_ns = now_ns
            elif now_ns - self._stale_since_ns >= LOST_MS * 1_000_000:
                await self.register_again()
            return
        if is_ours:
            self.epoch = known.epoch
            return
        if self._is_earlier_process(known) and self._taken_back < TAKEN_BACK_MAX:
            self._taken_back += 1
            await self.register_again()
            return
        raise TidelogError(
            ErrorCode.STALE_BROKER_EPOCH,
            tried=f"serve as broker {self.broker_id}",
            happened=f"another process registered under this id since: {error.happened}",
            hint="Give every node a node_id of its own; this process stops.",
        )

    def _is_earlier_process(self, known: BrokerImage) -> bool:
        """Whether a process that ran here before holds the registration: its call came late.

        It is dead, since its directory's lock and its address are held here.
        """
        ours = [each.uuid for each in self._registered.directories]
        is_here = dict(known.listeners) == dict(self._registered.listeners)
        return is_here and any(each.uuid in ours for each in known.directories)

    def _lost(self, happened: str) -> TidelogError:
        return TidelogError(
            ErrorCode.STALE_BROKER_EPOCH,
            tried=f"serve as broker {self.broker_id}",
            happened=f"the quorum lost the registration: {happened}",
            hint="Start the node again: it then takes over the history of this quorum.",
        )

    def _known(self) -> BrokerImage | None:
        return self._source.image().brokers.get(self.broker_id)

    def _has_moved(self, leader: Leader) -> bool:
        now = self._controller.leader()
        return now is not None and (now.node_id, now.term) != (leader.node_id, leader.term)


def _left(happened: str) -> TidelogError:
    return TidelogError(ErrorCode.UNAVAILABLE, tried="keep the broker session", happened=happened)
