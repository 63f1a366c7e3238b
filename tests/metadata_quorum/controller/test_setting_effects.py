"""What follows for partitions when the settings of their topic change."""

import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition
from tests.metadata_quorum.controller.test_in_sync import asked, change
from tests.metadata_quorum.controller.test_leaders import fenced, restarted
from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata.settings.kinds import Scope
from tidelog.metadata_quorum.controller.partitions.state import PartitionState
from tidelog.metadata_quorum.controller.settings.configuration import (
    Alteration,
    Change,
    Operation,
    Target,
    alter_configurations,
)
from tidelog.wire.ids import BrokerId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ID = clusters.topic_id(1)
MINIMUM = "min.insync.replicas"


def altered(image: Image, name: str, value: str | None) -> Image:
    """The topic's setting is changed; None: it is removed."""
    operation = Operation.DELETE if value is None else Operation.SET
    change = Change(name=name, operation=operation, value=value or "")
    wanted = Alteration(target=Target(scope=Scope.TOPIC, name="t"), changes=(change,))
    decided = alter_configurations(image, (wanted,))
    assert decided.answer == (None,)
    return clusters.after(image, decided)


def pair(*, flush: str = "sync") -> Image:
    """A partition on 1 and 2, both needed."""
    return clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=2, flush=flush)


def test_who_was_left_behind_is_not_elected_once_the_leader_may_commit_alone() -> None:
    image = fenced(pair(), 2)
    assert partition(image).eligible_replicas == (TWO,)
    image = altered(image, MINIMUM, "1")
    found = partition(image)
    assert (found.leader_id, found.in_sync_replicas) == (ONE, (ONE,))
    assert found.eligible_replicas == (), "1 commits without it from here on"
    assert found.leader_epoch == 0, "1 leads on"
    image = fenced(restarted(image, 2), 1)
    assert partition(image).leader_id == NO_LEADER, "2 lacks what 1 has acknowledged alone"


def test_who_was_left_behind_is_not_elected_where_the_minimum_is_no_longer_set() -> None:
    image = fenced(clusters.three(in_sync_min=3), 3)
    assert partition(image).eligible_replicas == (THREE,)
    image = altered(image, MINIMUM, None)
    assert partition(image).eligible_replicas == (), "the default is a majority, two"


@pytest.mark.parametrize("minimum", ["2", "3"])
def test_who_was_left_behind_stays_eligible_while_too_few_are_in_sync_by_the_new_minimum(
    minimum: str,
) -> None:
    image = fenced(clusters.three(in_sync_min=3), 3, 2)
    image = altered(image, MINIMUM, minimum)
    assert partition(image).eligible_replicas == (TWO, THREE)


def test_all_partitions_of_the_topic_follow_its_setting() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1, 2), (3, 1), (2, 3), in_sync_min=2)
    image = altered(fenced(image, 2), MINIMUM, "1")
    assert [partition(image, number).eligible_replicas for number in range(3)] == [(), (), ()]


def test_another_setting_changes_no_partition() -> None:
    image = fenced(pair(), 2)
    after = altered(image, "segment.bytes", "65536")
    assert partition(after) is partition(image)


def test_where_nobody_leads_who_was_left_behind_may_still_lead() -> None:
    image = altered(fenced(pair(), 2, 1), MINIMUM, "1")
    found = partition(image)
    assert (found.leader_id, found.eligible_replicas) == (NO_LEADER, (TWO,))
    found = partition(restarted(image, 2))
    assert (found.leader_id, found.in_sync_replicas, found.eligible_replicas) == (TWO, (TWO,), ())


def test_who_was_left_behind_is_forgotten_as_soon_as_somebody_leads_with_enough_in_sync() -> None:
    image = restarted(altered(fenced(pair(), 2, 1), MINIMUM, "1"), 1)
    found = partition(image)
    assert (found.leader_id, found.in_sync_replicas, found.eligible_replicas) == (ONE, (ONE,), ())


