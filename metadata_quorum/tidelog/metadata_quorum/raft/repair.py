"""A member whose storage lost entries that it had acknowledged, until they are there again: they
are damaged, or an old copy of the directory has none of them.

Owns the repair of the hard state and what is fetched again. Until it ends, the member judges votes
by the last entry that it ever had, never campaigns, and never reports a match. The argument why
each of its steps may be torn by a crash is in docs/raft.md, "Repair".
"""

from tidelog.metadata_quorum.raft import agreement, snapshots, transitions
from tidelog.metadata_quorum.raft.messages import AppendRequest
from tidelog.metadata_quorum.raft.node import Node, Refetch
from tidelog.metadata_quorum.raft.roles import FollowerState
from tidelog.metadata_quorum.raft.types import Entry, Repair
from tidelog.wire.ids import LogIndex


def on_corrupt_entry(node: Node, index: LogIndex) -> None:
    """Storage cannot read this entry any more. What memory holds stays in use, but is not
    trusted to be what is written again.
    """
    if node.installing is not None or not node.log.base_index < index <= node.log.last_index:
        return
    last_term, last_index = node.last_ever()
    from_index = index
    if node.repair is not None:
        from_index = min(index, node.repair.from_index)
    if not isinstance(node.role, FollowerState):
        transitions.become_follower(node, node.term, None)
    node.set_repair(Repair(from_index=from_index, last_index=last_index, last_term=last_term))
    node.refetch = Refetch(next_index=from_index)
    node.persistence.forget_from(from_index)


def on_matched(node: Node, request: AppendRequest) -> None:
    """The leader has this member's acknowledgement of an entry that its log does not reach: an old
    copy of the directory was put in the place of the one that held it. Nothing of the log is
    damaged, but its end is missing, and with it what votes have to be judged by.
    """
    if request.matched_index <= node.log.last_index:
        return
    first_lost = LogIndex(node.log.last_index + 1)
    last_term, last_index = max(node.last_ever(), (request.matched_term, request.matched_index))
    node.set_repair(Repair(from_index=first_lost, last_index=last_index, last_term=last_term))
    node.refetch = Refetch(next_index=first_lost)


def on_append_request(node: Node, request: AppendRequest) -> None:
    """Take what belongs at the next place; ask for it otherwise."""
    refetch = node.refetch
    assert refetch is not None, "only while repairing"
    if node.persistence.persisted_state.repair is None:
        # The damaged part may be cut only after the repair is flushed: a crash between the two
        # would leave a log that looks merely short.
        _ask(node, request)
    elif request.previous_index >= refetch.next_index:
        if request.snapshot is not None:
            _on_offer(node, request, refetch)
        else:
            _ask(node, request)
    elif not agreement.matches(node, request):
        hint = node.log.last_up_to(request.previous_index, request.previous_term)
        if request.snapshot is not None:
            snapshots.on_offer(node, request)
        else:
            node.respond(request.sender, request.round, hint_index=hint)
    else:
        _store(node, request, refetch)


def _ask(node: Node, request: AppendRequest) -> None:
    node.respond(request.sender, request.round, hint_index=_before(node))


def _before(node: Node) -> LogIndex:
    assert node.refetch is not None, "only while repairing"
    return LogIndex(node.refetch.next_index - 1)


def _store(node: Node, request: AppendRequest, refetch: Refetch) -> None:
    """As a follower does, but everything from the next place on is written, there or not."""
    fresh = [entry for entry in request.entries if entry.index >= refetch.next_index]
    parting = LogIndex(0)
    for entry in request.entries:
        term = node.log.term_at(entry.index)
        if term is not None and term != entry.term:
            parting = entry.index
            break
    if parting:
        if parting <= node.commit_index:
            return
        node.truncate_from(parting)
    if 0 < parting < refetch.next_index:
        fresh = [entry for entry in request.entries if entry.index >= parting]
        refetch.next_index, refetch.is_cut = parting, False
    if fresh:
        _write(node, fresh, refetch)
    agreed = LogIndex(request.previous_index + len(request.entries))
    agreement.take_commit(node, request, agreed)
    barrier = node.persistence.data_barrier(node.hard_state)
    node.respond(request.sender, request.round, hint_index=_before(node), barrier=barrier)


def _write(node: Node, fresh: list[Entry], refetch: Refetch) -> None:
    assert fresh[0].index == refetch.next_index, "a repair leaves no gap"
    if not refetch.is_cut:
        node.persistence.stage_truncate(refetch.next_index)
        refetch.is_cut = True
    beyond = [entry for entry in fresh if entry.index > node.log.last_index]
    node.log.append(beyond)
    node.membership.append(beyond)
    node.persistence.stage_append(fresh)
    refetch.next_index = LogIndex(fresh[-1].index + 1)


def _on_offer(node: Node, request: AppendRequest, refetch: Refetch) -> None:
    """The leader no longer has what is lacking. If memory holds the snapshot's last entry, then
    (log matching) all before it is the leader's as well, and is written again from there: the
    state machine may have applied more than the snapshot holds, and must not go back.
    """
    assert request.snapshot is not None, "an offer names a snapshot"
    last = LogIndex(request.snapshot.end_index - 1)
    if node.log.term_at(last) != request.snapshot.term:
        snapshots.on_offer(node, request)
        return
    _write(node, list(node.log.between(refetch.next_index, last)), refetch)
    barrier = node.persistence.data_barrier(node.hard_state)
    node.respond(request.sender, request.round, hint_index=_before(node), barrier=barrier)


def on_persisted(node: Node) -> None:
    """End the repair once everything is flushed; the hard state that says so comes after it."""
    refetch, repair = node.refetch, node.repair
    if refetch is None or repair is None:
        return
    last = LogIndex(refetch.next_index - 1)
    term = node.log.term_at(last)
    is_flushed = node.persistence.persisted_state.repair is not None
    if last > node.persistence.persisted_index or term is None or not is_flushed:
        return
    if (term, last) >= (repair.last_term, repair.last_index):
        if not refetch.is_cut:
            node.persistence.stage_truncate(refetch.next_index)
        node.refetch = None
        node.set_repair(None)
        if node.leader is not None:
            barrier = node.persistence.data_barrier(node.hard_state)
            node.respond(node.leader, 0, match_index=last, barrier=barrier)


def after_reset(node: Node) -> None:
    """A snapshot took the log's place: what it covers needs no repair."""
    if node.refetch is not None:
        node.refetch = Refetch(next_index=node.log.first_index, is_cut=True)
        on_persisted(node)
