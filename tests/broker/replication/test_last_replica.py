"""A reassignment that leaves one replica: when its leader says that all is flushed there."""

import msgspec

from tests.broker.support.in_sync_leader import ONE, REFUSED, TWO, UNKNOWN, Leader, led, made
from tidelog.broker.replication.in_sync.set import RETRY_MS_MIN
from tidelog.broker.replication.shared.in_sync_types import Led
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, Offset


def leaving(last: BrokerId, *in_sync: int, epoch: int = 5, partition_epoch: int = 11) -> Led:
    """As metadata say it while `last` is to stay alone of two."""
    return msgspec.structs.replace(
        led(*in_sync, epoch=epoch, partition_epoch=partition_epoch),
        replicas=(ONE, TWO),
        last_replica=last,
    )


def of_replicated(*in_sync: int) -> Leader:
    """On a topic with flush=replicated: the watermark is ahead of what is flushed."""
    leader = Leader(*in_sync)
    leader.perform(leader.set.on_settings(is_flush_sync=False, now_ms=0))
    leader.log.flushed_offset = Offset(40)
    return leader


def begin(leader: Leader, now: Led) -> None:
    """The owner hears of the other way of flushing, then the set of the image."""
    leader.set.set_flush_sync(is_flush_sync=True)
    leader.perform(leader.set.on_image(now, leader.now_ms))


def test_the_leader_that_stays_says_it_once_it_has_flushed_up_to_the_watermark() -> None:
    leader = of_replicated(1, 2)
    begin(leader, leaving(ONE, 1, 2))
    assert leader.asks() is None
    assert leader.set.has_news, "it is looked at again"
    leader.log.flushed_offset = Offset(99)
    assert leader.asks() is None
    leader.log.flushed_offset = Offset(100)
    change = leader.asked(1, 2)
    assert change.is_flushed
    assert not change.is_withdrawal


def test_of_a_follower_that_stays_its_own_flush_counts() -> None:
    leader = of_replicated(1, 2)
    leader.at(2, 40, end=100)
    begin(leader, leaving(TWO, 1, 2))
    leader.log.flushed_offset = Offset(100)
    assert leader.asks() is None
    leader.at(2, 100)
    assert leader.asked(1, 2).is_flushed


def test_a_follower_that_has_said_nothing_in_the_epoch_has_flushed_nothing() -> None:
    leader = Leader(1, 2)
    begin(leader, leaving(TWO, 1, 2))
    assert leader.asks() is None
    leader.at(2, 100)
    assert leader.asked(1, 2).is_flushed


def test_nothing_is_said_before_the_owner_goes_by_what_is_flushed() -> None:
    leader = of_replicated(1, 2)
    leader.log.flushed_offset = Offset(100)
    leader.is_owner_slow = True
    begin(leader, leaving(ONE, 1, 2))
    assert leader.asks() is None, "until then more may be committed that is in memory alone"
    leader.take_in()
    assert leader.asked(1, 2).is_flushed


def test_a_new_leader_has_flushed_all_that_the_one_before_may_have_committed() -> None:
    leader = of_replicated(1, 2)
    leader.set.set_flush_sync(is_flush_sync=True)
    leader.log.high_watermark = Offset(30)
    leader.perform(leader.set.on_image(leaving(ONE, 1, epoch=6), 0))
    assert leader.asks() is None, "the log ended at 100 when the epoch began"
    leader.log.flushed_offset = Offset(100)
    assert leader.asked(1).is_flushed


def test_who_comes_as_the_last_replica_comes_with_the_word() -> None:
    leader = Leader(1)
    begin(leader, leaving(TWO, 1))
    leader.at(2, 99)
    assert leader.asks() is None
    leader.at(2, 100)
    assert leader.asked(1, 2).is_flushed


def test_the_last_replica_that_lags_is_asked_out_and_nothing_is_said_of_it() -> None:
    leader = Leader(1, 2)
    leader.at(2, 50)
    begin(leader, leaving(TWO, 1, 2))
    leader.pass_ms(1_100)
    assert not leader.asked(1).is_flushed


def test_one_that_goes_and_lags_is_asked_out_and_that_may_be_the_end() -> None:
    leader = of_replicated(1, 2)
    begin(leader, leaving(ONE, 1, 2))
    leader.pass_ms(1_100)
    change = leader.asked(1)
    assert not change.is_flushed, "what it committed with the other one is in its memory alone"
    leader.outcome(change, REFUSED)
    leader.pass_ms(RETRY_MS_MIN)
    leader.log.flushed_offset = Offset(100)
    assert leader.asked(1).is_flushed


def test_where_others_stay_too_nothing_is_said() -> None:
    leader = Leader(1, 2)
    assert leader.asks() is None
    assert not leader.set.has_news


def test_a_word_that_did_not_end_it_is_said_again_after_a_pause() -> None:
    leader = Leader(1, 2)
    leader.at(2, 100)
    begin(leader, leaving(TWO, 1, 2))
    leader.outcome(leader.asked(1, 2), made(11))
    assert leader.asks() is None
    leader.pass_ms(RETRY_MS_MIN)
    leader.outcome(leader.asked(1, 2), UNKNOWN)
    leader.pass_ms(2 * RETRY_MS_MIN)
    assert leader.asked(1, 2).is_flushed


def test_who_is_asked_out_before_the_owner_goes_by_what_is_flushed_goes_without_the_word() -> None:
    leader = of_replicated(1, 2)
    leader.log.flushed_offset = Offset(100)
    leader.is_owner_slow = True
    begin(leader, leaving(ONE, 1, 2))
    leader.pass_ms(1_100)
    assert not leader.asked(1).is_flushed


def test_while_the_partition_is_not_flushed_first_nothing_is_said() -> None:
    leader = of_replicated(1, 2)
    leader.log.flushed_offset = Offset(100)
    leader.perform(leader.set.on_image(leaving(ONE, 1, 2), leader.now_ms))
    assert leader.asks() is None


def test_a_leader_whose_log_has_stopped_does_not_know_what_its_disk_holds() -> None:
    leader = Leader(1, 2)
    leader.log.failure = TidelogError(ErrorCode.STORAGE_FAILED, tried="read", happened="no answer")
    begin(leader, leaving(ONE, 1, 2))
    assert leader.asks() is None
    leader.log.failure = None
    assert leader.asked(1, 2).is_flushed
