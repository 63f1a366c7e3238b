"""Invariants that a member would break, if it did what these boards show."""

from collections.abc import Iterable

import msgspec

from tidelog.chaos.checkers.raft import sent as raft_sent
from tidelog.chaos.checkers.raft import steps as raft_steps
from tidelog.chaos.checkers.raft import stored as raft_stored
from tidelog.chaos.checkers.raft import whole as raft_whole
from tidelog.chaos.checkers.raft.board import Board, Seen
from tidelog.metadata_quorum.raft.core_port import Description, MemberProgress
from tidelog.metadata_quorum.raft.effects import Apply, Persist, ResetLog, Role
from tidelog.metadata_quorum.raft.membership import encode_members
from tidelog.metadata_quorum.raft.messages import AppendRequest, AppendResponse, VoteRequest
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
    Recovered,
    Repair,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term

IDS = [MemberId(NodeId(number), bytes([number]) * 16) for number in (1, 2, 3)]
MEMBERS = Members(tuple(Member(id=each, address=f"n{each.node_id}:1") for each in IDS))


def entries(*terms: int, first: int = 1) -> tuple[Entry, ...]:
    return tuple(
        Entry(index=LogIndex(first + place), term=Term(term), kind=EntryKind.EMPTY)
        for place, term in enumerate(terms)
    )


def board(*logs: Iterable[int], committed: int = 0) -> Board:
    """Members with these terms in their logs, all of it flushed; the first log is the true one."""
    made = Board()
    for member_id, log in zip(IDS, logs, strict=False):
        member = made.members[member_id] = Seen(member_id, MEMBERS, 1_000)
        for content in (member.asked, member.flushed):
            content.append(entries(*log))
        member.description = describe(member)
    made.committed = list(made.members[IDS[0]].asked.entries[:committed])
    made.committed_in = [entry.term for entry in made.committed]
    return made


def describe(member: Seen, **changes: object) -> Description:
    content = member.asked
    made = Description(
        id=member.id,
        role=Role.FOLLOWER,
        term=content.last_term,
        leader=None,
        hard_state=HardState(),
        persisted_state=HardState(),
        last_index=LogIndex(content.last_index),
        last_term=content.last_term,
        persisted_index=LogIndex(content.last_index),
        commit_index=LogIndex(0),
        applied_index=LogIndex(0),
        log_start_index=LogIndex(1),
        snapshot=None,
        members=MEMBERS,
        members_index=LogIndex(0),
        committed_members=MEMBERS,
        is_repairing=False,
        transfer_to=None,
        progress=(),
    )
    return msgspec.structs.replace(made, **changes)


def append_request(sender: MemberId, term: int, **changes: object) -> AppendRequest:
    made = AppendRequest(
        sender=sender,
        receiver=IDS[1],
        term=Term(term),
        previous_index=LogIndex(0),
        previous_term=Term(0),
        entries=(),
        commit_index=LogIndex(0),
        round=1,
    )
    return msgspec.structs.replace(made, **changes)


def acknowledgement(sender: MemberId, match_index: int) -> AppendResponse:
    return AppendResponse(
        sender=sender,
        receiver=IDS[0],
        term=Term(1),
        is_success=True,
        match_index=LogIndex(match_index),
        hint_index=LogIndex(0),
        hint_term=Term(0),
        round=1,
        repair_from_index=LogIndex(0),
    )


def snapshot(end_index: int, term: int) -> Snapshot:
    identity = SnapshotId(end_index=LogIndex(end_index), term=Term(term))
    return Snapshot(id=identity, members=MEMBERS, size_bytes=1)


def step(made: Board, place: int, **changes: object) -> tuple[Board, Seen, None, Description]:
    member = made.members[IDS[place]]
    return made, member, None, describe(member, **changes)


def test_a_second_leader_of_a_term_is_seen() -> None:
    made = board([1], [1])
    assert raft_steps.one_leader_per_term(*step(made, 0, role=Role.LEADER)) is None
    assert raft_steps.one_leader_per_term(*step(made, 1, role=Role.LEADER))


def test_a_term_behind_a_flushed_one_is_seen() -> None:
    made = board([2])
    made.members[IDS[0]].term = 3
    assert raft_steps.term_never_falls(*step(made, 0, term=2))
    assert raft_steps.term_never_falls(*step(made, 0, term=3)) is None


