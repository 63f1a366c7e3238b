"""A quorum that a golden script drives step by step: no randomness, no time of its own.

Each member has a clock that only `tick`, `quiet` and `campaign` move, an inbox that only `deliver`,
`drop` and `stabilize` empty, and a durable state that a persist effect reaches at once, or, after
`hold ID`, only with `flush ID`. `crash ID` takes what was not flushed.
"""

from tests.metadata_quorum.raft import notation
from tidelog.metadata_quorum.raft import effects as out
from tidelog.metadata_quorum.raft import inputs
from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
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

ROUNDS_MAX = 200


def member_id(text: str) -> MemberId:
    """`3` or `3b`."""
    life = 0 if text.isdigit() else ord(text[-1]) - ord("a")
    return MemberId(NodeId(int(text.rstrip("abcdefgh"))), bytes(15) + bytes([life]))


def member(text: str, *, is_learner: bool = False) -> Member:
    """A member with an address that names it."""
    return Member(id=member_id(text), address=f"node{text}:1", is_learner=is_learner)


class Durable:
    """What a crash leaves."""

    def __init__(self, bootstrap: Members) -> None:
        self.hard_state = HardState()
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.bootstrap = bootstrap

    def perform(self, effect: out.Persist | out.ResetLog) -> None:
        """Flushed."""
        if isinstance(effect, out.ResetLog):
            self.snapshot, self.entries = effect.snapshot, []
            self.hard_state = effect.hard_state
            return
        if effect.truncate_from is not None:
            self.entries = [one for one in self.entries if one.index < effect.truncate_from]
        self.entries += effect.entries
        if effect.hard_state is not None:
            self.hard_state = effect.hard_state

    def recovered(self) -> Recovered:
        """For the next life."""
        return Recovered(
            hard_state=self.hard_state,
            snapshot=self.snapshot,
            bootstrap=self.bootstrap,
            entries=tuple(self.entries),
        )


class Node:
    """One member."""

    def __init__(self, text: str, durable: Durable, options: Options) -> None:
        self.text = text
        self.durable = durable
        self.options = options
        self.core: Core = RaftCore(member_id(text), durable.recovered(), options)
        self.now_ms = 0
        self.is_held = False
        self.waiting: list[out.Persist | out.ResetLog] = []
        self.is_down = False


