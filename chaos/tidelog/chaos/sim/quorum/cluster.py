"""A quorum of cores over datagrams: the nodes, what joins them, and what is watched of them."""

import msgspec

from tidelog.chaos.checkers.raft.invariants import RaftWatch
from tidelog.chaos.sim.base.faults import Faults
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.quorum import factory, snapshots
from tidelog.chaos.sim.quorum.agenda import MS, Agenda
from tidelog.chaos.sim.quorum.node import QuorumNode
from tidelog.chaos.sim.quorum.node_disk import NodeDisk
from tidelog.chaos.sim.quorum.plan import Plan
from tidelog.chaos.sim.quorum.wires import Wires
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.inputs import PeerDied
from tidelog.metadata_quorum.raft.types import (
    Member,
    MemberId,
    Members,
    NodeId,
    Options,
    Recovered,
)
from tidelog.wire.ids import Term


class Cluster:
    """Of one seed."""

    def __init__(self, seeds: Seeds, plan: Plan, trace: Trace, faults: Faults) -> None:
        self.seeds = seeds
        self.plan = plan
        self.trace = trace
        self.faults = faults
        self.agenda = Agenda()
        trace.use_clock(lambda: self.agenda.now_ns)
        self.watch = RaftWatch()
        self.flush_random = seeds.purpose("flush")
        self.wires = Wires(self.agenda, seeds.purpose("network"), faults, self._deliver)
        self.nodes: dict[int, QuorumNode] = {}
        self.elections = 0
        self.roles: dict[int, str] = {}
        self._uuids = seeds.purpose("uuids")
        members = Members(tuple(self._member(node_id) for node_id in range(1, plan.voters + 1)))
        for member in members:
            self.add_node(NodeDisk(member.id, members), observer=False)
        for place in range(plan.observers):
            disk = NodeDisk(self._member(plan.voters + 1 + place).id, Members())
            self.add_node(disk, observer=True)

    def _member(self, node_id: int) -> Member:
        return Member(id=MemberId(NodeId(node_id), self._uuids.uuid()), address=f"n{node_id}:9093")

    def add_node(self, disk: NodeDisk, *, observer: bool) -> None:
        """A machine with a formatted directory."""
        node_id = disk.member_id.node_id
        self.nodes[node_id] = QuorumNode(self, node_id, disk, observer)

    def new_directory(self, node: QuorumNode) -> None:
        """Its disk is replaced, and formatted to join."""
        assert node.core is None, "a disk is replaced while nothing runs on it"
        self.watch.board.members[node.member_id].is_gone = True
        node.disk = NodeDisk(self._member(node.node_id).id, Members())
        node.left = type(node.left)()

    def make_core(self, member_id: MemberId, recovered: Recovered, options: Options) -> Core:
        """By the suite's factory."""
        return factory.make_core(member_id, recovered, options)

    def options_with_jitter(self, jitter_seed: int) -> Options:
        """Different for each start of each node."""
        return msgspec.structs.replace(self.plan.options, jitter_seed=jitter_seed)

    def term_applied(self, node: QuorumNode, index: int) -> Term | None:
        """Of an applied entry; None: a snapshot has taken its place already."""
        core = node.core
        entry = node.seen.asked.term_at(index)
        return None if core is None else entry

    # -- what joins the nodes ------------------------------------------------------------------

    def _deliver(self, source: int, target: int, datagram: object) -> None:
        """A transport refuses what is meant for another directory."""
        node = self.nodes[target]
        if node.core is None or getattr(datagram, "receiver", None) != node.member_id:
            return
        if node.is_paused:
            node.parked.append((self._deliver, (source, target, datagram)))
        elif isinstance(datagram, snapshots.PieceRequest):
            snapshots.on_request(node, datagram)
        elif isinstance(datagram, snapshots.PieceReply):
            snapshots.on_reply(node, datagram)
        else:
            node.on_message(datagram)  # type: ignore[arg-type]

    def tell_of_death(self, dead: QuorumNode) -> None:
        """Streams are reset and connections refused: most peers notice."""
        for node in self.nodes.values():
            if node is not dead and node.core is not None and self.flush_random.chance(0.6):
                node.later(self.flush_random.between(1, 60) * MS, self.hint, node, dead.node_id)

    def hint(self, node: QuorumNode, node_id: int) -> None:
        """The network says that a member's process is gone; it may be wrong."""
        description = node.seen.description
        leader = None if description is None else description.leader
        if leader is not None and leader.node_id == node_id:
            self.watch.on_death_hint(node.seen)
        node.give(PeerDied(node_id=node_id))

    def on_role(self, node: QuorumNode, role: Role, term: Term, cause: str) -> None:
        """Remember the transition."""
        before = self.roles.get(node.node_id, "none")
        self.roles[node.node_id] = role.value
        self.trace.transitions[f"{before}>{role.value}", cause] = None
        if role is Role.LEADER and before != role.value:
            self.elections += 1

    # -- views ---------------------------------------------------------------------------------

    def leaders(self) -> list[QuorumNode]:
        """Those who take themselves for it."""
        return [
            node
            for node in self.nodes.values()
            if node.core is not None and node.seen.role is Role.LEADER
        ]

    def leader(self) -> QuorumNode | None:
        """The living leader of the latest term, if there is one."""
        return max(self.leaders(), key=_term_of, default=None)

    def alive(self) -> list[QuorumNode]:
        """Those with a process."""
        return [node for node in self.nodes.values() if node.core is not None]

    def may_impair(self, node: QuorumNode) -> bool:
        """Whether damage to this node's disk leaves a majority of every quorum unharmed."""
        board = self.watch.board
        settings = [board.committed_members()]
        for other in self.alive():
            description = other.seen.description
            if description is not None:
                settings.append(description.members)
        return all(self._may_impair(node, members) for members in settings)

    def _may_impair(self, node: QuorumNode, members: Members) -> bool:
        impaired = {voter for voter in members.voters if self.is_impaired(voter)}
        if node.member_id in members.voters:
            impaired.add(node.member_id)
        return len(impaired) <= (len(members.voters) - 1) // 2

    def is_impaired(self, member_id: MemberId) -> bool:
        """Whether this member's directory is gone or damaged."""
        seen = self.watch.board.members.get(member_id)
        if seen is None:
            return False
        node = self.nodes[member_id.node_id]
        if seen.is_gone or node.member_id != member_id:
            return True
        description = seen.description
        return (
            bool(node.disk.damaged)
            or (node.left.hard_state.repair is not None and node.core is None)
            or seen.flushed.hard_state.repair is not None
            or (description is not None and description.is_repairing)
        )


def _term_of(node: QuorumNode) -> int:
    description = node.seen.description
    return -1 if description is None else description.term
