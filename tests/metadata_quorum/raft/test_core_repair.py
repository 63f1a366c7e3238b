"""Snapshots for those who are far behind, and repair of those whose disk lost something."""

from tests.metadata_quorum.raft.harness import Quorum, member_id, members_of
from tests.metadata_quorum.raft.storms import SMALL
from tidelog.metadata_quorum.raft.effects import FetchSnapshot, Persist, ResetLog, Role
from tidelog.metadata_quorum.raft.inputs import CorruptEntry, SnapshotFetched
from tidelog.metadata_quorum.raft.messages import AppendRequest, VoteRequest, VoteResponse
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    MemberId,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term


def _written(quorum: Quorum, count: int) -> MemberId:
    leader = quorum.elect()
    for number in range(count):
        quorum.propose(leader, b"%d" % number)
        quorum.settle()
    quorum.run(500)
    return leader


def _follower(quorum: Quorum, leader: MemberId) -> MemberId:
    return next(each for each in quorum.machines if each != leader)


def _behind_a_snapshot() -> tuple[Quorum, MemberId, MemberId]:
    quorum = Quorum(1, 2, 3, options=SMALL)
    leader = quorum.elect()
    behind = _follower(quorum, leader)
    quorum.crash(behind)
    _written(quorum, 20)
    quorum.take_snapshot(leader)
    assert quorum.state(leader).log_start_index > 10
    return quorum, leader, behind


def test_a_member_behind_the_log_gets_a_snapshot_and_then_entries() -> None:
    quorum, leader, behind = _behind_a_snapshot()
    quorum.start(behind)
    quorum.propose(leader, b"after")
    quorum.run(1_000)
    assert quorum.state(behind).snapshot == quorum.state(leader).snapshot
    assert quorum.at(behind).applied == quorum.at(leader).applied


def test_a_snapshot_is_in_use_only_after_its_reset_is_flushed() -> None:
    quorum, leader, behind = _behind_a_snapshot()
    quorum.start(behind)
    for _ in range(1_000):
        quorum.deliver()
        quorum.flush(leader)
        quorum.tick(leader)
        machine = quorum.at(behind)
        if machine.fetch is not None:
            break
        quorum.flush(behind)
    assert isinstance(quorum.at(behind).fetch, FetchSnapshot)
    quorum.finish_fetch(behind)
    assert isinstance(quorum.at(behind).writes[-1], ResetLog)
    assert quorum.state(behind).snapshot is None
    quorum.restart(behind)
    assert quorum.state(behind).snapshot is None
    quorum.run(1_000)
    assert quorum.state(behind).snapshot == quorum.state(leader).snapshot


def _offer(end_index: int) -> AppendRequest:
    return AppendRequest(
        sender=member_id(2),
        receiver=member_id(1),
        term=Term(1),
        previous_index=LogIndex(end_index - 1),
        previous_term=Term(1),
        entries=(),
        commit_index=LogIndex(end_index - 1),
        round=1,
        snapshot=SnapshotId(end_index=LogIndex(end_index), term=Term(1)),
        snapshot_bytes=100,
    )


def _entries(previous_index: int, count: int, *, term: int, commit: int) -> AppendRequest:
    return AppendRequest(
        sender=member_id(2),
        receiver=member_id(1),
        term=Term(term),
        previous_index=LogIndex(previous_index),
        previous_term=Term(1 if previous_index else 0),
        entries=tuple(
            Entry(index=LogIndex(previous_index + place), term=Term(1), kind=EntryKind.COMMAND)
            for place in range(1, count + 1)
        ),
        commit_index=LogIndex(commit),
        round=1,
    )


def _fetched(end_index: int) -> SnapshotFetched:
    return SnapshotFetched(
        snapshot=Snapshot(
            id=SnapshotId(end_index=LogIndex(end_index), term=Term(1)),
            members=members_of(1, 2, 3),
            size_bytes=100,
        )
    )


def test_an_earlier_flush_does_not_put_a_snapshot_in_use() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_offer(6))
    fetched = _fetched(6)
    quorum.snapshots[fetched.snapshot.id] = (fetched.snapshot, [])
    effects = quorum.give(1, fetched)
    assert [type(effect) for effect in effects] == [ResetLog]
    quorum.flush(1, 1)
    assert quorum.state(1).snapshot is None
    quorum.flush(1)
    assert quorum.state(1).commit_index == 5


def test_a_snapshot_that_is_overtaken_while_it_is_fetched_is_not_put_in_use() -> None:
    quorum = Quorum(1, 2, 3, options=SMALL)
    quorum.step(_offer(3))
    quorum.step(_entries(0, 12, term=1, commit=12))
    quorum.flush(1)
    quorum.take_snapshot(1)
    assert quorum.state(1).log_start_index > 3
    assert quorum.give(1, _fetched(3)) == []


