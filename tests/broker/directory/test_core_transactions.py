"""Batches and markers of transactions at a directory's core: traps by name, and every way out."""

import pytest

from tests.broker.support.core_model import DEFAULTS, CoreModel, failure, key_of
from tests.broker.support.replica_core import StoredBatch
from tests.broker.support.transactional_core import (
    REFUSED,
    TransactionalCore,
    leading,
)
from tidelog.broker.directory.core import verifying
from tidelog.broker.directory.core.messages import (
    AddPartition,
    FailPartition,
    FlushAll,
    ReleasePartition,
    SetFull,
    Verified,
)
from tidelog.broker.log.state.log import PartitionLog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch

UP_TO_DATE = 3
"""The coordinator's epoch."""


def coded(core: CoreModel, token: int) -> str:
    """How it was answered, for several to be compared at once."""
    return type(core.answers[token]).__name__ if token in core.answers else "waits"


# -- a batch and its question ---------------------------------------------------------------------


def test_the_first_batch_is_asked_for_and_appended_with_the_answer() -> None:
    core = TransactionalCore()
    first = core.write_batch(5)
    assert core.write is None
    (question,) = core.questions
    assert (question.transactional_id, question.producer_epoch) == ("t", 5)
    core.answer()
    core.drain()
    assert core.offset_of(first) == 0
    later = core.write_batch(5, 1)
    assert core.questions == []
    core.drain()
    assert core.offset_of(later) == 1


def test_later_ones_wait_for_the_same_answer_and_keep_their_order() -> None:
    core = TransactionalCore()
    tokens = [core.write_batch(5, sequence) for sequence in range(3)]
    assert len(core.questions) == 1
    core.answer()
    core.drain()
    assert [core.offset_of(token) for token in tokens] == [0, 1, 2]


def test_all_that_wait_are_refused_with_what_the_coordinator_says() -> None:
    core = TransactionalCore()
    tokens = [core.write_batch(5, sequence) for sequence in range(3)]
    core.answer(REFUSED)
    core.drain()
    assert {core.refusal_of(token) for token in tokens} == {REFUSED.code}
    core.write_batch(5)
    assert len(core.questions) == 1, "the next one asks again"


def test_two_producers_are_asked_for_apart() -> None:
    core = TransactionalCore()
    one, other = core.write_batch(5), core.write_batch(5, producer_id=8)
    core.answer(REFUSED)
    core.answer()
    core.drain()
    assert (coded(core, one), core.offset_of(other)) == ("Refuse", 0)


def test_a_batch_in_flight_that_was_sent_again_gets_the_answer_of_the_first() -> None:
    core = TransactionalCore()
    first, again = core.write_batch(5), core.write_batch(5)
    core.answer()
    third = core.write_batch(5)
    core.drain()
    assert core.offset_of(first) == core.offset_of(again) == core.offset_of(third) == 0
    assert core.log().log_end_offset == 1


def test_a_batch_behind_the_marker_of_its_own_epoch_belongs_to_the_next_transaction() -> None:
    core = TransactionalCore()
    core.begin(5)
    core.mark_end(6)
    core.drain()
    core.begin(6)
    assert [header.is_control for header in core.headers()] == [False, True, False]


# -- traps ----------------------------------------------------------------------------------------


def test_trap_2_a_batch_that_arrives_after_the_abort_is_refused() -> None:
    core = TransactionalCore()
    core.begin(5)
    core.mark_end(6)
    core.drain()
    late = core.write_batch(5, 1)
    assert core.refusal_of(late) is ErrorCode.TRANSACTION_ABORTED
    assert core.log().last_stable_offset == 2


def test_trap_2_the_abort_of_a_transaction_that_has_nothing_here_yet_fences_it() -> None:
    """The partition was added, the batch is on its way still: the marker leaves its epoch."""
    core = TransactionalCore()
    core.mark_end(6)
    core.drain()
    assert core.refusal_of(core.write_batch(5)) is ErrorCode.TRANSACTION_ABORTED


