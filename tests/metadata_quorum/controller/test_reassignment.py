"""Moves: begun, completed, called off, planned."""

import msgspec
import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition, refusal, topic_id
from tests.metadata_quorum.controller.test_in_sync import asked, change
from tests.metadata_quorum.controller.test_leaders import restarted
from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.broker_reports import InSyncChange
from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import NewTopic, TopicDefaults
from tidelog.metadata.records.entries import TopicConfigurationChangeRecord
from tidelog.metadata_quorum.controller.brokers.changes import drain, fence
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.reassignment import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from tidelog.metadata_quorum.controller.partitions.reassignment_plan import (
    drain_round,
    plan_reassignments,
)
from tidelog.metadata_quorum.controller.topics.creation import plan_topic
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def move(*replicas: int, number: int = 0) -> Reassignment:
    """A move of a partition; no replicas: called off."""
    return Reassignment(
        topic_id=topic_id(1),
        partition=PartitionId(number),
        replicas=tuple(BrokerId(each) for each in replicas),
    )


def moved(image: Image, *replicas: int) -> Image:
    """The move has begun."""
    decided = alter_reassignments(image, (move(*replicas),))
    assert decided.answer == (None,)
    return clusters.after(image, decided)


def test_a_move_ends_when_all_that_come_are_in_sync() -> None:
    image = moved(clusters.with_topic(clusters.cluster(4), (1, 2), in_sync_min=1), 3, 4)
    found = partition(image)
    assert found.replicas == (3, 4, 1, 2)
    assert (found.adding_replicas, found.removing_replicas) == ((3, 4), (1, 2))
    assert len(found.directories) == 4
    assert [each.partition for _, each in list_reassignments(image)] == [0]
    assert list_reassignments(image, [topic_id(9)]) == ()
    image, _ = asked(image, change(image, 1, 2, 3))
    assert partition(image).is_reassigning, "4 has not come yet"
    image, result = asked(image, change(image, 1, 2, 3, 4))
    found = partition(image)
    assert (found.replicas, found.in_sync_replicas, found.leader_id) == ((3, 4), (3, 4), 3)
    assert (found.leader_epoch, found.is_reassigning) == (1, False)
    assert (result.partition_epoch, result.in_sync_replicas) == (found.partition_epoch, (3, 4))
    assert found.directories == (clusters.directory(3), clusters.directory(4))


def flushed(image: Image, *members: int) -> InSyncChange:
    """The set that a leader wants, with its word that the last replica has flushed everything."""
    return msgspec.structs.replace(change(image, *members), is_flushed=True)


def test_others_stay_beside_an_only_replica_until_its_leader_says_that_all_is_flushed() -> None:
    image = moved(clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=1), 2)
    found = partition(image)
    assert (found.replicas, found.removing_replicas, found.last_replica) == ((2, 1), (1,), 2)
    assert (found.leader_id, found.partition_epoch) == (1, 1), "its leader hears of it"
    for wanted in (change(image, 1, 2), change(image, 1)):
        image, _ = asked(image, wanted)
        assert partition(image).replicas == (2, 1), "it has not said so"
    image, _ = asked(image, change(image, 1, 2))
    assert partition(image).replicas == (2, 1), "2 is in sync again, no more"
    image, result = asked(image, flushed(image, 1, 2))
    found = partition(image)
    assert (found.replicas, found.leader_id, found.leader_epoch) == ((2,), 2, 1)
    assert (found.is_reassigning, found.last_replica) == (False, None)
    assert (result.partition_epoch, result.in_sync_replicas) == (found.partition_epoch, (2,))


def test_who_comes_as_the_only_replica_may_come_and_have_flushed_with_one_word() -> None:
    image = moved(clusters.with_topic(clusters.cluster(2), (1,)), 2)
    assert partition(image).last_replica == 2
    halfway, _ = asked(image, change(image, 1, 2))
    assert partition(halfway).replicas == (2, 1)
    for before in (image, halfway):
        after, _ = asked(before, flushed(before, 1, 2))
        assert partition(after).replicas == (2,)


