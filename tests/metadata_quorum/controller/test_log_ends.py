"""Who leads where nobody is sure to hold everything: the longest log, once all have told theirs."""

import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition, topic_id
from tests.metadata_quorum.controller.test_leaders import fenced, restarted
from tidelog.metadata.broker_reports import ReplicaEnd
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata_quorum.controller.partitions.log_ends import ToldEnds
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def all_rebooted() -> Image:
    """flush=replicated; 2 and 3 held everything when their machines went down."""
    image = clusters.three(flush="replicated")
    for broker in (1, 2, 3):
        image = fenced(image, broker)
    image = restarted(restarted(image, 2, boot="x"), 3, boot="x")
    assert partition(image).last_known_eligible == (TWO, THREE)
    assert partition(image).leader_id == NO_LEADER
    return image


def end(image: Image, offset: int, *, last: int = 1, epoch: int | None = None) -> ReplicaEnd:
    """As a broker tells it with these metadata."""
    known = partition(image).leader_epoch
    return ReplicaEnd(
        topic_id=topic_id(1),
        partition=PartitionId(0),
        leader_epoch=known if epoch is None else LeaderEpoch(epoch),
        last_epoch=LeaderEpoch(last),
        log_end_offset=Offset(offset),
    )


def tell(told: ToldEnds, image: Image, by: BrokerId, *ends: ReplicaEnd) -> Image:
    """The image afterwards."""
    return clusters.after(image, told.elect(image, by, image.brokers[by].epoch, ends))


@pytest.mark.parametrize(("two", "three_", "leader"), [(10, 11, THREE), (11, 10, TWO)])
def test_the_longest_leads_once_all_have_told(two: int, three_: int, leader: BrokerId) -> None:
    image, told = all_rebooted(), ToldEnds()
    assert tell(told, image, TWO, end(image, two)) is image, "3 may be longer"
    image = tell(told, image, THREE, end(image, three_))
    now = partition(image)
    assert (now.leader_id, now.in_sync_replicas, now.is_recovered_unclean) == (
        leader,
        (leader,),
        True,
    )
    assert tell(told, image, THREE, end(image, 99)) is image, "it is led"


def test_a_later_epoch_is_longer_than_a_later_offset() -> None:
    image, told = all_rebooted(), ToldEnds()
    image = tell(told, image, TWO, end(image, 10, last=2))
    image = tell(told, image, THREE, end(image, 99, last=1))
    assert partition(image).leader_id == TWO


def test_what_another_process_or_another_epoch_told_does_not_count() -> None:
    image, told = all_rebooted(), ToldEnds()
    tell(told, image, TWO, end(image, 50))
    image = restarted(fenced(image, 2), 2)
    assert tell(told, image, THREE, end(image, 10)) is image, "2 was started anew since"
    assert tell(told, image, TWO, end(image, 9, epoch=0)) is image, "its metadata are older"
    image = tell(told, image, TWO, end(image, 9))
    assert partition(image).leader_id == THREE


def test_one_that_is_not_waited_for_is_not_asked() -> None:
    image, told = all_rebooted(), ToldEnds()
    image = restarted(image, 1)
    assert tell(told, image, ONE, end(image, 99)) is image
    assert tell(told, image, TWO, end(image, 9)) is image
    assert partition(tell(told, image, THREE, end(image, 8))).leader_id == TWO


def test_an_older_process_and_a_doubled_end_are_refused() -> None:
    image, told = all_rebooted(), ToldEnds()
    with pytest.raises(TidelogError) as caught:
        told.elect(image, TWO, BrokerEpoch(0), (end(image, 1),))
    clusters.raised(ErrorCode.STALE_BROKER_EPOCH, caught)
    with pytest.raises(TidelogError) as caught:
        tell(told, image, TWO, end(image, 1), end(image, 2))
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_topics_and_partitions_that_are_gone_are_passed_over() -> None:
    image, told = all_rebooted(), ToldEnds()
    strange = ReplicaEnd(
        topic_id=topic_id(7),
        partition=PartitionId(0),
        leader_epoch=LeaderEpoch(0),
        last_epoch=LeaderEpoch(0),
        log_end_offset=Offset(1),
    )
    assert tell(told, image, TWO, strange) is image
