"""What leaders may do to their in-sync sets, and each refusal."""

import msgspec
import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition, refusal, topic_id
from tidelog.metadata.broker_reports import InSyncChange, InSyncMember, InSyncResult
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.metadata_quorum.controller.brokers.changes import Heartbeat, beat, fence
from tidelog.metadata_quorum.controller.brokers.producer_ids import allocate_block
from tidelog.metadata_quorum.controller.partitions.in_sync import CHANGES_MAX, alter_partitions
from tidelog.metadata_quorum.controller.partitions.leaders import elect_unclean
from tidelog.metadata_quorum.controller.partitions.state import PartitionState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def change(image: Image, *members: int) -> InSyncChange:
    """What a leader with the newest metadata would send."""
    now = partition(image)
    return InSyncChange(
        topic_id=topic_id(1),
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        members=tuple(
            InSyncMember(
                broker_id=BrokerId(each),
                broker_epoch=image.brokers[BrokerId(each)].epoch
                if BrokerId(each) in image.brokers
                else BrokerEpoch(1),
            )
            for each in members
        ),
    )


def asked(image: Image, wanted: InSyncChange, by: BrokerId = ONE) -> tuple[Image, InSyncResult]:
    """The image and the result after the leader's request."""
    decided = alter_partitions(image, by, image.brokers[by].epoch, (wanted,))
    (result,) = decided.answer
    return clusters.after(image, decided), result


def refused(image: Image, wanted: InSyncChange, code: ErrorCode, by: BrokerId = ONE) -> str:
    """What happened instead; the image stays."""
    after, result = asked(image, wanted, by)
    assert after is image
    return refusal(code, result.error).happened


def test_a_leader_throws_out_and_lets_in() -> None:
    image, result = asked(clusters.three(), change(clusters.three(), 1, 2))
    assert (result.partition_epoch, result.in_sync_replicas) == (1, (ONE, TWO))
    assert partition(image).eligible_replicas == ()
    image, _ = asked(image, change(image, 1))
    assert partition(image).eligible_replicas == (TWO,), "the watermark stands still without it"
    image, _ = asked(image, change(image, 1, 3))
    assert partition(image).in_sync_replicas == (ONE, THREE)
    assert partition(image).eligible_replicas == (), "the watermark moves on without 2"


def test_the_same_change_again_is_success_and_changes_nothing() -> None:
    wanted = change(clusters.three(), 1, 2)
    image, first = asked(clusters.three(), wanted)
    again, second = asked(image, wanted)
    assert again is image
    assert first == second


def test_a_withdrawal_raises_the_partition_epoch_so_that_an_earlier_request_comes_too_late() -> (
    None
):
    image = clusters.three()
    image, _ = asked(image, change(image, 1, 2))
    late = change(image, 1, 2, 3)
    withdrawal = msgspec.structs.replace(change(image, 1, 2), is_withdrawal=True)
    withdrawn, result = asked(image, withdrawal)
    assert result.error is None
    assert result.partition_epoch == partition(image).partition_epoch + 1
    assert partition(withdrawn).in_sync_replicas == (ONE, TWO)
    refused(withdrawn, late, ErrorCode.STALE_PARTITION_EPOCH)
    again, _ = asked(withdrawn, withdrawal)
    assert again is withdrawn, "an older withdrawal has nothing left to do"


def test_an_older_decision_is_refused_with_the_present_state() -> None:
    image, _ = asked(clusters.three(), change(clusters.three(), 1, 2))
    stale = msgspec.structs.replace(change(image, 1, 3), partition_epoch=PartitionEpoch(0))
    decided = alter_partitions(image, ONE, image.brokers[ONE].epoch, (stale,))
    (result,) = decided.answer
    refusal(ErrorCode.STALE_PARTITION_EPOCH, result.error)
    assert (result.partition_epoch, result.in_sync_replicas) == (1, (ONE, TWO))


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_another_leader_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    image = clusters.three()
    wanted = msgspec.structs.replace(change(image, 1, 2), leader_epoch=LeaderEpoch(epoch))
    refused(image, wanted, code)


def test_who_does_not_lead_is_refused() -> None:
    image = clusters.three()
    assert "broker 1 leads" in refused(image, change(image, 1, 2), ErrorCode.NOT_LEADER, TWO)


