"""The leader: puts commands into the log, counts who has them, and knows when it leads no more.

Owns proposals, commits and CheckQuorum. It must never truncate its log, count an entry of an older
term (Raft §5.4.2), or commit what it has not flushed itself.
"""

from tidelog.metadata_quorum.raft import reads, replication, transfer, transitions
from tidelog.metadata_quorum.raft.effects import Accepted, Done
from tidelog.metadata_quorum.raft.inputs import Propose
from tidelog.metadata_quorum.raft.messages import AppendResponse
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.progress import Pace, Progress
from tidelog.metadata_quorum.raft.roles import CandidateState, LeaderState
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, MemberId
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LogIndex


def become_leader(node: Node) -> None:
    """Won: an empty entry of the own term, whose commit commits all before it."""
    assert isinstance(node.role, CandidateState), "only a candidate becomes leader"
    assert node.persistence.persisted_state.voted_for == node.id, "its own vote is flushed"
    next_index = LogIndex(node.log.last_index + 1)
    leader = LeaderState(progress={}, first_index=next_index)
    for member in node.members:
        if member.id != node.id:
            add_progress(node, leader, member.id)
    pending = node.log.between(node.commit_index + 1, node.log.last_index)
    leader.uncommitted_bytes = sum(len(entry.data) for entry in pending)
    leader.leaving = node.membership.leaving(node.commit_index)
    node.role = leader
    node.leader = node.id
    node.fetching = None
    leader.heartbeat_due_ms = node.now_ms + node.options.heartbeat_ms
    append_entry(node, leader, EntryKind.EMPTY, b"")
    reads.take_over(node, leader)


def add_progress(node: Node, leader: LeaderState, member_id: MemberId) -> None:
    """It is given an election timeout to be heard of."""
    leader.progress[member_id] = Progress(
        id=member_id, next_index=LogIndex(node.log.last_index + 1), heard_ms=node.now_ms
    )


def append_entry(node: Node, leader: LeaderState, kind: EntryKind, data: bytes) -> LogIndex:
    """To the own log and, as far as there is room, on the way to everybody."""
    index = LogIndex(node.log.last_index + 1)
    node.append((Entry(index=index, term=node.term, kind=kind, data=data),))
    leader.uncommitted_bytes += len(data)
    for progress in leader.progress.values():
        replication.send_new(node, leader, progress)
    return index


def on_propose(node: Node, leader: LeaderState, request: Propose) -> None:
    """Accepted at its place in the log, or refused without a trace."""
    options = node.options
    size = len(request.data)
    if request.term not in (0, node.term):
        happened = f"the term is {node.term}, not {request.term}"
        node.refuse(request.request_id, ErrorCode.NOT_CONTROLLER, happened)
    elif leader.hand_over is not None:
        happened = f"leadership is being handed over to node {leader.hand_over.to.node_id}"
        node.refuse(request.request_id, ErrorCode.UNAVAILABLE, happened)
    elif size > options.entry_bytes_max:
        happened = f"the command has {size} bytes; entry_bytes_max is {options.entry_bytes_max}"
        node.refuse(request.request_id, ErrorCode.BATCH_TOO_LARGE, happened)
    elif leader.uncommitted_bytes and (
        leader.uncommitted_bytes + size > options.uncommitted_bytes_max
    ):
        limit = options.uncommitted_bytes_max
        happened = f"{leader.uncommitted_bytes} of {limit} bytes are not committed yet"
        node.refuse(request.request_id, ErrorCode.RESOURCE_EXHAUSTED, happened)
    else:
        index = append_entry(node, leader, EntryKind.COMMAND, request.data)
        node.answer(request.request_id, Accepted(index=index, term=node.term))


def on_append_response(node: Node, response: AppendResponse) -> None:
    """What a member has, lacks, or lost."""
    leader = node.role
    if response.term > node.term:
        if node.members.find(response.sender):
            transitions.become_follower(node, response.term, None)
        return
    if response.term < node.term or not isinstance(leader, LeaderState):
        return
    progress = leader.progress.get(response.sender)
    if progress is None or response.match_index > node.log.last_index:
        return
    progress.heard(node.now_ms, min(response.round, leader.round))
    progress.snapshot_position = response.snapshot_position
    if response.repair_from_index > 0:
        hint = (response.hint_index, response.hint_term)
        replication.on_repair(node, progress, response.repair_from_index, hint)
    elif response.is_success:
        replication.on_success(node, progress, response.match_index)
        advance_commit(node)
    else:
        replication.on_rejection(node, progress, response.hint_index, response.hint_term)
    if node.role is leader:
        replication.send_new(node, leader, progress)
        replication.send_commit(node, leader, progress)
        transfer.advance(node, leader)
        reads.confirm(node, leader)


def advance_commit(node: Node) -> None:
    """Raft §5.3, §5.4.2: flushed by a majority of the voters and by this leader, of this term."""
    leader = node.role
    if not isinstance(leader, LeaderState):
        return
    index = _majority_index(node, leader)
    if index <= node.commit_index or node.log.term_at(index) != node.term:
        return
    before = node.commit_index
    committed = node.log.between(before + 1, index)
    leader.uncommitted_bytes -= sum(len(entry.data) for entry in committed)
    node.commit_to(index)
    for progress in leader.progress.values():
        replication.send_commit(node, leader, progress)
    if before < leader.first_index:
        reads.on_first_commit(node, leader)
    _answer_changes(node, leader)
    if leader.leaving and node.membership.index <= index:
        replication.send_farewell(node, leader)
    if not node.is_voter and node.membership.index <= node.commit_index:
        transfer.leave(node, leader)


def _majority_index(node: Node, leader: LeaderState) -> LogIndex:
    own = node.persistence.persisted_index
    flushed: list[LogIndex] = []
    for voter in node.membership.voters:
        if voter == node.id:
            flushed.append(own)
            continue
        progress = leader.progress[voter]
        flushed.append(LogIndex(0) if progress.is_repairing else progress.match_index)
    flushed.sort(reverse=True)
    return min(own, flushed[node.membership.majority - 1])


def _answer_changes(node: Node, leader: LeaderState) -> None:
    if not leader.changes:
        return
    for change in leader.changes:
        if change.index <= node.commit_index:
            members = node.membership.at(change.index)
            node.answer(change.request_id, Done(members=members, index=change.index))
    leader.changes = [each for each in leader.changes if each.index > node.commit_index]


def on_tick(node: Node, leader: LeaderState) -> None:
    """CheckQuorum before anything else: a leader that was paused has been replaced by now."""
    if not _is_majority_heard(node, leader):
        transitions.become_follower(node, node.term, None)
        return
    transfer.on_tick(node, leader)
    reads.on_leader_tick(node, leader)
    if node.now_ms >= leader.heartbeat_due_ms:
        replication.begin_round(node, leader)
        transfer.remind(node, leader)


def _is_majority_heard(node: Node, leader: LeaderState) -> bool:
    oldest_ms = node.now_ms - node.options.election_timeout_ms
    heard = 0
    for voter in node.membership.voters:
        if voter == node.id or leader.progress[voter].heard_ms > oldest_ms:
            heard += 1
    return heard >= node.membership.majority


def on_peer_died(node: Node, leader: LeaderState, node_id: int) -> None:
    """Its contact counts as lost until it answers again."""
    for progress in leader.progress.values():
        if progress.id.node_id == node_id:
            progress.heard_ms = node.now_ms - node.options.election_timeout_ms
            if progress.pace is Pace.REPLICATE:
                progress.become_probe(LogIndex(progress.match_index + 1))
