"""`python -m tidelog.chaos.live.growth.writer …`: a producer whose topic changes under it.

Owns nothing but the translation between the SDK and the journal, and which partitions are written
to: those that the producer knows of at the moment, so that new ones get records as soon as a
program would find them. It must never create the topic by asking for it.
"""

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.journal import Journal, value_of
from tidelog.chaos.live.cluster.pace import tell
from tidelog.chaos.live.single.workload import is_unknown
from tidelog.client import Producer, RecordMetadata
from tidelog.wire.errors import TidelogError

FLUSH_SECONDS_MAX: Final = 60.0
LINGER_MS: Final = 20
MAX_AGE_MS: Final = 2_000
"""A program that wants new partitions soon says so; the default is five minutes."""
TICK_SECONDS: Final = 0.05
TELL_SECONDS: Final = 0.1
BEHIND_SECONDS_MAX: Final = 0.25
"""Never made up for: a burst would measure itself."""
UNANSWERED_MAX: Final = 2_000
"""Of one partition; it is left out until some are answered."""


class GrowthWriter:
    """One producer and its journal."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._name: str = arguments.name
        self._topic: str = arguments.topic
        self._rate: float = arguments.rate
        self.journal = Journal(arguments.journal, arguments.partitions)
        self._producer = Producer(
            bootstrap_servers=arguments.bootstrap,
            acks="all" if arguments.acks == "all" else 1,
            linger_ms=LINGER_MS,
            client_id=arguments.name,
            metadata_max_age_ms=MAX_AGE_MS,
            allow_auto_create_topics=False,
        )

    def run(self, stop: threading.Event) -> None:
        """Until told to end."""
        number, told, due_from = 0, 0.0, time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            due_from = max(due_from, now - BEHIND_SECONDS_MAX)
            count = len(self._producer.partitions_for(self._topic))
            for _ in range(int((now - due_from) * self._rate)):
                due_from += 1 / self._rate
                self._one(number, number % count)
                number += 1
            if now - told >= TELL_SECONDS:
                told = now
                tell(self.journal)
            stop.wait(TICK_SECONDS)

    def _one(self, number: int, partition: int) -> None:
        if self.journal.unanswered(partition) >= UNANSWERED_MAX:
            self.journal.hold_back()
            return
        self.journal.begin(partition, number)
        value = value_of(self._name, number)
        try:
            future = self._producer.send(self._topic, value, partition=partition)
        except TidelogError as error:
            self._on_error(partition, number, error)
            return
        future.add_callback(self._on_acknowledged, partition, number)
        future.add_errback(self._on_error, partition, number)

    def _on_acknowledged(self, partition: int, number: int, place: RecordMetadata) -> None:
        self.journal.end(partition, number, Outcome.ACKNOWLEDGED, place.offset)

    def _on_error(self, partition: int, number: int, error: TidelogError) -> None:
        outcome = Outcome.INDETERMINATE if is_unknown(error) else Outcome.FAILED
        print(f"{self._name}:{number} to {partition}: {error}", file=sys.stderr, flush=True)
        self.journal.end(partition, number, outcome)

    def close(self) -> None:
        """All is answered."""
        self._producer.close(FLUSH_SECONDS_MAX)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    found = argparse.ArgumentParser()
    found.add_argument("--name", required=True)
    found.add_argument("--bootstrap", required=True)
    found.add_argument("--topic", required=True)
    found.add_argument("--partitions", type=int, required=True, help="at most")
    found.add_argument("--rate", type=float, required=True)
    found.add_argument("--journal", type=Path, required=True)
    found.add_argument("--acks", default="all", choices=["all", "1"])
    return found


def main() -> int:
    """Until standard input ends."""
    writer = GrowthWriter(parser().parse_args())
    stop = threading.Event()

    def wait_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_end, daemon=True).start()
    try:
        writer.run(stop)
        writer.close()
    finally:
        tell(writer.journal)
        writer.journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
