"""Leader's and follower's session where logs part, errors come and lanes change, step by step."""

import msgspec
import pytest

from tests.broker.support.copy_log import key_of, sealed_batch
from tests.broker.support.session_world import LIMITS, SessionWorld, ends, in_session, refused
from tidelog.broker.directory.core.messages import RestartLog, TruncateTail
from tidelog.broker.replication.follower.partition import AppendCopies, Phase
from tidelog.broker.replication.shared.messages import Lane
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionEpoch

KEY = key_of()


def test_a_parted_log_is_cut_before_its_end_counts() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.write(b"both")
    follower.store(leader.batches[0][1])
    follower.store(sealed_batch(b"never committed", 1, 1))
    leader.lead(2)
    leader.write(b"of epoch 2")
    leader.write(b"more of it")
    world.follow(KEY, 2)
    world.ask()
    world.deliver_request()
    assert world.leader.counted == []
    world.answer()
    assert world.deliver_answer() == [TruncateTail(key=KEY, offset=Offset(1), is_unclean=False)]
    assert world.ask() is None, "while its log is cut it has no position"
    world.settle()
    assert follower.batches == leader.batches


def test_logs_that_part_in_several_epochs_are_cut_step_by_step() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for epoch in (1, 3, 5):
        follower.follow(epoch)
        follower.write(b"x")
        follower.write(b"y")
    for epoch in (1, 2, 4, 6):
        leader.lead(epoch)
        leader.write(b"x" if epoch == 1 else b"z")
    world.follow(KEY, 6)
    world.settle()
    assert follower.batches == leader.batches


def test_a_log_is_cut_where_its_own_epoch_ends_if_that_is_earlier() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for epoch, writes in ((1, 2), (5, 5)):
        follower.follow(epoch)
        for _ in range(writes):
            follower.write(b"x")
    for epoch, writes in ((1, 5), (6, 1)):
        leader.lead(epoch)
        for _ in range(writes):
            leader.write(b"x")
    world.follow(KEY, 6)
    world.ask()
    world.deliver_request()
    world.answer()
    assert world.deliver_answer() == [TruncateTail(key=KEY, offset=Offset(2), is_unclean=False)]
    world.settle()
    assert follower.batches == leader.batches


def test_news_of_another_epoch_than_is_followed_are_not_taken_in() -> None:
    world = in_session()
    world.write()
    world.answer()
    answer = world.answers.popleft()
    news = msgspec.structs.replace(answer.partitions[0], leader_epoch=LeaderEpoch(2))
    world.answers.append(msgspec.structs.replace(answer, partitions=(news,)))
    assert world.deliver_answer() == []
    assert world.follower_session.partitions[KEY].phase is Phase.REFUSED


def test_committed_records_are_cut_only_where_somebody_decided_so() -> None:
    for is_unclean in (False, True):
        world = SessionWorld()
        follower, leader = world.follower.logs[KEY], world.leader.logs[KEY]
        follower.follow(1)
        follower.write(b"committed")
        follower.commit(1)
        leader.lead(2)
        world.follow(KEY, 2, is_unclean=is_unclean)
        world.ask()
        world.deliver_request()
        world.answer()
        (cut,) = world.deliver_answer()
        assert isinstance(cut, TruncateTail)
        assert cut.is_unclean is is_unclean
        world.do_one(KEY)
        assert bool(world.follower.lost) is not is_unclean
        assert ends(world) == ((0, 0) if is_unclean else (0, 1))


def test_a_follower_below_the_leaders_start_begins_anew_there() -> None:
    world = SessionWorld()
    leader = world.leader.logs[KEY]
    for _ in range(5):
        leader.write(b"v", 3)
    leader.commit(15)
    leader.trim(7)
    world.ask()
    world.deliver_request()
    world.answer()
    effects = world.deliver_answer()
    assert effects == [RestartLog(key=KEY, offset=Offset(6), start_epoch=LeaderEpoch(1))], (
        "the batch with offset 7 begins at 6"
    )
    world.settle()
    assert world.follower.logs[KEY].batches == leader.batches
    assert world.follower.logs[KEY].log.log_start_offset == 7


def test_a_follower_that_ends_within_the_batch_of_the_leaders_start_begins_anew() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for log in (leader, follower):
        log.lead(1)
        log.write(b"both", 4)
    follower.write(b"never committed")
    follower.follow(1)
    leader.lead(2)
    leader.write(b"of epoch 2", 3)
    leader.commit(7)
    leader.trim(6)
    world.follow(KEY, 2)
    world.settle()
    assert follower.batches == leader.batches
    assert follower.log.log_start_offset == 6


