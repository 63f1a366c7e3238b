"""`python -m tidelog.chaos.live.transactions.feeder …`: records for the beginning of a pipeline.

Owns a plain idempotent producer and its journal: nothing here is in a transaction.
"""

import argparse
import sys
import threading
from pathlib import Path
from typing import Final

from tidelog.chaos.live.cluster.pace import wait_end
from tidelog.chaos.live.transactions.journal import (
    ClientJournal,
    ClientProgress,
    GivenUp,
    Sending,
    Stored,
    now_ns,
    tell,
)
from tidelog.client import Producer, RecordMetadata
from tidelog.wire.errors import TidelogError

TICK_SECONDS: Final = 0.05


def main() -> int:
    """So many records a second until standard input ends."""
    arguments = _parser().parse_args()
    stop = threading.Event()
    threading.Thread(target=wait_end, args=(stop,), daemon=True).start()
    journal, done = ClientJournal(arguments.journal), 0

    def stored(value: str, where: RecordMetadata) -> None:
        nonlocal done
        done += 1
        journal.write(Stored(now_ns(), value, where.offset))

    def failed(value: str, error: TidelogError) -> None:
        del error
        journal.write(GivenUp(now_ns(), value))

    number = 0
    with Producer(bootstrap_servers=arguments.bootstrap, client_id=arguments.name) as producer:
        while not stop.is_set():
            for _ in range(max(1, round(arguments.rate * TICK_SECONDS))):
                at, value = number % arguments.partitions, f"{arguments.name}.{number}"
                journal.write(Sending(now_ns(), f"{arguments.topic}-{at}", value))
                sent = producer.send(arguments.topic, value.encode(), partition=at)
                sent.add_callback(stored, value).add_errback(failed, value)
                number += 1
            tell(ClientProgress(is_ready=True, done=done))
            stop.wait(TICK_SECONDS)
    tell(ClientProgress(is_ready=True, done=done))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
