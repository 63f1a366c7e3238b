"""A consumer made right after a leader died reads on as soon as another leads."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.client import NewTopic
from tidelog.client.aio import AsyncConsumer
from tidelog.testing import TestCluster

pytestmark = pytest.mark.slow

TOPIC = "t"


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 3)])
        with cluster.consumer(TOPIC, group_id="first") as member:
            member.poll(100)  # From now on there is a topic of groups.
        yield cluster


@pytest.fixture
def orphaned(cluster: TestCluster) -> Iterator[TestCluster]:
    """A record, and a leader that has just died; it comes back for the next test."""
    cluster.heal()
    with cluster.producer() as producer:
        producer.send(TOPIC, b"value").get(HANG_SECONDS)
    victim = cluster.leader_of(TOPIC)
    cluster.kill(victim)
    yield cluster
    cluster.restart(victim)


@pytest.mark.parametrize("group", [None, "readers"])
def test_its_first_record_comes_on_threads(orphaned: TestCluster, group: str | None) -> None:
    with orphaned.consumer(
        TOPIC, group_id=group, auto_offset_reset="earliest", consumer_timeout_ms=HANG_MS
    ) as consumer:
        assert next(consumer).value == b"value"


@pytest.mark.parametrize("group", [None, "async readers"])
def test_its_first_record_comes_on_asyncio(orphaned: TestCluster, group: str | None) -> None:
    async def read() -> object:
        consumer = AsyncConsumer(
            TOPIC,
            bootstrap_servers=orphaned.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=HANG_MS,
        )
        async with consumer:
            return (await anext(aiter(consumer))).value

    assert asyncio.run(read()) == b"value"