def test_a_follower_of_an_emptied_log_begins_anew_at_its_start() -> None:
    world = SessionWorld()
    leader = world.leader.logs[KEY]
    leader.write(b"v", 3)
    leader.commit(3)
    leader.trim(3)
    world.settle()
    log = world.follower.logs[KEY].log
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    world.write()
    world.settle()
    assert ends(world) == (4, 4)


def test_a_trim_at_the_leader_follows_once_it_is_committed_here() -> None:
    world = in_session()
    for _ in range(4):
        world.write()
    world.commit()
    world.settle()
    world.leader.logs[KEY].trim(3)
    world.leader_session.on_news(KEY)
    world.settle()
    assert world.follower.logs[KEY].log.log_start_offset == 3


def test_an_old_epoch_is_told_and_named_again_when_the_metadata_change() -> None:
    world = in_session()
    world.leader.logs[KEY].lead(2)
    world.write()
    answer = world.answer()
    assert answer is not None
    error = answer.partitions[0].error
    assert error is not None
    assert error.code is ErrorCode.FENCED_LEADER_EPOCH
    world.deliver_answer()
    partition = world.follower_session.partitions[KEY]
    assert partition.phase is Phase.REFUSED
    assert world.ask() is None
    world.follow(KEY, 2)
    world.settle()
    assert ends(world) == (1, 1)


def test_a_change_of_the_in_sync_set_names_nothing_again() -> None:
    world = in_session()
    _hear_of(world, 7)
    assert world.ask() is None


def test_who_is_not_in_sync_says_again_where_it_stands_at_each_partition_epoch() -> None:
    world = in_session()
    world.write()
    world.settle()
    world.follower.in_sync[KEY] = False
    counted = len(world.leader.counted)
    for epoch in (7, 9):
        _hear_of(world, epoch)
        ask = world.ask()
        assert ask is not None
        assert not ask.removed, "it is not named again"
        world.deliver_request()
        assert world.ask() is None, "once is enough"
    told = world.leader.counted[counted:]
    assert [each.partition_epoch for each in told] == [7, 9]
    assert [each.log_end_offset for each in told] == [1, 1]
    world.settle()
    assert not world.answers


def test_who_is_in_sync_says_a_partition_epoch_along_with_what_it_has_to_say() -> None:
    world = in_session()
    _hear_of(world, 7)
    world.write()
    world.settle()
    assert world.leader.counted[-1].partition_epoch == 7


def test_who_falls_out_of_sync_says_where_it_stands() -> None:
    world = in_session()
    _hear_of(world, 7)
    assert world.ask() is None
    world.follower.in_sync[KEY] = False
    _hear_of(world, 8)
    assert world.ask() is not None


def _hear_of(world: SessionWorld, partition_epoch: int) -> None:
    """Within one leader epoch."""
    followed = world.follower_session.partitions[KEY].followed
    changed = msgspec.structs.replace(followed, partition_epoch=PartitionEpoch(partition_epoch))
    world.follower_session.follow(KEY, changed)


def test_an_epoch_that_the_leader_does_not_know_yet_is_asked_again_later() -> None:
    world = SessionWorld()
    world.follow(KEY, 2)
    world.ask()
    world.deliver_request()
    world.answer()
    world.deliver_answer()
    assert world.ask() is None
    assert world.follower_session.next_retry_ms() == LIMITS.retry_ms
    world.leader.logs[KEY].lead(2)
    world.write()
    world.now_ms = LIMITS.retry_ms
    assert world.ask() is not None
    world.settle()
    assert ends(world) == (1, 1)


def test_bytes_that_contradict_their_sum_are_not_stored() -> None:
    world = in_session()
    world.write(value=b"x" * 50)
    world.answer()
    answer = world.answers.popleft()
    news = answer.partitions[0]
    wrong = news.batches[:-1] + bytes([news.batches[-1] ^ 1])
    news = msgspec.structs.replace(news, batches=wrong)
    world.answers.append(msgspec.structs.replace(answer, partitions=(news,)))
    assert world.deliver_answer() == []
    assert world.follower_session.partitions[KEY].phase is Phase.REFUSED
    world.settle()
    assert world.follower.logs[KEY].batches == world.leader.logs[KEY].batches


def test_a_copy_of_a_later_epoch_than_is_followed_is_not_stored() -> None:
    world = in_session()
    world.leader.logs[KEY].store(sealed_batch(b"v", 0, 9))
    world.leader_session.on_news(KEY)
    world.answer()
    assert not [each for each in world.deliver_answer() if isinstance(each, AppendCopies)]


def test_a_copy_that_could_not_be_stored_is_fetched_again() -> None:
    world = in_session()
    world.write()
    world.answer()
    (effect,) = world.deliver_answer()
    assert isinstance(effect, AppendCopies)
    world.follower.asked[KEY].clear()
    world.follower_session.on_appended(KEY, effect.token, refused(), world.now_ms)
    assert world.follower_session.partitions[KEY].phase is Phase.REFUSED
    world.settle()
    assert ends(world) == (1, 1)


