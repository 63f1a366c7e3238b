"""Who leads when brokers come and go, and what is never elected."""

import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition, refusal, topic_id
from tidelog.metadata.broker_reports import InSyncChange, InSyncMember
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata.records.entries import BrokerDirectory, PartitionChangeRecord
from tidelog.metadata_quorum.controller.brokers.changes import Heartbeat, beat, fence
from tidelog.metadata_quorum.controller.brokers.registration import register
from tidelog.metadata_quorum.controller.partitions.in_sync import alter_partitions
from tidelog.metadata_quorum.controller.partitions.leaders import (
    elect_longest,
    elect_preferred,
    elect_unclean,
    plan_balance,
)
from tidelog.metadata_quorum.controller.partitions.state import PartitionState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ID = topic_id(1)


def fenced(image: Image, *brokers: int) -> Image:
    """The brokers die, one after the other."""
    for broker in brokers:
        epoch = image.brokers[BrokerId(broker)].epoch
        image = clusters.after(image, fence(image, BrokerId(broker), epoch))
    return image


def restarted(image: Image, broker: int, boot: str = "boot", clean: int = -1) -> Image:
    """The broker starts again and serves."""
    wanted = clusters.registration(broker, image.version, boot=boot, clean=clean)
    image = clusters.after(image, register(image, wanted, is_living=False))
    return clusters.unfenced(image, broker)


def stopping(image: Image, broker: int) -> Image:
    """The broker asks to stop."""
    heartbeat = Heartbeat(
        broker_id=BrokerId(broker),
        broker_epoch=image.brokers[BrokerId(broker)].epoch,
        applied_index=image.version,
        wants_shut_down=True,
    )
    return clusters.after(image, beat(image, heartbeat, required_index=0))


def test_a_leader_that_dies_is_followed_by_the_next_in_sync_replica() -> None:
    found = partition(fenced(clusters.three(), 1))
    assert (found.leader_id, found.leader_epoch, found.partition_epoch) == (TWO, 1, 1)
    assert found.in_sync_replicas == (TWO, THREE)
    assert found.eligible_replicas == (), "two are enough, so the watermark goes on without 1"


def test_a_follower_that_dies_leaves_the_set_and_the_leader_keeps_its_epoch() -> None:
    found = partition(fenced(clusters.three(), 3))
    assert (found.leader_id, found.leader_epoch, found.partition_epoch) == (ONE, 0, 1)
    assert found.in_sync_replicas == (ONE, TWO)


def test_below_the_minimum_whoever_leaves_stays_eligible() -> None:
    found = partition(fenced(clusters.three(), 1, 2))
    assert (found.leader_id, found.in_sync_replicas) == (THREE, (THREE,))
    assert found.eligible_replicas == (TWO,), "1 left while two were enough"


def test_the_last_one_in_sync_stays_so_and_leads_again_when_it_is_back() -> None:
    image = fenced(clusters.three(), 1, 2, 3)
    found = partition(image)
    assert (found.leader_id, found.in_sync_replicas) == (NO_LEADER, (THREE,))
    assert partition(restarted(image, 1)).leader_id == NO_LEADER, "1 lacks what came after it"
    assert partition(restarted(image, 3)).leader_id == THREE


def test_an_eligible_replica_leads_while_the_last_one_in_sync_is_away() -> None:
    found = partition(restarted(fenced(clusters.three(), 1, 2, 3), 2))
    assert (found.leader_id, found.in_sync_replicas) == (TWO, (TWO,))
    assert found.eligible_replicas == (THREE,)


def test_a_sole_replica_that_may_lack_records_is_elected_again_and_flagged() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,), flush="replicated")
    found = partition(restarted(image, 1, boot="another"))
    assert (found.leader_id, found.is_recovered_unclean) == (ONE, True)


