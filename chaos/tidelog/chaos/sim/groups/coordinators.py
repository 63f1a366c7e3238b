"""Brokers of which one leads the groups' partition: it loads, serves, dies, or is deposed.

Owns who leads, and what stands between a core and its log. A deposed leader may go on for a while:
its appends come to nothing, and it says so once it has noticed.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.messages import (
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    Asked,
    Effect,
    GroupSettings,
    GroupTopic,
    LoadEnded,
    Message,
    ReloadNeeded,
    SettingsChanged,
    Tick,
    TopicsChanged,
    VerifyTransaction,
)
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.groups.log import GroupsLog
from tidelog.chaos.sim.quorum.agenda import MS, Agenda
from tidelog.wire.errors import ErrorCode, TidelogError

WALL_START_MS: Final = 1_700_000_000_000
REPLICATION_MS: Final = (1, 12)
LOAD_MS: Final = (2, 60)
ELECTION_MS: Final = (50, 400)
NOTICE_MS: Final = (20, 900)
TICK_MS: Final = 20
BROKERS: Final = 3

DEPOSED: Final = TidelogError(
    ErrorCode.NOT_COORDINATOR, tried="ask a group's coordinator", happened="another broker leads"
)

Reply = Callable[[Answer], None]


class Broker:
    """One of them; `core` is None unless it leads, or does not know better yet."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.is_dead = False
        self.is_paused = False
        self.leader_epoch = -1
        self.core: GroupCoordinatorCore | None = None
        self.replies: dict[int, Reply] = {}
        self.waiting: list[tuple[AnyRequest, int, Reply]] = []
        """Came while it was paused."""


