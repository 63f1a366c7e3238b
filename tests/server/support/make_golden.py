"""Makes a golden directory with the present build.

`python tests/server/support/make_golden.py DIRECTORY`.

To be run once for each format version, before the format moves on. DIRECTORY/clean is what an
orderly stop leaves, DIRECTORY/killed what a kill -9 leaves that came later.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.waiting import HANG_SECONDS
from tidelog.chaos.live.processes.node import NodeProcess
from tidelog.client import AdminClient, NewTopic, Producer, TopicPartition

FIRST_MS: Final = 1_700_000_000_000
SEALED_SECONDS: Final = 60
FAST: Final = {"TIDELOG_HOUSEKEEPING_CHECK_INTERVAL_MS": "200"}
KEPT: Final = {"segment.bytes": "1024", "retention.ms": "-1"}
TOPICS: Final = {
    "golden": (2, KEPT),
    "compacted": (
        1,
        {**KEPT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    ),
    "trimmed": (1, KEPT),
    "small": (1, {"retention.ms": "-1"}),
}
TRIMMED_TO: Final = 25


def value(number: int) -> bytes:
    """Of a record in `golden`, `compacted` and `trimmed`."""
    return b"value-%04d" % number + b"x" * 40


def write_first(bootstrap: str) -> None:
    """All that the clean directory holds."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            [
                NewTopic(name, num_partitions=count, replication_factor=1, topic_configs=settings)
                for name, (count, settings) in TOPICS.items()
            ]
        )
        with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for number in range(40):
                send(producer, "golden", number, number % 2)
                send(producer, "compacted", number, 0)
                send(producer, "trimmed", number, 0)
            producer.send("compacted", key=b"k3", value=None, timestamp_ms=FIRST_MS).get(
                HANG_SECONDS
            )
            for number in range(40, 60):
                send(producer, "compacted", number, 0, keys=2)
            for number in range(5):
                at_ms = FIRST_MS + number
                producer.send("small", value=b"s%d" % number, timestamp_ms=at_ms).get(HANG_SECONDS)
        admin.delete_records({TopicPartition("trimmed", 0): TRIMMED_TO})


def write_later(bootstrap: str) -> None:
    """What the killed directory holds besides."""
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        for number in range(40, 60):
            send(producer, "golden", number, number % 2)
        producer.send("small", value=b"s5", timestamp_ms=FIRST_MS + 5).get(HANG_SECONDS)


def send(producer: Producer, topic: str, number: int, partition: int, *, keys: int = 7) -> None:
    """One record in a batch of its own."""
    producer.send(
        topic,
        key=b"k%d" % (number % keys),
        value=value(number),
        partition=partition,
        timestamp_ms=FIRST_MS + number * 1000,
    ).get(HANG_SECONDS)


def wait(condition: Callable[[], bool]) -> None:
    """Until it holds twice in a row, a second apart."""
    times = 0
    until = time.monotonic() + SEALED_SECONDS
    while time.monotonic() < until:
        times = times + 1 if condition() else 0
        if times == 2:
            return
        time.sleep(1)
    raise SystemExit("the background jobs were not done in time")


def is_settled(node: NodeProcess) -> bool:
    """Every sealed segment has a sidecar, and something was compacted."""
    found = "compacted" in node.log_file.read_text()
    for directory in node.data_dir.glob("*-[0-9]*"):
        segments = sorted(each.stem for each in directory.glob("*.log"))
        sidecars = {each.stem for each in directory.glob("*.sidecar")}
        found = found and set(segments[:-1]) <= sidecars and not list(directory.glob("*.new"))
    return found


def keep(node: NodeProcess, target: Path) -> None:
    """A copy, without the locks and what only takes up room."""
    shutil.copytree(node.data_dir, target, ignore=shutil.ignore_patterns(".lock", "ballast"))


def make(target: Path) -> None:
    """Both directories."""
    with tempfile.TemporaryDirectory() as directory:
        node = NodeProcess(Path(directory), environment=FAST)
        node.start()
        try:
            write_first(node.bootstrap)
            wait(lambda: is_settled(node))
            assert node.stop() == 0, "an orderly stop"
            keep(node, target / "clean")
            node.start()
            write_later(node.bootstrap)
            wait(lambda: is_settled(node))
            node.kill()
            keep(node, target / "killed")
        finally:
            if node.is_running:
                node.kill()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
