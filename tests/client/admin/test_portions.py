"""Calls about many things go in as many requests as a broker takes."""

import pytest

from tidelog.client.shared.portions import PARTITIONS_A_REQUEST, few_partitions, portions
from tidelog.client.types.admin import ConfigResource, ConfigResourceType, NewPartitions
from tidelog.client.types.records import NewTopic
from tidelog.client.wire import admin as wire_admin
from tidelog.client.wire import calls as wire
from tidelog.ports.bounds import count_message


def encoded(topics: list[NewTopic]) -> list[tuple[list[NewTopic], bytes]]:
    return [
        (list(part), request)
        for part, request in portions(
            wire.CREATE_TOPICS,
            topics,
            lambda part: wire.create_topics_request(part, validate_only=False, timeout_ms=1),
            few_partitions,
        )
    ]


@pytest.mark.parametrize(
    ("count", "partitions", "replicas", "requests"),
    [
        (0, 1, 1, 1),
        (1, 1, 1, 1),
        (1_000, 1, 3, 1),
        (12, 10_000, 1, 12),
        (6, 2_000, 5, 2),
        (6_000, 1, 1, 2),
        (1, 20_000, 3, 1),
    ],
)
def test_topics_are_created_in_requests_that_a_broker_takes(
    count: int, partitions: int, replicas: int, requests: int
) -> None:
    topics = [
        NewTopic(f"t{number}", num_partitions=partitions, replication_factor=replicas)
        for number in range(count)
    ]
    found = encoded(topics)
    assert len(found) == requests
    assert [each for part, _ in found for each in part] == topics
    for part, request in found:
        if len(part) > 1:
            count_message(wire.CREATE_TOPICS, request)
            assert few_partitions(part)


def test_what_is_too_large_by_itself_is_sent_for_the_broker_to_refuse() -> None:
    ((part, _),) = encoded([NewTopic("t", num_partitions=PARTITIONS_A_REQUEST * 9)])
    assert len(part) == 1


def test_settings_and_growth_are_split_by_all_that_they_hold() -> None:
    resources = [
        ConfigResource(
            ConfigResourceType.TOPIC, f"t{number}", {f"s{each}": "1" for each in range(9)}
        )
        for number in range(1_000)
    ]
    found = list(
        portions(
            wire_admin.ALTER_CONFIGS,
            resources,
            lambda part: wire_admin.alter_configs_request(part, validate_only=False),
        )
    )
    assert [each for part, _ in found for each in part] == resources
    assert len(found) == 8
    for _, request in found:
        assert count_message(wire_admin.ALTER_CONFIGS, request).elements <= 2_000
    grown = [(f"t{number}", NewPartitions(50_000)) for number in range(4)]
    assert (
        len(
            list(
                portions(
                    wire_admin.CREATE_PARTITIONS,
                    grown,
                    lambda part: wire_admin.create_partitions_request(
                        dict(part), validate_only=False
                    ),
                )
            )
        )
        == 2
    )