def test_a_replica_far_behind_and_not_in_sync_moves_to_the_catch_up_lane() -> None:
    world = SessionWorld(2)
    world.leader.in_sync[key_of(1)] = False
    for partition in range(2):
        for _ in range(40):
            world.leader.logs[key_of(partition)].write(b"x" * 60)
    world.settle()
    assert [each.key for each in world.follower.moves] == [key_of(1)]
    assert ends(world, 0) == (40, 40)
    assert ends(world, 1) == (40, 0)


def test_a_replica_near_the_end_moves_to_the_live_lane() -> None:
    world = SessionWorld(1, lane=Lane.CATCH_UP)
    world.leader.in_sync[KEY] = False
    for _ in range(40):
        world.leader.logs[KEY].write(b"x" * 60)
    world.settle()
    assert [each.key for each in world.follower.moves] == [KEY]
    left = world.leader.logs[KEY].log.log_end_offset - world.follower.logs[KEY].log.log_end_offset
    size = world.leader.logs[KEY].batches[0][0].size_bytes
    assert left * size <= LIMITS.near_end_bytes


def test_a_replica_without_anything_of_a_small_log_is_copied_on_the_catch_up_lane_first() -> None:
    world = SessionWorld(3)
    world.leader.in_sync = {key: key == key_of(1) for key in world.leader.logs}
    for partition in range(2):
        for _ in range(8):
            world.leader.logs[key_of(partition)].write(b"x")
    world.settle()
    assert [each.key for each in world.follower.moves] == [KEY], "one is in sync, one log is empty"
    assert ends(world, 0) == (8, 0), "nothing of it went along the live lane"
    assert ends(world, 1) == (8, 8)


def test_on_the_catch_up_lane_a_small_log_stays_until_something_of_it_is_copied() -> None:
    world = SessionWorld(1, lane=Lane.CATCH_UP)
    world.leader.in_sync[KEY] = False
    for _ in range(4):
        world.leader.logs[KEY].write(b"x")
    world.settle()
    assert [each.key for each in world.follower.moves] == [KEY]
    assert ends(world)[1] > 0, "it was near the end from the beginning"


def test_a_late_position_does_not_bring_back_a_partition_that_left() -> None:
    world = in_session()
    world.write()
    world.answer()
    world.deliver_answer()
    world.do_one(KEY)
    world.flush(KEY)
    assert world.ask() is not None
    leader = world.leader.logs[KEY]
    leader.is_led = False
    world.write()
    answer = world.answer()
    assert answer is not None
    assert answer.partitions[0].error is not None
    leader.is_led = True
    counted = len(world.leader.counted)
    world.deliver_request()
    assert world.leader_session.partitions == {}, "it is named again by who knows that it left"
    assert len(world.leader.counted) == counted
    world.settle()
    assert ends(world) == (2, 2)


def test_a_partition_that_is_followed_no_more_leaves_the_leaders_session() -> None:
    world = in_session(2)
    world.follower_session.unfollow(KEY)
    ask = world.ask()
    assert ask is not None
    assert ask.removed == (KEY,)
    world.deliver_request()
    assert list(world.leader_session.partitions) == [key_of(1)]


def test_a_question_whether_the_leader_hears_is_answered() -> None:
    world = in_session()
    world.requests.append(world.follower_session.probe())
    world.deliver_request()
    answer = world.answer()
    assert answer is not None
    assert answer.partitions == ()
    world.deliver_answer()
    assert world.ask() is None


def test_answers_without_batches_are_confirmed_before_the_leader_has_to_wait() -> None:
    world = in_session()
    for _ in range(20):
        world.requests.append(world.follower_session.probe())
        world.deliver_request()
        assert world.answer() is not None
        world.deliver_answer()
        world.ask()
        while world.requests:
            world.deliver_request()
        assert world.leader_session.is_window_open


def test_a_position_beyond_what_was_sent_is_not_believed() -> None:
    world = in_session()
    world.follower.logs[KEY].store(sealed_batch(b"v", 0, 1))
    world.flush(KEY)
    with pytest.raises(AssertionError, match="told more than has come"):
        world.ask()
    ask = world.follower_session.probe()
    followed = world.follower_session.partitions[KEY]
    position = followed.position(world.follower.logs[KEY].log)
    followed.expected_offset = position.log_end_offset
    world.requests.append(msgspec.structs.replace(ask, positions=(position,)))
    counted = len(world.leader.counted)
    world.deliver_request()
    assert len(world.leader.counted) == counted
    answer = world.answer()
    assert answer is not None
    assert answer.is_full_start_wanted
