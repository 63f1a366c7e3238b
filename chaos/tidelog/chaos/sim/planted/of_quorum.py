"""Bugs that the quorum suite must find: in the core's modules, and in what a node's disk is.

Each is one of those that Raft implementations had. A substitute stands in for a function of the
room for the time of a run.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.chaos.sim.quorum import factory
from tidelog.chaos.sim.quorum.cluster import Cluster
from tidelog.chaos.sim.quorum.node import QuorumNode
from tidelog.chaos.sim.quorum.node_disk import NodeDisk
from tidelog.metadata_quorum.raft import (
    agreement,
    changes,
    leader,
    reads,
    repair,
    snapshots,
    transitions,
    voting,
)
from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.effects import Apply, Persist, ReadAt, ResetLog
from tidelog.metadata_quorum.raft.messages import AppendRequest, VoteRequest
from tidelog.metadata_quorum.raft.node import Node
from tidelog.metadata_quorum.raft.roles import LeaderState
from tidelog.metadata_quorum.raft.types import HardState, MemberId, Options, Recovered, Snapshot
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles
from tidelog.wire.ids import LogIndex, Term


def vote_twice_in_a_term() -> Substitution:
    """Who asks last gets the vote."""
    original = voting.on_vote_request

    def on_vote_request(node: Node, request: VoteRequest) -> None:
        if not request.is_pre_vote and request.term == node.term:
            node.hard_state = HardState(term=node.term, repair=node.repair)
        original(node, request)

    return Substitution(voting, "on_vote_request", on_vote_request)


def commit_an_old_term_by_counting() -> Substitution:
    """Figure 8: replicas of an entry of an older term are counted."""

    def advance_commit(node: Node) -> None:
        role = node.role
        if not isinstance(role, LeaderState):
            return
        index = leader._majority_index(node, role)
        if index > node.commit_index:
            node.commit_to(index)
            leader._answer_changes(node, role)

    return Substitution(leader, "advance_commit", advance_commit)


def acknowledge_before_flush() -> Substitution:
    """An append is answered when it is in memory."""
    original = Node.respond

    def respond(self: Node, *arguments: Any, **options: Any) -> None:
        options["barrier"] = 0
        original(self, *arguments, **options)

    return Substitution(Node, "respond", respond)


def forget_the_vote_at_a_start() -> Substitution:
    """The term is read back, the vote is not."""

    def make_core(member_id: MemberId, recovered: Recovered, options: Options) -> Core:
        state = msgspec.structs.replace(recovered.hard_state, voted_for=None)
        found = msgspec.structs.replace(recovered, hard_state=state)
        return RaftCore(member_id, found, options)

    return Substitution(factory, "make_core", make_core)


def take_entries_without_the_previous() -> Substitution:
    """What comes before the entries is not compared."""

    def matches(node: Node, request: AppendRequest) -> bool:
        return request.previous_index <= node.log.last_index

    return Substitution(agreement, "matches", matches)


def truncate_what_matches() -> Substitution:
    """The log ends where a request ends, also a request that comes late."""

    def store(node: Node, request: AppendRequest) -> bool:
        fresh = tuple(entry for entry in request.entries if entry.index > node.log.base_index)
        if not fresh:
            return True
        begin = fresh[0].index
        if begin <= node.log.last_index:
            node.commit_index = min(node.commit_index, LogIndex(begin - 1))
            node.truncate_from(begin)
            node.persistence.stage_truncate(begin)
        node.append(fresh)
        return True

    return Substitution(agreement, "store", store)


def apply_out_of_order() -> Substitution:
    """The last two entries of a batch change places."""
    original = Node.apply_ready

    def apply_ready(self: Node) -> None:
        original(self)
        if self.effects and isinstance(self.effects[-1], Apply):
            entries = self.effects[-1].entries
            self.effects[-1] = Apply(entries=(*entries[:-2], *entries[:-3:-1]))

    return Substitution(Node, "apply_ready", apply_ready)


def prevote_without_looking_at_the_log() -> Substitution:
    """A PreVote is given to whoever is a voter and hears no leader."""

    def would_grant(node: Node, request: VoteRequest) -> bool:
        return not node.has_lease and request.term > node.term

    return Substitution(voting, "_would_grant", would_grant)


def prevote_against_a_living_leader() -> Substitution:
    """The lease of a leader that is heard of is not looked at."""

    def would_grant(node: Node, request: VoteRequest) -> bool:
        return voting._is_log_good(node, request) and request.term > node.term

    return Substitution(voting, "_would_grant", would_grant)


def two_changes_of_members_at_once() -> Substitution:
    """A change is taken although the one before is not committed."""

    def not_now(node: Node, role: LeaderState) -> None:
        del node, role

    return Substitution(changes, "_not_now", not_now)


def read_without_a_round() -> Substitution:
    """A leader answers reads without asking whether it still leads."""

    def add(node: Node, role: LeaderState, read: Any) -> None:
        read.index = node.commit_index
        if read.asker is None:
            node.answer(read.request_id, ReadAt(index=read.index))
        else:
            reads._respond(node, read.asker, read.read_id, read.index)

    return Substitution(reads, "_add", add)


def install_a_snapshot_without_its_term() -> Substitution:
    """The log goes on from the snapshot's end with the term of today."""
    original = snapshots.on_persisted

    def on_persisted(node: Node) -> bool:
        is_installed = original(node)
        if is_installed:
            node.log.reset(node.log.base_index, node.term)
        return is_installed

    return Substitution(snapshots, "on_persisted", on_persisted)


