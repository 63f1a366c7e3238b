"""What a replica does as a leader and as a follower, step by step."""

import pytest

from tests.broker.support.core_logs import code_of
from tests.broker.support.core_model import CoreModel
from tests.broker.support.replica_core import (
    KEY,
    REPLICATED,
    SYNC,
    ReplicaCore,
    filled,
    is_acknowledged,
    leader,
)
from tidelog.broker.directory.core.messages import (
    Configure,
    FailPartition,
    FlushAll,
    Forget,
    Lead,
    RemovePartition,
)
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch

ONE_IS_ENOUGH = TopicSettings(in_sync_replicas_min=1, is_flush_sync=False)

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


def test_the_bytes_of_a_batch_are_let_go_when_it_is_written_however_long_it_waits() -> None:
    core = leader()
    token = core.append()
    assert not core.written
    core.end_write()
    assert list(core.written) == [token]
    core.drain()
    assert token not in core.answers


def test_of_those_that_nobody_waits_for_only_one_that_waits_for_a_commit_is_forgotten() -> None:
    core = leader()
    kept, forgotten = core.append(), core.append()
    core.drain()
    in_flight = core.append()
    core.tell(Forget(tokens=frozenset([forgotten, in_flight])))
    assert list(core.answers) == [forgotten]
    assert code_of(core, forgotten) is ErrorCode.INDETERMINATE
    core.drain()
    core.follower_at(2, 3)
    core.follower_at(3, 3)
    assert core.log().high_watermark == 3
    assert is_acknowledged(core, kept)
    assert is_acknowledged(core, in_flight)


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


def test_one_that_leads_and_is_in_sync_alone_commits_what_it_has_flushed() -> None:
    core = ReplicaCore(ONE_IS_ENOUGH)
    core.lead(1)
    soon, safe = core.append(is_all=False), core.append()
    core.end_write()
    core.end_write()
    assert is_acknowledged(core, soon), "acks=1 waits for no flush"
    assert safe not in core.answers
    assert core.log().high_watermark == 0
    core.drain()
    assert is_acknowledged(core, safe)
    assert core.log().high_watermark == core.log().flushed_offset == 2


def test_what_is_in_memory_is_flushed_at_once_when_the_others_are_gone() -> None:
    core = leader(ONE_IS_ENOUGH, 2)
    core.append()
    waiting = core.append()
    core.end_write()
    core.end_write()
    core.follower_at(2, 1)
    assert core.log().high_watermark == 1
    is_flushing = [core.has_flush]
    core.lead(1)
    is_flushing.append(core.has_flush)
    assert is_flushing == [False, True], "no tick is waited for"
    assert core.log().high_watermark == 1, "what is committed stays committed"
    assert waiting not in core.answers
    core.end_flush()
    assert is_acknowledged(core, waiting)
    assert core.log().high_watermark == 2


def test_what_is_being_written_when_the_others_are_gone_is_committed_by_its_flush() -> None:
    core = leader(ONE_IS_ENOUGH, 2)
    token = core.append()
    core.lead(1)
    core.end_write()
    assert core.has_flush
    assert token not in core.answers
    core.end_flush()
    assert is_acknowledged(core, token)


def test_memories_count_again_once_another_one_is_in_sync_not_while_it_comes() -> None:
    core = ReplicaCore(ONE_IS_ENOUGH)
    core.lead(1)
    core.lead(1, 2, in_sync=1)
    token = core.append()
    core.end_write()
    core.follower_at(2, 1)
    assert token not in core.answers, "the one that comes could not lead after a crash"
    assert core.log().high_watermark == 0
    core.lead(1, 2)
    assert is_acknowledged(core, token)
    assert core.log().flushed_offset == 0
    core.drain()
    later = core.append(is_all=False)
    core.end_write()
    assert is_acknowledged(core, later)
    assert not core.has_flush, "nobody waits for it, and it is in two memories soon"


def test_one_that_leads_a_set_of_its_own_in_a_new_epoch_flushes_what_it_has_copied() -> None:
    copied = filled(2, REPLICATED)
    core = ReplicaCore(ONE_IS_ENOUGH)
    core.follow(1)
    core.copy_of(list(copied.stored()), behind=0)
    core.end_write()
    core.end_write()
    core.commit_to(1)
    is_flushing = [core.has_flush]
    core.lead(2)
    is_flushing.append(core.has_flush)
    assert is_flushing == [False, True]
    assert core.log().high_watermark == 1
    core.end_flush()
    assert core.log().high_watermark == 2


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
    monkeypatch.setattr("tidelog.broker.log.state.log.UNCOMMITTED_MAX", 8)
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


@pytest.mark.parametrize("others", [(), (2,)], ids=["nobody_yet", "one_that_comes"])
def test_a_sole_replica_that_gets_others_answers_with_its_flush_though_all_is_committed(
    others: tuple[int, ...],
) -> None:
    core = CoreModel(partitions=1, topic=ONE_IS_ENOUGH)
    token = core.append()
    core.end_write()
    assert core.log().high_watermark == 1, "as it was while it was the only one"
    grown = Lead(
        key=KEY,
        leader_epoch=LeaderEpoch(0),
        others=tuple(BrokerId(each) for each in others),
        in_sync_count=1,
        is_sole=False,
    )
    core.tell(grown)
    for each in others:
        ReplicaCore.follower_at(core, each, 1, epoch=0)  # type: ignore[arg-type]
    assert token not in core.answers
    core.drain()
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
