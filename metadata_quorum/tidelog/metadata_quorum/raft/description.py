"""A core as a value, for operators, checks and tests."""

from tidelog.metadata_quorum.raft.core_port import Description, MemberProgress
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import LeaderState


def describe(node: Node) -> Description:
    """Costs as much as there are members."""
    role = node.role
    hand_over = role.hand_over if isinstance(role, LeaderState) else None
    last_term, last_index = node.log.last_term, node.log.last_index
    return Description(
        id=node.id,
        role=node.role_name,
        term=node.term,
        leader=node.leader,
        hard_state=node.hard_state,
        persisted_state=node.persistence.persisted_state,
        last_index=last_index,
        last_term=last_term,
        persisted_index=node.persistence.persisted_index,
        commit_index=node.commit_index,
        applied_index=node.applied_index,
        log_start_index=node.log.first_index,
        snapshot=node.snapshot.id if node.snapshot else None,
        members=node.members,
        members_index=node.membership.index,
        committed_members=node.membership.at(node.commit_index),
        is_repairing=node.repair is not None,
        transfer_to=hand_over.to if hand_over else None,
        progress=_progress(node, role) if isinstance(role, LeaderState) else (),
    )


def _progress(node: Node, leader: LeaderState) -> tuple[MemberProgress, ...]:
    return tuple(
        MemberProgress(
            id=each.id,
            match_index=each.match_index,
            next_index=each.next_index,
            state=each.pace.value,
            in_flight=len(each.in_flight),
            last_contact_ms=node.now_ms - each.heard_ms if each.was_heard else -1,
        )
        for each in leader.progress.values()
    )