def count_a_learner() -> Substitution:
    """What a learner has flushed counts for commits."""

    def majority_index(node: Node, role: LeaderState) -> LogIndex:
        flushed = [node.persistence.persisted_index]
        flushed += [progress.match_index for progress in role.progress.values()]
        flushed.sort(reverse=True)
        return min(node.persistence.persisted_index, flushed[node.membership.majority - 1])

    return Substitution(leader, "_majority_index", majority_index)


def leader_counts_what_it_has_not_flushed() -> Substitution:
    """Its own copy counts when it is in memory."""

    def majority_index(node: Node, role: LeaderState) -> LogIndex:
        flushed = [
            node.log.last_index if voter == node.id else role.progress[voter].match_index
            for voter in node.membership.voters
        ]
        flushed.sort(reverse=True)
        return flushed[node.membership.majority - 1]

    return Substitution(leader, "_majority_index", majority_index)


def end_a_repair_too_early() -> Substitution:
    """The first entries that come back end the repair."""

    def on_persisted(node: Node) -> None:
        refetch = node.refetch
        if refetch is None or node.repair is None or not refetch.is_cut:
            return
        last = LogIndex(refetch.next_index - 1)
        if last <= node.persistence.persisted_index:
            node.refetch = None
            node.set_repair(None)

    return Substitution(repair, "on_persisted", on_persisted)


def take_corruption_for_a_torn_tail() -> Substitution:
    """What is damaged is cut off, with everything behind it, and never spoken of."""
    original = NodeDisk.recover

    def recover(self: NodeDisk, left: Any) -> Any:
        found = original(self, left)
        hard_state = msgspec.structs.replace(found.hard_state, repair=None)
        return msgspec.structs.replace(found, hard_state=hard_state)

    return Substitution(NodeDisk, "recover", recover)


def wiped_node_keeps_its_uuid() -> Substitution:
    """A node with an empty directory goes on as the member that it was."""

    def new_directory(self: Cluster, node: QuorumNode) -> None:
        node.disk = NodeDisk(node.member_id, node.disk.bootstrap)
        node.left = type(node.left)()

    return Substitution(Cluster, "new_directory", new_directory)


def commit_beyond_what_is_equal() -> Substitution:
    """A follower takes over the leader's commit index for all of its own log."""

    def take_commit(node: Node, request: AppendRequest, agreed: LogIndex) -> None:
        del agreed
        index = LogIndex(min(request.commit_index, node.log.last_index))
        if index > node.commit_index:
            node.commit_to(index)

    return Substitution(agreement, "take_commit", take_commit)


def vote_before_it_is_flushed() -> Substitution:
    """A vote is told at once."""
    original = Node.send_after

    def send_after(self: Node, barrier: int, message: Any) -> None:
        if type(message).__name__ == "VoteResponse":
            self.send(message)
        else:
            original(self, barrier, message)

    return Substitution(Node, "send_after", send_after)


def report_before_the_flush() -> Substitution:
    """The storage says that a write is flushed when it has only begun."""

    class Hasty(QuorumStorageFiles):
        _last: asyncio.Task[None] | None = None

        async def perform(self, effects: Sequence[Persist | ResetLog]) -> None:
            if any(isinstance(effect, ResetLog) for effect in effects):
                await self._after(self._last, list(effects))
                return
            self._last = asyncio.ensure_future(self._after(self._last, list(effects)))
            await asyncio.sleep(0)

        async def _after(
            self, before: asyncio.Task[None] | None, effects: list[Persist | ResetLog]
        ) -> None:
            if before is not None:
                await before
            await super().perform(effects)

    return _storage_made_into(Hasty)


def storage_hides_damage() -> Substitution:
    """What is corrupt is left out at a start, as if it had never been acknowledged."""

    class Forgetful(QuorumStorageFiles):
        @property
        def recovered(self) -> Recovered:
            found = super().recovered
            state = msgspec.structs.replace(found.hard_state, repair=None)
            return msgspec.structs.replace(found, hard_state=state)

    return _storage_made_into(Forgetful)