def test_a_minimum_that_is_raised_makes_nobody_eligible_again() -> None:
    image = fenced(clusters.three(in_sync_min=1), 3)
    image = altered(image, MINIMUM, "3")
    assert partition(image).eligible_replicas == (), "1 and 2 went on without 3 until now"
    found = partition(fenced(image, 2))
    assert (found.in_sync_replicas, found.eligible_replicas) == ((ONE,), (TWO,))


def test_a_leader_that_may_not_commit_forgets_nobody() -> None:
    state = PartitionState.of(ID, partition(fenced(pair(), 2)))
    state.leave_to_leader(2)
    assert state.record() is None


def loses_power(image: Image, broker: int, boot: str = "another") -> Image:
    """The broker's machine boots again; the other one dies then."""
    return fenced(restarted(image, broker, boot=boot), 3 - broker)


def leader_of(image: Image) -> BrokerId:
    """Who leads the partition."""
    return partition(image).leader_id


@pytest.mark.parametrize("value", ["sync", None], ids=["set", "by_default"])
def test_who_held_acknowledged_records_in_memory_has_lost_them_also_if_they_are_flushed_now(
    value: str | None,
) -> None:
    image = altered(fenced(pair(flush="replicated"), 2), "flush", value)
    image = restarted(image, 2, boot="another")
    assert partition(image).eligible_replicas == (), "it lacks what was in memory alone"
    assert leader_of(fenced(image, 1)) == NO_LEADER


def test_who_boots_after_the_topic_began_to_flush_has_lost_nothing_the_next_time() -> None:
    image = altered(pair(flush="replicated"), "flush", "sync")
    image = in_sync_again(restarted(fenced(image, 2), 2, boot="second"))
    assert leader_of(loses_power(fenced(image, 2), 2, boot="third")) == TWO


def in_sync_again(image: Image) -> Image:
    """The leader lets the other one in."""
    image, result = asked(image, change(image, 1, 2))
    assert result.error is None
    return image


@pytest.mark.parametrize(("is_clean", "leader"), [(True, TWO), (False, NO_LEADER)])
def test_a_start_within_one_boot_flushes_nothing_a_shutdown_in_order_does(
    *, is_clean: bool, leader: BrokerId
) -> None:
    image = altered(pair(flush="replicated"), "flush", "sync")
    epoch = image.brokers[TWO].epoch if is_clean else -1
    image = in_sync_again(restarted(fenced(image, 2), 2, clean=epoch))
    assert leader_of(loses_power(fenced(image, 2), 2)) == leader


def test_a_machine_that_tells_no_boot_is_trusted_after_a_shutdown_in_order_only() -> None:
    image = altered(pair(flush="replicated"), "flush", "sync")
    image = in_sync_again(restarted(fenced(image, 2), 2, boot=""))
    assert leader_of(loses_power(fenced(image, 2), 2, boot="")) == NO_LEADER


def test_each_time_the_topic_begins_to_flush_counts_anew() -> None:
    image = altered(pair(flush="replicated"), "flush", "sync")
    assert image.topics[ID].flushed_since == 2
    image = in_sync_again(restarted(fenced(image, 2), 2, boot="second"))
    again = altered(image, "flush", "sync")
    assert again.topics[ID].flushed_since == 2, "it flushes already"
    image = altered(altered(image, "flush", "replicated"), "flush", "sync")
    assert image.topics[ID].flushed_since == 3
    assert leader_of(loses_power(fenced(image, 2), 2, boot="third")) == NO_LEADER


def test_since_when_a_topic_is_flushed_outlives_its_partitions_changes_and_a_snapshot() -> None:
    image = altered(pair(flush="replicated"), "flush", "sync")
    image = altered(restarted(fenced(image, 2), 2), "segment.bytes", "65536")
    assert image.topics[ID].flushed_since == 2
    assert image.brokers[TWO].unflushed_since == 2
    restored, _ = decode_image(EncodedImage(image, None))
    assert restored == image


def test_a_topic_that_was_always_flushed_says_nothing_of_it() -> None:
    image = altered(pair(), "segment.bytes", "65536")
    assert image.topics[ID].flushed_since is None
