"""Reads that see everything committed before they were asked for (ReadIndex, dissertation 6.4).

Owns waiting reads in every role. A leader answers after a round of heartbeats that began after the
read arrived, never from a lease: a paused leader cannot know that it was paused.
"""

from tidelog.metadata_quorum.raft import replication
from tidelog.metadata_quorum.raft.effects import ReadAt
from tidelog.metadata_quorum.raft.messages import ReadIndexRequest, ReadIndexResponse
from tidelog.metadata_quorum.raft.node import AskedReads, Node, WaitingRead
from tidelog.metadata_quorum.raft.roles import LeaderRead, LeaderState
from tidelog.metadata_quorum.raft.types import NO_INDEX, MemberId
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LogIndex


def on_read(node: Node, request_id: int) -> None:
    """Asked for at this member."""
    if isinstance(node.role, LeaderState):
        if len(node.role.reads) >= node.options.reads_waiting_max:
            _refuse_full(node, request_id)
            return
        _add(node, node.role, LeaderRead(arrived_ms=node.now_ms, request_id=request_id))
        return
    asked = len(node.asked_reads.reads) if node.asked_reads else 0
    if len(node.reads) + asked >= node.options.reads_waiting_max:
        _refuse_full(node, request_id)
        return
    node.reads.append(WaitingRead(request_id=request_id, arrived_ms=node.now_ms))
    ask_leader(node)


def _refuse_full(node: Node, request_id: int) -> None:
    limit = node.options.reads_waiting_max
    node.refuse(request_id, ErrorCode.RESOURCE_EXHAUSTED, f"{limit} reads wait already")


def on_request(node: Node, request: ReadIndexRequest) -> None:
    """Forwarded by a member."""
    leader = node.role
    if (
        not isinstance(leader, LeaderState)
        or request.sender not in leader.progress
        or len(leader.reads) >= node.options.reads_waiting_max
    ):
        _respond(node, request.sender, request.read_id, NO_INDEX)
        return
    read = LeaderRead(arrived_ms=node.now_ms, asker=request.sender, read_id=request.read_id)
    _add(node, leader, read)


def _add(node: Node, leader: LeaderState, read: LeaderRead) -> None:
    if node.commit_index < leader.first_index:
        leader.reads.append(read)
        return
    read.index = node.commit_index
    if node.is_sole_voter:
        _answer(node, read)
        return
    read.round = leader.round + 1
    leader.reads.append(read)
    if confirmed_round(node, leader) >= leader.round:
        replication.begin_round(node, leader)


def on_first_commit(node: Node, leader: LeaderState) -> None:
    """The commit index is known to be as high as any leader's before: reads may begin."""
    if not leader.reads:
        return
    for read in leader.reads:
        read.index, read.round = node.commit_index, leader.round + 1
    replication.begin_round(node, leader)
    confirm(node, leader)


def confirmed_round(node: Node, leader: LeaderState) -> int:
    """The latest round that a majority of the voters answered."""
    rounds = [
        leader.round if voter == node.id else leader.progress[voter].round
        for voter in node.membership.voters
    ]
    rounds.sort(reverse=True)
    return rounds[node.membership.majority - 1] if rounds else 0


def confirm(node: Node, leader: LeaderState) -> None:
    """Answer what the answered rounds allow; those that came later need another round."""
    if not leader.reads:
        return
    confirmed = confirmed_round(node, leader)
    waiting = []
    for read in leader.reads:
        if 0 < read.round <= confirmed:
            _answer(node, read)
        else:
            waiting.append(read)
    leader.reads = waiting
    if any(read.round > leader.round for read in waiting) and confirmed >= leader.round:
        replication.begin_round(node, leader)


def _answer(node: Node, read: LeaderRead) -> None:
    if read.asker is None:
        node.answer(read.request_id, ReadAt(index=read.index))
    else:
        _respond(node, read.asker, read.read_id, read.index)


