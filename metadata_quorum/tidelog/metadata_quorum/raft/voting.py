"""Whether another member gets this one's vote, or would get it.

Owns the three checks of an election: the term and the vote given, the lease of a living leader,
and the log. A vote is judged by the last entry that this member ever had, repaired or not.
"""

from tidelog.metadata_quorum.raft.messages import VoteRequest, VoteResponse
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.transitions import become_follower
from tidelog.wire.ids import Term


def on_vote_request(node: Node, request: VoteRequest) -> None:
    """Answer it; a real one of a later term moves the term, if it may disturb at all."""
    if request.is_pre_vote:
        is_granted = _would_grant(node, request)
        _respond(node, request, request.term if is_granted else node.term, is_granted)
        return
    if request.term < node.term:
        _respond(node, request, node.term, False)
        return
    if request.term > node.term:
        if _may_not_disturb(node, request):
            return
        become_follower(node, request.term, None)
    is_granted = (
        node.hard_state.voted_for in (None, request.sender)
        and node.leader is None
        and _is_log_good(node, request)
    )
    if is_granted:
        node.set_state(node.term, request.sender)
        node.start_election_timer()
    _respond(node, request, node.term, is_granted)


def _would_grant(node: Node, request: VoteRequest) -> bool:
    if node.has_lease or not _is_log_good(node, request) or _is_stranger(node, request):
        return False
    if request.term > node.term:
        return True
    is_vote_free = node.hard_state.voted_for in (None, request.sender)
    return request.term == node.term and is_vote_free and node.leader is None


def _may_not_disturb(node: Node, request: VoteRequest) -> bool:
    if _is_stranger(node, request):
        return True
    return node.has_lease and not request.is_leadership_transfer


def _is_log_good(node: Node, request: VoteRequest) -> bool:
    """Raft §5.4.1: the later last term wins, then the longer log."""
    return (request.last_term, request.last_index) >= node.last_ever()


def _is_stranger(node: Node, request: VoteRequest) -> bool:
    """No voter as far as this member knows, and it cannot know better: only a log that goes on
    beyond this member's may hold the entry that made the sender a voter.
    """
    if node.membership.is_voter(request.sender):
        return False
    return (request.last_term, request.last_index) <= node.last_ever()


def _respond(node: Node, request: VoteRequest, term: Term, is_granted: bool) -> None:
    response = VoteResponse(
        sender=node.id,
        receiver=request.sender,
        term=term,
        is_granted=is_granted,
        is_pre_vote=request.is_pre_vote,
    )
    if request.is_pre_vote:
        node.send(response)
    else:
        node.send_after(node.persistence.state_barrier(node.hard_state), response)
