"""Several cores in one thread, with disks that forget and a network that does what it likes.

Everything a test decides about is explicit: which message arrives, what is flushed, who crashes.
`settle` does the ordinary thing until nothing is left to do; `storm` (in `storms`) the random one.
After every input the invariants of the core and those between members are checked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from tests.metadata_quorum.raft.safety import Safety
from tidelog.metadata_quorum.raft import invariants
from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import (
    Accepted,
    Answer,
    Apply,
    Done,
    Effect,
    FetchSnapshot,
    MembersChanged,
    Persist,
    ReadAt,
    Refused,
    ResetLog,
    Role,
    RoleChanged,
    Send,
    TrimLog,
    Uncertain,
)
from tidelog.metadata_quorum.raft.inputs import (
    Input,
    Persisted,
    Propose,
    Read,
    SnapshotFetched,
    SnapshotFetchFailed,
    SnapshotTaken,
)
from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import (
    Entry,
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
    Options,
    Recovered,
    Repair,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term

Outcome = Accepted | ReadAt | Done | Refused | Uncertain
STEP_MS = 50


def member_id(node_id: int, directory: int = 0) -> MemberId:
    """Of a node with its first directory, or a later one."""
    return MemberId(NodeId(node_id), bytes([node_id, directory]) * 8)


def member(node_id: int, *, is_learner: bool = False, directory: int = 0) -> Member:
    """At an address that nobody calls."""
    return Member(
        id=member_id(node_id, directory), address=f"node{node_id}:1", is_learner=is_learner
    )


def members_of(*node_ids: int) -> Members:
    """Voters."""
    return Members(tuple(member(node_id) for node_id in node_ids))


@dataclass
class Disk:
    """What outlives a crash."""

    hard_state: HardState
    bootstrap: Members
    snapshot: Snapshot | None = None
    entries: list[Entry] = field(default_factory=list)
    corrupt_from: int = 0

    def perform(self, write: Persist | ResetLog) -> None:
        """Durable at return."""
        if isinstance(write, ResetLog):
            self.snapshot, self.entries, self.corrupt_from = write.snapshot, [], 0
            self.hard_state = write.hard_state
            return
        if write.truncate_from is not None:
            self.cut(write.truncate_from)
        for entry in write.entries:
            is_next = entry.index in (self.last_index + 1, write.truncate_from)
            assert is_next, "storage is appended to without a gap"
            self.entries.append(entry)
        if write.hard_state is not None:
            self.hard_state = write.hard_state

    def tear(self, write: Persist | ResetLog, entries_done: int) -> None:
        """A crash in the middle: the hard state of a write and its entries land independently."""
        if isinstance(write, ResetLog):
            return
        if entries_done < 0:
            state = write.hard_state
            self.perform(Persist(sequence=write.sequence, hard_state=state))
        else:
            self.perform(
                Persist(
                    sequence=write.sequence,
                    truncate_from=write.truncate_from,
                    entries=write.entries[:entries_done],
                )
            )

    def cut(self, index: int) -> None:
        """What follows goes, damaged or not."""
        self.entries = [entry for entry in self.entries if entry.index < index]
        if self.corrupt_from >= index:
            self.corrupt_from = 0

    @property
    def last_index(self) -> int:
        """Of the log, or of the snapshot if there is no entry after it."""
        snapshot_last = self.snapshot.last_index if self.snapshot else 0
        return self.entries[-1].index if self.entries else snapshot_last

    def term_at(self, index: int) -> int | None:
        """Of an entry that can be read."""
        if self.snapshot is not None and index == self.snapshot.last_index:
            return self.snapshot.id.term
        for entry in self.entries:
            if entry.index == index and not 0 < self.corrupt_from <= index:
                return entry.term
        return None

    def recover(self) -> Recovered:
        """As storage does: what is damaged becomes a repair, or lowers the one there is."""
        hard_state, entries = self.hard_state, self.entries
        if self.corrupt_from and self.corrupt_from <= self.last_index:
            last = entries[-1]
            repair = hard_state.repair or Repair(
                from_index=LogIndex(self.corrupt_from),
                last_index=last.index,
                last_term=last.term,
            )
            from_index = min(repair.from_index, LogIndex(self.corrupt_from))
            repair = msgspec.structs.replace(repair, from_index=from_index)
            hard_state = msgspec.structs.replace(hard_state, repair=repair)
        if hard_state.repair is not None:
            entries = [each for each in entries if each.index < hard_state.repair.from_index]
        return Recovered(
            hard_state=hard_state,
            snapshot=self.snapshot,
            bootstrap=self.bootstrap,
            entries=tuple(entries),
        )


class Machine:
    """One member: a core, its disk, what is under way to the disk, and its state machine."""

    def __init__(self, own_id: MemberId, bootstrap: Members, options: Options) -> None:
        self.id = own_id
        self.options = options
        self.disk = Disk(hard_state=HardState(), bootstrap=bootstrap)
        self.starts = 0
        self.core: RaftCore | None = None
        self.writes: list[Persist | ResetLog] = []
        self.applied: list[Entry] = []
        self.answers: dict[int, Outcome] = {}
        self.fetch: FetchSnapshot | None = None
        self.clock_ms = 0
        self.seen: Description | None = None
        self.roles: list[Role] = []

    @property
    def running(self) -> RaftCore:
        """The core of a machine that is up."""
        assert self.core is not None, f"node {self.id.node_id} is down"
        return self.core


class Quorum:
    """All machines and the network between them."""

    def __init__(
        self,
        *node_ids: int,
        options: Options | None = None,
        joining: Iterable[int] = (),
        seed: int = 0,
    ) -> None:
        self.options = options or Options()
        self.seed = seed
        self.machines: dict[MemberId, Machine] = {}
        self.network: list[Message] = []
        self.cut: set[tuple[MemberId, MemberId]] = set()
        self.sent: list[Message] = []
        self.snapshots: dict[SnapshotId, tuple[Snapshot, list[Entry]]] = {}
        self.safety = Safety()
        self.last_request = 0
        self.is_flushing = True
        self.now_ms = 0
        for node_id in node_ids:
            self.add_machine(member_id(node_id), members_of(*node_ids))
        for node_id in joining:
            self.add_machine(member_id(node_id), Members())

    def add_machine(self, own_id: MemberId, bootstrap: Members) -> Machine:
        """Formatted and started."""
        machine = Machine(own_id, bootstrap, self.options)
        machine.clock_ms = self.now_ms
        self.machines[own_id] = machine
        self.start(own_id)
        return machine

    def at(self, node: int | MemberId) -> Machine:
        """By node id, if it has one directory only."""
        return self.machines[member_id(node) if isinstance(node, int) else node]

    def state(self, node: int | MemberId) -> Description:
        """What its core says of itself."""
        return self.at(node).running.describe()

    # Life and death

    def start(self, node: int | MemberId) -> None:
        """With what its disk holds."""
        machine = self.at(node)
        assert machine.core is None, f"node {machine.id.node_id} runs already"
        machine.starts += 1
        seed = self.seed * 1_000_003 + machine.id.node_id * 1_009 + machine.starts
        options = msgspec.structs.replace(machine.options, jitter_seed=seed)
        machine.core = RaftCore(machine.id, machine.disk.recover(), options)
        snapshot = machine.disk.snapshot
        machine.applied = list(self.snapshots[snapshot.id][1]) if snapshot else []
        machine.seen = None
        machine.fetch = None
        self._perform(machine, machine.core.tick(machine.clock_ms))

    def crash(
        self, node: int | MemberId, *, writes_done: int = 0, torn_entries: int | None = None
    ) -> None:
        """What is not flushed is lost, but for the first few writes, which nobody hears of; the
        one after them may be torn.
        """
        machine = self.at(node)
        for write in machine.writes[:writes_done]:
            machine.disk.perform(write)
        if torn_entries is not None and writes_done < len(machine.writes):
            machine.disk.tear(machine.writes[writes_done], torn_entries)
        machine.writes.clear()
        machine.core = None
        machine.answers.clear()

    def restart(self, node: int | MemberId) -> None:
        """Crash and come back."""
        self.crash(node)
        self.start(node)

    # Inputs

    def give(self, node: int | MemberId, given: Input) -> list[Effect]:
        """To one core."""
        machine = self.at(node)
        return self._perform(machine, machine.running.give(given))

    def step(self, message: Message) -> list[Effect]:
        """One message to its receiver, whatever the network thinks."""
        machine = self.machines[message.receiver]
        return self._perform(machine, machine.running.step(message))

    def tick(self, node: int | MemberId, by_ms: int = STEP_MS) -> list[Effect]:
        """Its time passes."""
        machine = self.at(node)
        machine.clock_ms += by_ms
        return self._perform(machine, machine.running.tick(machine.clock_ms))

    def flush(self, node: int | MemberId, count: int | None = None) -> None:
        """The first writes under way become durable, and the core hears of it."""
        machine = self.at(node)
        done = machine.writes[:count]
        del machine.writes[: len(done)]
        for write in done:
            machine.disk.perform(write)
            if isinstance(write, ResetLog):
                machine.applied = list(self.snapshots[write.snapshot.id][1])
        if done:
            self._perform(machine, machine.running.give(Persisted(sequence=done[-1].sequence)))

    def propose(self, node: int | MemberId, data: bytes = b"x") -> int:
        """The request's id."""
        self.last_request += 1
        self.give(node, Propose(request_id=self.last_request, data=data, term=Term(0)))
        return self.last_request

    def read(self, node: int | MemberId) -> int:
        """The request's id."""
        self.last_request += 1
        self.safety.read_began(self.last_request)
        self.give(node, Read(request_id=self.last_request))
        return self.last_request

    def request(self, node: int | MemberId, make: Callable[[int], Input]) -> int:
        """Any request, given its id."""
        self.last_request += 1
        self.give(node, make(self.last_request))
        return self.last_request

    def take_snapshot(self, node: int | MemberId) -> Snapshot:
        """Of everything applied."""
        machine = self.at(node)
        state = machine.running.describe()
        term = machine.running.term_at(state.applied_index)
        assert term is not None, "what is applied has a term"
        snapshot = Snapshot(
            id=SnapshotId(end_index=LogIndex(state.applied_index + 1), term=term),
            members=state.committed_members,
            size_bytes=100,
        )
        self.snapshots.setdefault(snapshot.id, (snapshot, list(machine.applied)))
        machine.disk.snapshot = snapshot
        self.give(machine.id, SnapshotTaken(snapshot=snapshot))
        return snapshot

    def finish_fetch(self, node: int | MemberId) -> None:
        """The snapshot arrives, if its source is up and still has it."""
        machine = self.at(node)
        fetch, machine.fetch = machine.fetch, None
        assert fetch is not None, "no fetch is under way"
        source = self.machines.get(fetch.source)
        held = source.disk.snapshot if source is not None and source.core is not None else None
        if held is None or held.id != fetch.id:
            self.give(machine.id, SnapshotFetchFailed(id=fetch.id))
        else:
            self.give(machine.id, SnapshotFetched(snapshot=held))

    # The ordinary course of things

    def deliver(self, count: int | None = None) -> int:
        """The oldest messages, in order; those to or from the dead and the cut off are lost."""
        batch = self.network[:count]
        del self.network[: len(batch)]
        for message in batch:
            if self.can_reach(message):
                self.step(message)
        return len(batch)

    def can_reach(self, message: Message) -> bool:
        """The receiver is up and not cut off."""
        receiver = self.machines.get(message.receiver)
        is_up = receiver is not None and receiver.core is not None
        return is_up and (message.sender, message.receiver) not in self.cut

    def settle(self) -> None:
        """Flush, fetch and deliver until nothing is left to do."""
        for _ in range(100_000):
            busy = self.deliver() > 0
            for machine in self.machines.values():
                if machine.core is None:
                    continue
                if machine.writes and self.is_flushing:
                    self.flush(machine.id)
                    busy = True
                if machine.fetch is not None:
                    self.finish_fetch(machine.id)
                    busy = True
            if not busy:
                return
        raise AssertionError("the members never come to rest")

    def run(self, duration_ms: int) -> None:
        """Time passes for everybody, and things take their course."""
        for _ in range(0, duration_ms, STEP_MS):
            self.now_ms += STEP_MS
            for machine in self.machines.values():
                machine.clock_ms += STEP_MS
                if machine.core is not None:
                    self._perform(machine, machine.core.tick(machine.clock_ms))
            self.settle()

    def run_until(self, is_so: Callable[[], bool], within_ms: int = 20_000) -> None:
        """Time passes until this holds."""
        for _ in range(0, within_ms, STEP_MS):
            if is_so():
                return
            self.run(STEP_MS)
        assert is_so(), f"not within {within_ms} ms"

    def leader(self) -> MemberId | None:
        """Of the latest term, among those that run."""
        leaders = [
            state
            for machine in self.machines.values()
            if machine.core is not None
            for state in [machine.core.describe()]
            if state.role is Role.LEADER
        ]
        return max(leaders, key=lambda state: state.term).id if leaders else None

    def elect(self) -> MemberId:
        """Wait for a leader that has committed an entry of its term."""

        def is_ready() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            state = self.state(leader)
            return self.at(leader).running.term_at(state.commit_index) == state.term

        self.run_until(is_ready)
        leader = self.leader()
        assert leader is not None, "somebody leads"
        return leader

    def isolate(self, node: int | MemberId) -> None:
        """Nothing gets to or from it."""
        own = self.at(node).id
        for other in self.machines:
            if other != own:
                self.cut.update({(own, other), (other, own)})

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self.cut.clear()

    # What the cores want done

    def _perform(self, machine: Machine, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            self._perform_one(machine, effect)
        self._check(machine)
        return effects

    def _perform_one(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case Persist() | ResetLog():
                machine.writes.append(effect)
            case Send():
                self.safety.sent(effect.message, machine.disk)
                self.network.append(effect.message)
                self.sent.append(effect.message)
            case Apply():
                self._apply(machine, effect.entries)
            case Answer():
                assert effect.request_id not in machine.answers, "a request is answered once"
                machine.answers[effect.request_id] = effect.outcome
                self.safety.answered(effect.request_id, effect.outcome)
            case FetchSnapshot():
                machine.fetch = effect
            case RoleChanged():
                machine.roles.append(effect.role)
            case TrimLog():
                disk = machine.disk
                disk.entries = [e for e in disk.entries if e.index >= effect.first_index]
            case MembersChanged():
                pass

    def _apply(self, machine: Machine, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            assert entry.index == len(machine.applied) + 1, "entries are applied in order, once"
            assert entry.index <= machine.disk.last_index, "what is applied is flushed"
            machine.applied.append(entry)
            self.safety.applied(entry)

    def _check(self, machine: Machine) -> None:
        core = machine.core
        if core is None:
            return
        state = core.describe()
        invariants.check(state)
        before, machine.seen = machine.seen, state
        if before is not None:
            invariants.check_step(before, state)
        if state.role is Role.LEADER:
            disks = {own_id: each.disk for own_id, each in self.machines.items()}
            self.safety.leads(before, state, core, disks)