def test_a_new_leader_without_a_committed_entry_is_seen() -> None:
    made = board([1, 1], [1], committed=2)
    assert raft_steps.leader_is_complete(*step(made, 1, role=Role.LEADER))
    assert raft_steps.leader_is_complete(*step(made, 0, role=Role.LEADER)) is None


def test_a_leader_that_hears_late_of_its_votes_need_not_have_what_a_later_one_committed() -> None:
    made = board([1, 3], [1, 2], [], committed=2)
    late = {"role": Role.LEADER, "term": Term(2)}
    assert raft_steps.leader_is_complete(*step(made, 1, **late)) is None
    assert raft_steps.leader_is_complete(*step(made, 2, **late)), "1 was committed in term 1"
    made.committed_in = [2, 2]
    assert raft_steps.leader_is_complete(*step(made, 1, **late)), "both were by then"


def test_what_is_committed_is_known_with_the_term_of_the_leader_that_did_it() -> None:
    made = board([1, 1, 3])
    assert raft_steps.commits_agree(*step(made, 0, term=Term(3), commit_index=LogIndex(3))) is None
    assert made.committed_in == [3, 3, 3]
    assert made.committed_up_to(2) == 0


def test_a_leader_of_too_few_votes_is_seen() -> None:
    made = board([1], [1], [1])
    assert raft_steps.leader_has_majority(*step(made, 0, role=Role.LEADER))
    made.votes_for[IDS[0], 1] = {IDS[1]: None, IDS[2]: None}
    assert raft_steps.leader_has_majority(*step(made, 0, role=Role.LEADER)) is None


def test_an_entry_behind_the_leaders_last_one_is_seen() -> None:
    made = board([1, 1])
    made.term_ends[1] = 3
    assert raft_steps.leader_is_furthest(*step(made, 0, role=Role.LEADER))


def test_a_learner_or_a_damaged_member_that_campaigns_is_seen() -> None:
    made = board([1])
    assert raft_steps.only_whole_voters_campaign(*step(made, 0, role=Role.CANDIDATE)) is None
    learners = Members((Member(id=IDS[0], address="n1:1", is_learner=True),))
    for changes in ({"is_repairing": True}, {"members": learners}):
        assert raft_steps.only_whole_voters_campaign(
            *step(made, 0, role=Role.PRE_CANDIDATE, **changes)
        )


def test_a_member_may_campaign_until_it_knows_that_it_was_taken_out() -> None:
    others = Members(MEMBERS.members[1:])
    taken_out = Entry(
        index=LogIndex(2), term=Term(1), kind=EntryKind.MEMBERS, data=encode_members(others)
    )
    made = board([1])
    member = made.members[IDS[0]]
    member.asked.append((taken_out,))
    member.member_indexes = [2]
    changes = {"role": Role.PRE_CANDIDATE, "members": others}
    assert raft_steps.only_whole_voters_campaign(*step(made, 0, **changes)) is None
    changes["commit_index"] = LogIndex(2)
    assert raft_steps.only_whole_voters_campaign(*step(made, 0, **changes))


def test_only_the_last_change_of_members_may_not_be_committed_yet() -> None:
    others = Members(MEMBERS.members[1:])
    made = board([1])
    member = made.members[IDS[0]]
    for index, now in ((2, others), (3, Members(MEMBERS.members[2:]))):
        data = encode_members(now)
        entry = Entry(index=LogIndex(index), term=Term(1), kind=EntryKind.MEMBERS, data=data)
        member.asked.append((entry,))
        member.member_indexes.append(index)
    assert raft_steps.only_whole_voters_campaign(
        *step(made, 0, role=Role.PRE_CANDIDATE, members=Members(MEMBERS.members[2:]))
    )


def test_a_log_that_starts_behind_the_snapshots_end_is_seen() -> None:
    made = board([1, 1, 1])
    assert raft_steps.log_starts_in_snapshot(*step(made, 0, log_start_index=2))


def test_a_flushed_vote_that_memory_forgot_is_seen() -> None:
    made = board([1])
    made.members[IDS[0]].flushed.hard_state = HardState(term=Term(1), voted_for=IDS[1])
    assert raft_steps.flushed_state_is_true(*step(made, 0))


