"""What a controller allows, refuses, and fills in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata_quorum import invariants
from tidelog.metadata_quorum.apply import apply_entry
from tidelog.metadata_quorum.controller.brokers import Registration, plan_registration
from tidelog.metadata_quorum.controller.topics import (
    NewTopic,
    TopicDefaults,
    TopicPlan,
    plan_topic,
    unknown_topic,
    validate_topic_name,
)
from tidelog.metadata_quorum.image import Image
from tidelog.metadata_quorum.records import FenceRecord, FormatRecord
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, TopicId
from tidelog.wire.nearest import KNOWN_MAX, nearest_name

REPLICATED = TopicDefaults(replication_factor_max=50)


def cluster(brokers: int) -> Image:
    """An image with live brokers 1…n."""
    image = apply_entry(Image(), (FormatRecord(cluster_id="c"),))
    for number in range(1, brokers + 1):
        registration = Registration(
            broker_id=BrokerId(number), incarnation=bytes(16), listeners={"client": f"h:{number}"}
        )
        record = plan_registration(image, registration)
        image = apply_entry(image, (record,))
        fence = FenceRecord(broker_id=record.broker_id, epoch=record.epoch, is_fenced=False)
        image = apply_entry(image, (fence,))
    return image


def plan(image: Image, wanted: NewTopic, defaults: TopicDefaults | None = None) -> TopicPlan:
    """A plan with a topic id of its own."""
    topic_id = TopicId(len(image.topics).to_bytes(16, "big"))
    return plan_topic(image, wanted, topic_id, defaults or TopicDefaults())


def refusal(image: Image, wanted: NewTopic, defaults: TopicDefaults | None = None) -> TidelogError:
    """Why the topic cannot be created."""
    with pytest.raises(TidelogError) as caught:
        plan(image, wanted, defaults)
    return caught.value


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_a_name_of_the_allowed_characters_is_taken(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(TidelogError) as caught:
        validate_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_NAME


def test_a_topic_that_asks_for_nothing_gets_the_defaults() -> None:
    found = plan(
        cluster(3),
        NewTopic(name="t"),
        TopicDefaults(partition_count=4, replication_factor=2, replication_factor_max=3),
    )
    assert (found.partition_count, found.replication_factor) == (4, 2)


def test_a_replication_factor_above_the_live_brokers_is_refused_naming_their_number() -> None:
    error = refusal(cluster(2), NewTopic(name="t", replication_factor=3))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "2 brokers" in error.happened


def test_a_fenced_broker_is_not_alive() -> None:
    image = cluster(2)
    fence = FenceRecord(
        broker_id=BrokerId(1), epoch=image.brokers[BrokerId(1)].epoch, is_fenced=True
    )
    error = refusal(apply_entry(image, (fence,)), NewTopic(name="t", replication_factor=2))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_partition_counts_beyond_either_limit_are_refused() -> None:
    defaults = TopicDefaults(partition_count_max=5, partitions_total_max=6)
    image = cluster(1)
    assert refusal(image, NewTopic(name="t", partition_count=6), defaults).code is (
        ErrorCode.INVALID_PARTITION_COUNT
    )
    image = apply_entry(image, plan(image, NewTopic(name="t", partition_count=4), defaults).records)
    assert refusal(image, NewTopic(name="u", partition_count=3), defaults).code is (
        ErrorCode.INVALID_PARTITION_COUNT
    )
    assert plan(image, NewTopic(name="u", partition_count=2), defaults).partition_count == 2


def test_a_name_that_exists_is_refused() -> None:
    image = cluster(1)
    image = apply_entry(image, plan(image, NewTopic(name="t")).records)
    assert refusal(image, NewTopic(name="t")).code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    error = refusal(cluster(1), NewTopic(name="t", configuration={"segment.byte": "4096"}))
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert "segment.bytes" in error.hint


@pytest.mark.parametrize("value", ["", "-1", "1e9", "12", "99999999999999999", "9" * 5_000])
def test_a_setting_out_of_bounds_is_refused_naming_the_bounds(value: str) -> None:
    error = refusal(cluster(1), NewTopic(name="t", configuration={"segment.bytes": value}))
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert "1024" in error.happened


def test_an_unknown_topic_is_told_with_the_nearest_name() -> None:
    image = cluster(1)
    image = apply_entry(image, plan(image, NewTopic(name="orders")).records)
    error = unknown_topic("order", image, tried="produce")
    assert error.code is ErrorCode.UNKNOWN_TOPIC
    assert "`orders`" in error.hint


def test_no_nearest_name_is_looked_for_where_that_takes_long() -> None:
    many = [f"topic-{number}" for number in range(KNOWN_MAX + 1)]
    assert nearest_name("topic-1", many[1:]) == "topic-1"
    assert nearest_name("topic-1", many) is None
    assert nearest_name("x" * 10_000, ["x" * 10_000]) is None


def test_a_broker_that_registers_again_gets_a_higher_epoch_and_is_fenced() -> None:
    image = cluster(2)
    registration = Registration(broker_id=BrokerId(1), incarnation=bytes(16), listeners={})
    record = plan_registration(image, registration)
    assert record.epoch > max(broker.epoch for broker in image.brokers.values())
    assert record.is_fenced


@given(
    brokers=st.integers(1, 6),
    topics=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), max_size=5),
)
def test_every_plan_places_distinct_live_brokers_and_spreads_leaders(
    brokers: int, topics: list[tuple[int, int]]
) -> None:
    image = cluster(brokers)
    for number, (partitions, factor) in enumerate(topics):
        wanted = NewTopic(
            name=f"t{number}", partition_count=partitions, replication_factor=min(factor, brokers)
        )
        before = image
        image = apply_entry(image, plan(image, wanted, REPLICATED).records)
        invariants.check(image)
        invariants.check_step(before, image)
        topic = image.topic_named(f"t{number}")
        assert topic is not None
        leaders = [partition.leader_id for partition in topic.partitions]
        counts = [leaders.count(broker) for broker in image.brokers]
        assert max(counts) - min(counts) <= 1, "leaders are spread evenly"


def test_an_apply_shares_every_topic_that_it_does_not_touch() -> None:
    image = cluster(1)
    image = apply_entry(image, plan(image, NewTopic(name="a")).records)
    later = apply_entry(image, plan(image, NewTopic(name="b")).records)
    (topic_id,) = image.topics
    assert later.topics[topic_id] is image.topics[topic_id]
    assert "b" not in image.topic_ids, "the older image stays as it was"
