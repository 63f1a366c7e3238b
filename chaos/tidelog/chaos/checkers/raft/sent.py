"""Invariants of messages: each promise is looked up where it must be true, before it leaves."""

from tidelog.chaos.checkers.raft.board import Board, Seen
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    VoteRequest,
    VoteResponse,
)


def one_vote_per_term(board: Board, member: Seen, message: VoteResponse) -> str | None:
    """A voter votes for one candidate in a term, whatever it forgot meanwhile."""
    if message.is_pre_vote or not message.is_granted:
        return None
    known = board.votes.setdefault((member.id, message.term), message.receiver)
    if known != message.receiver:
        return f"voted for n{known.node_id} and n{message.receiver.node_id} in {message.term}"
    board.votes_for.setdefault((message.receiver, message.term), {})[member.id] = None
    return None


def vote_is_flushed(board: Board, member: Seen, message: VoteResponse) -> str | None:
    """A vote is flushed before it is told."""
    if message.is_pre_vote or not message.is_granted:
        return None
    state = member.flushed.hard_state
    if state.term > message.term or (state.term, state.voted_for) == (
        message.term,
        message.receiver,
    ):
        return None
    return f"told its vote of term {message.term}, flushed is term {state.term}"


def vote_for_good_log(board: Board, member: Seen, message: VoteResponse) -> str | None:
    """A vote or PreVote goes only to a log that is not behind the voter's own (§5.4.1)."""
    if not message.is_granted:
        return None
    key = (member.id, message.receiver, message.term, message.is_pre_vote)
    asked = board.requests.get(key)
    if asked is None:
        return f"granted term {message.term} to n{message.receiver.node_id}, which never asked"
    return (
        f"gave {'a PreVote' if message.is_pre_vote else 'a vote'} {asked[0]}" if asked[0] else None
    )


def stable_leader_stays(board: Board, member: Seen, message: VoteResponse) -> str | None:
    """Who hears a leader grants nothing to others, unless that leader hands over."""
    description = member.description
    if not message.is_granted or member.contact_ms is None or description is None:
        return None
    if description.leader is None:
        return None  # Somebody with a later term told it that its leader leads no more.
    key = (member.id, message.receiver, message.term, message.is_pre_vote)
    asked = board.requests.get(key)
    if asked is not None and asked[1]:
        return None
    if not message.is_pre_vote and message.term == member.contact_term:
        return None
    silence_ms = member.now_ms - member.contact_ms
    if message.is_pre_vote and silence_ms < member.election_timeout_ms:
        return f"granted a PreVote {silence_ms} ms after it heard a leader"
    return None


def candidate_tells_its_log(board: Board, member: Seen, message: VoteRequest) -> str | None:
    """What a candidate says of its log is true, and its own vote is flushed before it asks."""
    mine = (message.last_term, message.last_index)
    if mine > member.asked.promised_last():
        return f"says that its log ends with {mine}, not {member.asked.promised_last()}"
    if message.is_pre_vote:
        return None
    state = member.flushed.hard_state
    if (state.term, state.voted_for) != (message.term, member.id):
        return f"asks for term {message.term} before its own vote is flushed"
    return None


def ack_is_flushed(board: Board, member: Seen, message: AppendResponse) -> str | None:
    """Nothing is acknowledged that is not flushed."""
    if not message.is_success:
        return None
    if message.match_index > member.flushed.last_index:
        return f"acknowledged {message.match_index}, flushed is {member.flushed.last_index}"
    return None


def ack_is_equal(board: Board, member: Seen, message: AppendResponse) -> str | None:
    """Up to what is acknowledged, the log equals the leader's (Figure 3, log matching)."""
    leader = board.leader_of(message.term)
    if not message.is_success or leader is None or leader.id != message.receiver:
        return None
    index = message.match_index
    own, theirs = member.flushed.term_at(index), leader.asked.term_at(index)
    if own is not None and theirs is not None and own != theirs:
        return f"acknowledged {index} of term {own}, the leader's is of term {theirs}"
    return None


def no_ack_while_repairing(board: Board, member: Seen, message: AppendResponse) -> str | None:
    """Who lost entries acknowledges nothing until all are back and flushed."""
    repair = member.flushed.hard_state.repair
    if repair is None or not message.is_success:
        return None
    return f"acknowledged {message.match_index} with a repair from {repair.from_index} flushed"


def only_leaders_append(board: Board, member: Seen, message: AppendRequest) -> str | None:
    """Entries and heartbeats come from the leader of their term."""
    leader = board.leaders.setdefault(message.term, member.id)
    return None if leader == member.id else f"sends entries of term {message.term}, which it lost"


def append_is_true(board: Board, member: Seen, message: AppendRequest) -> str | None:
    """What is sent is the leader's log, and the commit index its own."""
    previous = member.asked.term_at(message.previous_index)
    if previous is not None and previous != message.previous_term:
        return f"says that {message.previous_index} has term {message.previous_term}"
    index: int = message.previous_index
    for entry in message.entries:
        index += 1
        own = member.asked.entry(index)
        if entry.index != index or (own is not None and own is not entry and own != entry):
            return f"sends another entry {entry.index} than its own"
    description = member.description
    if description is not None and message.commit_index > board.commit_index:
        return f"says that {message.commit_index} is committed, {board.commit_index} is"
    return None


def snapshot_offer_is_true(board: Board, member: Seen, message: AppendRequest) -> str | None:
    """An offered snapshot lies flushed at the leader and ends at a committed entry."""
    offer = message.snapshot
    if offer is None:
        return None
    if member.flushed.snapshot is None or offer > member.flushed.snapshot.id:
        return f"offers a snapshot up to {offer.end_index} that it does not have"
    if offer.term != board.committed_term(offer.end_index - 1):
        return f"offers a snapshot up to {offer.end_index} of term {offer.term}"
    return None


def speaks_for_itself(board: Board, member: Seen, message: Message) -> str | None:
    """The sender is this node with this directory; a learner is never asked for its vote."""
    if message.sender != member.id:
        return "speaks as another member"
    if member.is_gone:
        return "speaks with a directory that was wiped"
    return None


VOTE_RESPONSE_INVARIANTS = (
    one_vote_per_term,
    vote_is_flushed,
    vote_for_good_log,
    stable_leader_stays,
)
VOTE_REQUEST_INVARIANTS = (candidate_tells_its_log,)
APPEND_RESPONSE_INVARIANTS = (ack_is_flushed, ack_is_equal, no_ack_while_repairing)
APPEND_REQUEST_INVARIANTS = (only_leaders_append, append_is_true, snapshot_offer_is_true)
ANY_MESSAGE_INVARIANTS = (speaks_for_itself,)