def test_a_commit_that_a_minority_holds_is_seen() -> None:
    made = board([1, 1], [1], [])
    member = made.members[IDS[0]]
    before = describe(member, role=Role.LEADER, commit_index=0)
    one = describe(member, role=Role.LEADER, commit_index=1)
    two = describe(member, role=Role.LEADER, commit_index=2)
    assert raft_steps.majority_holds_commit(made, member, before, one) is None
    assert raft_steps.majority_holds_commit(made, member, before, two)


def test_a_message_in_anothers_name_or_of_a_wiped_directory_is_seen() -> None:
    made = board([1])
    member = made.members[IDS[0]]
    assert raft_sent.speaks_for_itself(made, member, append_request(IDS[1], 1))
    assert raft_sent.speaks_for_itself(made, member, append_request(IDS[0], 1)) is None
    member.is_gone = True
    assert raft_sent.speaks_for_itself(made, member, append_request(IDS[0], 1))


def test_entries_of_somebody_who_does_not_lead_are_seen() -> None:
    made = board([1], [1])
    made.leaders[1] = IDS[0]
    assert raft_sent.only_leaders_append(made, made.members[IDS[1]], append_request(IDS[1], 1))


def test_an_append_that_is_not_the_leaders_log_is_seen() -> None:
    made = board([1, 2])
    member = made.members[IDS[0]]
    other = append_request(IDS[0], 2, entries=entries(1, 1))
    assert raft_sent.append_is_true(made, member, other)
    untrue = append_request(IDS[0], 2, previous_index=2, previous_term=1)
    assert raft_sent.append_is_true(made, member, untrue)
    beyond = append_request(IDS[0], 2, commit_index=1)
    assert raft_sent.append_is_true(made, member, beyond)


def test_an_offered_snapshot_that_is_not_there_or_not_committed_is_seen() -> None:
    made = board([1, 1], committed=2)
    member = made.members[IDS[0]]
    offer = append_request(IDS[0], 1, snapshot=snapshot(3, 1).id)
    assert raft_sent.snapshot_offer_is_true(made, member, offer)
    member.flushed.snapshot = snapshot(3, 1)
    assert raft_sent.snapshot_offer_is_true(made, member, offer) is None
    wrong = append_request(IDS[0], 1, snapshot=snapshot(2, 0).id)
    assert raft_sent.snapshot_offer_is_true(made, member, wrong)


def test_a_candidate_that_boasts_or_asks_before_its_vote_is_flushed_is_seen() -> None:
    made = board([1, 1])
    member = made.members[IDS[0]]
    request = VoteRequest(
        sender=IDS[0],
        receiver=IDS[1],
        term=Term(2),
        last_index=LogIndex(2),
        last_term=Term(1),
        is_pre_vote=False,
    )
    assert raft_sent.candidate_tells_its_log(made, member, request)
    member.flushed.hard_state = HardState(term=Term(2), voted_for=IDS[0])
    assert raft_sent.candidate_tells_its_log(made, member, request) is None
    boast = msgspec.structs.replace(request, last_index=LogIndex(3))
    assert raft_sent.candidate_tells_its_log(made, member, boast)


def test_an_acknowledgement_of_another_log_or_while_repairing_is_seen() -> None:
    made = board([1, 2], [1, 1])
    made.leaders[1] = IDS[0]
    leader, member = made.members[IDS[0]], made.members[IDS[1]]
    leader.description = describe(leader, role=Role.LEADER, term=1)
    assert raft_sent.ack_is_equal(made, member, acknowledgement(IDS[1], 1)) is None
    assert raft_sent.ack_is_equal(made, member, acknowledgement(IDS[1], 2))
    assert raft_sent.ack_is_flushed(made, member, acknowledgement(IDS[1], 3))
    repair = Repair(from_index=LogIndex(1), last_index=LogIndex(2), last_term=Term(1))
    member.flushed.hard_state = HardState(repair=repair)
    assert raft_sent.no_ack_while_repairing(made, member, acknowledgement(IDS[1], 1))


