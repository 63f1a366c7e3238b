"""What both modes of the quorum suite judge alike: does a seed count, does a quorum live."""

from collections.abc import Mapping
from typing import Final, Protocol

from tidelog.chaos.checkers.raft.board import Seen
from tidelog.chaos.sim.base.faults import Faults
from tidelog.metadata_quorum.raft.types import MemberId

EVENTS_MIN: Final = 2_000
ELECTIONS_MIN: Final = 3
"""The first leader and two changes."""
COMMITS_MIN: Final = 50
CONFIGURATIONS_MAX: Final = 60_000
_BEHIND_MAX: Final = 5


class JudgedNode(Protocol):
    """A node of either mode."""

    name: str
    is_observer: bool
    seen: Seen

    @property
    def core(self) -> object | None:
        """None: dead."""
        ...

    @property
    def member_id(self) -> MemberId:
        """With its present directory."""
        ...


def missing_figures(faults: Faults, events: int, elections: int, commits: int) -> list[str]:
    """Why the seed does not count."""
    missing = [f"{kind.value} unfelt" for kind in faults.unfelt()]
    if events < EVENTS_MIN:
        missing.append("events")
    if elections < ELECTIONS_MIN:
        missing.append("leader changes")
    if commits < COMMITS_MIN:
        missing.append("commits")
    return missing


def what_lacks(leader: JudgedNode | None, nodes: Mapping[int, JudgedNode]) -> str:
    """Of a healed quorum; empty: it is whole."""
    if leader is None or leader.seen.description is None:
        return "there is no leader"
    description = leader.seen.description
    for node in nodes.values():
        if node.core is None:
            return f"{node.name} is dead"
        member = description.members.find(node.member_id)
        if member is None or member.is_learner is not node.is_observer:
            return f"{node.name} is not the member that it should be"
        own = node.seen.description
        if own is None or own.leader != leader.member_id:
            return f"{node.name} knows no leader"
        if own.is_repairing or own.commit_index < description.commit_index - _BEHIND_MAX:
            return f"{node.name} is at {own.commit_index} of {description.commit_index}"
    if description.transfer_to is not None:
        return "the leader is handing over"
    if description.members != description.committed_members:
        return "members are not committed"
    if len(description.members.members) != len(nodes):
        return "there are members of old directories"
    return ""
