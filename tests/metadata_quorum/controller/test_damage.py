"""What becomes of replicas that their brokers report as damaged."""

import msgspec
import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition, refusal, topic_id
from tests.metadata_quorum.controller.test_in_sync import asked, change
from tidelog.metadata.broker_reports import DamagedReplica
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.controller.brokers.changes import fence
from tidelog.metadata_quorum.controller.partitions.damage import report_damaged
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def unread(image: Image) -> DamagedReplica:
    """What a broker says that cannot open its log now."""
    return msgspec.structs.replace(damaged(image), may_come_back=True)


def damaged(image: Image, *, epoch: int | None = None, number: int = 0) -> DamagedReplica:
    """What its broker says, with the newest metadata unless told otherwise."""
    known = partition(image).leader_epoch
    return DamagedReplica(
        topic_id=topic_id(1),
        partition=number,
        leader_epoch=known if epoch is None else LeaderEpoch(epoch),
    )


def told(
    image: Image, by: BrokerId, report: DamagedReplica | None = None
) -> tuple[Image, TidelogError | None]:
    """The image and the answer after the broker's report."""
    decided = report_damaged(image, by, image.brokers[by].epoch, (report or damaged(image),))
    (error,) = decided.answer
    return clusters.after(image, decided), error


def test_another_leads_when_the_leader_is_damaged() -> None:
    before = clusters.three()
    image, error = told(before, ONE)
    assert error is None
    now = partition(image)
    assert (now.leader_id, now.in_sync_replicas) == (TWO, (TWO, THREE))
    assert now.leader_epoch == partition(before).leader_epoch + 1
    assert now.last_known_eligible == ()
    assert not now.is_recovered_unclean


def test_a_damaged_follower_leaves_the_set_and_nobody_lets_it_in_by_what_was_decided_before() -> (
    None
):
    image, error = told(clusters.three(), THREE)
    assert error is None
    assert (partition(image).leader_id, partition(image).in_sync_replicas) == (ONE, (ONE, TWO))
    again, error = told(image, THREE)
    assert error is None
    now, then = partition(again), partition(image)
    assert now.partition_epoch == then.partition_epoch + 1
    assert msgspec.structs.replace(now, partition_epoch=then.partition_epoch) == then
    _, result = asked(again, change(image, 1, 2, 3))
    refusal(ErrorCode.STALE_PARTITION_EPOCH, result.error)


def test_it_leaves_the_eligible_ones_as_well() -> None:
    image = clusters.three()
    for broker in (THREE, TWO):
        image = clusters.after(image, fence(image, broker, image.brokers[broker].epoch))
    assert partition(image).eligible_replicas == (TWO,)
    image, error = told(image, TWO)
    assert error is None
    assert partition(image).eligible_replicas == ()


def test_the_last_one_that_holds_everything_stays() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=1)
    image, _ = told(image, TWO)
    after, error = told(image, ONE)
    assert after is image
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, error)
    sole = clusters.with_topic(clusters.cluster(1), (1,))
    after, error = told(sole, ONE)
    assert after is sole
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, error)


def test_where_those_that_hold_everything_are_away_nobody_leads_until_one_is_back() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=2)
    image = clusters.after(image, fence(image, TWO, image.brokers[TWO].epoch))
    assert partition(image).eligible_replicas == (TWO,)
    image, error = told(image, ONE)
    assert error is None
    now = partition(image)
    assert (now.leader_id, now.in_sync_replicas) == (-1, (TWO,))
    assert now.last_known_eligible == (), "the damaged one is never taken for the longest log"


def test_an_older_leader_epoch_and_a_stranger_are_refused() -> None:
    image, _ = told(clusters.three(), ONE)
    _, error = told(image, ONE, damaged(image, epoch=0))
    refusal(ErrorCode.FENCED_LEADER_EPOCH, error)
    other = clusters.with_topic(clusters.cluster(3), (1, 2), in_sync_min=1)
    _, error = told(other, THREE)
    refusal(ErrorCode.INVALID_ARGUMENT, error)
    _, error = told(other, ONE, damaged(other, number=5))
    refusal(ErrorCode.UNKNOWN_PARTITION, error)


def test_an_older_process_and_a_doubled_report_are_refused_as_a_whole() -> None:
    image = clusters.three()
    report = damaged(image)
    with pytest.raises(TidelogError) as caught:
        report_damaged(image, ONE, BrokerEpoch(0), (report,))
    clusters.raised(ErrorCode.STALE_BROKER_EPOCH, caught)
    with pytest.raises(TidelogError) as caught:
        report_damaged(image, ONE, image.brokers[ONE].epoch, (report, report))
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_another_leads_while_the_leader_cannot_open_its_log() -> None:
    image, error = told(clusters.three(), ONE, unread(clusters.three()))
    assert error is None
    now = partition(image)
    assert (now.leader_id, now.in_sync_replicas, now.eligible_replicas) == (TWO, (TWO, THREE), ())
    assert not now.is_recovered_unclean


def test_a_follower_that_cannot_open_its_log_leaves_the_set_only() -> None:
    image, error = told(clusters.three(), THREE, unread(clusters.three()))
    assert error is None
    assert (partition(image).leader_id, partition(image).in_sync_replicas) == (ONE, (ONE, TWO))
    again, error = told(image, THREE, unread(image))
    assert error is None
    assert again is image


def test_what_cannot_be_opened_stays_eligible_where_too_few_are_left() -> None:
    image, _ = told(clusters.three(), THREE, unread(clusters.three()))
    image, error = told(image, ONE, unread(image))
    assert error is None
    now = partition(image)
    assert (now.leader_id, now.in_sync_replicas, now.eligible_replicas) == (TWO, (TWO,), (ONE,))


def test_it_leads_on_where_nobody_else_can() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=2)
    image = clusters.after(image, fence(image, TWO, image.brokers[TWO].epoch))
    after, error = told(image, ONE, unread(image))
    assert after is image, "its log may be opened before the other one is back"
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, error)


def test_an_eligible_one_that_is_alive_takes_over_from_what_cannot_be_opened() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=2)
    image, _ = told(image, TWO, unread(image))
    assert (partition(image).leader_id, partition(image).eligible_replicas) == (ONE, (TWO,))
    image, error = told(image, ONE, unread(image))
    assert error is None
    now = partition(image)
    assert (now.leader_id, now.in_sync_replicas, now.eligible_replicas) == (TWO, (TWO,), (ONE,))


def test_one_out_of_the_set_has_nothing_to_lose_by_an_unread_log() -> None:
    image, _ = told(clusters.three(), THREE, unread(clusters.three()))
    image, _ = told(image, TWO, unread(image))
    assert partition(image).eligible_replicas == (TWO,)
    after, error = told(image, TWO, unread(image))
    assert error is None
    assert after is image
