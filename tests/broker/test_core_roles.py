"""What a replica does as a leader and as a follower, step by step."""

import pytest

from tests.broker.core_logs import code_of
from tests.broker.core_model import CoreModel
from tests.broker.replica_core import KEY, ReplicaCore
from tidelog.broker.log.marks import MarkKind
from tidelog.broker.partition.messages import (
    Acknowledge,
    Configure,
    Done,
    FailPartition,
    FlushAll,
    Lead,
    RemovePartition,
    Tick,
)
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch

SYNC = TopicSettings(in_sync_replicas_min=2)
REPLICATED = TopicSettings(in_sync_replicas_min=2, is_flush_sync=False)


def leader(topic: TopicSettings = SYNC, *others: int) -> ReplicaCore:
    """Leads at epoch 1, others 2 and 3 unless told."""
    core = ReplicaCore(topic)
    core.lead(1, *(others or (2, 3)))
    return core


def filled(count: int, topic: TopicSettings = SYNC) -> ReplicaCore:
    """A leader with so many batches of one record, everywhere."""
    core = leader(topic)
    for _ in range(count):
        core.append()
        core.drain()
    core.follower_at(2, count)
    core.follower_at(3, count)
    core.drain()
    return core


def is_acknowledged(core: CoreModel, token: int) -> bool:
    return isinstance(core.answers.get(token), Acknowledge)


# -- the commit rule -----------------------------------------------------------------------------


def test_acks_all_waits_for_every_replica_that_a_commit_waits_for() -> None:
    core = leader()
    token = core.append()
    core.drain()
    core.follower_at(2, 1)
    assert token not in core.answers
    core.follower_at(3, 1)
    assert is_acknowledged(core, token)
    assert core.log().high_watermark == 1


def test_on_a_topic_that_flushes_only_what_a_follower_has_flushed_counts() -> None:
    core = leader()
    token = core.append()
    core.drain()
    core.follower_at(2, 1)
    core.follower_at(3, 1, flushed=0)
    assert token not in core.answers
    core.follower_at(3, 1, flushed=1)
    assert is_acknowledged(core, token)


def test_on_a_topic_that_replicates_the_ends_of_the_logs_count() -> None:
    core = leader(REPLICATED)
    token = core.append()
    core.end_write()
    assert not core.has_flush
    core.follower_at(2, 1, flushed=0)
    core.follower_at(3, 1, flushed=0)
    assert is_acknowledged(core, token)


def test_the_leader_counts_with_what_it_has_flushed_itself() -> None:
    core = leader()
    token = core.append()
    core.end_write()
    core.follower_at(2, 1)
    core.follower_at(3, 1)
    assert token not in core.answers
    core.drain()
    assert is_acknowledged(core, token)


def test_acks_one_is_answered_once_written() -> None:
    core = leader()
    token = core.append(is_all=False)
    core.end_write()
    assert is_acknowledged(core, token)
    assert core.log().high_watermark == 0


def test_with_too_few_in_sync_acks_all_is_refused_before_anything_is_stored() -> None:
    core = leader()
    core.lead(1, in_sync=1)
    all_token, one_token = core.append(), core.append(is_all=False)
    core.drain()
    assert code_of(core, all_token) is ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS
    assert is_acknowledged(core, one_token)
    assert core.log().log_end_offset == 1


def test_with_too_few_in_sync_the_watermark_stands_still() -> None:
    core = leader()
    token = core.append()
    core.drain()
    core.lead(1, in_sync=1)
    assert core.log().high_watermark == 0
    core.lead(1, 2, in_sync=2)
    core.follower_at(2, 1)
    assert is_acknowledged(core, token)


def test_a_lower_demand_for_replicas_in_sync_moves_the_watermark() -> None:
    core = leader()
    core.append(is_all=False)
    core.drain()
    core.lead(1, in_sync=1)
    assert core.log().high_watermark == 0
    core.tell(Configure(key=KEY, settings=TopicSettings(in_sync_replicas_min=1)))
    assert core.log().high_watermark == 1


def test_a_shrunken_set_is_waited_for_no_longer() -> None:
    core = leader()
    token = core.append()
    core.drain()
    core.follower_at(2, 1)
    core.lead(1, 2)
    assert is_acknowledged(core, token)