def test_a_word_of_before_the_move_does_not_end_it() -> None:
    before = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=1)
    word = flushed(before, 1, 2)
    image = moved(before, 2)
    after, result = asked(image, word)
    assert after is image, "the same set as there is: an answer that was lost, at the most"
    assert result.error is None


def test_the_order_of_the_replicas_changes_at_once_and_without_copying() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2))
    decided = alter_reassignments(image, (move(2, 1),))
    found = partition(clusters.after(image, decided))
    assert (found.replicas, found.is_reassigning, found.leader_id) == ((2, 1), False, 1)


def test_a_move_is_called_off_and_what_came_is_dropped() -> None:
    image = moved(clusters.with_topic(clusters.cluster(3), (1, 2), in_sync_min=1), 2, 3)
    image, _ = asked(image, change(image, 1, 2))
    image = moved(image)
    found = partition(image)
    assert (sorted(found.replicas), found.is_reassigning) == ([1, 2], False)
    assert sorted(found.in_sync_replicas) == [1, 2]
    assert alter_reassignments(image, (move(),)).records == (), "nothing is under way"


def growing(*in_sync: int, in_sync_min: int = 1) -> Image:
    """1 is joined by 2 and 3; these are in sync."""
    image = clusters.with_topic(clusters.cluster(4), (1,), flush="replicated")
    image = moved(image, 1, 2, 3)
    if in_sync_min > 1:
        raised = TopicConfigurationChangeRecord(
            topic_id=topic_id(1), changes={"min.insync.replicas": str(in_sync_min)}
        )
        image = clusters.applied(image, (raised,))
    return asked(image, change(image, *in_sync))[0]


def fenced(image: Image, broker: BrokerId) -> Image:
    """It dies."""
    return clusters.after(image, fence(image, broker, image.brokers[broker].epoch))


@pytest.mark.parametrize("target", [(), (1,)], ids=["called_off", "replaced"])
def test_who_came_stays_beside_an_only_replica_until_its_leader_says_that_all_is_flushed(
    target: tuple[int, ...],
) -> None:
    image = moved(growing(1, 2), *target)
    found = partition(image)
    assert (found.replicas, found.in_sync_replicas) == ((1, 2), (1, 2)), "3 was never counted on"
    assert (found.adding_replicas, found.removing_replicas, found.last_replica) == ((), (2,), 1)
    assert found.directories == (clusters.directory(1), clusters.directory(2))
    assert alter_reassignments(image, (move(1),)).records == (), "it is on its way"
    image, _ = asked(image, change(image, 1, 2))
    assert partition(image).replicas == (1, 2), "it has not said so"
    image, _ = asked(image, flushed(image, 1, 2))
    found = partition(image)
    assert (found.replicas, found.in_sync_replicas, found.is_reassigning) == ((1,), (1,), False)


def test_who_came_leads_on_until_the_only_one_that_stays_has_flushed() -> None:
    image = fenced(growing(1, 2), ONE)
    (error,) = alter_reassignments(image, (move(),)).answer
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, error)
    image = clusters.unfenced(image, 1)
    image, _ = asked(image, change(image, 1, 2), by=TWO)
    image = moved(image)
    assert (partition(image).replicas, partition(image).leader_id) == ((1, 2), TWO)
    image, _ = asked(image, flushed(image, 1, 2), by=TWO)
    assert (partition(image).replicas, partition(image).leader_id) == ((1,), ONE)


def test_a_move_ends_at_once_where_the_leader_has_counted_on_nobody_else() -> None:
    found = partition(moved(growing(1)))
    assert (found.replicas, found.is_reassigning) == ((1,), False)


def test_who_came_and_is_eligible_still_is_counted_on() -> None:
    image = moved(fenced(growing(1, 2, in_sync_min=2), TWO))
    found = partition(image)
    assert (found.replicas, found.eligible_replicas, found.last_replica) == ((1, 2), (2,), 1)
    image, _ = asked(image, flushed(image, 1))
    assert (partition(image).replicas, partition(image).eligible_replicas) == ((1,), ())