@pytest.mark.parametrize(
    ("flush", "boot", "clean"),
    [("sync", "another", False), ("replicated", "boot", False), ("replicated", "another", True)],
)
def test_a_replica_keeps_its_place_if_nothing_acknowledged_can_be_missing(
    flush: str, boot: str, clean: bool
) -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,), flush=flush)
    epoch = image.brokers[ONE].epoch if clean else -1
    found = partition(restarted(image, 1, boot=boot, clean=epoch))
    assert (found.leader_id, found.is_recovered_unclean) == (ONE, False)


def lost_by_all() -> Image:
    """Power failed everywhere: the machines boot again, 3 was the last one in sync."""
    image = fenced(clusters.three(flush="replicated", in_sync_min=1), 1, 2, 3)
    return restarted(restarted(image, 3, boot="x"), 1, boot="x")


def test_an_empty_eligible_set_waits_for_all_last_known_eligible_replicas() -> None:
    image = lost_by_all()
    found = partition(image)
    assert (found.leader_id, found.in_sync_replicas) == (NO_LEADER, ())
    assert found.last_known_eligible == (THREE,)
    missing = elect_longest(image, ID, 0, {ONE: (LeaderEpoch(9), Offset(9))})
    assert "3" in refusal(ErrorCode.NO_ELIGIBLE_LEADER, missing.error).happened
    ends = {ONE: (LeaderEpoch(9), Offset(9)), THREE: (LeaderEpoch(2), Offset(4))}
    elected = elect_longest(image, ID, 0, ends)
    assert elected.record is not None
    found = partition(clusters.applied(image, (elected.record,)))
    assert (found.leader_id, found.in_sync_replicas) == (THREE, (THREE,))
    assert (found.is_recovered_unclean, found.last_known_eligible) == (True, ())


def test_a_log_that_was_trimmed_empty_is_longer_than_one_that_ends_below_its_start() -> None:
    image = restarted(fenced(clusters.three(flush="replicated"), 1, 2, 3), 2, boot="x")
    image = restarted(image, 3, boot="x")
    assert partition(image).last_known_eligible == (TWO, THREE)
    # 2 was trimmed up to 7, all it had, and has started since: no batch tells it an epoch.
    emptied = (LeaderEpoch(-1), Offset(7))
    for end, longer in ((5, TWO), (6, TWO), (7, THREE), (8, THREE)):
        ends = {TWO: emptied, THREE: (LeaderEpoch(1), Offset(end))}
        assert elect_longest(image, ID, 0, ends).leader_id == longer
    # Before an operator stand logs of any history: there one that holds records goes first.
    ends = {TWO: emptied, THREE: (LeaderEpoch(1), Offset(5))}
    assert elect_unclean(image, ID, 0, ends=ends).leader_id == THREE


def test_the_longest_of_several_last_known_logs_leads() -> None:
    image = clusters.three(flush="replicated")
    for broker in (1, 2, 3):
        image = fenced(image, broker)
    # 2 and 3 hold everything; both boot at once, so neither can be told from the other.
    wiped = partition(image)
    assert (wiped.in_sync_replicas, wiped.eligible_replicas) == ((THREE,), (TWO,))
    image = restarted(restarted(image, 2, boot="x"), 3, boot="x")
    found = partition(image)
    assert (found.in_sync_replicas, found.last_known_eligible) == ((), (TWO, THREE))
    for longer in (TWO, THREE):
        ends = {each: (LeaderEpoch(1), Offset(10 + (each == longer))) for each in (TWO, THREE)}
        assert elect_longest(image, ID, 0, ends).leader_id == longer


def test_the_longest_log_is_not_elected_while_another_holds_everything() -> None:
    image = clusters.three(flush="replicated")
    for broker in (1, 2, 3):
        image = fenced(image, broker)
    image = restarted(image, 2, boot="x")
    found = partition(image)
    assert (found.in_sync_replicas, found.last_known_eligible) == ((THREE,), (TWO,))
    refused = elect_longest(image, ID, 0, {TWO: (LeaderEpoch(1), Offset(10))})
    assert "3" in refusal(ErrorCode.NO_ELIGIBLE_LEADER, refused.error).happened
    found = partition(restarted(image, 3))
    assert (found.leader_id, found.last_known_eligible) == (THREE, (TWO,)), "3 was not heard of yet"


