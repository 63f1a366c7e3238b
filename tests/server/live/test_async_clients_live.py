"""asyncio clients and three real processes: the leader is killed under a reader and a writer."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.server.live.test_cluster_dev import Cluster, cluster
from tests.support.waiting import HANG_SECONDS
from tidelog.client import NewTopic, TopicPartition
from tidelog.client.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc"),
]
RECORDS = 200


async def write_and_read(running: Cluster) -> None:
    bootstrap, name = ",".join(running.addresses), TopicPartition("t", 0)
    async with (
        AsyncAdminClient(bootstrap_servers=bootstrap) as admin,
        AsyncProducer(bootstrap_servers=bootstrap) as producer,
        AsyncConsumer(bootstrap_servers=bootstrap) as consumer,
    ):
        await admin.create_topics([NewTopic("t", 1, 3)])
        consumer.assign([name])
        consumer.seek(name, 0)
        seen: list[tuple[int, int]] = []

        async def read() -> None:
            while len(seen) < RECORDS:
                record = await consumer.getone()
                seen.append((record.offset, int(record.value)))

        reading = asyncio.ensure_future(read())
        stored: list[int] = []
        for number in range(RECORDS):
            if number == RECORDS // 2:
                (topic,) = await admin.describe_topics(["t"])
                os.kill(running.pids[topic.partitions[0].leader], signal.SIGKILL)
            place = await producer.send_and_wait("t", b"%d" % number)
            stored.append(place.offset)
        await reading
        assert stored == list(range(RECORDS)), "each was stored once, in order"
        assert seen == [(number, number) for number in range(RECORDS)], "and read once, in order"


def test_asyncio_clients_go_on_at_the_next_leader_without_a_gap_or_a_repeat(
    tmp_path: Path,
) -> None:
    async def main(running: Cluster) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await write_and_read(running)

    with cluster(tmp_path / "data") as running:
        asyncio.run(main(running))
