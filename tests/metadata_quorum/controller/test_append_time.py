"""Who stamps records: leaders go from brokers whose clocks are off to those whose are right."""

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.test_leaders import fenced
from tidelog.metadata.image.image import Image, PartitionImage
from tidelog.metadata.settings.kinds import Scope
from tidelog.metadata_quorum.controller.partitions.append_time import is_stamped, plan_right_clocks
from tidelog.metadata_quorum.controller.partitions.leaders import plan_balance
from tidelog.metadata_quorum.controller.settings.configuration import (
    Alteration,
    Change,
    Target,
    alter_configurations,
)
from tidelog.wire.ids import BrokerId


def stamped(*replicas: int, scope: Scope = Scope.CLUSTER, name: str = "") -> Image:
    """One partition of a topic whose records carry the time of their append."""
    image = clusters.with_topic(clusters.cluster(3), replicas)
    return configured(image, scope, name)


def configured(image: Image, scope: Scope, name: str = "") -> Image:
    change = Change(name="message.timestamp.type", value="LogAppendTime")
    wanted = Alteration(target=Target(scope=scope, name=name), changes=(change,))
    return clusters.after(image, alter_configurations(image, [wanted]))


def only(image: Image) -> PartitionImage:
    (topic,) = image.topics.values()
    return topic.partitions[0]


def test_a_leader_whose_clock_is_off_hands_over_to_one_that_is_right() -> None:
    image = stamped(1, 2, 3)
    image = clusters.applied(image, plan_right_clocks(image, off={1}, right={3}, limit=5))
    assert only(image).leader_id == 3, "of broker 2 nothing is known"
    assert only(image).in_sync_replicas == (1, 2, 3), "it stores what it stored"
    assert plan_right_clocks(image, off={1}, right={2, 3}, limit=5) == ()


def test_records_with_their_producers_time_may_be_led_by_any_clock() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1, 2, 3))
    assert plan_right_clocks(image, off={1}, right={2, 3}, limit=5) == ()


def test_without_a_right_clock_in_sync_the_leader_stays() -> None:
    image = stamped(1, 2, 3)
    assert plan_right_clocks(image, off={1, 2, 3}, right=(), limit=5) == ()
    assert plan_right_clocks(fenced(image, 2), off={1, 3}, right={2}, limit=5) == ()


def test_the_balance_of_leaders_does_not_give_it_back_before_the_clock_is_right() -> None:
    image = stamped(1, 2, 3)
    image = clusters.applied(image, plan_right_clocks(image, off={1}, right={2, 3}, limit=5))
    assert plan_balance(image, limit=5, clocks_off={1}) == ()
    image = clusters.applied(image, plan_balance(image, limit=5))
    assert only(image).leader_id == 1


def test_who_stamps_is_the_topics_the_brokers_or_the_clusters_word() -> None:
    plain = clusters.with_topic(clusters.cluster(3), (1, 2, 3))
    (topic,) = plain.topics.values()
    assert not is_stamped(plain, topic, BrokerId(1))
    own = configured(plain, Scope.TOPIC, topic.name)
    assert is_stamped(own, next(iter(own.topics.values())), BrokerId(1))
    of_broker = configured(plain, Scope.BROKER, "1")
    assert is_stamped(of_broker, topic, BrokerId(1))
    assert not is_stamped(of_broker, topic, BrokerId(2))


def test_a_round_moves_so_many_and_no_more() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1, 2, 3), (1, 2, 3), (1, 3, 2))
    image = configured(image, Scope.CLUSTER)
    assert len(plan_right_clocks(image, off={1}, right={2, 3}, limit=2)) == 2
