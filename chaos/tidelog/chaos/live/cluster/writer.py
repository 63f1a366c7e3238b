"""`python -m tidelog.chaos.live.cluster.writer …`: one producer of the SDK in a process of its own.

Owns nothing but the translation between the SDK and the journal. `--acks 1` is for planted
mistakes only: the journal then takes a leader's word for everybody's.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.journal import Journal
from tidelog.chaos.live.cluster.pace import run_until_told, tell
from tidelog.chaos.live.single.workload import is_unknown
from tidelog.client import Producer, RecordMetadata
from tidelog.wire.errors import TidelogError

FLUSH_SECONDS_MAX: Final = 60.0
LINGER_MS: Final = 5


def parser() -> argparse.ArgumentParser:
    """The arguments of a writer, whatever cluster it writes to."""
    found = argparse.ArgumentParser()
    found.add_argument("--name", required=True)
    found.add_argument("--bootstrap", required=True)
    found.add_argument("--topic", required=True)
    found.add_argument("--partitions", type=int, required=True)
    found.add_argument("--rate", type=float, required=True)
    found.add_argument("--journal", type=Path, required=True)
    found.add_argument("--acks", default="all", choices=["all", "1"])
    return found


def main() -> int:
    """Until standard input ends."""
    arguments = parser().parse_args()
    journal = Journal(arguments.journal, arguments.partitions)
    producer = Producer(
        bootstrap_servers=arguments.bootstrap,
        acks="all" if arguments.acks == "all" else 1,
        linger_ms=LINGER_MS,
        client_id=arguments.name,
    )

    def on_acknowledged(partition: int, number: int, place: RecordMetadata) -> None:
        journal.end(partition, number, Outcome.ACKNOWLEDGED, place.offset)

    def on_error(partition: int, number: int, error: TidelogError) -> None:
        outcome = Outcome.INDETERMINATE if is_unknown(error) else Outcome.FAILED
        print(f"{arguments.name}:{number} to {partition}: {error}", file=sys.stderr, flush=True)
        journal.end(partition, number, outcome)

    def send(partition: int, number: int, value: bytes) -> None:
        try:
            future = producer.send(arguments.topic, value, partition=partition)
        except TidelogError as error:
            print(f"{arguments.name}:{number} not sent: {error}", file=sys.stderr, flush=True)
            journal.end(partition, number, Outcome.FAILED)
            return
        future.add_callback(on_acknowledged, partition, number)
        future.add_errback(on_error, partition, number)

    try:
        run_until_told(
            send,
            journal,
            name=arguments.name,
            partition_count=arguments.partitions,
            rate=arguments.rate,
        )
        producer.close(FLUSH_SECONDS_MAX)
    finally:
        tell(journal)
        journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
