"""Replicas that were filled from a compacted log judge where logs part as its first leader would.

The real compaction makes the log, the real sessions copy it; owner and disk are stand-ins.
"""

from tests.broker.support.compaction_log import CompactedLog, keyed
from tests.broker.support.copy_log import CopyLog, key_of
from tests.broker.support.session_world import SessionWorld
from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.wire.batch import decode_batch, encode_batch

KEY = key_of()


def batch(key: str, value: str, offset: int, epoch: int) -> bytes:
    return encode_batch([keyed(key, value)], base_offset=offset, leader_epoch=epoch)


def leader_of(*segments: list[bytes], epoch: int) -> CopyLog:
    """The broker that compacted these: its sidecars carry the whole history of epochs."""
    log = CompactedLog()
    for each in segments:
        log.seal(each)
    assert log.compact() is not None
    made = CopyLog()
    made.lead(epoch)
    for _, data in log.batches():
        made.store(data)
    made.log.leader_epochs = LeaderEpochs(log.segments[-1].leader_epochs)
    made.commit(made.log.log_end_offset)
    return made


def filled_from(leader: CopyLog, epoch: int) -> CopyLog:
    """A replica that was placed anew."""
    world = SessionWorld()
    world.leader.logs[KEY] = leader
    world.follow(KEY, epoch)
    world.settle()
    copy = world.follower.logs[KEY]
    assert copy.batches == leader.batches
    assert copy.log.leader_epochs.starts == leader.log.leader_epochs.starts
    copy.commit(copy.log.log_end_offset)
    return copy


def back_behind(leader: CopyLog, back: CopyLog, epoch: int) -> SessionWorld:
    """A replica that was away follows the other one, which leads by now."""
    leader.lead(epoch)
    world = SessionWorld()
    world.leader.logs[KEY], world.follower.logs[KEY] = leader, back
    world.follower.in_sync[KEY] = False
    world.follow(KEY, epoch)
    world.settle()
    world.commit()
    world.settle()
    return world


def committed(log: CopyLog) -> dict[bytes | None, bytes | None]:
    return {
        key: value
        for header, data in log.batches
        if header.base_offset < log.log.high_watermark
        for _, _, _, key, value, _ in decode_batch(data, is_compacted=True)
    }


def test_what_was_never_committed_goes_although_the_epoch_behind_it_begins_in_a_gap() -> None:
    first = batch("k", "committed", 0, 1)
    away = CopyLog()
    away.lead(1)
    away.store(first)
    away.store(batch("k", "nobody else has it", 1, 1))
    away.commit(1)
    compacted_away = [batch("x", "1", 1, 2), batch("x", "2", 2, 2)]
    leader = leader_of([first, *compacted_away], [batch("x", "3", 3, 2)], epoch=2)
    copy = filled_from(leader, 2)
    back_behind(copy, away, 3)
    assert committed(away) == committed(copy) == {b"k": b"committed", b"x": b"3"}


def test_a_whole_replica_stays_although_all_records_of_its_last_epoch_are_compacted_away() -> None:
    first, second = batch("k", "v", 0, 1), batch("x", "1", 1, 2)
    away = CopyLog()
    for epoch, data in ((1, first), (2, second)):
        away.follow(epoch)
        away.store(data)
    away.commit(2)
    leader = leader_of([first, second], [batch("x", "2", 2, 3)], epoch=3)
    copy = filled_from(leader, 3)
    world = back_behind(copy, away, 4)
    assert not world.follower.lost, (
        "a cut below the watermark is refused, and the log is kept apart"
    )
    assert committed(away) == committed(copy)