@pytest.mark.parametrize("is_written", [False, True])
def test_trap_3_a_marker_between_the_answer_and_the_append_is_seen_in_the_turn(
    is_written: bool,
) -> None:
    """The marker is queued first: whether it is in the log, or planned in the same write."""
    core = TransactionalCore()
    core.append()  # a write is in flight: what follows is queued
    late = core.write_batch(5)
    core.mark_end(6)
    if is_written:
        core.drain()
    core.answer()
    core.drain()
    assert core.refusal_of(late) in (
        ErrorCode.TRANSACTION_ABORTED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
    assert [header.is_control for header in core.headers()][1:] == [True]
    assert core.log().last_stable_offset == 2


def test_trap_4_a_later_sequence_is_not_appended_before_the_one_that_is_verified() -> None:
    """They came over two connections, and the later one first."""
    core = TransactionalCore()
    later, first = core.write_batch(5, 4), core.write_batch(5, 0)
    core.answer()
    core.drain()
    assert core.refusal_of(later) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.offset_of(first) == 0


def test_trap_5_the_leader_itself_says_that_the_transaction_before_is_not_ended() -> None:
    core = TransactionalCore()
    core.begin(5)
    early = core.write_batch(6)
    core.pass_time(verifying.EARLY_MS_MAX)
    assert core.refusal_of(early) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.questions == []
    core.mark_end(6)
    core.drain()
    core.begin(6)


def test_trap_5_one_that_is_a_moment_early_waits_for_the_marker() -> None:
    """The answer to an end comes before its markers: being told to come again costs much more."""
    core = TransactionalCore()
    core.begin(5)
    early = [core.write_batch(6, sequence) for sequence in range(2)]
    other = core.write_batch(5, producer_id=8)
    core.answer()
    core.pass_time(verifying.EARLY_MS_MAX - 1)
    assert core.questions == []
    end = core.mark_end(6)
    core.drain()
    core.answer()
    core.drain()
    assert [core.offset_of(token) for token in (other, end, *early)] == [1, 2, 3, 4]


def test_those_that_are_early_are_told_together_and_at_once_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifying, "EARLY_MAX", 2)
    core = TransactionalCore()
    core.begin(5)
    first = core.write_batch(6)
    core.pass_time(verifying.EARLY_MS_MAX - 1)
    second = core.write_batch(6, 1)
    third = core.write_batch(6, 2)
    assert core.refusal_of(third) is ErrorCode.CONCURRENT_TRANSACTIONS
    core.pass_time(1)
    told = {core.refusal_of(token) for token in (first, second)}
    assert told == {ErrorCode.CONCURRENT_TRANSACTIONS}
    core.mark_end(6)
    core.drain()
    core.begin(6)


@pytest.mark.parametrize("why", ["leads anew", "stops", "fails"])
def test_one_that_is_early_is_told_when_there_is_nothing_more_to_wait_for(why: str) -> None:
    core = leading()
    core.verify(5)
    core.answer()
    core.append_directly(5)
    core.drain()
    early = core.write_batch(6)
    assert coded(core, early) == "waits"
    if why == "leads anew":
        core.lead(2, 2)
    elif why == "stops":
        core.tell(FlushAll())
    else:
        core.tell(FailPartition(key=key_of(0), error=failure(ErrorCode.STORAGE_CORRUPT)))
    assert coded(core, early) == "Refuse"
    core.pass_time(verifying.EARLY_MS_MAX)


def test_trap_5_in_the_turn_too() -> None:
    """Verified while nothing was open; then a batch of the former epoch was appended, late."""
    core = TransactionalCore()
    core.append()
    former, early = core.write_batch(5), None
    core.answer()  # queued behind the write in flight
    early = core.write_batch(6)
    core.answer()
    core.drain()
    # The question for the higher epoch has taken the place of the former one's.
    assert core.refusal_of(former) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert core.offset_of(early) == 1


def test_trap_6_and_11_an_older_epoch_is_refused_without_asking_and_that_is_no_fence() -> None:
    core = TransactionalCore()
    core.begin(5)
    core.mark_end(6)
    core.drain()
    for epoch in (0, 5):
        stalled = core.write_batch(epoch)
        assert core.refusal_of(stalled) is ErrorCode.TRANSACTION_ABORTED
    assert core.questions == []


def test_trap_10_an_end_of_nothing_is_appended_and_ends_nothing() -> None:
    core = TransactionalCore()
    for is_commit in (True, False):
        token = core.mark_end(6 + is_commit, is_commit=is_commit, producer_id=8 + is_commit)
        core.drain()
        core.offset_of(token)
    assert core.log().last_stable_offset == core.log().high_watermark == 2