def test_nothing_is_written_again_before_the_repair_is_flushed() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_entries(0, 10, term=1, commit=10))
    quorum.flush(1)
    quorum.give(1, CorruptEntry(index=LogIndex(5)))
    assert quorum.step(_entries(4, 6, term=1, commit=10)) == []
    quorum.flush(1)
    (write,) = [e for e in quorum.step(_entries(4, 6, term=1, commit=10)) if isinstance(e, Persist)]
    assert (write.truncate_from, len(write.entries), write.hard_state) == (5, 6, None)
    quorum.flush(1)
    assert quorum.at(1).disk.hard_state.repair is not None
    quorum.flush(1)
    assert quorum.at(1).disk.hard_state.repair is None
    assert quorum.state(1).persisted_index == 10


def test_a_leader_never_loads_a_snapshot() -> None:
    quorum, leader, behind = _behind_a_snapshot()
    quorum.start(behind)
    quorum.run(1_000)
    assert not any(isinstance(write, ResetLog) for write in quorum.at(leader).writes)
    assert quorum.at(leader).fetch is None


def test_entries_are_kept_for_those_who_are_a_little_behind() -> None:
    quorum = Quorum(1, options=SMALL)
    leader = _written(quorum, 10)
    quorum.take_snapshot(leader)
    state = quorum.state(leader)
    assert state.snapshot is not None
    assert state.log_start_index == state.snapshot.end_index - SMALL.entries_kept


def test_a_member_with_a_corrupt_entry_is_repaired_by_its_leader_at_start() -> None:
    quorum = Quorum(1, 2, 3)
    leader = _written(quorum, 10)
    damaged = _follower(quorum, leader)
    quorum.crash(damaged)
    quorum.at(damaged).disk.corrupt_from = 5
    quorum.start(damaged)
    assert quorum.state(damaged).is_repairing
    quorum.run(1_000)
    assert not quorum.state(damaged).is_repairing
    assert quorum.at(damaged).disk.hard_state.repair is None
    assert quorum.at(damaged).disk.entries == quorum.at(leader).disk.entries


def test_a_member_with_a_corrupt_entry_is_repaired_while_it_runs() -> None:
    quorum = Quorum(1, 2, 3)
    leader = _written(quorum, 10)
    damaged = _follower(quorum, leader)
    quorum.at(damaged).disk.corrupt_from = 5
    quorum.give(damaged, CorruptEntry(index=LogIndex(5)))
    assert quorum.state(damaged).is_repairing
    assert quorum.state(damaged).persisted_index == 4
    quorum.propose(leader, b"meanwhile")
    quorum.run(1_000)
    assert not quorum.state(damaged).is_repairing
    assert quorum.at(damaged).disk.entries == quorum.at(leader).disk.entries
    assert len(quorum.at(damaged).applied) == 12


def test_the_damaged_part_is_cut_only_after_the_repair_is_flushed() -> None:
    quorum = Quorum(1, 2, 3)
    leader = _written(quorum, 10)
    damaged = _follower(quorum, leader)
    quorum.at(damaged).disk.corrupt_from = 5
    quorum.give(damaged, CorruptEntry(index=LogIndex(5)))
    quorum.is_flushing = False
    quorum.run(300)
    writes = quorum.at(damaged).writes
    assert [getattr(write, "truncate_from", None) for write in writes] == [None]
    quorum.is_flushing = True
    quorum.run(1_000)
    assert not quorum.state(damaged).is_repairing


def test_a_repair_survives_a_crash_in_its_middle() -> None:
    quorum = Quorum(1, 2, 3, options=SMALL)
    leader = _written(quorum, 20)
    damaged = _follower(quorum, leader)
    quorum.crash(damaged)
    quorum.at(damaged).disk.corrupt_from = 5
    quorum.start(damaged)
    for _ in range(6):
        quorum.deliver()
        quorum.flush(damaged)
        quorum.tick(leader)
    assert quorum.state(damaged).is_repairing
    quorum.restart(damaged)
    assert quorum.state(damaged).is_repairing
    quorum.run(2_000)
    assert quorum.at(damaged).disk.entries == quorum.at(leader).disk.entries