def test_who_came_stays_also_where_the_next_only_replica_is_yet_to_come() -> None:
    image = moved(growing(1, 2), 4)
    found = partition(image)
    assert (found.replicas, found.last_replica) == ((4, 1, 2), 4)
    image, _ = asked(image, flushed(image, 1, 2, 4))
    assert (partition(image).replicas, partition(image).leader_id) == ((4,), 4)


@pytest.mark.parametrize("is_alone", [True, False])
def test_who_came_is_asked_for_the_end_of_its_log_where_nobody_is_in_sync(
    *, is_alone: bool
) -> None:
    here = (1,) if is_alone else (1, 4)
    image = clusters.with_topic(clusters.cluster(4), here, flush="replicated", in_sync_min=1)
    image, _ = asked(moved(image, *here, 2, 3), change(moved(image, *here, 2, 3), 1, 2))
    for broker in (1, 2):
        image = restarted(image, broker, boot="another")
    assert partition(image).last_known_eligible == (1, 2)
    found = partition(moved(image))
    assert found.last_known_eligible == (1, 2), "either may have more than the other one"
    assert found.removing_replicas == (2,)


def test_who_is_in_sync_alone_is_not_given_up_for_one_that_lost_its_memory() -> None:
    found = partition(image := restarted(growing(1, 2), 1, boot="another"))
    assert (found.in_sync_replicas, found.last_known_eligible) == ((TWO,), (ONE,))
    (error,) = alter_reassignments(image, (move(),)).answer
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, error)


def counting_on_who_came() -> Image:
    """(1, 2) moves to (3, 4); 4 does not come, 2 has died: 1 and 3 acknowledge."""
    image = clusters.with_topic(clusters.cluster(6), (1, 2), flush="replicated", in_sync_min=2)
    image = moved(image, 3, 4)
    image, _ = asked(image, change(image, 1, 2, 3))
    image = fenced(image, TWO)
    assert partition(image).in_sync_replicas == (THREE, ONE)
    assert partition(image).eligible_replicas == ()
    return image


@pytest.mark.parametrize("target", [(), (1, 2)], ids=["called_off", "replaced"])
def test_who_came_stays_until_as_many_others_are_in_sync_as_a_commit_counts_on(
    target: tuple[int, ...],
) -> None:
    image = moved(counting_on_who_came(), *target)
    found = partition(image)
    assert (found.replicas, sorted(found.in_sync_replicas)) == ((1, 2, 3), [1, 3]), "4 never came"
    assert (found.adding_replicas, found.removing_replicas) == ((), (3,))
    assert found.directories == tuple(clusters.directory(each) for each in (1, 2, 3))
    image = clusters.unfenced(image, 2)
    image, _ = asked(image, change(image, 1, 2, 3))
    found = partition(image)
    assert (found.replicas, found.in_sync_replicas, found.is_reassigning) == ((1, 2), (1, 2), False)
    assert found.called_off_replicas == ()


def test_who_came_goes_at_once_where_enough_others_are_in_sync() -> None:
    image = moved(clusters.with_topic(clusters.cluster(6), (1, 2), in_sync_min=2), 3, 4)
    image, _ = asked(image, change(image, 1, 2, 3))
    found = partition(moved(image))
    assert (found.replicas, found.in_sync_replicas, found.is_reassigning) == ((1, 2), (1, 2), False)
    found = partition(moved(image, 5, 6))
    assert (found.replicas, found.in_sync_replicas) == ((5, 6, 1, 2), (1, 2))


def test_who_came_and_died_leads_when_it_is_back_and_the_others_are_not() -> None:
    image = moved(fenced(counting_on_who_came(), THREE))
    found = partition(image)
    assert (found.in_sync_replicas, found.eligible_replicas) == ((ONE,), (THREE,))
    image = restarted(image, 1, boot="another")
    image = clusters.unfenced(image, 3)
    assert partition(image).leader_id == THREE, "1 has lost its memory"


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_move_that_is_called_off_twice_is_called_off_once(*, is_alone: bool) -> None:
    image = moved(growing(1, 2) if is_alone else counting_on_who_came())
    assert partition(image).called_off_replicas == partition(image).removing_replicas
    assert alter_reassignments(image, (move(),)) == Decision(answer=(None,))
    image = fenced(image, ONE)
    decided = alter_reassignments(image, (move(),))
    assert decided == Decision(answer=(None,)), "nobody else is in sync now; nothing changes"


