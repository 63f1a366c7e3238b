"""What scripts written for kafka-python 2 do with groups, against a real node."""

from collections.abc import Iterator

import pytest

from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
    errors,
)
from tidelog.kafka.admin import NewTopic
from tidelog.testing import TestCluster

pytestmark = [pytest.mark.slow, pytest.mark.live]

NAME = TopicPartition("looked-at", 0)
OTHER = TopicPartition("looked-at", 1)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with TestCluster() as cluster:
        cluster.create_topic("looked-at", partitions=2)
        yield cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as made:
        yield made


@pytest.fixture
def member(bootstrap: str) -> Iterator[KafkaConsumer]:
    """Of the group, with everything read and committed."""
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            producer.send("looked-at", b"%d" % number, partition=0)
    with KafkaConsumer(
        "looked-at",
        bootstrap_servers=bootstrap,
        group_id="readers",
        client_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=HANG_MS,
    ) as consumer:
        next(consumer)
        consumer.commit({NAME: OffsetAndMetadata(1, "", -1)})
        yield consumer


def test_groups_are_listed_as_pairs(admin: KafkaAdminClient, member: KafkaConsumer) -> None:
    assert ("readers", "consumer") in admin.list_consumer_groups()


def test_a_group_is_described_as_a_tuple_with_its_members(
    admin: KafkaAdminClient, member: KafkaConsumer
) -> None:
    (group,) = admin.describe_consumer_groups(["readers"])
    assert (group.error_code, group.group, group.protocol_type) == (0, "readers", "consumer")
    (found,) = group.members
    assert found.client_id == "reader"
    assert found.member_metadata.topics == ["looked-at"]
    assert sorted(found.member_assignment.partitions()) == [NAME, OTHER]


def test_a_group_that_is_not_there_is_dead(admin: KafkaAdminClient) -> None:
    (group,) = admin.describe_consumer_groups(["nobody"])
    assert (group.state, group.members) == ("Dead", [])


def test_offsets_of_one_group_are_told_without_its_name(
    admin: KafkaAdminClient, member: KafkaConsumer
) -> None:
    assert admin.list_consumer_group_offsets("readers")[NAME].offset == 1
    found = admin.list_consumer_group_offsets("readers", partitions=[NAME, OTHER])
    assert [found[NAME].offset, found[OTHER].offset] == [1, -1]


def test_deleted_groups_have_the_class_of_their_error(
    admin: KafkaAdminClient, member: KafkaConsumer
) -> None:
    assert admin.delete_consumer_groups(["readers"]) == [("readers", errors.NonEmptyGroupError)]
    member.close()
    assert admin.delete_consumer_groups(["readers"]) == [("readers", errors.NoError)]


@pytest.mark.parametrize("call", ["delete_topics", "describe_topics", "create_topics"])
def test_a_text_is_not_a_list_of_topics(admin: KafkaAdminClient, call: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1) for name in "xyz"], raise_errors=False)
    with pytest.raises(TypeError, match="topics must be a list"):
        getattr(admin, call)("xyz")
    assert set("xyz") <= set(admin.list_topics())


def test_a_wrong_argument_is_a_type_error_as_there(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(TypeError, match="timestamp_ms"):
            producer.send("looked-at", b"v", timestamp_ms=1_763_600_000.25)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="partition"):
            producer.send("looked-at", b"v", partition="0")  # type: ignore[arg-type]
        assert producer.send("looked-at", b"v").get(HANG_SECONDS).offset >= 0
