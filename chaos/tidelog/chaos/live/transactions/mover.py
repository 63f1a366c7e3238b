"""`python -m tidelog.chaos.live.transactions.mover …`: transfers of money, a transaction each.

Owns nothing but the translation between the SDK's producer and the journal. A fifth and more of the
transfers are taken back on purpose, some after a part of their legs was sent.
"""

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from tidelog.chaos.live.cluster.pace import wait_end
from tidelog.chaos.live.transactions.journal import (
    Began,
    ClientJournal,
    ClientProgress,
    Sending,
    Stored,
    now_ns,
    tell,
)
from tidelog.chaos.live.transactions.transacting import COMMITTED, ProducerIsDone, decide
from tidelog.client import Producer
from tidelog.client.errors import TidelogError

ABORTED_SHARE: Final = 0.25
LEGS_MAX: Final = 4
TIMEOUT_MS: Final = 10_000
SEND_SECONDS: Final = 20.0
PAUSE_SECONDS: Final = 0.02


def value_of(name: str, number: int, leg: int, amount: int) -> str:
    """Of one leg."""
    return f"{name}.{number}.{leg}.{amount}"


def amount_of(value: str) -> int | None:
    """What a value moves."""
    amount = value.rsplit(".", 1)[-1]
    return int(amount) if amount.lstrip("-").isdigit() else None


def main() -> int:
    """Transfers until standard input ends, or until another process has the transactional id."""
    arguments = _parser().parse_args()
    stop = threading.Event()
    threading.Thread(target=wait_end, args=(stop,), daemon=True).start()
    mover = Mover(arguments)
    mover.run(stop)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True, help="of this process; names its values")
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    return parser


class Mover:
    """One process."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._name: str = arguments.name
        self._id: str = arguments.transactional_id
        self._bootstrap: str = arguments.bootstrap
        self._topic: str = arguments.topic
        self._partitions: int = arguments.partitions
        self._journal = ClientJournal(arguments.journal)
        self._draw = Random(f"{arguments.seed} {arguments.name}")
        self._done = 0

    def run(self, stop: threading.Event) -> None:
        """A fenced one ends: whoever has the id now goes on."""
        producer = Producer(
            bootstrap_servers=self._bootstrap,
            transactional_id=self._id,
            transaction_timeout_ms=TIMEOUT_MS,
            client_id=self._name,
        )
        number = 0
        try:
            self._init(producer, stop)
            tell(ClientProgress(is_ready=True))
            while not stop.is_set():
                self._transfer(producer, number)
                number += 1
                tell(ClientProgress(is_ready=True, done=self._done))
                stop.wait(self._draw.random() * PAUSE_SECONDS)
        except ProducerIsDone:
            pass
        producer.close()

    def _init(self, producer: Producer, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                producer.init_transactions()
            except TidelogError as error:
                if not error.retriable:
                    raise ProducerIsDone from None
                continue
            return

    def _transfer(self, producer: Producer, number: int) -> None:
        legs = self._legs(number)
        is_kept = self._draw.random() >= ABORTED_SHARE
        if not is_kept and self._draw.random() < 0.5:
            legs = legs[:-1]
        self._journal.write(Began(now_ns()))
        try:
            producer.begin_transaction()
        except TidelogError:
            # Nothing was sent: what is in progress, if anything is, ends with it.
            decide(producer, self._journal, is_commit=False)
            return
        is_sent = self._send(producer, legs)
        outcome = decide(producer, self._journal, is_commit=is_kept and is_sent)
        self._done += outcome == COMMITTED

    def _legs(self, number: int) -> list[tuple[int, str]]:
        count = min(self._partitions, self._draw.randint(2, LEGS_MAX))
        amounts = [self._draw.randint(-100, 100) for _ in range(count - 1)]
        amounts.append(-sum(amounts))
        partitions = self._draw.sample(range(self._partitions), count)
        return [
            (partition, value_of(self._name, number, leg, amount))
            for leg, (partition, amount) in enumerate(zip(partitions, amounts, strict=True))
        ]

    def _send(self, producer: Producer, legs: Sequence[tuple[int, str]]) -> bool:
        """Whether all of them are stored."""
        try:
            futures = []
            for partition, value in legs:
                self._journal.write(Sending(now_ns(), f"{self._topic}-{partition}", value))
                futures.append(producer.send(self._topic, value.encode(), partition=partition))
            for future, (_, value) in zip(futures, legs, strict=True):
                offset = future.get(SEND_SECONDS).offset
                self._journal.write(Stored(now_ns(), value, offset))
        except TidelogError:
            return False
        return True


if __name__ == "__main__":
    sys.exit(main())
