"""Topics that the cluster itself writes: made as announced, whoever asks, and left alone then."""

import msgspec
import pytest

from tests.metadata_quorum.controller import clusters
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.image.image import Image
from tidelog.metadata.image.nodes import ClusterImage
from tidelog.metadata.internal_topics import GROUPS_TOPIC, is_reserved, shortage_of
from tidelog.metadata.new_topic import NewTopic, TopicDefaults
from tidelog.metadata.records.entries import FenceRecord
from tidelog.metadata.settings.kinds import Scope
from tidelog.metadata_quorum.controller.settings.configuration import (
    Alteration,
    Change,
    Target,
    alter_configurations,
)
from tidelog.metadata_quorum.controller.topics.changes import TopicSelector, delete_topics
from tidelog.metadata_quorum.controller.topics.creation import TopicPlan, plan_topic
from tidelog.metadata_quorum.controller.topics.internal import SEGMENT_BYTES
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

ANNOUNCED = ClusterImage(
    default_replication_factor=1,
    internal_replication_factor=3,
    internal_partition_counts={"__groups": 16, "__staging": 16},
)


def cluster(brokers: int) -> Image:
    """Living brokers, and what the formatting announced."""
    return msgspec.structs.replace(clusters.cluster(brokers), cluster=ANNOUNCED)


def plan(image: Image, wanted: NewTopic) -> TopicPlan:
    """What is made of it."""
    defaults = TopicDefaults(replication_factor_max=50)
    return plan_topic(image, wanted, clusters.topic_id(500), defaults)


def test_the_groups_topic_comes_out_as_announced_whatever_the_defaults_are() -> None:
    image = cluster(3)
    made = apply_entry(image, plan(image, NewTopic(name=GROUPS_TOPIC)).records)
    topic = made.topic_named(GROUPS_TOPIC)
    assert topic is not None
    assert topic.is_internal
    assert (len(topic.partitions), topic.replication_factor) == (16, 3)
    assert topic.configuration["cleanup.policy"] == "compact"
    assert topic.configuration["flush"] == "sync"
    assert topic.configuration["min.insync.replicas"] == "2", "the default rule"
    assert topic.configuration["segment.bytes"] == str(SEGMENT_BYTES)


@pytest.mark.parametrize(
    "wanted",
    [
        NewTopic(name=GROUPS_TOPIC, partition_count=8),
        NewTopic(name=GROUPS_TOPIC, replication_factor=1),
        NewTopic(name=GROUPS_TOPIC, configuration={"cleanup.policy": "delete"}),
        NewTopic(name=GROUPS_TOPIC, assignments=((BrokerId(1),),)),
    ],
)
def test_nobody_makes_it_in_another_way(wanted: NewTopic) -> None:
    with pytest.raises(TidelogError) as caught:
        plan(cluster(3), wanted)
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_a_reserved_name_that_no_release_serves_yet_stays_free() -> None:
    with pytest.raises(TidelogError) as caught:
        plan(cluster(3), NewTopic(name="__staging"))
    clusters.raised(ErrorCode.INVALID_TOPIC_NAME, caught)
    assert is_reserved(cluster(3), "__staging")
    assert not is_reserved(cluster(3), "orders")


def test_its_replicas_are_never_fewer_and_who_is_missing_is_told() -> None:
    image = cluster(3)
    assert shortage_of(image) is None
    broker = image.brokers[BrokerId(2)]
    fence = FenceRecord(broker_id=broker.broker_id, epoch=broker.epoch, is_fenced=True)
    image = apply_entry(image, (fence,))
    with pytest.raises(TidelogError) as caught:
        plan(image, NewTopic(name=GROUPS_TOPIC))
    clusters.raised(ErrorCode.INVALID_REPLICATION_FACTOR, caught)
    shortage = shortage_of(image)
    assert shortage is not None
    assert (shortage.alive, shortage.missing) == ((1, 3), (2,))
    assert str(shortage) == "it needs 3 brokers, 2 take replicas; missing: 2"
    assert str(shortage_of(cluster(1))).endswith("no other is registered")


def test_it_is_neither_deleted_nor_altered() -> None:
    image = cluster(3)
    image = apply_entry(image, plan(image, NewTopic(name=GROUPS_TOPIC)).records)
    (deleted,) = delete_topics(image, (TopicSelector(name=GROUPS_TOPIC),)).answer
    clusters.refusal(ErrorCode.INVALID_ARGUMENT, deleted.error)
    alteration = Alteration(
        target=Target(scope=Scope.TOPIC, name=GROUPS_TOPIC),
        changes=(Change(name="cleanup.policy", value="delete"),),
    )
    (altered,) = alter_configurations(image, (alteration,)).answer
    clusters.refusal(ErrorCode.INVALID_ARGUMENT, altered)