@pytest.mark.parametrize("first", [ONE, THREE])
def test_whoever_came_back_is_asked_too_when_the_leader_of_now_was_dead_already(
    first: BrokerId,
) -> None:
    # Both machines were cut off from power; the controller still takes the other for alive.
    image = fenced(clusters.three(flush="replicated"), 2)
    assert partition(image).in_sync_replicas == (ONE, THREE)
    other = THREE if first == ONE else ONE
    image = restarted(image, first, boot="x")
    assert partition(image).leader_id == other, "elected, though it is dead as well"
    found = partition(restarted(image, other, boot="x"))
    assert (found.leader_id, found.in_sync_replicas) == (NO_LEADER, ())
    assert found.last_known_eligible == (ONE, THREE)


def test_nobody_else_is_asked_once_a_leader_was_heard_of() -> None:
    image = restarted(fenced(clusters.three(flush="replicated"), 2), 1, boot="x")
    now = partition(image)
    assert (now.leader_id, now.last_known_eligible) == (THREE, (ONE,))
    members = tuple(
        InSyncMember(broker_id=each, broker_epoch=image.brokers[each].epoch)
        for each in (ONE, THREE)
    )
    change = InSyncChange(
        topic_id=ID,
        partition=PartitionId(0),
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        members=members,
    )
    decided = alter_partitions(image, THREE, image.brokers[THREE].epoch, (change,))
    found = partition(clusters.after(image, decided))
    assert (found.in_sync_replicas, found.last_known_eligible) == ((ONE, THREE), ())


def test_elect_longest_leaves_a_partition_alone_that_has_a_leader() -> None:
    elected = elect_longest(clusters.three(), ID, 0, {})
    assert (elected.leader_id, elected.record) == (ONE, None)


def test_an_unclean_election_takes_the_longest_log_known_and_flags_the_partition() -> None:
    image = restarted(fenced(clusters.three(in_sync_min=1), 3, 2, 1), 2)
    image = restarted(image, 3)
    assert partition(image).leader_id == NO_LEADER
    ends = {TWO: (LeaderEpoch(0), Offset(5)), THREE: (LeaderEpoch(0), Offset(8))}
    elected = elect_unclean(image, ID, 0, ends=ends)
    assert elected.leader_id == THREE
    assert elected.record is not None
    found = partition(clusters.applied(image, (elected.record,)))
    assert (found.in_sync_replicas, found.is_recovered_unclean) == ((THREE,), True)
    assert elect_unclean(image, ID, 0, broker_id=TWO, ends=ends).leader_id == TWO


def test_an_unclean_election_is_refused_with_a_leader_a_stranger_or_nobody_alive() -> None:
    image = clusters.three()
    assert elect_unclean(image, ID, 0).leader_id == ONE, "the leader stays"
    assert elect_unclean(image, ID, 0, broker_id=ONE).record is None
    led = elect_unclean(image, ID, 0, broker_id=TWO)
    assert "led by broker 1" in refusal(ErrorCode.INVALID_ARGUMENT, led.error).happened
    image = fenced(image, 1, 2, 3)
    stranger = elect_unclean(image, ID, 0, broker_id=BrokerId(9))
    refusal(ErrorCode.INVALID_ARGUMENT, stranger.error)
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, elect_unclean(image, ID, 0).error)


def test_a_disk_that_is_gone_is_not_elected_until_an_operator_says_so() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,))
    fresh = (BrokerDirectory(clusters.directory(1, 7)),)
    wanted = clusters.registration(1, 5, directories=fresh)
    image = clusters.unfenced(clusters.after(image, register(image, wanted, is_living=False)), 1)
    assert partition(image).leader_id == NO_LEADER
    elected = elect_unclean(image, ID, 0)
    assert elected.record is not None
    found = partition(clusters.applied(image, (elected.record,)))
    assert (found.leader_id, found.is_recovered_unclean) == (ONE, True)
    assert found.directories == (fresh[0].uuid,)


