"""Brokers' ties to the active controller: registrations, heartbeats, silence, death hints.

Owns the table of sessions of the time in which this node decides; when it decides again, in another
term or in the same one, it begins with a table of its own. It must never fence by itself: it writes
what `rounds` decides, as every other writer. A stop of the walk "a broker dies": a stream that
ended is followed by a probe of the broker's address, and a refused one by a hint.

    stream ended, or silent after an election ─→ probe ─ refused ─→ hint ─┐
    no heartbeat ─────────────────────────────────────────────────────────┴─→ expired ─→ fence

The controller before this one is probed at once: the election has waited for it already, by the
quorum's own hint or for its whole timeout, so that a refusal now ends its session without another
wait. If it is silent only, its session began when the election's wait did.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata.broker_reports import ClockVerdict, Registration
from tidelog.metadata.image.image import BrokerImage, Image
from tidelog.metadata_quorum.active import rounds
from tidelog.metadata_quorum.active.broker_clocks import BrokerClocks
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.controller.brokers import changes as broker_changes
from tidelog.metadata_quorum.controller.brokers import registration as brokers
from tidelog.metadata_quorum.controller.brokers.changes import BrokerState, Heartbeat
from tidelog.metadata_quorum.controller.brokers.sessions import (
    HINT_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Sessions,
)
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.in_sync import check_broker_epoch
from tidelog.ports import Clock, DeathHint, Network, PeerUnreachable, TaskScope
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LogIndex, Term

PROBE_METHOD: Final = "/grpc.health.v1.Health/Check"
"""Any answer will do, also that there is no such method: somebody listens."""
_ENDS_SESSION: Final = (
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_ARGUMENT,
)
_NS_PER_MS: Final = 1_000_000


class SessionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the controller notices what brokers do not say."""

    session_timeout_ms: int = SESSION_TIMEOUT_MS
    hint_timeout_ms: int = HINT_TIMEOUT_MS
    tick_ms: int = 100
    """Between looks at the table and at streams that ended, unless a session ends sooner: each
    partition that a dead broker led waits for this."""
    held_up_ms: int = 1_000
    """This loop being so late, nobody's silence before counts."""
    election_wait_ms: int = 1_000
    """The quorum has not heard of its leader for so long when it elects another: at least, unless
    the leader died or has handed over."""
    unheard_probe_ms: int = 300
    """After an election: brokers that have not come by then are probed. One that lives answers."""
    probe_timeout_ms: int = 500
    probes_max: int = 3
    probe_wait_ms: int = 50
    """Between probes of one broker, while its address answers."""
    write_timeout_ms: int = 1_000
    """Of a heartbeat's write: the broker waits for the answer."""
    register_timeout_ms: int = 5_000
    round_timeout_ms: int = 5_000
    drain_ms: int = 5_000
    balance_ms: int = 60_000
    clocks_ms: int = 1_000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """To a heartbeat."""

    state: BrokerState
    heartbeat_interval_ms: int
    error: TidelogError | None = None
    """The session ends with it."""
    clock: ClockVerdict = ClockVerdict()


