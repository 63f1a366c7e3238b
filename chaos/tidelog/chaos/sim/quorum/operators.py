"""The operator of a simulated quorum: lets members in, promotes, removes, hands over.

Works as a person would: asks the leader, looks again later. A wiped node's old directory is removed
and the new one let in. It must never take so many members out that damage elsewhere loses data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tidelog.chaos.checkers.history.linearizability import Value
from tidelog.chaos.checkers.raft.board import Seen
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.metadata_quorum.raft.inputs import AddLearner, Input, Promote, RemoveMember, Transfer
from tidelog.metadata_quorum.raft.types import Member, MemberId


class Agenda(Protocol):
    """Virtual time."""

    def after(self, delay_ns: int, callback: Callable[..., None], *arguments: object) -> None:
        """Call it then."""
        ...


class OperatedNode(Protocol):
    """A node, as its operator sees it."""

    name: str
    is_observer: bool
    seen: Seen

    @property
    def core(self) -> object | None:
        """None: dead."""
        ...

    @property
    def is_paused(self) -> bool:
        """Stopped for a while."""
        ...

    @property
    def member_id(self) -> MemberId:
        """With its present directory."""
        ...

    def request(self, make: Callable[[int], Input], done: Callable[[str, Value], None]) -> None:
        """A change of members or a transfer."""
        ...


class OperatedCluster(Protocol):
    """A quorum of either mode."""

    seeds: Seeds
    trace: Trace

    @property
    def agenda(self) -> Agenda:
        """Virtual time."""
        ...

    @property
    def nodes(self) -> Mapping[int, OperatedNode]:
        """By node id."""
        ...

    def leader(self) -> OperatedNode | None:
        """Of the latest term."""
        ...

    def alive(self) -> Sequence[OperatedNode]:
        """Those with a process."""
        ...

    def is_impaired(self, member_id: MemberId) -> bool:
        """Whether its directory is gone or damaged."""
        ...


_LOOK_NS: Final = (150 * MS, 900 * MS)
_VOTERS_MIN: Final = 3


class Operator:
    """Of one quorum."""

    def __init__(self, cluster: OperatedCluster) -> None:
        self._cluster = cluster
        self._random = cluster.seeds.purpose("operator")
        self.is_repairing_only = False
        """After the heal: only what makes the quorum whole."""
        self.changes = 0
        self.transfers = 0

    def start(self) -> None:
        """Look now and then."""
        self._cluster.agenda.after(self._random.between(*_LOOK_NS), self._look)

    def _look(self) -> None:
        self._cluster.agenda.after(self._random.between(*_LOOK_NS), self._look)
        leader = self._cluster.leader()
        if leader is None or leader.is_paused or leader.seen.description is None:
            return
        if self._repair(leader) or self.is_repairing_only:
            return
        roll = self._random.unit()
        if roll < 0.25:
            self._transfer(leader)
        elif roll < 0.35:
            self._remove_some(leader)
        elif roll < 0.38:
            self._change_twice(leader)

    def _repair(self, leader: OperatedNode) -> bool:
        """Whether something was to be done."""
        cluster = self._cluster
        description = leader.seen.description
        assert description is not None, "a leader is alive"
        members = description.members
        for member in members:
            if cluster.nodes[member.id.node_id].member_id != member.id:
                self._ask(leader, "remove", member.id)
                return True
        for node in cluster.nodes.values():
            found = members.find(node.member_id)
            if found is None:
                self._ask(leader, "add", node.member_id)
                return True
            if found.is_learner and not node.is_observer and node.core is not None:
                self._ask(leader, "promote", node.member_id)
                return True
        return False

    def _transfer(self, leader: OperatedNode) -> None:
        nodes = [node for node in self._cluster.alive() if node is not leader]
        to = None
        if nodes and self._random.chance(0.6):
            to = nodes[self._random.below(len(nodes))].member_id
        self._cluster.trace.note(leader.name, "operator:transfer")
        leader.request(lambda number: Transfer(request_id=number, to=to), self._on_transfer)

    def _remove_some(self, leader: OperatedNode) -> None:
        cluster = self._cluster
        description = leader.seen.description
        assert description is not None, "a leader is alive"
        members = description.members
        is_impaired = any(cluster.is_impaired(voter) for voter in members.voters)
        if is_impaired or len(members.voters) <= _VOTERS_MIN:
            candidates = [member.id for member in members if member.is_learner]
        else:
            candidates = [member.id for member in members]
        if candidates:
            self._ask(leader, "remove", candidates[self._random.below(len(candidates))])

    def _change_twice(self, leader: OperatedNode) -> None:
        """Two operators at once: the second has to be refused."""
        self._remove_some(leader)
        if leader.core is not None:
            self._remove_some(leader)

    def _ask(self, leader: OperatedNode, what: str, member_id: MemberId) -> None:
        self._cluster.trace.note(leader.name, f"operator:{what}", f"n{member_id.node_id}")
        address = f"n{member_id.node_id}:9093"
        match what:
            case "add":
                member = Member(id=member_id, address=address)
                leader.request(
                    lambda number: AddLearner(request_id=number, member=member), self._on_change
                )
            case "promote":
                leader.request(
                    lambda number: Promote(request_id=number, member_id=member_id),
                    self._on_change,
                )
            case _:
                leader.request(
                    lambda number: RemoveMember(request_id=number, member_id=member_id),
                    self._on_change,
                )

    def _on_change(self, outcome: str, value: Value) -> None:
        del value
        self.changes += outcome == "ok"

    def _on_transfer(self, outcome: str, value: Value) -> None:
        del value
        self.transfers += outcome == "ok"
