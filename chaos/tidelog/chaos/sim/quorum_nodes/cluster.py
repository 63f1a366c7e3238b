"""A quorum of whole nodes in a simulated world: who they are, who leads, what may be damaged."""

from collections.abc import Callable
from typing import Final

from tidelog.chaos.checkers.raft.invariants import RaftWatch
from tidelog.chaos.sim.base.faults import Faults
from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.quorum.plan import Plan
from tidelog.chaos.sim.quorum_nodes.node import DIRECTORY, WholeNode
from tidelog.chaos.sim.world.world import World
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import Member, MemberId, Members, NodeId

_SEGMENTS: Final = (4_096, 16_384, 1 << 20)


class LoopAgenda:
    """The loop, as clients, operators and troubles see time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self._loop.now_ns

    def after(self, delay_ns: int, callback: Callable[..., None], *arguments: object) -> None:
        """Call it then, as part of the world."""
        when_ns = self._loop.now_ns + delay_ns
        self._loop.call_at_ns(when_ns, callback, *arguments, context=self._loop.world_context)


class WholeCluster:
    """Of one seed."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.seeds: Seeds = world.seeds
        self.trace: Trace = world.trace
        self.faults: Faults = world.faults
        self.agenda = LoopAgenda(world.loop)
        self.watch = RaftWatch()
        self.elections = 0
        self.roles: dict[int, str] = {}
        self._uuids = world.seeds.purpose("uuids")
        self.segment_bytes = _SEGMENTS[self._uuids.below(len(_SEGMENTS))]
        self.limits = QuorumLimits(
            tick_ms=2 * plan.tick_ms,
            snapshot_after_entries=plan.snapshot_after_entries,
            snapshot_piece_bytes=64,
            snapshot_retry_ms=1_000,
            propose_timeout_ms=5_000,
        )
        members = Members(tuple(self._member(node_id) for node_id in range(1, plan.voters + 1)))
        self.nodes: dict[int, WholeNode] = {
            int(member.id.node_id): WholeNode(self, member.id, members, False) for member in members
        }
        for place in range(plan.observers):
            member_id = self._member(plan.voters + 1 + place).id
            self.nodes[int(member_id.node_id)] = WholeNode(self, member_id, Members(), True)

    def _member(self, node_id: int) -> Member:
        uuid = self._uuids.uuid()
        return Member(id=MemberId(NodeId(node_id), uuid), address=self.address(node_id))

    def address(self, node_id: int) -> str:
        """Of its cluster listener."""
        return f"n{node_id}:9093"

    def addresses(self) -> list[str]:
        """Of the first voters."""
        return [self.address(node_id) for node_id in range(1, self.plan.voters + 1)]

    def new_directory(self, node: WholeNode) -> None:
        """Its disk is replaced, and formatted to join."""
        self.watch.board.members[node.member_id].is_gone = True
        node.machine.wipe(DIRECTORY)
        node.member_id = self._member(node.node_id).id
        node.bootstrap = Members()

    def on_role(self, node: WholeNode, role: Role, cause: str) -> None:
        """Remember the transition."""
        before = self.roles.get(node.node_id, "none")
        self.roles[node.node_id] = role.value
        self.trace.transitions[f"{before}>{role.value}", cause] = None
        if role is Role.LEADER and before != role.value:
            self.elections += 1
            self.trace.note(node.name, "raft:leader")

    def leaders(self) -> list[WholeNode]:
        """Those who take themselves for it."""
        return [node for node in self.alive() if node.seen.role is Role.LEADER]

    def leader(self) -> WholeNode | None:
        """The living leader of the latest term, if there is one."""
        return max(self.leaders(), key=_term_of, default=None)

    def alive(self) -> list[WholeNode]:
        """Those whose runner works."""
        return [node for node in self.nodes.values() if node.core is not None]

    def may_impair(self, node: WholeNode) -> bool:
        """Whether damage to this node's disk leaves a majority of every quorum unharmed."""
        settings = [self.watch.board.committed_members()]
        for other in self.watch.board.alive():
            if other.description is not None:
                settings.append(other.description.members)
        for members in settings:
            impaired = {voter for voter in members.voters if self.is_impaired(voter)}
            if node.member_id in members.voters:
                impaired.add(node.member_id)
            if len(impaired) > (len(members.voters) - 1) // 2:
                return False
        return True

    def is_impaired(self, member_id: MemberId) -> bool:
        """Whether this member's directory is gone or damaged."""
        seen = self.watch.board.members.get(member_id)
        node = self.nodes[int(member_id.node_id)]
        if node.member_id != member_id or (seen is not None and seen.is_gone):
            return True
        if seen is None:
            return False
        description = seen.description
        return (
            node.flips > 0
            or bool(node.machine.medium(DIRECTORY).flips and node.core is None)
            or seen.flushed.hard_state.repair is not None
            or (description is not None and description.is_repairing)
        )


def _term_of(node: WholeNode) -> int:
    description = node.seen.description
    return -1 if description is None else description.term
