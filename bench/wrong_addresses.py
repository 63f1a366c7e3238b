"""Clients at addresses where no Tidelog node answers as it should: how long, and what they say.

`python -m bench.wrong_addresses` uses a KafkaProducer of a script that was moved over, and the
SDK's producer, group consumer and admin client, at each place with default timeouts, all at once:
Apache Kafka itself is one of the places, and a node behind a Toxiproxy that swallows every byte,
from the first connection on or in mid-flow. Owns the clients and the table.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, NamedTuple

from bench.places import GROUP, PLACES, TOPIC, Options
from bench.table import Table
from tidelog.client import AdminClient, Consumer, Producer
from tidelog.kafka import KafkaProducer
from tidelog.kafka.errors import KafkaError
from tidelog.wire.errors import TidelogError

FIRST_MS_MAX: Final = 30_000
BEGIN_SECONDS_MAX: Final = 60.0
NOTHING: Final = "nothing was wrong"


class Uses(NamedTuple):
    """What a program does with a client."""

    first: Callable[[], object]
    again: Callable[[], object]


@contextmanager
def kafka_producer(options: Options) -> Iterator[Uses]:
    """Made, which asks the cluster; its future is waited for."""
    producer = KafkaProducer(**options)
    try:
        yield Uses(*[lambda: producer.send(TOPIC, b"value").get(timeout=None)] * 2)
    finally:
        producer.close(timeout=0)


@contextmanager
def producer(options: Options) -> Iterator[Uses]:
    """One record, and its future waited for."""
    made = Producer(**options)
    try:
        yield Uses(*[lambda: made.send(TOPIC, b"value").get()] * 2)
    finally:
        made.close(timeout=0)


@contextmanager
def consumer(options: Options) -> Iterator[Uses]:
    """A member of a group reads a record and commits it; then it commits again, since a poll
    without records is no error."""
    made = Consumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **options)

    def read() -> None:
        made.poll(FIRST_MS_MAX)
        made.commit()

    try:
        yield Uses(read, made.commit)
    finally:
        made.close(autocommit=False, timeout_ms=0)


@contextmanager
def admin(options: Options) -> Iterator[Uses]:
    """Names of topics."""
    with AdminClient(**options) as made:
        yield Uses(made.list_topics, made.list_topics)


CLIENTS: Final[dict[str, Callable[[Options], AbstractContextManager[Uses]]]] = {
    "KafkaProducer": kafka_producer,
    "Producer, send().get()": producer,
    "Consumer, poll() and commit()": consumer,
    "AdminClient, list_topics()": admin,
}


class Told(NamedTuple):
    """What a program was told."""

    client: str
    seconds: float
    error: str


class FirstWord(logging.Handler):
    """When the log said for the first time that something is wrong, and what."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Only the first one counts."""
        if self.seconds is None:
            self.seconds, self.said = time.monotonic() - self.began, record.getMessage()


def told(client: str, options: Options, all_ready: threading.Barrier | None) -> Told:
    """With the client's own timeouts. With a barrier the first use works, and the second counts."""
    began = time.monotonic()
    try:
        with CLIENTS[client](options) as uses:
            use = uses.first
            if all_ready is not None:
                uses.first()
                all_ready.wait(BEGIN_SECONDS_MAX)
                began, use = time.monotonic(), uses.again
            try:
                use()
            except (KafkaError, TidelogError) as error:
                return Told(client, time.monotonic() - began, str(error))
    except (KafkaError, TidelogError) as error:
        return Told(client, time.monotonic() - began, str(error))
    return Told(client, time.monotonic() - began, NOTHING)


def at_place(name: str, clients: list[str]) -> tuple[list[Told], FirstWord]:
    """All clients at once, each on a thread of its own."""
    word = FirstWord()
    logger = logging.getLogger("tidelog.client")
    with PLACES[name]() as spot, ThreadPoolExecutor(len(clients)) as pool:
        all_ready = None
        if spot.swallow is not None:
            swallow = spot.swallow

            def begin() -> None:
                swallow()
                word.began = time.monotonic()
                logger.addHandler(word)

            all_ready = threading.Barrier(len(clients), action=begin)
        else:
            word.began = time.monotonic()
            logger.addHandler(word)
        try:
            asked = [pool.submit(told, client, spot.options, all_ready) for client in clients]
            return [each.result() for each in asked], word
        finally:
            logger.removeHandler(word)


def main() -> int:
    """The exit status is 1 if a place was not noticed by some client."""
    parser = argparse.ArgumentParser(prog="bench.wrong_addresses", description=__doc__)
    parser.add_argument("--place", action="append", choices=list(PLACES), help="default: all")
    parser.add_argument("--client", action="append", choices=list(CLIENTS), help="default: all")
    given = parser.parse_args()
    table = Table(
        "What is said where no node answers as it should, default timeouts",
        ("what is there", "client", "seconds", "it says"),
    )
    words: list[str] = []
    is_noticed = True
    for name in given.place or PLACES:
        found, word = at_place(name, given.client or list(CLIENTS))
        for each in found:
            table.add(name, each.client, f"{each.seconds:.2f}", each.error)
            is_noticed = is_noticed and each.error != NOTHING
        if word.seconds is not None:
            words.append(f"{name}: the log says after {word.seconds:.1f} s: {word.said}")
    table.show()
    print("\n".join(words))
    return 0 if is_noticed else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