def test_a_wiped_follower_begins_in_its_new_directory() -> None:
    fresh = (BrokerDirectory(clusters.directory(3, 7)),)
    image = clusters.three()
    wanted = clusters.registration(3, 5, directories=fresh)
    image = clusters.after(image, register(image, wanted, is_living=False))
    found = partition(image)
    assert found.directories[2] == fresh[0].uuid
    assert (found.in_sync_replicas, found.eligible_replicas) == ((ONE, TWO), ())


def test_a_directory_that_fails_takes_its_replicas_out_and_one_that_is_back_in_again() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=2)
    for is_online, leader in ((False, TWO), (True, TWO)):
        heartbeat = Heartbeat(
            broker_id=ONE,
            broker_epoch=image.brokers[ONE].epoch,
            applied_index=0,
            directories=(BrokerDirectory(clusters.directory(1), is_online),),
        )
        image = clusters.after(image, beat(image, heartbeat, required_index=0))
        assert partition(image).leader_id == leader
    assert partition(image).in_sync_replicas == (TWO,)
    assert partition(fenced(image, 2)).leader_id == ONE, "it is eligible still"


def test_a_stopping_broker_hands_its_leaders_over_and_then_may_stop() -> None:
    image = stopping(clusters.three(), 1)
    found = partition(image)
    assert (found.leader_id, found.in_sync_replicas) == (TWO, (TWO, THREE))
    assert partition(stopping(image, 2)).leader_id == THREE


def test_a_stopping_broker_leads_on_where_nobody_can_follow() -> None:
    image = stopping(fenced(clusters.three(), 2, 3), 1)
    assert partition(image).leader_id == ONE
    assert partition(fenced(image, 1)).leader_id == NO_LEADER


def test_the_preferred_replica_is_elected_if_it_is_in_sync() -> None:
    image = restarted(fenced(clusters.three(), 1), 1)
    refused = elect_preferred(image, ID, 0)
    assert "broker 1" in refusal(ErrorCode.NO_ELIGIBLE_LEADER, refused.error).happened
    assert refused.leader_id == TWO
    assert elect_preferred(clusters.three(), ID, 0).record is None, "it leads already"


def test_an_election_of_what_is_not_there_is_refused() -> None:
    image = clusters.three()
    refusal(ErrorCode.UNKNOWN_PARTITION, elect_preferred(image, ID, 7).error)
    refusal(ErrorCode.UNKNOWN_TOPIC_ID, elect_preferred(image, TopicId(bytes(16)), 0).error)
    refusal(ErrorCode.UNKNOWN_PARTITION, elect_unclean(image, ID, 7).error)
    with pytest.raises(TidelogError) as caught:
        elect_longest(image, ID, 7, {})
    clusters.raised(ErrorCode.UNKNOWN_PARTITION, caught)


def test_a_round_of_the_balance_moves_as_many_leaders_as_it_may() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), (1, 2), (1, 2))
    image = restarted(fenced(image, 1), 1)
    assert plan_balance(image, limit=5) == (), "1 is not in sync yet"
    image = clusters.with_topic(clusters.cluster(3), (1, 2), (1, 3), (1, 2), in_sync_min=2)
    for number in range(3):
        record = _led_by_the_second(image, number)
        image = clusters.applied(image, (record,))
    records = plan_balance(image, limit=2)
    assert len(records) == 2
    image = clusters.applied(image, records)
    assert [partition(image, number).leader_id for number in range(2)] == [ONE, ONE]
    assert len(plan_balance(image, limit=2)) == 1


def _led_by_the_second(image: Image, number: int) -> PartitionChangeRecord:
    state = PartitionState.of(ID, partition(image, number))
    state.leader_id = partition(image, number).replicas[1]
    record = state.record()
    assert record is not None
    return record