class Coordinators:
    """All of them."""

    def __init__(
        self,
        agenda: Agenda,
        random: SeededRandom,
        faults: Faults,
        watch: GroupsWatch,
        settings: GroupSettings,
    ) -> None:
        self._agenda: Final = agenda
        self._random: Final = random
        self._faults: Final = faults
        self._watch: Final = watch
        self._settings: Final = settings
        self.log: Final = GroupsLog(random, watch.on_committed)
        self.brokers: Final = [Broker(number) for number in range(BROKERS)]
        self.topics: tuple[GroupTopic, ...] = ()
        self.leader: Broker | None = None
        self.failovers = 0
        self._request_id = 0

    @property
    def now_ms(self) -> int:
        """Monotonic."""
        return self._agenda.now_ns // MS

    def start(self) -> None:
        """The first leader, and the ticks."""
        self._elect()
        self._tick()

    def _after(self, span_ms: tuple[int, int], then: Callable[..., None], *given: object) -> None:
        self._agenda.after(self._random.between(*span_ms) * MS, then, *given)

    # -- who leads -----------------------------------------------------------------------------

    def depose(self) -> None:
        """The leader is dead or cut off: another one is elected in a while."""
        if self.leader is None:
            return
        former, self.leader = self.leader, None
        if not former.is_dead:
            self._after(NOTICE_MS, self._notice, former, former.leader_epoch)
        self._after(ELECTION_MS, self._elect)

    def _notice(self, broker: Broker, leader_epoch: int) -> None:
        if broker.leader_epoch == leader_epoch and broker.core is not None and not broker.is_dead:
            self._perform(broker, broker.core.completed(AppendFailed(error=DEPOSED)))
            broker.core = None

    def _elect(self) -> None:
        living = [each for each in self.brokers if not each.is_dead and not each.is_paused]
        if self.leader is not None:
            return
        if not living:
            self._after(ELECTION_MS, self._elect)
            return
        is_end_lost = self._faults.is_active(FaultKind.LOST_WRITE)
        lost = self.log.change_leader(is_end_lost=is_end_lost)
        if lost:
            self._faults.took_effect(FaultKind.LOST_WRITE, "log", f"{lost} appends")
        broker = living[self._random.below(len(living))]
        self.leader = broker
        self.failovers += 1
        broker.leader_epoch = self.log.leader_epoch
        broker.core = None
        broker.replies.clear()
        self._watch.trace.note(f"broker {broker.number}", "lead", f"epoch {broker.leader_epoch}")
        self._after(LOAD_MS, self._load, broker, broker.leader_epoch)

    def _load(self, broker: Broker, leader_epoch: int) -> None:
        if broker.leader_epoch != leader_epoch or broker.is_dead or broker is not self.leader:
            return
        core = GroupCoordinatorCore()
        for record in self.log.records():
            core.apply(record.key, record.value)
        core.step(SettingsChanged(defaults=self._settings))
        core.step(LoadEnded(now_ms=self.now_ms, wall_ms=self._wall_ms))
        broker.core = core
        self._watch.on_loaded(core)
        self._step(broker, self._topics())

    def crash(self, broker: Broker) -> None:
        """At once, with everything that it was about to answer."""
        broker.is_dead = True
        broker.core = None
        broker.replies.clear()
        broker.waiting.clear()
        if broker is self.leader:
            self.depose()

    def restart(self, broker: Broker) -> None:
        """With nothing in memory."""
        if broker.is_dead:
            broker.is_dead = False
            broker.leader_epoch = -1

    def pause(self, broker: Broker) -> None:
        """It stands still, and so does what it was asked."""
        broker.is_paused = True

    def resume(self, broker: Broker) -> None:
        """Everything that came meanwhile is taken at once, in its order."""
        broker.is_paused = False
        waiting, broker.waiting = broker.waiting, []
        for request, request_id, reply in waiting:
            self.ask(broker, request, request_id, reply)

    # -- what it is asked ----------------------------------------------------------------------

    @property
    def _wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms

    def next_request_id(self) -> int:
        """For a request that is put to a core."""
        self._request_id += 1
        return self._request_id

    def ask(self, broker: Broker, request: AnyRequest, request_id: int, reply: Reply) -> None:
        """A request has reached the broker; one that is dead never answers."""
        if broker.is_dead:
            return
        if broker.is_paused:
            broker.waiting.append((request, request_id, reply))
        elif broker.core is None:
            reply(Answer(request_id=request_id, result=DEPOSED))
        else:
            broker.replies[request_id] = reply
            asked = Asked(
                request=request, request_id=request_id, now_ms=self.now_ms, wall_ms=self._wall_ms
            )
            self._step(broker, asked)

    def _step(self, broker: Broker, message: Message) -> None:
        core = broker.core
        assert core is not None, "a broker without a core is not asked"
        before = self._watch.before_step(core)
        effects = core.step(message)
        self._watch.after_step(core, before, message)
        self._perform(broker, effects)

    def _tick(self) -> None:
        self._agenda.after(TICK_MS * MS, self._tick)
        for broker in self.brokers:
            core = broker.core
            if core is None or broker.is_paused or core.next_deadline_ms() > self.now_ms:
                continue
            before = self._watch.before_step(core)
            tick = Tick(now_ms=self.now_ms, wall_ms=self._wall_ms)
            effects = core.tick(tick)
            self._watch.after_step(core, before, tick)
            self._perform(broker, effects)

    def _perform(self, broker: Broker, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecords():
                    if self.log.append(broker.leader_epoch, effect):
                        self._watch.trace.note("log", "append", f"{len(effect.records)}")
                        self._after(REPLICATION_MS, self._replicate, broker, broker.leader_epoch)
                case Answer():
                    reply = broker.replies.pop(effect.request_id, None)
                    if reply is not None:
                        reply(effect)
                case VerifyTransaction():
                    raise AssertionError("no member of this suite has a transaction")
                case ReloadNeeded():
                    pass

    def _replicate(self, broker: Broker, leader_epoch: int) -> None:
        if broker is not self.leader or broker.leader_epoch != leader_epoch:
            return
        token = self.log.commit_next(leader_epoch)
        if token and broker.core is not None:
            self._perform(broker, broker.core.completed(AppendCommitted(token=token)))

    # -- metadata ------------------------------------------------------------------------------

    def _topics(self) -> TopicsChanged:
        return TopicsChanged(topics=self.topics, now_ms=self.now_ms, wall_ms=self._wall_ms)

    def set_topics(self, topics: tuple[GroupTopic, ...]) -> None:
        """The metadata changed; a leader that does not know better hears of it, too."""
        self.topics = topics
        for broker in self.brokers:
            if broker.core is not None and broker is self.leader:
                self._step(broker, self._topics())
