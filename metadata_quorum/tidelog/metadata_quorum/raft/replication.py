"""What a leader sends to one member: entries, heartbeats, offers of a snapshot.

Owns AppendRequests. Bounded: one request while probing or repairing, `in_flight_appends_max` while
replicating; what is proposed meanwhile goes into the next request together.
"""

from tidelog.metadata_quorum.raft.messages import AppendRequest
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.progress import Pace, Progress
from tidelog.metadata_quorum.raft.roles import LeaderState
from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM, Entry
from tidelog.wire.ids import LogIndex, Term


def send_new(node: Node, leader: LeaderState, progress: Progress) -> None:
    """As many requests as there are entries and room."""
    options = node.options
    while progress.next_index <= node.log.last_index:
        if progress.pace is Pace.SNAPSHOT or progress.is_asked:
            return
        if len(progress.in_flight) >= options.in_flight_appends_max:
            return
        previous_term = node.log.term_at(progress.next_index - 1)
        if previous_term is None:
            _offer_snapshot(node, leader, progress)
            return
        entries = node.log.batch(
            progress.next_index, options.append_bytes_max, options.append_entries_max
        )
        _send(node, leader, progress, previous_term, entries)
        if progress.pace is Pace.REPLICATE:
            progress.next_index = LogIndex(entries[-1].index + 1)
            progress.in_flight.append(entries[-1].index)
        else:
            progress.is_asked = True


def send_heartbeat(node: Node, leader: LeaderState, progress: Progress) -> None:
    """Without entries, but it names the last one that was sent: a member that lacks it says so,
    and what was lost is sent again.
    """
    previous_term = node.log.term_at(progress.next_index - 1)
    if progress.pace is Pace.SNAPSHOT or previous_term is None:
        _offer_snapshot(node, leader, progress)
        return
    progress.is_asked = False
    _send(node, leader, progress, previous_term, ())


def send_commit(node: Node, leader: LeaderState, progress: Progress) -> None:
    """Tell of a moved commit index if no request with entries is about to do so."""
    if progress.pace is not Pace.REPLICATE or progress.in_flight:
        return
    if progress.commit_sent < node.commit_index and progress.next_index > node.log.last_index:
        previous_term = node.log.term_at(progress.next_index - 1)
        if previous_term is not None:
            _send(node, leader, progress, previous_term, ())


def send_farewell(node: Node, leader: LeaderState) -> None:
    """The entry that takes them out again, committed now: who has not got this, or not what comes
    before it, goes on asking for PreVotes and is refused.
    """
    index = node.membership.index
    previous_index = LogIndex(index - 1)
    previous_term = node.log.term_at(previous_index)
    assert previous_term is not None, "what was committed just now is in the log"
    for member_id in leader.leaving:
        if member_id == node.id:
            continue
        node.send(
            AppendRequest(
                sender=node.id,
                receiver=member_id,
                term=node.term,
                previous_index=previous_index,
                previous_term=previous_term,
                entries=node.log.between(index, index),
                commit_index=node.commit_index,
                round=leader.round,
            )
        )
    leader.leaving = []


def begin_round(node: Node, leader: LeaderState) -> None:
    """A heartbeat to everybody; whoever answers its number follows this leader after now."""
    leader.round += 1
    leader.heartbeat_due_ms = node.now_ms + node.options.heartbeat_ms
    for progress in leader.progress.values():
        send_heartbeat(node, leader, progress)


def _offer_snapshot(node: Node, leader: LeaderState, progress: Progress) -> None:
    snapshot = node.snapshot
    assert snapshot is not None, "a log without a snapshot begins at its beginning"
    if progress.pace is not Pace.SNAPSHOT:
        progress.become_snapshot()
    node.send(
        AppendRequest(
            sender=node.id,
            receiver=progress.id,
            term=node.term,
            previous_index=snapshot.last_index,
            previous_term=snapshot.id.term,
            entries=(),
            commit_index=node.commit_index,
            round=leader.round,
            snapshot=snapshot.id,
            snapshot_bytes=snapshot.size_bytes,
        )
    )


def _send(
    node: Node,
    leader: LeaderState,
    progress: Progress,
    previous_term: Term,
    entries: tuple[Entry, ...],
) -> None:
    progress.commit_sent = node.commit_index
    # Of an entry that is compacted the term is not known any more: then nothing is said.
    matched_term = node.log.term_at(progress.match_index) or NO_TERM
    node.send(
        AppendRequest(
            sender=node.id,
            receiver=progress.id,
            term=node.term,
            previous_index=LogIndex(progress.next_index - 1),
            previous_term=previous_term,
            entries=entries,
            commit_index=node.commit_index,
            round=leader.round,
            matched_index=progress.match_index if matched_term else NO_INDEX,
            matched_term=matched_term,
        )
    )


def on_success(node: Node, progress: Progress, match_index: LogIndex) -> None:
    """Everything up to `match_index` is flushed there."""
    progress.matched(match_index)
    progress.is_repairing = False
    match progress.pace:
        case Pace.REPLICATE:
            pass
        case Pace.PROBE | Pace.REPAIR:
            progress.become_replicate()
        case Pace.SNAPSHOT:
            if progress.next_index > node.log.base_index:
                progress.become_replicate()


def on_rejection(node: Node, progress: Progress, hint_index: LogIndex, hint_term: Term) -> None:
    """The logs part at or before the hint: go on below it. A repeated or late rejection changes
    nothing while a request from the right place is on its way.
    """
    if progress.pace is Pace.SNAPSHOT:
        return
    agreed = node.log.last_up_to(hint_index, hint_term)
    lowest = LogIndex(progress.match_index + 1)
    next_index = max(lowest, min(progress.next_index, LogIndex(agreed + 1)))
    if progress.pace is Pace.REPLICATE or next_index != progress.next_index:
        progress.become_probe(next_index)


def on_repair(
    node: Node, progress: Progress, from_index: LogIndex, hint: tuple[LogIndex, Term]
) -> None:
    """It lost what it acknowledged: send again from there, or from where the logs part."""
    agreed = node.log.last_up_to(*hint)
    next_index = max(LogIndex(1), min(from_index, LogIndex(agreed + 1)))
    if progress.pace is Pace.SNAPSHOT and next_index <= node.log.base_index:
        progress.is_repairing = True
        return
    if progress.pace is not Pace.REPAIR or next_index != progress.next_index:
        progress.become_repair(next_index)