def _storage_made_into(kind: type[QuorumStorageFiles]) -> Substitution:
    original = factory.open_storage

    async def open_storage(*arguments: Any) -> QuorumStorageFiles:
        storage = await original(*arguments)
        storage.__class__ = kind
        return storage

    return Substitution(factory, "open_storage", open_storage)


def snapshot_says_more_than_it_holds() -> Substitution:
    """A snapshot is named by the end of the log, and not by what is applied."""
    original = snapshots.on_taken

    def on_taken(node: Node, snapshot: Snapshot) -> None:
        if node.log.last_index > snapshot.last_index and node.refetch is None:
            last = node.log.last_index
            term = node.log.term_at(last)
            assert term is not None, "it is the last entry"
            identity = msgspec.structs.replace(snapshot.id, end_index=LogIndex(last + 1), term=term)
            node.applied_index = node.commit_index = max(node.commit_index, last)
            snapshot = msgspec.structs.replace(snapshot, id=identity)
        original(node, snapshot)

    return Substitution(snapshots, "on_taken", on_taken)


def keep_the_lead_in_a_new_term() -> Substitution:
    """A leader that hears of a later term goes on leading in it."""

    def become_follower(node: Node, term: Term, known: Any) -> None:
        if isinstance(node.role, LeaderState) and term > node.term:
            node.hard_state = HardState(term=term, voted_for=node.id, repair=node.repair)
            return
        _BECOME_FOLLOWER(node, term, known)

    return Substitution(transitions, "become_follower", become_follower)


_BECOME_FOLLOWER: Final = transitions.become_follower


def _plant(make: Callable[[], Substitution], *expected: str) -> Plant:
    return Plant(make=make, expected=frozenset(expected))


PLANTED: Final[Mapping[str, Plant]] = {
    "vote_twice_in_a_term": _plant(
        vote_twice_in_a_term, "one_vote_per_term", "flushed_state_is_true", "one_leader_per_term"
    ),
    "commit_an_old_term_by_counting": _plant(
        commit_an_old_term_by_counting, "commit_counts_own_term", "commits_agree"
    ),
    "acknowledge_before_flush": _plant(acknowledge_before_flush, "ack_is_flushed"),
    "forget_the_vote_at_a_start": _plant(
        forget_the_vote_at_a_start, "flushed_state_is_true", "one_vote_per_term"
    ),
    "take_entries_without_the_previous": _plant(
        take_entries_without_the_previous, "log_matching", "ack_is_equal", "commits_agree"
    ),
    "truncate_what_matches": _plant(
        truncate_what_matches, "committed_stays", "commit_never_falls", "progress_is_true"
    ),
    "apply_out_of_order": _plant(apply_out_of_order, "applied_in_order"),
    "prevote_without_looking_at_the_log": _plant(
        prevote_without_looking_at_the_log, "vote_for_good_log"
    ),
    "prevote_against_a_living_leader": _plant(
        prevote_against_a_living_leader, "stable_leader_stays"
    ),
    "two_changes_of_members_at_once": _plant(
        two_changes_of_members_at_once, "one_change_of_members"
    ),
    "read_without_a_round": _plant(
        read_without_a_round, "read_reflects_commits", "not_linearizable"
    ),
    "install_a_snapshot_without_its_term": _plant(
        install_a_snapshot_without_its_term,
        "candidate_tells_its_log",
        "append_is_true",
        "last_term_is_true",
    ),
    "count_a_learner": _plant(count_a_learner, "majority_holds_commit"),
    "leader_counts_what_it_has_not_flushed": _plant(
        leader_counts_what_it_has_not_flushed, "commit_within_own_flush", "majority_holds_commit"
    ),
    "end_a_repair_too_early": _plant(end_a_repair_too_early, "repair_ends_whole"),
    "take_corruption_for_a_torn_tail": _plant(
        take_corruption_for_a_torn_tail, "restart_forgets_nothing"
    ),
    "wiped_node_keeps_its_uuid": _plant(
        wiped_node_keeps_its_uuid, "restart_forgets_nothing", "one_vote_per_term"
    ),
    "commit_beyond_what_is_equal": _plant(commit_beyond_what_is_equal, "commits_agree"),
    "vote_before_it_is_flushed": _plant(vote_before_it_is_flushed, "vote_is_flushed"),
    "report_before_the_flush": _plant(report_before_the_flush, "restart_forgets_nothing"),
    "storage_hides_damage": _plant(
        storage_hides_damage, "restart_forgets_nothing", "repair_ends_whole"
    ),
    "snapshot_says_more_than_it_holds": _plant(
        snapshot_says_more_than_it_holds, "commits_agree", "pointers_in_order", "applied_in_order"
    ),
    "keep_the_lead_in_a_new_term": _plant(
        keep_the_lead_in_a_new_term, "one_leader_per_term", "leader_has_majority"
    ),
}
"""By name; for the runner's `--planted` and the tests."""