def _respond(node: Node, asker: MemberId, read_id: int, index: LogIndex) -> None:
    node.send(
        ReadIndexResponse(
            sender=node.id, receiver=asker, term=node.term, read_id=read_id, index=index
        )
    )


def ask_leader(node: Node) -> None:
    """One request at a time; reads that arrive meanwhile share the next."""
    if node.leader is None or node.asked_reads is not None or not node.reads:
        return
    node.last_read_id += 1
    node.asked_reads = AskedReads(
        read_id=node.last_read_id, leader=node.leader, sent_ms=node.now_ms, reads=node.reads
    )
    node.reads = []
    _send_asked(node, node.asked_reads)


def _send_asked(node: Node, asked: AskedReads) -> None:
    asked.sent_ms = node.now_ms
    node.send(
        ReadIndexRequest(
            sender=node.id, receiver=asked.leader, term=node.term, read_id=asked.read_id
        )
    )


def on_response(node: Node, response: ReadIndexResponse) -> None:
    """A refusal only means another leader: the reads wait on until they are too old."""
    asked = node.asked_reads
    if asked is None or asked.read_id != response.read_id or asked.leader != response.sender:
        return
    if response.index == NO_INDEX:
        return
    node.asked_reads = None
    for read in asked.reads:
        node.answer(read.request_id, ReadAt(index=response.index))
    ask_leader(node)


def on_tick(node: Node) -> None:
    """Ask again what was lost, and another leader if there is one; give up what is too old."""
    if not node.reads and node.asked_reads is None:
        return
    asked = node.asked_reads
    if asked is not None:
        asked.reads = _without_late(node, asked.reads)
        if asked.leader != node.leader or not asked.reads:
            node.reads = asked.reads + node.reads
            node.asked_reads = None
        elif node.now_ms >= asked.sent_ms + node.options.heartbeat_ms:
            _send_asked(node, asked)
    node.reads = _without_late(node, node.reads)
    ask_leader(node)


def _without_late(node: Node, reads: list[WaitingRead]) -> list[WaitingRead]:
    oldest_ms = node.now_ms - node.options.election_timeout_ms
    in_time = [read for read in reads if read.arrived_ms > oldest_ms]
    if len(in_time) < len(reads):
        for read in reads:
            if read.arrived_ms <= oldest_ms:
                _refuse_late(node, read.request_id)
    return in_time


def _refuse_late(node: Node, request_id: int) -> None:
    node.refuse(
        request_id,
        ErrorCode.UNAVAILABLE,
        "no leader confirmed an index to read at in time",
        "Try again, or ask another member.",
    )


def on_leader_tick(node: Node, leader: LeaderState) -> None:
    """Give up what is too old; a member that forwarded a read gives it up by itself."""
    oldest_ms = node.now_ms - node.options.election_timeout_ms
    if not leader.reads or leader.reads[0].arrived_ms > oldest_ms:
        return
    for read in leader.reads:
        if read.arrived_ms <= oldest_ms and read.asker is None:
            _refuse_late(node, read.request_id)
    leader.reads = [read for read in leader.reads if read.arrived_ms > oldest_ms]


def take_over(node: Node, leader: LeaderState) -> None:
    """Reads that waited for a leader wait for this one."""
    waiting = (node.asked_reads.reads if node.asked_reads else []) + node.reads
    node.asked_reads, node.reads = None, []
    for read in waiting:
        leader.reads.append(LeaderRead(arrived_ms=read.arrived_ms, request_id=read.request_id))


def give_up(node: Node, leader: LeaderState) -> None:
    """Leadership was lost before they were confirmed."""
    for read in leader.reads:
        if read.asker is None:
            node.refuse(
                read.request_id,
                ErrorCode.NOT_CONTROLLER,
                "leadership was lost before the read was confirmed",
            )
        else:
            _respond(node, read.asker, read.read_id, NO_INDEX)
    leader.reads = []
