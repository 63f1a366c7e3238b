"""The operator of a simulated quorum: lets members in, promotes, removes, hands over.

Works as a person would: asks the leader, looks again later. A wiped node's old directory is removed
and the new one let in. It must never take so many members out that damage elsewhere loses data.
"""

from typing import TYPE_CHECKING, Final

from tidelog.chaos.checkers.linearizability import Value
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.metadata_quorum.raft.inputs import AddLearner, Promote, RemoveMember, Transfer
from tidelog.metadata_quorum.raft.types import Member, MemberId

if TYPE_CHECKING:
    from tidelog.chaos.sim.quorum.cluster import Cluster
    from tidelog.chaos.sim.quorum.node import QuorumNode

_LOOK_NS: Final = (150 * MS, 900 * MS)
_VOTERS_MIN: Final = 3


class Operator:
    """Of one quorum."""

    def __init__(self, cluster: "Cluster") -> None:
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

    def _repair(self, leader: "QuorumNode") -> bool:
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

    def _transfer(self, leader: "QuorumNode") -> None:
        nodes = [node for node in self._cluster.alive() if node is not leader]
        to = None
        if nodes and self._random.chance(0.6):
            to = nodes[self._random.below(len(nodes))].member_id
        self._cluster.trace.note(leader.name, "operator:transfer")
        leader.request(lambda number: Transfer(request_id=number, to=to), self._on_transfer)

    def _remove_some(self, leader: "QuorumNode") -> None:
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

    def _change_twice(self, leader: "QuorumNode") -> None:
        """Two operators at once: the second has to be refused."""
        self._remove_some(leader)
        if leader.core is not None:
            self._remove_some(leader)

    def _ask(self, leader: "QuorumNode", what: str, member_id: MemberId) -> None:
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