def test_trap_19_a_marker_of_an_older_coordinator_is_refused_by_the_leader_only() -> None:
    core = TransactionalCore()
    core.begin(5)
    core.mark_end(6, coordinator_epoch=UP_TO_DATE)
    core.drain()
    old = core.mark_end(7, coordinator_epoch=UP_TO_DATE - 1)
    core.drain()
    assert core.refusal_of(old) is ErrorCode.NOT_COORDINATOR
    assert core.log().log_end_offset == 2


def test_trap_19_a_coordinator_that_is_planned_in_the_same_write_counts() -> None:
    core = TransactionalCore()
    core.append()
    new = core.mark_end(6, coordinator_epoch=UP_TO_DATE)
    old = core.mark_end(7, coordinator_epoch=UP_TO_DATE - 1)
    core.drain()
    assert core.offset_of(new) == 1
    assert core.refusal_of(old) is ErrorCode.NOT_COORDINATOR


def test_trap_20_a_marker_that_is_there_is_a_success() -> None:
    core = TransactionalCore()
    core.begin(5)
    first = core.mark_end(6)
    core.drain()
    core.append()
    again = core.mark_end(6)
    core.drain()
    assert core.offset_of(first) == 1
    assert core.offset_of(again) >= 1
    assert sum(header.is_control for header in core.headers()) == 1


def test_trap_20_of_two_in_the_same_write_one_is_appended() -> None:
    core = TransactionalCore()
    core.begin(5)
    core.append()
    first, again = core.mark_end(6), core.mark_end(6)
    core.end_write()
    assert coded(core, again) == "waits"
    core.drain()
    assert core.offset_of(first) == core.offset_of(again) == 2
    assert sum(header.is_control for header in core.headers()) == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_trap_1_a_marker_that_was_delayed_ends_no_later_transaction(is_open: bool) -> None:
    core = TransactionalCore()
    core.begin(5)
    core.mark_end(6)
    core.drain()
    core.begin(6)
    if not is_open:
        core.mark_end(7)
        core.drain()
    end_offset = core.log().log_end_offset
    delayed = core.mark_end(5 if is_open else 6)
    core.drain()
    assert core.refusal_of(delayed) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert core.log().log_end_offset == end_offset


def test_a_marker_that_is_there_is_answered_once_the_log_is_committed_so_far() -> None:
    core = leading()
    first = core.mark_end(6)
    core.end_write()
    again = core.mark_end(6)
    assert (coded(core, first), coded(core, again)) == ("waits", "waits")
    core.drain()
    core.follower_at(2, 1)
    assert core.offset_of(first) == core.offset_of(again) == 0


def test_trap_23_a_full_disk_lets_markers_pass() -> None:
    """Retention keeps what is behind an open transaction: it would never end, nor room be freed."""
    core = TransactionalCore()
    core.begin(5)
    core.tell(SetFull(is_full=True))
    data, end = core.write_batch(5, 1), core.mark_end(6)
    core.drain()
    assert core.refusal_of(data) is ErrorCode.STORAGE_FULL
    assert core.offset_of(end) == 1


def test_trap_23_what_was_verified_goes_with_the_marker_although_nothing_was_written() -> None:
    core = TransactionalCore()
    for number in range(10):
        core.write_batch(5, producer_id=number)
        core.tell(SetFull(is_full=True))
        core.answer()
        core.tell(SetFull(is_full=False))
        core.mark_end(6, producer_id=number)
        core.drain()
    verify = core.core.state.partitions[key_of(0)].verifying
    assert verify is not None
    assert (len(verify), len(verify.admission)) == (0, 0)


def test_trap_30_questions_of_a_partition_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "QUESTIONS_MAX", 2)
    core = TransactionalCore()
    tokens = [core.write_batch(0, producer_id=number) for number in range(3)]
    assert core.refusal_of(tokens[2]) is ErrorCode.RESOURCE_EXHAUSTED
    assert len(core.questions) == 2
    core.answer()
    again = core.write_batch(0, producer_id=2)
    core.answer()
    core.answer()
    core.drain()
    assert [coded(core, token) for token in (*tokens[:2], again)] == ["Appended"] * 3


def test_trap_30_what_is_verified_and_has_written_nothing_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifying, "VERIFIED_MAX", 2)
    core = TransactionalCore()
    for number in range(2):
        core.verify(5, producer_id=number)
        core.answer()
    third = core.write_batch(5, producer_id=2)
    assert core.refusal_of(third) is ErrorCode.RESOURCE_EXHAUSTED
    core.mark_end(6, producer_id=0)
    core.drain()
    core.begin(5, producer_id=2)