def test_one_that_is_about_to_join_is_waited_for() -> None:
    core = leader(SYNC, 2)
    core.lead(1, 2, 3, in_sync=2)
    token = core.append()
    core.drain()
    core.follower_at(2, 1)
    assert token not in core.answers
    core.follower_at(3, 1)
    assert is_acknowledged(core, token)


def test_a_position_of_another_epoch_or_of_a_stranger_says_nothing() -> None:
    core = leader(SYNC, 2)
    token = core.append()
    core.drain()
    core.follower_at(2, 1, epoch=0)
    core.follower_at(3, 1)
    assert token not in core.answers


def test_positions_are_told_anew_in_a_new_epoch() -> None:
    core = leader(SYNC, 2)
    core.follower_at(2, 5)
    core.lead(2, 2)
    token = core.append()
    core.drain()
    assert token not in core.answers
    core.follower_at(2, 1, epoch=2)
    assert is_acknowledged(core, token)


def test_a_follower_that_has_lost_its_tail_takes_nothing_back() -> None:
    core = filled(3)
    core.follower_at(2, 1)
    assert core.log().high_watermark == 3
    token = core.append()
    core.drain()
    core.follower_at(3, 4)
    assert token not in core.answers


def test_the_watermark_is_placed_behind_its_last_batch() -> None:
    core = leader()
    for _ in range(3):
        core.append()
    core.drain()
    core.follower_at(2, 2)
    core.follower_at(3, 3)
    batch = next(iter(core.stored()))[2]
    assert core.log().high_watermark_position == (0, 2 * len(batch))


def test_of_very_many_uncommitted_batches_some_ends_are_forgotten_but_the_last_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.broker.log.state.UNCOMMITTED_MAX", 8)
    core = leader()
    tokens = [core.append() for _ in range(30)]
    core.drain()
    uncommitted = core.log().uncommitted
    assert uncommitted is not None
    assert len(uncommitted) <= 8
    core.follower_at(2, 30)
    core.follower_at(3, 30)
    assert all(is_acknowledged(core, token) for token in tokens)


# -- changes of roles ----------------------------------------------------------------------------


def test_one_that_follows_takes_nothing_from_producers() -> None:
    core = ReplicaCore(SYNC)
    assert code_of(core, core.append()) is ErrorCode.NOT_LEADER


def test_what_is_written_and_not_committed_is_indeterminate_for_a_leader_that_follows() -> None:
    core = leader()
    token = core.append()
    core.drain()
    core.follow(2)
    assert code_of(core, token) is ErrorCode.INDETERMINATE
    core.commit_to(1, epoch=2)
    core.drain()


def test_what_is_queued_is_refused_by_a_leader_that_follows() -> None:
    core = leader()
    first, second = core.append(), core.append()
    core.follow(2)
    assert first not in core.answers, "it is being written"
    assert code_of(core, second) is ErrorCode.NOT_LEADER
    core.drain()
    assert code_of(core, first) is ErrorCode.INDETERMINATE
    assert core.log().log_end_offset == 1


def test_a_write_that_ends_in_a_later_leadership_is_not_answered_as_if_it_were_the_same() -> None:
    core = leader()
    one, both = core.append(is_all=False), core.append()
    core.follow(2)
    core.lead(3, 2)
    core.drain()
    core.follower_at(2, 1, epoch=3)
    assert code_of(core, one) is ErrorCode.INDETERMINATE
    assert code_of(core, both) is ErrorCode.NOT_LEADER


def test_one_that_leads_on_in_a_new_epoch_answers_what_it_was_asked() -> None:
    core = leader()
    token = core.append()
    core.lead(2, 2)
    core.drain()
    core.follower_at(2, 1, epoch=2)
    assert is_acknowledged(core, token)


def test_a_copy_is_refused_by_one_that_leads() -> None:
    core = leader()
    token = core.copy(0)
    assert code_of(core, token) is ErrorCode.FENCED_LEADER_EPOCH


def test_copies_that_wait_are_refused_when_the_replica_leads() -> None:
    source = filled(3)
    core = ReplicaCore(SYNC)
    core.follow(1)
    tokens = core.copy_of(list(source.stored()), 0)
    core.lead(2, 2)
    core.drain()
    assert is_acknowledged(core, tokens[0])
    assert code_of(core, tokens[1]) is ErrorCode.FENCED_LEADER_EPOCH
    assert core.log().led_from == core.log().log_end_offset == 1


