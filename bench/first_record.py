"""From starting a node to its first acknowledged record, and what the node weighs idle.

Owns that one measurement for Tidelog and for Kafka. The client is imported before the clock starts:
what counts is the node. `python -m bench.first_record SYSTEM` prints one result line.
"""

import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bench.peers.kafka.node import KafkaNode
from bench.peers.tidelog_node import TidelogNode
from bench.processes import print_result, resident_bytes
from bench.settings import STALL_SECONDS_MAX

IDLE_SECONDS: Final = 3.0
TOPIC: Final = "first"


class FirstRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since the process was started, and resident memory once it stood idle."""

    listening_seconds: float
    acknowledged_seconds: float
    idle_bytes: int


def _weighed(node: TidelogNode | KafkaNode, produce: Callable[[str], None]) -> FirstRecord:
    produce(node.bootstrap)
    acknowledged = time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return FirstRecord(
        listening_seconds=node.listening_seconds,
        acknowledged_seconds=acknowledged - node.started,
        idle_bytes=resident_bytes(node.pid),
    )


def tidelog() -> FirstRecord:
    from tidelog.client import AdminClient, NewTopic, Producer

    def produce(bootstrap: str) -> None:
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=0) as producer:
            producer.send(TOPIC, b"value").get(timeout=STALL_SECONDS_MAX)

    with TidelogNode() as node:
        return _weighed(node, produce)


def kafka() -> FirstRecord:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    def produce(bootstrap: str) -> None:
        admin: Any = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(STALL_SECONDS_MAX)
        producer: Any = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        producer.produce(TOPIC, b"value")
        assert producer.flush(STALL_SECONDS_MAX) == 0, "the first record was not acknowledged"

    with KafkaNode() as node:
        return _weighed(node, produce)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the node is ended too
    print_result({"tidelog": tidelog, "kafka": kafka}[sys.argv[1]]())


if __name__ == "__main__":
    main()