class BrokerSessions:
    """`run()` is its task; the session service calls the rest."""

    def __init__(
        self,
        *,
        controller: ActiveController,
        network: Network,
        clock: Clock,
        times: SessionTimes | None = None,
        peer_addresses: Mapping[int, str] | None = None,
    ) -> None:
        self.times = times or SessionTimes()
        self._peer_addresses = dict(peer_addresses or {})
        """Where this node reaches others, if not where they say; by node id."""
        self._controller = controller
        self._network = network
        self._clock = clock
        self._term: Term | None = None
        """What the table is of; None: this node did not decide when it was last asked to."""
        self._table = self._new_table()
        self.clocks = BrokerClocks(
            clock, node_id=controller.quorum.member_id.node_id, image=controller.image
        )
        self._begun_ms = 0
        self._has_probed_unheard = False
        self._other_leader_id: int | None = None
        """The last one that this node has followed, and not been the controller since."""
        self._other_led_ms = 0
        """When it was last taken for the leader."""
        self._before: BrokerId | None = None
        """The controller before this one, if it is a broker."""
        self._required: dict[BrokerId, tuple[BrokerEpoch, LogIndex]] = {}
        """What a broker must have applied before it may lead: its own registration."""
        self._required_of_all = LogIndex(0)
        self._probing: dict[BrokerId, None] = {}
        self._to_probe: dict[BrokerId, BrokerEpoch] = {}
        self._next_drain_ms = 0
        self._next_balance_ms = 0
        self._next_clocks_ms = 0

    async def register(self, registration: Registration) -> BrokerEpoch:
        """Make the broker known, fenced; its epoch."""
        broker_id = registration.broker_id
        tried = f"register broker {broker_id}"

        def decide(image: Image) -> Decision[BrokerEpoch]:
            table = self._current_table()
            is_living = table is None or table.is_living(broker_id, self._now_ms())
            return brokers.register(image, registration, is_living=is_living)

        written = await self._controller.write(
            decide, tried=tried, timeout_ms=self.times.register_timeout_ms
        )
        epoch = written.answer
        table = self._current_table()
        if table is not None:
            known = table.session(broker_id)
            if known is None or known.epoch <= epoch:
                table.open(broker_id, epoch, self._now_ms())
            required = self._required.get(broker_id)
            if required is None or required[0] < epoch:
                self._required[broker_id] = (epoch, written.index)
                self.clocks.forget(broker_id)
        return epoch

    async def beat(self, heartbeat: Heartbeat) -> Answer:
        """A heartbeat; what the broker wants is written before it is answered."""
        table = self._current_table()
        tried = f"hear of broker {heartbeat.broker_id}"
        if table is None:
            return self._ended(self._controller.not_controller(tried))
        verdict = ClockVerdict()
        try:
            check_broker_epoch(
                self._controller.image_ahead(),
                heartbeat.broker_id,
                heartbeat.broker_epoch,
                tried=tried,
            )
            table.heard(heartbeat.broker_id, heartbeat.broker_epoch, self._now_ms())
            # Before anything is written: the clock is compared as of now.
            verdict = self.clocks.hear(heartbeat)
            if not self._wants_something(heartbeat):
                return self._answer(self._state(heartbeat.broker_id), verdict)
            written = await self._controller.write(
                lambda image: broker_changes.beat(
                    image, heartbeat, required_index=self._required_index(heartbeat)
                ),
                tried=tried,
                timeout_ms=self.times.write_timeout_ms,
            )
        except TidelogError as error:
            if error.code in _ENDS_SESSION:
                return self._ended(error)
            # The broker asks again with its next heartbeat.
            return self._answer(self._state(heartbeat.broker_id), verdict)
        return self._answer(written.answer, verdict)

    def on_stream_end(self, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
        """However it ended: is the process gone, or only the connection?"""
        self._to_probe[broker_id] = epoch

    def last_contact_ms(self, broker_id: BrokerId) -> int:
        """How long ago the broker was heard of; -1: not by this controller."""
        table = self._current_table()
        return -1 if table is None else table.last_contact_ms(broker_id, self._now_ms())

    async def run(self) -> None:
        """Rounds until cancelled; nothing while another node decides."""
        async with TaskScope() as scope:
            while True:
                table = self._current_table()
                if table is None:
                    self._to_probe.clear()
                    self._note_leader()
                else:
                    await self._round(scope, table)
                await self._pause(self._pause_ms(table))

    def _note_leader(self) -> None:
        leader_id = self._controller.leader_id()
        if leader_id is not None and leader_id != self._controller.quorum.member_id.node_id:
            self._other_leader_id, self._other_led_ms = leader_id, self._now_ms()

    async def _pause(self, pause_ms: int) -> None:
        """Whoever wakes up far too late was stopped itself, and has no right to call others dead:
        what they said stands in its sockets.
        """
        due_ms = self._now_ms() + pause_ms
        await self._clock.sleep(pause_ms)
        now_ms = self._now_ms()
        if now_ms - due_ms >= self.times.held_up_ms:
            self._table.excuse(now_ms)

    async def _round(self, scope: TaskScope, table: Sessions) -> None:
        now_ms = self._now_ms()
        self._probe_unheard(table, now_ms)
        self._start_probes(scope)
        table.tick(now_ms)
        silent = rounds.silent_brokers(
            self._controller.image_ahead(), lambda each: table.session(each) is not None
        )
        try:
            for broker in silent:
                # Of the newest table: the write before this one may have waited for it to begin.
                if self._table.session(broker.broker_id) is None:
                    await self._fence(broker)
            await self._tidy(now_ms)
        except TidelogError:
            # Not the controller any more, or a quorum that is slow: the next round tries again.
            return

    async def _fence(self, broker: BrokerImage) -> None:
        """A write for each: one that holds many replicas keeps the loop busy long enough."""
        await self._controller.write(
            lambda image: broker_changes.fence(image, broker.broker_id, broker.epoch),
            tried=f"fence broker {broker.broker_id}",
            timeout_ms=self.times.round_timeout_ms,
        )

    async def _tidy(self, now_ms: int) -> None:
        if now_ms >= self._next_drain_ms:
            self._next_drain_ms = now_ms + self.times.drain_ms
            if rounds.drain(self._controller.image_ahead()).records:
                await self._controller.write(
                    rounds.drain, tried="empty brokers", timeout_ms=self.times.round_timeout_ms
                )
        if now_ms >= self._next_balance_ms:
            self._next_balance_ms = now_ms + self.times.balance_ms
            off = self.clocks.off()
            if rounds.balance(self._controller.image_ahead(), off).records:
                await self._controller.write(
                    lambda image: rounds.balance(image, off),
                    tried="balance leaders",
                    timeout_ms=self.times.round_timeout_ms,
                )
        if now_ms >= self._next_clocks_ms:
            self._next_clocks_ms = now_ms + self.times.clocks_ms
            await self._leave_wrong_clocks()

    async def _leave_wrong_clocks(self) -> None:
        off, right = self.clocks.off(), self.clocks.right()
        if (
            off
            and rounds.right_clocks(self._controller.image_ahead(), off=off, right=right).records
        ):
            await self._controller.write(
                lambda image: rounds.right_clocks(image, off=off, right=right),
                tried="let right clocks stamp records",
                timeout_ms=self.times.round_timeout_ms,
            )

    def _current_table(self) -> Sessions | None:
        """The table while this node decides; a new one where it did not, or in another term.

        A leader whose disk is full does not decide and refuses heartbeats. Its old table would take
        for silence what it refused to hear, and fence every broker at the first look.
        """
        term = self._controller.active_term
        if term is None:
            self._term = None
            return None
        if term != self._term:
            self._begin(term)
        return self._table

    def _begin(self, term: Term) -> None:
        image = self._controller.image()
        now_ms = self._now_ms()
        self._term = term
        self._table = self._new_table()
        self.clocks.begin()
        before = self._controller_before(image)
        self._before = None if before is None else before.broker_id
        self._other_leader_id = None
        # While nobody led it had nobody to talk to: that is not held against it for long.
        wait_ms = self.times.election_wait_ms
        since_ms = max(self._other_led_ms - wait_ms, now_ms - 2 * wait_ms)
        self._table.begin(
            [(broker.broker_id, broker.epoch) for broker in image.brokers.values()],
            now_ms,
            silent_since_ms={} if before is None else {before.broker_id: since_ms},
        )
        self._begun_ms = now_ms
        self._has_probed_unheard = False
        self._required = {}
        self._required_of_all = LogIndex(image.version)
        self._to_probe = {}
        if before is not None:
            self._to_probe[before.broker_id] = before.epoch
        self._next_drain_ms = now_ms + self.times.drain_ms
        self._next_balance_ms = now_ms + self.times.balance_ms
        self._next_clocks_ms = now_ms + self.times.clocks_ms

    def _controller_before(self, image: Image) -> BrokerImage | None:
        """As a broker, if it was one and counts as alive."""
        if self._other_leader_id is None:
            return None
        broker = image.brokers.get(BrokerId(self._other_leader_id))
        return None if broker is None or broker.is_fenced else broker

    def _new_table(self) -> Sessions:
        return Sessions(
            session_timeout_ms=self.times.session_timeout_ms,
            hint_timeout_ms=self.times.hint_timeout_ms,
        )

    def _wants_something(self, heartbeat: Heartbeat) -> bool:
        known = self._controller.image().brokers.get(heartbeat.broker_id)
        if known is None:
            return False
        has_news = bool(heartbeat.directories) and heartbeat.directories != known.directories
        return (
            has_news or heartbeat.wants_shut_down or (heartbeat.wants_unfence and known.is_fenced)
        )

    def _required_index(self, heartbeat: Heartbeat) -> int:
        epoch, index = self._required.get(
            heartbeat.broker_id, (BrokerEpoch(-1), self._required_of_all)
        )
        return index if epoch == heartbeat.broker_epoch else self._required_of_all

    def _state(self, broker_id: BrokerId) -> BrokerState:
        """As committed: what a broker is told it may act upon."""
        known = self._controller.image().brokers.get(broker_id)
        return BrokerState(is_fenced=known is None or known.is_fenced)

    def _answer(self, state: BrokerState, clock: ClockVerdict) -> Answer:
        interval_ms = self._table.heartbeat_interval_ms
        return Answer(state=state, heartbeat_interval_ms=interval_ms, clock=clock)

    def _ended(self, error: TidelogError) -> Answer:
        return Answer(
            state=BrokerState(is_fenced=True),
            heartbeat_interval_ms=self._table.heartbeat_interval_ms,
            error=error,
        )

    def _probe_unheard(self, table: Sessions, now_ms: int) -> None:
        """After an election a broker that died with the last controller has no stream to end."""
        if self._has_probed_unheard or now_ms < self._begun_ms + self.times.unheard_probe_ms:
            return
        self._has_probed_unheard = True
        for broker in self._controller.image_ahead().brokers.values():
            session = table.session(broker.broker_id)
            if not broker.is_fenced and session is not None and not session.is_heard:
                self._to_probe[broker.broker_id] = broker.epoch

    def _start_probes(self, scope: TaskScope) -> None:
        waiting, self._to_probe = self._to_probe, {}
        listeners = self._controller.image_ahead().brokers
        for broker_id, epoch in waiting.items():
            broker = listeners.get(broker_id)
            if broker is None or broker.epoch != epoch or broker_id in self._probing:
                continue
            address = self._peer_addresses.get(broker_id) or _address(broker.listeners)
            if address:
                self._probing[broker_id] = None
                work = self._probe(broker_id, epoch, address)
                scope.start(work, name=f"probe broker {broker_id}")

    async def _probe(self, broker_id: BrokerId, epoch: BrokerEpoch, address: str) -> None:
        try:
            for _ in range(self.times.probes_max):
                if await self._is_refused(address):
                    self._on_refused(broker_id, epoch)
                    return
                await self._clock.sleep(self.times.probe_wait_ms)
        finally:
            del self._probing[broker_id]

    def _on_refused(self, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
        table = self._current_table()
        if table is None:
            return
        now_ms = self._now_ms()
        session = table.session(broker_id)
        is_unheard = session is not None and not session.is_heard
        if is_unheard and broker_id == self._before:
            table.hint(broker_id, epoch, now_ms, since_ms=now_ms - self.times.hint_timeout_ms)
        else:
            table.hint(broker_id, epoch, now_ms)

    async def _is_refused(self, address: str) -> bool:
        try:
            await self._network.call(
                address, PROBE_METHOD, b"", timeout_ms=self.times.probe_timeout_ms
            )
        except PeerUnreachable as error:
            return error.death_hint is not DeathHint.NONE
        except TidelogError:
            return False
        return False

    def _pause_ms(self, table: Sessions | None) -> int:
        """Short while probes wait, exact when a session ends before the next look."""
        if table is None or self._to_probe:
            return min(self.times.tick_ms, self.times.probe_wait_ms)
        deadline_ms = table.next_deadline_ms()
        if deadline_ms is None:
            return self.times.tick_ms
        return max(1, min(self.times.tick_ms, deadline_ms - self._now_ms()))

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // _NS_PER_MS


def _address(listeners: Mapping[str, str]) -> str:
    return listeners.get(CLUSTER_LISTENER) or listeners.get(CLIENT_LISTENER, "")
