"""Three real processes and three replicas: the leader is killed, everything acknowledged stays."""

import os
import signal
from pathlib import Path

import pytest

from tests.server.live.test_cluster_dev import cluster
from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.client import AdminClient, Consumer, NewTopic, Producer
from tidelog.client.errors import TidelogError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc"),
]
RECORDS = 300
PARTITIONS = 3


def test_records_acknowledged_by_all_outlive_their_leader_and_it_comes_back(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path / "data") as running:
        bootstrap = ",".join(running.addresses)
        acknowledged: dict[int, tuple[int, int]] = {}
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("t", PARTITIONS)])

            def is_whole() -> bool:
                (topic,) = admin.describe_topics(["t"])
                return all(len(each.isr) == 3 for each in topic.partitions)

            with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
                for number in range(RECORDS):
                    if number == RECORDS // 3:
                        (topic,) = admin.describe_topics(["t"])
                        os.kill(running.pids[topic.partitions[0].leader], signal.SIGKILL)
                    sent = producer.send("t", b"%d" % number, partition=number % PARTITIONS)
                    try:
                        stored = sent.get(HANG_SECONDS)
                    except TidelogError:
                        # It may or may not be there: nothing was promised.
                        continue
                    acknowledged[number] = (stored.partition, stored.offset)
            wait_until(is_whole)
        found: dict[int, tuple[int, int]] = {}
        with Consumer(
            "t",
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=2_000,
        ) as consumer:
            for record in consumer:
                found[int(record.value)] = (record.partition, record.offset)
        assert len(acknowledged) > RECORDS * 9 // 10
        assert {number: found.get(number) for number in acknowledged} == acknowledged


def test_a_byte_that_rots_under_a_leader_costs_no_record_and_its_copy_is_made_anew(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with cluster(data) as running:
        bootstrap = ",".join(running.addresses)
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            (made,) = admin.create_topics([NewTopic("t", 1)])
            with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
                sent = [producer.send("t", b"%d" % number) for number in range(RECORDS)]
                assert [each.get(HANG_SECONDS).offset for each in sent] == list(range(RECORDS))
            (topic,) = admin.describe_topics(["t"])
            node = data / f"node-{topic.partitions[0].leader}"
            partition = node / f"{made.topic_id.hex()}-0"
            flip(next(partition.glob("*.log")))
            with Consumer(
                "t", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
            ) as consumer:
                values = [int(next(consumer).value) for _ in range(RECORDS)]
            assert values == list(range(RECORDS))

            def is_whole() -> bool:
                (now,) = admin.describe_topics(["t"])
                kept = list(node.glob("*.damaged-1"))
                return len(kept) == 1 and len(now.partitions[0].isr) == 3

            wait_until(is_whole)


def flip(segment: Path) -> None:
    """Let one bit in the middle of the file rot."""
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        (before,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([before ^ 0x10]))
