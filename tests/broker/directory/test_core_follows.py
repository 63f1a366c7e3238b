"""What a replica does as a follower, and where logs restart and are marked, step by step."""

from tests.broker.support.core_logs import code_of
from tests.broker.support.replica_core import KEY, SYNC, ReplicaCore, filled
from tidelog.broker.directory.core.messages import Done, Tick
from tidelog.broker.log.marks.marks import MarkKind
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode


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