class World:
    """What a script commands; every method returns the lines to show."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.network: list[Message] = []
        self.options = Options(jitter_seed=7)
        self.requests = 0

    def start(self, text: str, durable: Durable) -> list[str]:
        """A life begins with what is durable, and with a tick; who its members are is no news."""
        node = self.nodes[text] = Node(text, durable, self.options)
        effects = node.core.tick(0)
        return self.perform(
            node, [one for one in effects if not isinstance(one, out.MembersChanged)]
        )

    def create(self, texts: list[str], voters: list[str], learners: list[str]) -> list[str]:
        """Members that were never started before."""
        listed = [member(text) for text in voters]
        listed += [member(text, is_learner=True) for text in learners]
        bootstrap = Members(tuple(sorted(listed, key=lambda one: one.id)))
        return [line for text in texts for line in self.start(text, Durable(bootstrap))]

    def preset(self, text: str, term: int, terms: list[int]) -> list[str]:
        """Give a member a log as history left it: the terms of its entries from index 1 on."""
        durable = self.nodes[text].durable
        durable.hard_state = HardState(term=Term(term))
        durable.entries = [
            Entry(
                index=LogIndex(index),
                term=Term(of),
                kind=EntryKind.COMMAND,
                data=f"t{of}".encode(),
            )
            for index, of in enumerate(terms, 1)
        ]
        return self.start(text, durable)

    def corrupt(self, text: str, index: int) -> list[str]:
        """Down, damaged at rest, and started again: storage knows what it once had flushed."""
        durable = self.nodes[text].durable
        last = durable.entries[-1]
        durable.entries = [one for one in durable.entries if one.index < index]
        state = durable.hard_state
        durable.hard_state = HardState(
            term=state.term,
            voted_for=state.voted_for,
            repair=Repair(from_index=LogIndex(index), last_index=last.index, last_term=last.term),
        )
        return self.restart(text)

    def perform(self, node: Node, effects: list[out.Effect]) -> list[str]:
        """Do what the core wants; the lines that tell it."""
        lines: list[str] = []
        for effect in effects:
            lines.append(f"{node.text}: {notation.effect(effect)}")
            match effect:
                case out.Send():
                    self.network.append(effect.message)
                case out.Persist() | out.ResetLog():
                    node.waiting.append(effect)
                case out.FetchSnapshot():
                    lines += self.fetch(node, effect)
                case _:
                    pass
        if not node.is_held:
            lines += self.flush(node)
        return lines

    def flush(self, node: Node, count: int = ROUNDS_MAX) -> list[str]:
        """What waits becomes durable, one after the other, at most so many."""
        lines: list[str] = []
        for _ in range(count):
            if not node.waiting:
                break
            effect = node.waiting.pop(0)
            node.durable.perform(effect)
            given = node.core.give(inputs.Persisted(sequence=effect.sequence))
            lines += self.perform(node, given)
        return lines

    def fetch(self, node: Node, wanted: out.FetchSnapshot) -> list[str]:
        """The bytes arrive at once if the source is up and still has that snapshot."""
        source = self.nodes[notation.name(wanted.source)]
        held = source.durable.snapshot
        if source.is_down or held is None or held.id != wanted.id:
            given = node.core.give(inputs.SnapshotFetchFailed(id=wanted.id))
        else:
            given = node.core.give(inputs.SnapshotFetched(snapshot=held))
        return self.perform(node, given)

    def tick(self, node: Node, duration_ms: int) -> list[str]:
        """Let time pass for one member."""
        node.now_ms += duration_ms
        return self.perform(node, node.core.tick(node.now_ms))

    def request(self, node: Node, make: type, **fields: object) -> list[str]:
        """A request of the node's own."""
        self.requests += 1
        return self.perform(node, node.core.give(make(request_id=self.requests, **fields)))

    def take_snapshot(self, node: Node, end_index: int) -> list[str]:
        """Of what is applied, up to before `end_index`."""
        described = node.core.describe()
        assert end_index - 1 <= described.applied_index, "a snapshot holds applied entries only"
        term = node.core.term_at(LogIndex(end_index - 1))
        assert term is not None, "the snapshot's last entry is in the log"
        snapshot = Snapshot(
            id=SnapshotId(LogIndex(end_index), term),
            members=described.committed_members,
            size_bytes=100,
        )
        node.durable.snapshot = snapshot
        lines = self.perform(node, node.core.give(inputs.SnapshotTaken(snapshot=snapshot)))
        start = node.core.describe().log_start_index
        node.durable.entries = [one for one in node.durable.entries if one.index >= start]
        return lines

    def restart(self, text: str) -> list[str]:
        """A new life with what was flushed."""
        return self.start(text, self.nodes[text].durable)

    def deliver(self, to: list[str]) -> list[str]:
        """All messages that are under way to these, in order."""
        lines: list[str] = []
        under_way, self.network = self.network, []
        for message in under_way:
            receiver = notation.name(message.receiver)
            if receiver not in to:
                self.network.append(message)
                continue
            node = self.nodes.get(receiver)
            if node is not None and not node.is_down:
                lines.append(f"{receiver}< {notation.message(message)}")
                lines += self.perform(node, node.core.step(message))
        return lines

    def stabilize(self, among: list[str]) -> list[str]:
        """Deliver until nothing is under way between these any more."""
        lines: list[str] = []
        for _ in range(ROUNDS_MAX):
            if not any(
                notation.name(one.receiver) in among and notation.name(one.sender) in among
                for one in self.network
            ):
                return lines
            outside = [one for one in self.network if notation.name(one.sender) not in among]
            self.network = [one for one in self.network if one not in outside]
            lines += self.deliver(among)
            self.network = outside + self.network
        raise AssertionError("the members never stop talking")