# -- other batches of the same producer -----------------------------------------------------------


@pytest.mark.parametrize("is_written", [False, True])
def test_a_batch_of_no_transaction_is_refused_while_its_producer_has_one_open(
    is_written: bool,
) -> None:
    core = TransactionalCore()
    core.append()
    core.write_batch(5)
    core.answer()
    if is_written:
        core.drain()
    plain = core.write_batch(5, 1, is_transactional=False)
    core.drain()
    assert core.refusal_of(plain) is ErrorCode.INVALID_TRANSACTION_STATE
    core.mark_end(6)
    core.drain()
    plain = core.write_batch(6, 0, is_transactional=False)
    core.drain()
    assert core.offset_of(plain) == 3


def test_a_stored_batch_is_answered_as_it_was_and_refused_once_its_transaction_is_over() -> None:
    core = TransactionalCore()
    core.begin(5)
    again = core.write_batch(5)
    core.drain()
    assert core.offset_of(again) == 0
    core.mark_end(6, is_commit=True)
    core.drain()
    assert core.refusal_of(core.write_batch(5)) is ErrorCode.TRANSACTION_ABORTED


def test_a_batch_of_no_transaction_is_never_taken_for_one_of_a_transaction() -> None:
    """By a producer's mistake they have one sequence: the second was acknowledged, and lost."""
    core = TransactionalCore()
    in_transaction = core.write_batch(5)
    plain = core.write_batch(5, is_transactional=False)
    core.drain()
    core.answer()
    core.drain()
    assert core.offset_of(plain) == 0
    assert core.refusal_of(in_transaction) is ErrorCode.INVALID_TRANSACTION_STATE


# -- those who ask ahead --------------------------------------------------------------------------


def test_one_that_asks_ahead_may_append_until_the_transaction_ends() -> None:
    core = TransactionalCore()
    asking = core.verify(5)
    assert not core.is_verified(asking)
    core.answer()
    assert core.is_verified(asking)
    first, second = core.append_directly(5), core.append_directly(5)
    core.drain()
    assert [core.offset_of(first), core.offset_of(second)] == [0, 1]
    core.mark_end(6)
    core.drain()
    late = core.append_directly(5)
    core.drain()
    assert core.refusal_of(late) is ErrorCode.TRANSACTION_ABORTED


def test_one_that_has_not_asked_is_refused_in_its_turn() -> None:
    core = TransactionalCore()
    token = core.append_directly(5)
    core.drain()
    assert core.refusal_of(token) is ErrorCode.CONCURRENT_TRANSACTIONS
    asking = core.verify(5)
    core.answer(REFUSED)
    assert core.refusal_of(asking) is REFUSED.code


# -- leadership, damage, the end ------------------------------------------------------------------


def test_an_answer_that_arrives_after_the_leadership_changed_verifies_nothing() -> None:
    core = leading()
    first = core.write_batch(5)
    core.follow(2)
    assert core.refusal_of(first) is ErrorCode.NOT_LEADER
    core.lead(3, 2)
    core.answer()
    token = core.append_directly(5)
    core.drain()
    assert core.refusal_of(token) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_new_epoch_of_the_same_leader_verifies_anew() -> None:
    core = leading()
    waiting = core.write_batch(5)
    core.verify(5, producer_id=8)
    core.answer(place=1)
    core.lead(2, 2)
    assert core.refusal_of(waiting) is ErrorCode.FENCED_LEADER_EPOCH
    core.answer()
    before = core.append_directly(5, producer_id=8)
    core.drain()
    assert core.refusal_of(before) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_within_the_epoch_what_was_verified_stays() -> None:
    core = leading()
    waiting = core.write_batch(5)
    core.lead(1, 2, 3)
    core.answer()
    core.drain()
    assert coded(core, waiting) == "waits", "for its commit"
    for broker in (2, 3):
        core.follower_at(broker, 1)
    assert core.offset_of(waiting) == 0


def test_a_follower_takes_no_transactional_batch_and_asks_nobody() -> None:
    core = leading()
    core.follow(2)
    assert core.refusal_of(core.write_batch(5)) is ErrorCode.NOT_LEADER
    assert core.refusal_of(core.mark_end(6)) is ErrorCode.NOT_LEADER
    assert core.questions == []


