"""The follower: takes over the log of the leader it hears of, and acknowledges what is flushed.

Owns AppendRequests, whatever the role was before. It must never acknowledge an entry that is not
flushed, and leaves what a damaged or an outrun log needs to `repair` and `snapshots`.
"""

from tidelog.metadata_quorum.raft import agreement, repair, snapshots, transitions
from tidelog.metadata_quorum.raft.messages import AppendRequest
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import FollowerState, LeaderState
from tidelog.wire.ids import LogIndex


def on_append_request(node: Node, request: AppendRequest) -> None:
    """Of any sender: whoever leads a term was elected by a majority that may know more."""
    if request.term < node.term:
        node.respond(request.sender, request.round)
        return
    if request.term == node.term and (
        isinstance(node.role, LeaderState) or node.leader not in (None, request.sender)
    ):
        return  # Two leaders in one term: nobody of this protocol sends that.
    if request.term > node.term or not isinstance(node.role, FollowerState):
        transitions.become_follower(node, request.term, request.sender)
    transitions.set_leader(node, request.sender)
    node.lease_until_ms = node.now_ms + node.options.election_timeout_ms
    node.start_election_timer()
    if node.installing is None and node.refetch is None:
        repair.on_matched(node, request)
    if node.installing is not None:
        snapshots.respond_position(node, request)
    elif node.refetch is not None:
        repair.on_append_request(node, request)
    elif not agreement.matches(node, request):
        _reject(node, request)
    else:
        _accept(node, request)


def _reject(node: Node, request: AppendRequest) -> None:
    if request.snapshot is not None:
        snapshots.on_offer(node, request)
        return
    highest = min(request.previous_index, node.log.last_index)
    hint = node.log.last_up_to(highest, request.previous_term)
    node.respond(request.sender, request.round, hint_index=hint)


def _accept(node: Node, request: AppendRequest) -> None:
    if not agreement.store(node, request):
        return
    agreed = LogIndex(request.previous_index + len(request.entries))
    persisted = node.persistence.persisted_index
    if request.entries and agreed > persisted:
        barrier = node.persistence.data_barrier(node.hard_state)
        node.respond(request.sender, request.round, match_index=agreed, barrier=barrier)
    else:
        match_index = LogIndex(min(agreed, persisted))
        node.respond(request.sender, request.round, match_index=match_index)
    agreement.take_commit(node, request, agreed)