def test_a_sole_replica_that_gets_others_waits_for_them_with_what_it_was_asked_before() -> None:
    core = CoreModel(partitions=1)
    token = core.append()
    core.end_write()
    core.tell(Lead(key=KEY, leader_epoch=LeaderEpoch(0), others=(BrokerId(2),), in_sync_count=1))
    core.drain()
    assert token not in core.answers
    ReplicaCore.follower_at(core, 2, 1, epoch=0)  # type: ignore[arg-type]
    assert is_acknowledged(core, token)


def test_a_leader_that_is_left_alone_answers_with_its_flush() -> None:
    core = leader(REPLICATED)
    token = core.append()
    core.end_write()
    alone = Lead(key=KEY, leader_epoch=LeaderEpoch(1), others=(), in_sync_count=1, is_sole=True)
    core.tell(alone)
    assert token not in core.answers
    core.drain()
    assert is_acknowledged(core, token)
    later = core.append()
    core.drain()
    assert is_acknowledged(core, later)


def test_damage_tells_those_who_wait_for_a_commit() -> None:
    core = leader()
    token = core.append()
    core.drain()
    error = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="it is damaged")
    core.tell(FailPartition(key=KEY, error=error))
    assert code_of(core, token) is ErrorCode.STORAGE_CORRUPT


def test_damage_tells_those_whose_batch_is_being_written_as_well() -> None:
    core = leader()
    token = core.append()
    error = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="it is damaged")
    core.tell(FailPartition(key=KEY, error=error))
    core.drain()
    assert code_of(core, token) is ErrorCode.STORAGE_CORRUPT
    assert core.core.is_idle


def test_a_stop_tells_those_who_wait_for_a_commit() -> None:
    core = leader()
    token = core.append()
    core.drain()
    late = core.append()
    core.tell(FlushAll())
    core.drain()
    assert code_of(core, token) is code_of(core, late) is ErrorCode.INDETERMINATE
    assert core.core.is_idle


def test_a_replica_that_goes_tells_those_who_wait_for_a_commit() -> None:
    core = leader()
    token = core.append()
    core.drain()
    removal = core.new_token()
    core.tell(RemovePartition(token=removal, key=KEY))
    assert code_of(core, token) is ErrorCode.UNKNOWN_TOPIC_ID
    core.drain()
    assert core.removed_directories == [KEY]


# -- followers -----------------------------------------------------------------------------------


def follower(count: int, topic: TopicSettings = SYNC) -> ReplicaCore:
    """Follows at epoch 1 a leader whose batches it all has, with the watermark at their end."""
    core = ReplicaCore(topic)
    core.follow(1)
    core.copy_of(list(filled(count).stored()), 0)
    core.drain()
    core.commit_to(count)
    return core


def test_a_follower_is_committed_as_far_as_its_leader_and_its_log_are() -> None:
    core = follower(3)
    core.commit_to(10)
    assert core.log().high_watermark == 3
    core.commit_to(20, epoch=0)
    core.copy_of(list(filled(5).stored(3)), 3)
    core.drain()
    assert core.log().high_watermark == 5, "what comes below the leader's watermark is committed"


def test_a_copy_that_comes_late_is_not_taken_for_one_behind_a_gap() -> None:
    core = follower(2)
    late = core.copy_of(list(filled(5).stored(3)), 3)
    core.drain()
    assert [code_of(core, each) for each in late] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2


def test_a_follower_cuts_off_what_its_leader_does_not_have() -> None:
    core = follower(3)
    core.copy_of(list(filled(5).stored(3)), 3)
    core.drain()
    token = core.cut(4)
    assert core.log().is_being_cut
    core.drain()
    assert isinstance(core.answers[token], Done)
    assert (core.log().log_end_offset, core.log().high_watermark) == (4, 3)
    assert not core.log().is_being_cut
    core.copy_of(list(filled(5).stored(4)), 4)
    core.commit_to(5)
    core.drain()
    assert core.log().high_watermark == 5