def test_a_leader_that_cuts_its_log_or_loads_a_snapshot_is_seen() -> None:
    made = board([1, 1])
    member = made.members[IDS[0]]
    member.description = describe(member, role=Role.LEADER)
    cut = Persist(sequence=1, truncate_from=LogIndex(2))
    reset = ResetLog(sequence=1, snapshot=snapshot(3, 1), hard_state=HardState())
    assert raft_stored.leader_only_appends(made, member, cut)
    assert raft_stored.leader_only_appends(made, member, reset)


def test_a_committed_entry_that_is_dropped_is_seen_unless_it_is_written_again() -> None:
    made = board([1, 1], committed=2)
    member = made.members[IDS[0]]
    cut = Persist(sequence=1, truncate_from=LogIndex(2))
    assert raft_stored.committed_stays(made, member, cut)
    again = msgspec.structs.replace(cut, entries=entries(1, first=2))
    assert raft_stored.committed_stays(made, member, again) is None
    reset = ResetLog(sequence=1, snapshot=snapshot(2, 1), hard_state=HardState())
    assert raft_stored.committed_stays(made, member, reset)


def test_a_snapshot_of_something_uncommitted_or_of_another_term_is_seen() -> None:
    made = board([1, 2], committed=1)
    assert raft_stored.snapshot_is_true(made, snapshot(2, 1).id) is None
    assert raft_stored.snapshot_is_true(made, snapshot(2, 2).id)
    assert raft_stored.snapshot_is_true(made, snapshot(3, 2).id)


def test_what_is_applied_before_it_is_committed_is_seen() -> None:
    made = board([1, 1], committed=1)
    member = made.members[IDS[0]]
    assert raft_stored.applied_is_committed(made, member, Apply(entries=entries(1))) is None
    assert raft_stored.applied_is_committed(made, member, Apply(entries=entries(1, 1)))


def test_a_start_that_forgot_entries_or_a_vote_is_seen() -> None:
    made = board([1, 1])
    member = made.members[IDS[0]]
    found = Recovered(hard_state=HardState(), snapshot=None, bootstrap=MEMBERS, entries=entries(1))
    assert raft_stored.restart_forgets_nothing(made, member, found)
    member.unflushed.append(Persist(sequence=1, truncate_from=LogIndex(2)))
    assert raft_stored.restart_forgets_nothing(made, member, found) is None
    member.flushed.hard_state = HardState(term=Term(1), voted_for=IDS[0])
    assert raft_stored.restart_forgets_nothing(made, member, found)


def test_a_commit_that_a_quorum_lacks_is_seen() -> None:
    made = board([1], [], [], committed=1)
    assert raft_whole.quorum_holds_committed(made)
    made.members[IDS[1]].flushed.append(entries(1))
    assert raft_whole.quorum_holds_committed(made) is None


def test_a_log_that_would_win_without_a_committed_entry_is_seen() -> None:
    made = board([1, 1], [1, 2], committed=2)
    made.members[IDS[0]].commit_index = 2
    assert raft_whole.winner_holds_committed(made)


def test_logs_that_part_and_meet_again_are_seen() -> None:
    assert raft_whole.logs_match(board([1, 1, 2], [1, 1])) is None
    assert raft_whole.logs_match(board([1, 1, 2], [1, 2, 2]))


def test_a_committed_prefix_that_differs_is_seen() -> None:
    made = board([1, 1], [1, 2], committed=2)
    made.members[IDS[1]].commit_index = 2
    assert raft_whole.committed_prefixes_agree(made)


def test_a_leader_that_counts_on_what_is_not_flushed_there_is_seen() -> None:
    made = board([1, 1], [1])
    leader = made.members[IDS[0]]
    progress = MemberProgress(
        id=IDS[1],
        match_index=LogIndex(2),
        next_index=LogIndex(3),
        state="replicate",
        in_flight=0,
        last_contact_ms=0,
    )
    leader.description = describe(leader, role=Role.LEADER, progress=(progress,))
    assert raft_whole.progress_is_true(made)


def test_two_leaders_of_one_term_at_once_are_seen() -> None:
    made = board([1], [1])
    for member in made.members.values():
        member.description = describe(member, role=Role.LEADER)
    assert raft_whole.one_leader_now(made)
