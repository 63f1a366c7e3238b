"""The pre-candidate and the candidate: asking whether one would win, then asking to win.

Owns elections from the asking side. A request for votes leaves only after the candidate's own vote
is flushed; its own vote counts from then on. Asking for a PreVote promises nothing and waits for
nothing. Only voters of the members in force are asked and counted; whoever is being taken out does
not count itself.
"""

from tidelog.metadata_quorum.raft import leader, transitions
from tidelog.metadata_quorum.raft.messages import TimeoutNow, VoteRequest, VoteResponse
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import CandidateState, FollowerState, PreCandidateState
from tidelog.metadata_quorum.raft.types import MemberId
from tidelog.wire.ids import Term


def on_election_timeout(node: Node) -> None:
    """No leader was heard of; whoever may not campaign goes on waiting."""
    if not node.can_campaign:
        if not isinstance(node.role, FollowerState):
            transitions.become_follower(node, node.term, None)
        transitions.lose_leader(node)
        return
    if node.is_sole_voter:
        _campaign(node, is_leadership_transfer=False)
        return
    transitions.lose_leader(node)
    state = PreCandidateState(term=Term(node.term + 1), asked_ms=node.now_ms)
    node.role = state
    state.votes[node.id] = True
    _ask(node, state)


def on_tick(node: Node) -> None:
    """Ask those again who have not answered: a request or its answer may be lost."""
    state = node.role
    if not isinstance(state, PreCandidateState | CandidateState):
        return
    if node.now_ms < state.asked_ms + node.options.heartbeat_ms:
        return
    if isinstance(state, CandidateState) and node.id not in state.votes:
        return
    state.asked_ms = node.now_ms
    _ask(node, state)


def on_timeout_now(node: Node, message: TimeoutNow) -> None:
    """The leader hands over: no PreVote, and nobody's lease protects it."""
    if message.term != node.term or message.sender != node.leader:
        return
    if isinstance(node.role, FollowerState) and node.can_campaign:
        _campaign(node, is_leadership_transfer=True)


def _campaign(node: Node, *, is_leadership_transfer: bool) -> None:
    assert node.can_campaign, "only a voter, or one until now, with its whole log campaigns"
    node.set_state(Term(node.term + 1), node.id)
    state = CandidateState(is_leadership_transfer=is_leadership_transfer, asked_ms=node.now_ms)
    node.role = state
    transitions.lose_leader(node)
    barrier = node.persistence.state_barrier(node.hard_state)
    for voter in node.membership.voters:
        if voter != node.id:
            node.send_after(barrier, _request(node, state, voter))


def _ask(node: Node, state: PreCandidateState | CandidateState) -> None:
    for voter in node.membership.voters:
        if voter not in state.votes and voter != node.id:
            node.send(_request(node, state, voter))


def _request(
    node: Node, state: PreCandidateState | CandidateState, receiver: MemberId
) -> VoteRequest:
    last_term, last_index = node.last_ever()
    is_pre_vote = isinstance(state, PreCandidateState)
    return VoteRequest(
        sender=node.id,
        receiver=receiver,
        term=state.term if isinstance(state, PreCandidateState) else node.term,
        last_index=last_index,
        last_term=last_term,
        is_pre_vote=is_pre_vote,
        is_leadership_transfer=isinstance(state, CandidateState) and state.is_leadership_transfer,
    )


def on_persisted(node: Node) -> None:
    """The candidate's own vote counts once it is flushed."""
    state = node.role
    if not isinstance(state, CandidateState) or node.id in state.votes:
        return
    persisted = node.persistence.persisted_state
    if persisted.term == node.term and persisted.voted_for == node.id:
        state.votes[node.id] = True
        _count(node, state)


def on_vote_response(node: Node, response: VoteResponse) -> None:
    """Of a voter, for what is being asked now; a later term ends the campaign."""
    if not node.members.find(response.sender):
        return
    is_granted_pre_vote = response.is_pre_vote and response.is_granted
    if response.term > node.term and not is_granted_pre_vote:
        transitions.become_follower(node, response.term, None)
        return
    state = node.role
    if isinstance(state, PreCandidateState) and response.is_pre_vote:
        if response.is_granted and response.term != state.term:
            return
    elif isinstance(state, CandidateState) and not response.is_pre_vote:
        if response.term != node.term:
            return
    else:
        return
    if node.membership.is_voter(response.sender):
        state.votes.setdefault(response.sender, response.is_granted)
        _count(node, state)


def _count(node: Node, state: PreCandidateState | CandidateState) -> None:
    voters, majority = node.membership.voters, node.membership.majority
    granted = sum(1 for voter in voters if state.votes.get(voter) is True)
    refused = sum(1 for voter in voters if state.votes.get(voter) is False)
    if granted >= majority:
        if isinstance(state, PreCandidateState):
            _campaign(node, is_leadership_transfer=False)
        else:
            leader.become_leader(node)
    elif refused > len(voters) - majority:
        transitions.become_follower(node, node.term, None)