def test_a_follower_does_not_cut_what_is_committed() -> None:
    core = follower(3)
    assert code_of(core, core.cut(2)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_one_that_leads_cuts_nothing_off() -> None:
    core = filled(3)
    assert code_of(core, core.cut(3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(core, core.restart_at(3)) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_cut_that_has_not_begun_is_given_up_in_a_new_epoch() -> None:
    core = follower(3)
    core.copy_of(list(filled(5).stored(3)), 3)
    token = core.cut(3)
    core.follow(2)
    core.drain()
    assert code_of(core, token) is ErrorCode.FENCED_LEADER_EPOCH
    assert core.log().log_end_offset == core.log().flushed_offset
    assert not core.log().is_being_cut


def test_a_cut_whose_mark_is_on_its_way_is_given_up_as_well() -> None:
    core = follower(3)
    core.copy_of(list(filled(5).stored(3)), 3)
    core.drain()
    token = core.cut(3)
    core.lead(2, 2)
    core.drain()
    assert code_of(core, token) is ErrorCode.FENCED_LEADER_EPOCH
    assert (core.log().log_end_offset, core.log().flushed_offset) == (5, 5)


def test_an_unclean_cut_takes_the_mark_of_the_watermark_back_first() -> None:
    core = follower(4)
    core.tell(Tick(now_ms=1))
    core.drain()
    assert core.written_marks[KEY, MarkKind.COMMITTED] == 4
    core.cut(1, is_unclean=True)
    for _ in range(100):
        if core.cuts:
            break
        if core.write is not None:
            core.end_write()
        else:
            core.end_flush()
    assert core.durable_marks.get((KEY, MarkKind.COMMITTED), 0) <= 1
    core.drain()
    assert core.log().high_watermark == core.log().log_end_offset == 1


def test_a_log_restarts_above_and_below_where_it_was() -> None:
    for offset in (10, 0):
        core = follower(4)
        token = core.restart_at(offset)
        core.drain()
        log = core.log()
        assert isinstance(core.answers[token], Done)
        assert log.log_start_offset == log.log_end_offset == log.high_watermark == offset
        assert log.segments == []
        assert not core.files
        assert core.durable_marks.get((KEY, MarkKind.LOG_START), 0) == offset


def test_a_log_that_restarted_takes_copies_from_there_on() -> None:
    core = follower(4)
    core.restart_at(2)
    core.drain()
    core.copy_of(list(filled(5).stored(2)), 2)
    core.commit_to(5)
    core.drain()
    assert (core.log().log_start_offset, core.log().high_watermark) == (2, 5)


def test_a_log_whose_restart_is_interrupted_is_whole_or_empty() -> None:
    for offset in (10, 0):
        for steps in range(12):
            for is_machine in (True, False):
                core = follower(4)
                core.restart_at(offset)
                for _ in range(steps):
                    if core.write is not None:
                        core.end_write()
                    elif core.has_flush:
                        core.end_flush()
                    elif core.cuts:
                        core.end_cut()
                again = core.opened_again(keeps=0.0, is_machine=is_machine, epoch=1)
                ends = (again.log().log_start_offset, again.log().log_end_offset)
                assert ends in ((0, 4), (0, 0), (offset, offset))


# -- what outlives a death -----------------------------------------------------------------------


def test_the_watermark_is_marked_with_what_is_written_next_and_else_with_a_tick() -> None:
    core = filled(2)
    assert core.written_marks.get((KEY, MarkKind.COMMITTED), 0) < 2
    core.tell(Tick(now_ms=1))
    core.end_write()
    assert core.written_marks[KEY, MarkKind.COMMITTED] == 2
    assert not core.has_flush, "it is worth no flush of its own"
    assert core.core.is_idle


def test_a_replica_that_is_opened_again_knows_its_watermark_and_no_more() -> None:
    core = filled(2)
    core.append()
    core.drain()
    core.tell(Tick(now_ms=1))
    core.drain()
    again = core.opened_again(keeps=1.0, is_machine=False, epoch=1)
    assert (again.log().high_watermark, again.log().log_end_offset) == (2, 3)
    again.lead(2, 2)
    again.follower_at(2, 3, epoch=2)
    assert again.log().high_watermark == 3


def test_where_a_leader_took_over_is_known() -> None:
    core = follower(3)
    assert core.log().led_from == -1
    core.lead(2, 2)
    core.append()
    core.drain()
    assert core.log().led_from == 3
    core.lead(2, 2, 3)
    assert core.log().led_from == 3, "the epoch is the same"