def test_a_call_off_that_waits_outlives_a_snapshot() -> None:
    image = moved(counting_on_who_came())
    assert partition(image).called_off_replicas == (THREE,)
    restored, _ = decode_image(EncodedImage(image, None))
    assert restored == image


def test_replicas_that_were_to_go_stay_where_that_is_called_off() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=1)
    found = partition(moved(moved(image, 1)))
    assert (found.replicas, found.is_reassigning) == ((1, 2), False)


def test_who_came_stays_until_those_are_in_sync_to_whom_the_next_move_goes() -> None:
    image = moved(counting_on_who_came(), 5, 6)
    found = partition(image)
    assert (found.replicas, found.adding_replicas) == ((5, 6, 1, 2, 3), (5, 6))
    assert (found.removing_replicas, found.called_off_replicas) == ((1, 2, 3), (3,))
    called_off = partition(moved(image))
    assert (called_off.replicas, called_off.removing_replicas) == ((1, 2, 3), (3,))
    image, _ = asked(image, change(image, 1, 3, 5, 6))
    assert (partition(image).replicas, partition(image).is_reassigning) == ((5, 6), False)


@pytest.mark.parametrize("target", [(1, 3), (3, 1), (1, 2, 3)])
def test_who_came_is_kept_for_good_where_the_next_move_says_so(target: tuple[int, ...]) -> None:
    found = partition(moved(moved(counting_on_who_came()), *target))
    assert (found.replicas, found.is_reassigning) == (target, False)
    assert (sorted(found.in_sync_replicas), found.leader_id) == ([1, 3], ONE)


def test_a_call_off_that_waits_ends_when_it_is_asked_for_and_a_commit_counts_on_fewer() -> None:
    image = moved(counting_on_who_came())
    lowered = TopicConfigurationChangeRecord(
        topic_id=topic_id(1), changes={"min.insync.replicas": "1"}
    )
    image = moved(clusters.applied(image, (lowered,)))
    found = partition(image)
    assert (found.replicas, found.in_sync_replicas, found.is_reassigning) == ((1, 2), (1,), False)


def test_a_move_that_is_asked_for_again_changes_nothing() -> None:
    image = moved(clusters.with_topic(clusters.cluster(3), (1,)), 2)
    assert alter_reassignments(image, (move(2),)).records == ()


def test_a_move_is_replaced_by_another_one() -> None:
    image = moved(moved(clusters.with_topic(clusters.cluster(3), (1,)), 2), 3)
    found = partition(image)
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == ((3, 1), (3,), (1,))


def test_calling_off_is_refused_if_only_replicas_that_came_are_in_sync() -> None:
    image = moved(clusters.with_topic(clusters.cluster(4), (1, 4), in_sync_min=1), 2, 3)
    image, _ = asked(image, change(image, 1, 2))
    image = clusters.after(image, fence(image, ONE, image.brokers[ONE].epoch))
    assert partition(image).in_sync_replicas == (TWO,)
    (error,) = alter_reassignments(image, (move(),)).answer
    refusal(ErrorCode.NO_ELIGIBLE_LEADER, error)


def test_refusals_of_single_moves_leave_the_others_alone() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1,), (2,))
    image = clusters.after(image, fence(image, THREE, image.brokers[THREE].epoch))
    wanted = (move(9), move(1, 1, number=1), move(2, number=7))
    decided = alter_reassignments(image, wanted)
    codes = [None if each is None else each.code for each in decided.answer]
    assert codes == [
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.UNKNOWN_PARTITION,
    ]
    fenced = alter_reassignments(image, (move(3),))
    refusal(ErrorCode.INVALID_ARGUMENT, fenced.answer[0])