def test_a_repairing_member_votes_by_the_last_entry_that_it_ever_had_and_never_campaigns() -> None:
    quorum = Quorum(1, 2, 3)
    leader = _written(quorum, 10)
    damaged = _follower(quorum, leader)
    quorum.crash(damaged)
    quorum.at(damaged).disk.corrupt_from = 5
    quorum.network.clear()
    quorum.isolate(damaged)
    quorum.start(damaged)
    quorum.flush(damaged)
    asker = member_id(next(n for n in (1, 2, 3) if n not in (leader.node_id, damaged.node_id)))
    for last_index, is_granted in ((10, False), (11, True)):
        quorum.step(
            VoteRequest(
                sender=asker,
                receiver=damaged,
                term=Term(2),
                last_index=LogIndex(last_index),
                last_term=Term(1),
                is_pre_vote=True,
            )
        )
        answer = quorum.sent[-1]
        assert isinstance(answer, VoteResponse)
        assert answer.is_granted is is_granted
    quorum.run(10_000)
    assert quorum.state(damaged).role is Role.FOLLOWER
    assert quorum.state(damaged).term == 1


def test_a_leader_that_finds_damage_steps_down_and_is_repaired() -> None:
    quorum = Quorum(1, 2, 3)
    leader = _written(quorum, 10)
    quorum.at(leader).disk.corrupt_from = 5
    quorum.give(leader, CorruptEntry(index=LogIndex(5)))
    assert quorum.state(leader).role is Role.FOLLOWER
    quorum.run(5_000)
    assert quorum.leader() not in (None, leader)
    assert not quorum.state(leader).is_repairing


def test_a_repair_beyond_the_leaders_log_ends_with_a_snapshot() -> None:
    quorum = Quorum(1, 2, 3, options=SMALL)
    leader = _written(quorum, 20)
    for is_running in (True, False):
        damaged = _follower(quorum, leader)
        quorum.take_snapshot(leader) if is_running else None
        if not is_running:
            quorum.crash(damaged)
        quorum.at(damaged).disk.corrupt_from = 5
        if is_running:
            quorum.give(damaged, CorruptEntry(index=LogIndex(5)))
        else:
            quorum.start(damaged)
        quorum.run(2_000)
        assert not quorum.state(damaged).is_repairing
        assert quorum.at(damaged).applied == quorum.at(leader).applied


def test_a_single_voter_that_repairs_stays_down_and_says_so() -> None:
    quorum = Quorum(1)
    _written(quorum, 5)
    quorum.crash(1)
    quorum.at(1).disk.corrupt_from = 3
    quorum.start(1)
    quorum.run(10_000)
    state = quorum.state(1)
    assert (state.role, state.is_repairing) == (Role.FOLLOWER, True)


def _roll_back(quorum: Quorum, node: MemberId, entries_kept: int) -> None:
    """An old copy of its directory takes the directory's place, under its id."""
    quorum.crash(node)
    disk = quorum.at(node).disk
    disk.entries = disk.entries[:entries_kept]
    disk.hard_state = HardState(term=disk.entries[-1].term)
    quorum.at(node).seen = None


def _tell(quorum: Quorum, leader: MemberId, old: MemberId) -> None:
    """It starts, hears of the leader, and has flushed what it was told."""
    quorum.start(old)
    for _ in range(1_000):
        if quorum.state(old).is_repairing:
            break
        quorum.deliver()
        quorum.flush(leader)
        quorum.tick(leader)
    assert quorum.state(old).is_repairing
    quorum.flush(old)


def test_a_voter_on_an_old_copy_is_told_so_by_a_leader_that_has_its_acknowledgement() -> None:
    quorum = Quorum(1, 2, 3)
    leader = _written(quorum, 8)
    voter = _follower(quorum, leader)
    end = quorum.at(voter).disk.last_index
    last_term = quorum.at(voter).disk.term_at(end)
    _roll_back(quorum, voter, 4)
    _tell(quorum, leader, voter)
    repair = quorum.at(voter).disk.hard_state.repair
    assert repair is not None
    assert (repair.from_index, repair.last_index, repair.last_term) == (5, end, last_term)
    quorum.run_until(lambda: not quorum.state(voter).is_repairing)
    assert quorum.at(voter).disk.last_index >= end
    quorum.propose(leader, b"after")
    quorum.run(1_000)
    assert quorum.at(voter).applied == quorum.at(leader).applied


def test_a_voter_on_an_old_copy_judges_votes_by_what_it_had_once_it_was_told() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    old, behind = (each for each in quorum.machines if each != leader)
    quorum.run(500)
    quorum.isolate(behind)
    for number in range(6):
        quorum.propose(leader, b"%d" % number)
        quorum.settle()
    _roll_back(quorum, old, 2)
    _tell(quorum, leader, old)
    quorum.crash(leader)
    quorum.network.clear()
    quorum.heal()
    quorum.run(10_000)
    assert quorum.leader() is None, "the two that are left lack what was committed"
    quorum.start(leader)
    quorum.run_until(lambda: quorum.leader() == leader)
