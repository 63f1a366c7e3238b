"""One simulated node of the quorum with nothing but a core: performs its effects, gives it time.

Owns the life of a process: start from what the disk kept, ticks, messages, flushes, snapshots,
death. It does what the runner does, in the same order, without waiting. It must never answer for
the core.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.chaos.checkers.history.linearizability import Value
from tidelog.chaos.checkers.raft.board import Seen
from tidelog.chaos.checkers.raft.content import Content
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.quorum import snapshots
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum.key_value import KeyValue
from tidelog.chaos.sim.quorum.node_disk import NodeDisk
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.effects import (
    Accepted,
    Answer,
    Apply,
    Effect,
    FetchSnapshot,
    Persist,
    ReadAt,
    ResetLog,
    Role,
    RoleChanged,
    Send,
    TrimLog,
)
from tidelog.metadata_quorum.raft.inputs import Input, Persisted, Propose, Read
from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    MemberId,
    Members,
    Recovered,
)
from tidelog.wire.ids import Term

if TYPE_CHECKING:
    from tidelog.chaos.sim.quorum.cluster import Cluster

_FLUSH_NS: Final = 4 * MS
_SLOW_NS: Final = 900 * MS
_FULL_RETRY_NS: Final = 500 * MS

Done = Callable[[str, Value], None]
"""Called once with ok, failed or unknown, and the result."""


class QuorumNode:
    """A machine with one process; a dead one has no core."""

    def __init__(self, cluster: "Cluster", node_id: int, disk: NodeDisk, observer: bool) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.disk = disk
        self.is_observer = observer
        self.name = f"n{node_id}"
        self.core: Core | None = None
        self.life = 0
        self.left = Content()
        """What the last crash left on the disk."""
        self.is_paused = False
        self.is_crashing_at_write = False
        """The machine dies while the next write is under way."""
        self.parked: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.rate = 1.0
        self._clock_ms = 0.0
        self._clock_set_ns = cluster.agenda.now_ns
        self._requests = 0
        self.waiting: dict[int, Done] = {}
        """Requests that the core has not answered."""
        self.proposed: dict[int, list[tuple[int, Done]]] = {}
        """By index: term and who waits."""
        self.reading: list[tuple[int, str, Done]] = []
        """Index, key and who waits."""
        self.seen: Seen
        self.store = KeyValue()
        self.members = disk.bootstrap
        """In force at what is applied."""
        self.last_snapshot_index = 0
        self.fetches = 0

    # -- life ----------------------------------------------------------------------------------

    @property
    def member_id(self) -> MemberId:
        """This node with its present directory."""
        return self.disk.member_id

    def now_ms(self) -> int:
        """Its own monotonic time."""
        passed_ns = self.cluster.agenda.now_ns - self._clock_set_ns
        return int(self._clock_ms + passed_ns / MS * self.rate)

    def set_rate(self, rate: float) -> None:
        """Its clock goes faster or slower from now on."""
        now_ns = self.cluster.agenda.now_ns
        self._clock_ms += (now_ns - self._clock_set_ns) / MS * self.rate
        self._clock_set_ns = now_ns
        self.rate = rate

    def start(self) -> None:
        """From what the disk holds."""
        cluster = self.cluster
        assert self.core is None, "a process runs once"
        self.life += 1
        recovered = self.disk.recover(self.left)
        self.seen = cluster.watch.on_start(
            self.member_id,
            recovered,
            self.disk.bootstrap,
            cluster.plan.options.election_timeout_ms,
        )
        self._load(recovered)
        jitter_seed = cluster.seeds.purpose("jitter").below(1 << 30)
        self.core = cluster.make_core(
            self.member_id, recovered, cluster.options_with_jitter(jitter_seed)
        )
        cluster.trace.note(self.name, "process:start")
        self._tick(self.life)

    def _load(self, recovered: Recovered) -> None:
        self.store = KeyValue(self._on_applied)
        self.members = self.disk.bootstrap
        self.last_snapshot_index = 0
        if recovered.snapshot is not None:
            self.store.restore(recovered.snapshot, self.disk.states[recovered.snapshot.id])
            self.members = recovered.snapshot.members
            self.last_snapshot_index = recovered.snapshot.last_index

    def kill(self, *, is_machine: bool) -> None:
        """Whatever was under way ends."""
        if self.core is None:
            return
        cluster = self.cluster
        self.core = None
        self.life += 1
        self.is_paused = self.is_crashing_at_write = False
        self.parked.clear()
        random = cluster.seeds.purpose("crash")
        self.left = self.disk.crash(
            self.seen.flushed, random, cluster.faults, is_machine=is_machine
        )
        cluster.watch.on_death(self.seen)
        cluster.trace.note(self.name, "process:dead")
        for done in self._all_waiting():
            done("unknown", None)
        if not is_machine:
            cluster.tell_of_death(self)

    def _all_waiting(self) -> list[Done]:
        waiting = list(self.waiting.values())
        waiting += [done for group in self.proposed.values() for _, done in group]
        waiting += [done for _, _, done in self.reading]
        self.waiting.clear()
        self.proposed.clear()
        self.reading.clear()
        return waiting

    def later(self, delay_ns: int, callback: Callable[..., None], *arguments: object) -> None:
        """As part of this life."""
        self.cluster.agenda.after(delay_ns, self._resume_later, self.life, callback, arguments)

    def _resume_later(
        self, life: int, callback: Callable[..., None], arguments: tuple[object, ...]
    ) -> None:
        if life != self.life:
            return
        if self.is_paused:
            self.parked.append((callback, arguments))
        else:
            callback(*arguments)

    def resume(self) -> None:
        """After a pause, with everything that fell due."""
        if not self.is_paused:
            return
        self.is_paused = False
        life, parked, self.parked = self.life, self.parked, []
        if parked:
            self.cluster.faults.took_effect(FaultKind.PAUSE, self.name)
        for callback, arguments in parked:
            if life == self.life:
                callback(*arguments)

    # -- inputs --------------------------------------------------------------------------------

    def _tick(self, life: int) -> None:
        if life != self.life or self.core is None:
            return
        self.later(self.cluster.plan.tick_ms * MS, self._tick, life)
        self.pass_time("tick")

    def pass_time(self, cause: str) -> None:
        """Tell the core what time it is, if a millisecond has passed."""
        now_ms = self.now_ms()
        if self.core is not None and now_ms != self.seen.now_ms:
            self.seen.now_ms = now_ms
            effects = self.core.tick(now_ms)
            if effects:
                self._perform(effects, cause)

    def on_message(self, message: Message) -> None:
        """Of another member."""
        if self.core is None:
            return
        cause = message.__struct_config__.tag
        assert isinstance(cause, str), "messages have a tag"
        self.cluster.trace.note(self.name, "net:datagram", cause)
        self.pass_time("tick")
        core = self.core
        self.cluster.watch.on_heard(self.seen, message)
        self._perform(core.step(message), cause)

    def give(self, given: Input) -> None:
        """A request or a completion of this node."""
        core = self.core
        if core is not None:
            self.pass_time("tick")
            cause = given.__struct_config__.tag
            assert isinstance(cause, str), "inputs have a tag"
            self._perform(core.give(given), cause)

    def propose(self, data: bytes, done: Done) -> None:
        """A command of a client."""
        self._requests += 1
        self.waiting[self._requests] = done
        self.give(Propose(request_id=self._requests, data=data, term=Term(0)))

    def read(self, key: str, done: Done) -> None:
        """A linearizable read."""
        self._requests += 1
        request_id = self._requests
        self.cluster.watch.on_read_asked(self.seen, request_id)

        def on_answer(outcome: str, value: Value) -> None:
            if outcome != "ok":
                done(outcome, None)
            elif isinstance(value, int) and self.store.applied_index >= value:
                done("ok", self.store.values.get(key))
            else:
                assert isinstance(value, int), "a read is answered with an index"
                self.reading.append((value, key, done))

        self.waiting[request_id] = on_answer
        self.give(Read(request_id=request_id))

    def request(self, make: Callable[[int], Input], done: Done) -> None:
        """A change of members or a transfer."""
        self._requests += 1
        self.waiting[self._requests] = done
        self.give(make(self._requests))

    # -- effects -------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect], cause: str) -> None:
        """What is to be stored first: the rest is judged against it."""
        cluster, core = self.cluster, self.core
        if not effects or core is None:
            return
        watch, seen, life = cluster.watch, self.seen, self.life
        for effect in effects:
            if isinstance(effect, Persist | ResetLog):
                watch.on_asked(seen, effect)
                self.disk.pending.append(effect)
        watch.on_stepped(seen, core.describe())
        for effect in effects:
            self._perform_one(effect, cause)
            if life != self.life:
                return
        if self.disk.pending and not self.disk.flushing:
            self._begin_flush()

    def _perform_one(self, effect: Effect, cause: str) -> None:
        cluster = self.cluster
        match effect:
            case Send(message=message):
                cluster.watch.on_sent(self.seen, message)
                cluster.wires.send(self.node_id, message.receiver.node_id, message)
            case Apply():
                cluster.watch.on_applied(self.seen, effect)
                self.store.apply(effect.entries)
                self._after_apply()
            case Answer(request_id=request_id, outcome=outcome):
                self._on_answer(request_id, outcome)
            case RoleChanged():
                cluster.on_role(self, effect.role, effect.term, cause)
                if effect.role is Role.LEADER:
                    cluster.trace.note(self.name, "raft:leader", str(effect.term))
            case FetchSnapshot():
                snapshots.begin_fetch(self, effect)
            case TrimLog(first_index=first_index):
                cluster.watch.on_trimmed(self.seen, first_index)
            case _:
                pass

    def _on_answer(self, request_id: int, outcome: object) -> None:
        done = self.waiting.pop(request_id, None)
        if isinstance(outcome, ReadAt):
            self.cluster.watch.on_read_answered(self.seen, request_id, outcome.index)
            if done is not None:
                done("ok", outcome.index)
        elif done is None:
            return
        elif isinstance(outcome, Accepted):
            self.proposed.setdefault(outcome.index, []).append((outcome.term, done))
        else:
            name = type(outcome).__name__
            done({"Done": "ok", "Refused": "failed"}.get(name, "unknown"), None)

    # -- storage -------------------------------------------------------------------------------

    def _begin_flush(self) -> None:
        """Everything handed over so far, up to the first snapshot put in use."""
        cluster, disk = self.cluster, self.disk
        random, faults = cluster.flush_random, cluster.faults
        count = 0
        for effect in disk.pending:
            count += 1
            if isinstance(effect, ResetLog):
                break
        disk.flushing = count
        delay_ns = int(100_000 + random.unit() * _FLUSH_NS)
        if faults.active:
            if faults.fires(FaultKind.SLOW_DISK):
                faults.took_effect(FaultKind.SLOW_DISK, self.name)
                delay_ns += random.below(_SLOW_NS)
            if faults.fires(FaultKind.NO_SPACE):
                faults.took_effect(FaultKind.NO_SPACE, self.name)
                delay_ns += _FULL_RETRY_NS
            for kind in (FaultKind.FLUSH_ERROR, FaultKind.WRITE_ERROR):
                if faults.fires(kind):
                    self.later(delay_ns, self._fail_disk, kind)
                    return
        if self.is_crashing_at_write:
            self.later(delay_ns // 2, self._crash_machine)
        self.later(delay_ns, self._end_flush)

    def _crash_machine(self) -> None:
        self.cluster.faults.took_effect(FaultKind.MACHINE_CRASH, self.name)
        self.kill(is_machine=True)

    def _fail_disk(self, kind: FaultKind) -> None:
        """A failed flush is final: the process stops, and with it what the cache held."""
        self.cluster.faults.took_effect(kind, self.name)
        self.kill(is_machine=kind is FaultKind.FLUSH_ERROR)

    def _end_flush(self) -> None:
        disk, watch = self.disk, self.cluster.watch
        done: Sequence[Persist | ResetLog] = disk.pending[: disk.flushing]
        del disk.pending[: disk.flushing]
        disk.flushing = 0
        disk.on_flushed(done)
        watch.on_flushed(self.seen, done)
        self.cluster.trace.note(self.name, "disk:flush", str(len(done)))
        last = done[-1]
        if isinstance(last, ResetLog):
            snapshots.restore(self, last.snapshot)
        if disk.pending:
            self._begin_flush()
        self.give(Persisted(sequence=last.sequence))

    # -- the state machine ---------------------------------------------------------------------

    def _on_applied(self, entry: Entry, result: Value) -> None:
        if entry.kind is EntryKind.MEMBERS:
            self.members = decode_members(entry.data)
        self.cluster.watch.on_state(self.seen, entry.index, self.store.digest)
        for term, done in self.proposed.pop(entry.index, ()):
            done(*(("ok", result) if term == entry.term else ("failed", None)))

    def _after_apply(self) -> None:
        self.answer_reads()
        due = self.last_snapshot_index + self.cluster.plan.snapshot_after_entries
        if self.store.applied_index >= due:
            snapshots.begin_own(self)

    def answer_reads(self) -> None:
        """Those whose index is applied."""
        if self.reading:
            applied, waiting = self.store.applied_index, self.reading
            self.reading = [each for each in waiting if each[0] > applied]
            for index, key, done in waiting:
                if index <= applied:
                    done("ok", self.store.values.get(key))


NO_MEMBERS: Final = Members()
