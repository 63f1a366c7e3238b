"""Becoming a follower, from every role, and what a member owes to those who wait when it does.

Every legal transition ends here or begins at a follower; see the chart in `roles`. Must never touch
the log.
"""

from typing import assert_never

from tidelog.metadata_quorum.raft import reads
from tidelog.metadata_quorum.raft.effects import Done, Uncertain
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import (
    CandidateState,
    FollowerState,
    LeaderState,
    PreCandidateState,
)
from tidelog.metadata_quorum.raft.types import MemberId
from tidelog.wire.ids import Term


def become_follower(node: Node, term: Term, leader: MemberId | None) -> None:
    """In this term or a later one; what a leader still owed is answered."""
    assert term >= node.term, f"the term falls from {node.term} to {term}"
    role = node.role
    if term > node.term:
        node.set_state(term, None)
    node.role = FollowerState()
    node.leader = None
    match role:
        case LeaderState():
            _give_up(node, role)
            node.start_election_timer()
        case CandidateState() | PreCandidateState():
            node.start_election_timer()
        case FollowerState():
            pass
        case _:
            assert_never(role)
    if leader is not None:
        set_leader(node, leader)


def lose_leader(node: Node) -> None:
    """Nothing was heard of it for too long: it protects nobody from elections any more."""
    node.leader = None
    node.lease_until_ms = node.now_ms
    node.start_election_timer()


def set_leader(node: Node, leader: MemberId) -> None:
    """A leader of this term was heard of."""
    assert node.leader in (None, leader), f"two leaders in term {node.term}"
    if node.leader is None:
        node.leader = leader
        reads.ask_leader(node)
        _end_hand_over(node, leader)


def _give_up(node: Node, role: LeaderState) -> None:
    for change in role.changes:
        node.answer(
            change.request_id,
            Uncertain(happened="leadership was lost before the change was committed"),
        )
    reads.give_up(node, role)
    if role.hand_over is not None:
        if role.hand_over.is_told:
            node.hand_over = role.hand_over
        else:
            node.answer(
                role.hand_over.request_id,
                Uncertain(happened="leadership was lost before it could be handed over"),
            )


def _end_hand_over(node: Node, leader: MemberId) -> None:
    """Whoever asked for the transfer hears who leads now."""
    hand_over, node.hand_over = node.hand_over, None
    if hand_over is None:
        return
    if leader == hand_over.to:
        node.answer(hand_over.request_id, Done(members=node.members, index=node.membership.index))
    else:
        node.answer(
            hand_over.request_id,
            Uncertain(happened=f"node {leader.node_id} leads, which was not asked to"),
        )


def end_late_hand_over(node: Node) -> None:
    """A transfer whose new leader is not heard of ends here."""
    hand_over = node.hand_over
    if hand_over is not None and node.now_ms >= hand_over.deadline_ms:
        node.hand_over = None
        node.answer(hand_over.request_id, Uncertain(happened="no new leader was heard of in time"))
