"""The core: one member of the quorum. Messages, requests and completions in, effects out.

Owns the dispatch of every input to the role that it concerns, and the order of the effects of one
input: what is to be persisted first, then the rest as it was decided, then what changed for those
outside. Pure: equal inputs give equal effects. Its theory of operation is docs/raft.md.
"""

from typing import assert_never

import msgspec

from tidelog.metadata_quorum.raft import (
    candidate,
    changes,
    description,
    follower,
    leader,
    reads,
    repair,
    snapshots,
    transfer,
    transitions,
    validation,
    voting,
)
from tidelog.metadata_quorum.raft.bounds import is_step_sane
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Effect, MembersChanged, RoleChanged
from tidelog.metadata_quorum.raft.inputs import (
    AddLearner,
    CorruptEntry,
    Input,
    PeerDied,
    Persisted,
    Promote,
    Propose,
    Read,
    RemoveMember,
    SnapshotFetched,
    SnapshotFetchFailed,
    SnapshotProgress,
    SnapshotTaken,
    Transfer,
)
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import (
    CandidateState,
    FollowerState,
    LeaderState,
    PreCandidateState,
)
from tidelog.metadata_quorum.raft.types import MemberId, Members, Options, Recovered
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LogIndex, Term


class RaftCore:
    """Implements `core_port.Core`."""

    def __init__(self, member_id: MemberId, recovered: Recovered, options: Options) -> None:
        self._node = Node(member_id, recovered, options)
        self._told_role = (self._node.term, self._node.role_name, self._node.leader)
        self._told_members: tuple[Members, bool] | None = None

    def tick(self, now_ms: int) -> list[Effect]:
        """Time may have passed. A leader first asks itself whether it still may be one."""
        node = self._node
        assert now_ms >= node.now_ms, f"time went back from {node.now_ms} to {now_ms}"
        node.now_ms = now_ms
        if not node.is_started:
            node.is_started = True
            node.start_election_timer()
            snapshots.on_start(node)
            repair.on_persisted(node)
        if isinstance(node.role, LeaderState):
            leader.on_tick(node, node.role)
        if not isinstance(node.role, LeaderState):
            self._tick_without_lead()
        return self._finish()

    def _tick_without_lead(self) -> None:
        node = self._node
        transitions.end_late_hand_over(node)
        is_alone = node.is_sole_voter and isinstance(node.role, FollowerState) and node.can_campaign
        if is_alone or node.now_ms >= node.election_due_ms:
            candidate.on_election_timeout(node)
        else:
            candidate.on_tick(node)
        reads.on_tick(node)

    def step(self, message: Message) -> list[Effect]:
        """Nonsense is passed over in silence: no peer can stop this member with it."""
        node = self._node
        is_sane = is_step_sane(node.term, message.term)
        if is_sane and validation.is_acceptable(message, node.id):
            self._dispatch(message)
        return self._finish()

    def _dispatch(self, message: Message) -> None:
        node = self._node
        match message:
            case AppendRequest():
                follower.on_append_request(node, message)
            case AppendResponse():
                leader.on_append_response(node, message)
            case VoteRequest():
                voting.on_vote_request(node, message)
            case VoteResponse():
                candidate.on_vote_response(node, message)
            case TimeoutNow():
                candidate.on_timeout_now(node, message)
            case ReadIndexRequest():
                reads.on_request(node, message)
            case ReadIndexResponse():
                reads.on_response(node, message)
            case _:
                assert_never(message)

    def give(self, given: Input) -> list[Effect]:
        """Of this node."""
        node = self._node
        match given:
            case Propose() | AddLearner() | Promote() | RemoveMember() | Transfer():
                self._request(given)
            case Read():
                reads.on_read(node, given.request_id)
            case Persisted():
                self._on_persisted(given.sequence)
            case SnapshotTaken():
                snapshots.on_taken(node, given.snapshot)
            case SnapshotFetched():
                snapshots.on_fetched(node, given.snapshot)
            case SnapshotFetchFailed():
                snapshots.on_fetch_failed(node, given.id)
            case SnapshotProgress():
                snapshots.on_progress(node, given.id, given.position)
            case CorruptEntry():
                repair.on_corrupt_entry(node, given.index)
            case PeerDied():
                self._on_peer_died(given.node_id)
            case _:
                assert_never(given)
        return self._finish()

    def _request(self, request: Propose | AddLearner | Promote | RemoveMember | Transfer) -> None:
        """What only a leader does."""
        node = self._node
        role = node.role
        if not isinstance(role, LeaderState):
            known = f"node {node.leader.node_id} does" if node.leader else "no leader is known"
            happened = f"this node does not lead the quorum; {known}"
            node.refuse(request.request_id, ErrorCode.NOT_CONTROLLER, happened)
            return
        match request:
            case Propose():
                leader.on_propose(node, role, request)
            case AddLearner() | Promote() | RemoveMember():
                changes.on_change(node, role, request)
            case Transfer():
                transfer.on_transfer(node, role, request)
            case _:
                assert_never(request)

    def _on_persisted(self, sequence: int) -> None:
        """What waited for it goes on: votes, acknowledgements, commits, applies."""
        node = self._node
        node.persistence.complete(sequence)
        if snapshots.on_persisted(node):
            repair.after_reset(node)
            snapshots.respond_installed(node)
        self._release()
        repair.on_persisted(node)
        match node.role:
            case CandidateState():
                candidate.on_persisted(node)
            case LeaderState():
                leader.advance_commit(node)
            case FollowerState() | PreCandidateState():
                pass
            case _:
                assert_never(node.role)
        node.apply_ready()

    def _release(self) -> None:
        """Held messages whose promise still holds; of several acknowledgements the furthest."""
        node = self._node
        acknowledgement: AppendResponse | None = None
        for message in node.persistence.release():
            if message.term != node.term:
                continue
            match message:
                case AppendResponse() if message.is_success:
                    if node.refetch is None:
                        acknowledgement = _further(acknowledgement, message)
                case VoteRequest():
                    if isinstance(node.role, CandidateState):
                        node.send(message)
                case _:
                    node.send(message)
        if acknowledgement is not None:
            persisted = node.persistence.persisted_index
            if acknowledgement.match_index <= persisted:
                node.send(acknowledgement)

    def _on_peer_died(self, node_id: int) -> None:
        """Only the leader's death means an election; those who outlive it do not begin at once,
        and not at the same moment.
        """
        node = self._node
        if isinstance(node.role, LeaderState):
            leader.on_peer_died(node, node.role, node_id)
        elif node.leader is not None and node.leader.node_id == node_id:
            node.lease_until_ms = node.now_ms
            others = [voter for voter in node.membership.voters if voter != node.leader]
            place = others.index(node.id) if node.id in others else len(others)
            wait_ms = node.options.death_hint_wait_ms + place * node.options.heartbeat_ms
            node.election_due_ms = min(node.election_due_ms, node.now_ms + wait_ms)

    def _finish(self) -> list[Effect]:
        node = self._node
        effects, node.effects = node.effects, []
        persist = node.persistence.take(node.hard_state)
        if persist is not None:
            effects.insert(0, persist)
        role = (node.term, node.role_name, node.leader)
        if role != self._told_role:
            self._told_role = role
            effects.append(RoleChanged(term=role[0], role=role[1], leader=role[2]))
        self._tell_members(effects)
        return effects

    def _tell_members(self, effects: list[Effect]) -> None:
        membership = self._node.membership
        is_committed = membership.index <= self._node.commit_index
        told = self._told_members
        if told is None or told[0] is not membership.members or told[1] is not is_committed:
            self._told_members = (membership.members, is_committed)
            effects.append(MembersChanged(members=membership.members, is_committed=is_committed))

    def term_at(self, index: LogIndex) -> Term | None:
        """Of an entry, or of the snapshot's last one."""
        snapshot = self._node.snapshot
        if snapshot is not None and index == snapshot.last_index:
            return snapshot.id.term
        return self._node.log.term_at(index)

    def describe(self) -> Description:
        """A value."""
        return description.describe(self._node)


def _further(first: AppendResponse | None, second: AppendResponse) -> AppendResponse:
    """Both are of one term, so both go to its one leader."""
    if first is None:
        return second
    return msgspec.structs.replace(
        second,
        match_index=max(first.match_index, second.match_index),
        round=max(first.round, second.round),
    )
