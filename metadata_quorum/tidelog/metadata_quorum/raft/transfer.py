"""Handing the leadership over (Raft dissertation 3.10).

Owns the leader's side: no proposals meanwhile, wait until the target has everything, tell it to
campaign at once, and take it back if no election came of it within an election timeout.
"""

from tidelog.metadata_quorum.raft import transitions
from tidelog.metadata_quorum.raft.effects import Done, Uncertain
from tidelog.metadata_quorum.raft.inputs import Transfer
from tidelog.metadata_quorum.raft.messages import TimeoutNow
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.progress import Progress
from tidelog.metadata_quorum.raft.roles import HandOver, LeaderState
from tidelog.metadata_quorum.raft.types import MemberId
from tidelog.wire.errors import ErrorCode


def on_transfer(node: Node, leader: LeaderState, request: Transfer) -> None:
    """To the voter that was named, or to the one that is furthest."""
    to = request.to if request.to is not None else _furthest(node, leader)
    if to is None:
        node.refuse(
            request.request_id,
            ErrorCode.INVALID_ARGUMENT,
            "there is no other voter to hand over to",
        )
    elif not node.membership.is_voter(to):
        happened = f"node {to.node_id} with this directory is no voter"
        node.refuse(request.request_id, ErrorCode.UNKNOWN_VOTER, happened)
    elif to == node.id:
        node.answer(request.request_id, Done(members=node.members, index=node.membership.index))
    elif leader.hand_over is not None:
        happened = f"leadership is being handed over to node {leader.hand_over.to.node_id} already"
        node.refuse(request.request_id, ErrorCode.UNAVAILABLE, happened)
    else:
        deadline_ms = node.now_ms + node.options.election_timeout_ms
        leader.hand_over = HandOver(request_id=request.request_id, to=to, deadline_ms=deadline_ms)
        advance(node, leader)


def _furthest(node: Node, leader: LeaderState) -> MemberId | None:
    def rank(progress: Progress) -> tuple[bool, bool, int, int]:
        is_alive = progress.heard_ms > node.now_ms - node.options.election_timeout_ms
        whole = not progress.is_repairing
        return (whole, is_alive, progress.match_index, progress.heard_ms)

    others = [
        leader.progress[voter]
        for voter in node.membership.voters
        if voter != node.id and not leader.progress[voter].is_repairing
    ]
    return max(others, key=rank).id if others else None


def advance(node: Node, leader: LeaderState) -> None:
    """Tell the target as soon as it has everything."""
    hand_over = leader.hand_over
    if hand_over is None or hand_over.is_told:
        return
    progress = leader.progress.get(hand_over.to)
    if progress is None or progress.is_repairing:
        return
    if progress.match_index == node.log.last_index:
        hand_over.is_told = True
        _tell(node, hand_over.to)


def remind(node: Node, leader: LeaderState) -> None:
    """TimeoutNow may be lost like any message."""
    if leader.hand_over is not None and leader.hand_over.is_told:
        _tell(node, leader.hand_over.to)


def _tell(node: Node, to: MemberId) -> None:
    node.send(TimeoutNow(sender=node.id, receiver=to, term=node.term))


def on_tick(node: Node, leader: LeaderState) -> None:
    """Nothing came of it: lead on."""
    hand_over = leader.hand_over
    if hand_over is None or node.now_ms < hand_over.deadline_ms:
        return
    leader.hand_over = None
    if hand_over.is_told:
        node.answer(
            hand_over.request_id,
            Uncertain(happened="the target was told to take over and has not done so in time"),
        )
    else:
        node.refuse(
            hand_over.request_id,
            ErrorCode.DEADLINE_EXCEEDED,
            f"node {hand_over.to.node_id} has not caught up in time",
            "See its lag with `tidelog quorum describe`, or name another voter.",
        )


def leave(node: Node, leader: LeaderState) -> None:
    """A leader that is no voter any more: somebody who has everything takes over at once."""
    to = _furthest(node, leader)
    if to is not None and leader.progress[to].match_index == node.log.last_index:
        _tell(node, to)
    transitions.become_follower(node, node.term, None)