def test_trap_19_a_follower_takes_what_its_leader_has_taken() -> None:
    """Whatever the coordinator's epoch: it is judged at new markers, by the leader alone."""
    leader = TransactionalCore()
    leader.begin(5)
    leader.mark_end(6, coordinator_epoch=UP_TO_DATE)
    leader.drain()
    follower = leading()
    follower.follow(2)
    content = b"".join(leader.files.values())
    position = 0
    batches: list[StoredBatch] = []
    for header in leader.headers():
        end = position + header.size_bytes
        batches.append((header.base_offset, header.next_offset, content[position:end]))
        position = end
    follower.copy_of(batches, 0)
    follower.drain()
    assert follower.log().log_end_offset == 2
    assert follower.log().producer_here(7) == leader.log().producer_here(7)


def test_those_who_wait_are_told_when_the_partition_or_the_directory_stops() -> None:
    core = TransactionalCore()
    token, asking = core.write_batch(5), core.verify(5)
    core.tell(FailPartition(key=key_of(0), error=failure(ErrorCode.STORAGE_CORRUPT)))
    assert core.refusal_of(token) is core.refusal_of(asking) is ErrorCode.STORAGE_CORRUPT
    core.answer()
    core = TransactionalCore()
    core.append()
    token = core.write_batch(5)
    core.end_write(failure(ErrorCode.STORAGE_FAILED))
    assert core.refusal_of(token) is ErrorCode.STORAGE_FAILED
    core.answer()


def test_nobody_waits_for_a_coordinator_when_the_node_stops() -> None:
    core = TransactionalCore()
    token = core.write_batch(5)
    core.tell(FlushAll())
    assert core.refusal_of(token) is ErrorCode.UNAVAILABLE
    assert core.core.is_idle


def test_a_write_that_did_not_fit_leaves_the_verification() -> None:
    core = TransactionalCore()
    first = core.write_batch(5)
    core.answer()
    core.end_write(failure(ErrorCode.STORAGE_FULL))
    core.drain()
    assert core.refusal_of(first) is ErrorCode.STORAGE_FULL
    again = core.write_batch(5)
    assert core.questions == []
    core.drain()
    assert core.offset_of(again) == 0


def test_a_batch_that_is_held_for_a_new_segment_is_judged_again_behind_the_marker() -> None:
    core = TransactionalCore(segment_bytes=200)
    core.begin(5)
    tokens = [core.write_batch(5, sequence, records=3) for sequence in (1, 4)]
    end = core.mark_end(6)
    late = core.write_batch(5, 7)
    core.drain()
    assert [core.offset_of(token) for token in tokens] == [1, 4]
    assert core.offset_of(end) == 7
    assert core.refusal_of(late) is ErrorCode.TRANSACTION_ABORTED


def test_an_answer_to_a_former_life_of_the_partition_verifies_nothing() -> None:
    """It was released and opened again: both lives count their questions from the beginning."""
    core = TransactionalCore()
    core.write_batch(5)
    (late,) = core.questions
    core.tell(FailPartition(key=key_of(0), error=failure(ErrorCode.STORAGE_CORRUPT)))
    core.drain()
    core.tell(ReleasePartition(token=core.new_token(), key=key_of(0)))
    core.tell(AddPartition(log=PartitionLog(key_of(0), LeaderEpoch(0)), settings=DEFAULTS))
    core.questions.clear()
    waiting = core.write_batch(6)
    assert len(core.questions) == 1
    core.tell(Verified(key=late.key, producer_id=7, ticket=late.ticket, error=None))
    core.drain()
    assert coded(core, waiting) == "waits"


def test_an_answer_for_a_partition_that_is_gone_is_dropped() -> None:
    core = TransactionalCore()
    core.tell(Verified(key=key_of(9), producer_id=7, ticket=1, error=None))
    assert core.answers == {}


# -- a transaction that hangs ---------------------------------------------------------------------


def test_a_hanging_transaction_is_ended_where_it_begins_and_no_other() -> None:
    core = TransactionalCore()
    core.append()
    core.begin(5)
    elsewhere = core.mark_end(6, hangs_from=0)
    core.drain()
    assert core.refusal_of(elsewhere) is ErrorCode.INVALID_TRANSACTION_STATE
    ended = core.mark_end(6, hangs_from=1)
    core.drain()
    assert core.offset_of(ended) == 2
    over = core.mark_end(6, hangs_from=1)
    core.drain()
    assert core.refusal_of(over) is ErrorCode.INVALID_TRANSACTION_STATE