def test_doubled_moves_and_too_many_are_refused() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1,))
    for wanted in ((move(2), move(2)), (move(2),) * 10_001):
        with pytest.raises(TidelogError) as caught:
            alter_reassignments(image, wanted)
        clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_a_throttle_that_a_move_names_is_the_cluster_s_from_then_on() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1,))
    throttled = clusters.after(
        image, alter_reassignments(image, (), throttle_bytes_per_second=5_000)
    )
    assert throttled.cluster_configuration["reassignment.throttle.bytes.per.second"] == "5000"
    again = alter_reassignments(throttled, (), throttle_bytes_per_second=5_000)
    assert again.records == ()


def test_a_plan_evens_out_replicas_and_leaders_with_few_moves() -> None:
    image = clusters.with_topic(clusters.cluster(4), *[(1, 2)] * 8, in_sync_min=1)
    plan = plan_reassignments(image)
    held = [0, 0, 0, 0]
    leaders = [0, 0, 0, 0]
    after = {each.partition: each.replicas for each in plan.reassignments}
    for number in range(8):
        replicas = after.get(PartitionId(number), (ONE, TWO))
        for replica in replicas:
            held[replica - 1] += 1
        leaders[replicas[0] - 1] += 1
    assert held == [4, 4, 4, 4]
    assert max(leaders) - min(leaders) <= 1
    assert plan_reassignments(image) == plan, "the same again"


def test_an_even_cluster_needs_no_moves() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1,), (2,))
    assert plan_reassignments(image).reassignments == ()


def test_a_plan_never_puts_replicas_into_fewer_racks() -> None:
    image = clusters.cluster(3, racks=("a", "b", "b"))
    image = clusters.with_topic(image, *[(1, 2)] * 6, in_sync_min=1)
    for each in plan_reassignments(image).reassignments:
        assert ONE in each.replicas, "1 is the only broker of its rack"


def test_a_plan_ends_at_its_limit_and_says_so() -> None:
    image = clusters.with_topic(clusters.cluster(3), *[(1,)] * 9)
    plan = plan_reassignments(image, moves_max=2)
    assert len(plan.reassignments) == 2
    assert "2 partitions" in plan.warnings[0]
    assert plan_reassignments(image, topic_ids=[topic_id(7)]).reassignments == ()


def test_a_drain_empties_its_broker_round_by_round() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1,), (1,), (2,))
    decided = drain(image, ONE, is_cancelled=False)
    assert decided.answer.remaining_replicas == 2
    image = clusters.after(image, decided)
    again = drain(image, ONE, is_cancelled=False)
    assert again.records == ()
    plan = drain_round(image, limit=1)
    assert len(plan.reassignments) == 1
    plan = drain_round(image, limit=10)
    assert all(ONE not in each.replicas for each in plan.reassignments)
    image = clusters.after(image, drain(image, ONE, is_cancelled=True))
    assert drain_round(image, limit=10).reassignments == ()


def test_the_last_broker_that_takes_replicas_is_not_drained() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1,))
    image = clusters.after(image, drain(image, TWO, is_cancelled=False))
    with pytest.raises(TidelogError, match="no other broker") as caught:
        drain(image, ONE, is_cancelled=False)
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)
    with pytest.raises(TidelogError, match=r"1 of 2 .*\(1 being drained\)"):
        plan_topic(image, NewTopic(name="two", replication_factor=2), topic_id(9), TopicDefaults())
    assert drain(image, ONE, is_cancelled=True).records == ()


def test_a_drain_that_has_nowhere_to_go_warns() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2))
    decided = drain(image, ONE, is_cancelled=False)
    assert "nowhere to go" in decided.warnings[0]
    image = clusters.after(image, decided)
    assert "stay where they are" in plan_reassignments(image).warnings[0]
    everybody = plan_reassignments(image, drained=[TWO])
    assert everybody.warnings == ("No broker can take replicas.",)
    with pytest.raises(TidelogError) as caught:
        drain(image, BrokerId(9), is_cancelled=False)
    clusters.raised(ErrorCode.UNKNOWN_BROKER, caught)