def test_a_partition_that_is_not_there_is_refused() -> None:
    image = clusters.three()
    nowhere = msgspec.structs.replace(change(image, 1), partition=5)
    refused(image, nowhere, ErrorCode.UNKNOWN_PARTITION)
    other = msgspec.structs.replace(change(image, 1), topic_id=TopicId(bytes(16)))
    refused(image, other, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("members", [(), (2, 3), (1, 1), (1, 9)])
def test_a_set_that_cannot_be_is_refused(members: tuple[int, ...]) -> None:
    image = clusters.three()
    refused(image, change(image, *members), ErrorCode.INVALID_ARGUMENT)


def test_a_broker_that_was_started_anew_is_not_let_in_by_mistake() -> None:
    image, _ = asked(clusters.three(), change(clusters.three(), 1, 2))
    wanted = change(image, 1, 2, 3)
    older = msgspec.structs.replace(wanted.members[2], broker_epoch=BrokerEpoch(0))
    wanted = msgspec.structs.replace(wanted, members=(*wanted.members[:2], older))
    assert "started anew" in refused(image, wanted, ErrorCode.STALE_PARTITION_EPOCH)


def test_a_fenced_a_stopping_and_a_diskless_broker_are_not_let_in() -> None:
    image, _ = asked(clusters.three(), change(clusters.three(), 1, 2))
    epoch = image.brokers[THREE].epoch
    fenced = clusters.after(image, fence(image, THREE, epoch))
    wanted = change(fenced, 1, 2, 3)
    assert "is fenced" in refused(fenced, wanted, ErrorCode.STALE_PARTITION_EPOCH)
    heartbeat = Heartbeat(broker_id=THREE, broker_epoch=epoch, applied_index=0)
    stop = msgspec.structs.replace(heartbeat, wants_shut_down=True)
    stopping = clusters.after(image, beat(image, stop, required_index=0))
    wanted = change(stopping, 1, 2, 3)
    assert "is stopping" in refused(stopping, wanted, ErrorCode.STALE_PARTITION_EPOCH)
    failed = (BrokerDirectory(clusters.directory(3), is_online=False),)
    lost = msgspec.structs.replace(heartbeat, directories=failed)
    diskless = clusters.after(image, beat(image, lost, required_index=0))
    wanted = change(diskless, 1, 2, 3)
    assert "directory" in refused(diskless, wanted, ErrorCode.STALE_PARTITION_EPOCH)


def test_a_leader_may_say_that_it_recovered_from_a_loss() -> None:
    image = clusters.three()
    wanted = msgspec.structs.replace(change(image, 1, 2, 3), is_recovered_unclean=True)
    image, result = asked(image, wanted)
    assert partition(image).is_recovered_unclean
    assert result.partition_epoch == 1


def unclean() -> Image:
    """Broker 3 leads alone, elected by an operator while 1 and 2 were away."""
    image = clusters.three()
    for broker in (THREE, TWO, ONE):
        image = clusters.after(image, fence(image, broker, image.brokers[broker].epoch))
    image = clusters.unfenced(image, 3)
    election = elect_unclean(image, topic_id(1), 0, broker_id=THREE)
    assert election.record is not None
    image = clusters.applied(image, [election.record])
    return clusters.unfenced(clusters.unfenced(image, 1), 2)


def test_a_loss_is_over_once_every_replica_has_gone_on_from_what_was_left() -> None:
    image = unclean()
    assert partition(image).is_recovered_unclean
    image, _ = asked(image, change(image, 1, 3), by=THREE)
    assert partition(image).is_recovered_unclean, "broker 2 may hold what was given up"
    led_at = partition(image).leader_epoch
    image, _ = asked(image, change(image, 1, 2, 3), by=THREE)
    assert not partition(image).is_recovered_unclean
    assert partition(image).unclean_epoch == led_at, "an older copy may come back at any time"
    image, _ = asked(image, change(image, 2, 3), by=THREE)
    assert not partition(image).is_recovered_unclean


def test_a_loss_is_over_once_a_replica_that_stays_away_is_moved_elsewhere() -> None:
    image = unclean()
    image, _ = asked(image, change(image, 1, 3), by=THREE)
    state = PartitionState.of(topic_id(1), partition(image))
    state.drop_replicas((TWO,), (ONE, THREE), 2)
    assert not state.is_recovered_unclean


def test_a_request_of_an_older_process_too_many_or_doubled_is_refused_as_a_whole() -> None:
    image = clusters.three()
    wanted = change(image, 1, 2)
    for broker, epoch in ((ONE, 99), (BrokerId(9), 1)):
        with pytest.raises(TidelogError) as caught:
            alter_partitions(image, broker, BrokerEpoch(epoch), (wanted,))
        clusters.raised(ErrorCode.STALE_BROKER_EPOCH, caught)
    for changes in ((wanted, wanted), (wanted,) * (CHANGES_MAX + 1)):
        with pytest.raises(TidelogError) as caught:
            alter_partitions(image, ONE, image.brokers[ONE].epoch, changes)
        clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_a_block_of_producer_ids_is_given_once() -> None:
    image = clusters.cluster(2)
    given: list[int] = []
    for broker in (ONE, TWO, ONE):
        decided = allocate_block(image, broker, image.brokers[broker].epoch)
        block = decided.answer
        given += range(block.first_producer_id, block.first_producer_id + block.count)
        image = clusters.after(image, decided)
    assert len(set(given)) == len(given) == 3_000
    with pytest.raises(TidelogError) as caught:
        allocate_block(image, ONE, BrokerEpoch(0))
    clusters.raised(ErrorCode.STALE_BROKER_EPOCH, caught)
    full = msgspec.structs.replace(image, next_producer_id=(1 << 63) - 500)
    with pytest.raises(TidelogError) as caught:
        allocate_block(full, ONE, image.brokers[ONE].epoch)
    clusters.raised(ErrorCode.RESOURCE_EXHAUSTED, caught)
