"""`python -m tidelog.chaos.live.groups.member …`: one member of a group in a process of its own.

Owns nothing but the translation between the SDK's consumer and the member's journal. It is what a
user writes: a subscription with a listener, a loop of polls, auto-commit, and a close at the end.
"""

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.cluster.journal import name_of
from tidelog.chaos.live.cluster.pace import TELL_SECONDS, wait_end
from tidelog.chaos.live.groups.journal import Delivered, MemberJournal, MemberProgress, Moved
from tidelog.client import Consumer, ConsumerRebalanceListener, TopicPartition

POLL_MS: Final = 50


class Listener(ConsumerRebalanceListener):
    """Writes down what comes and goes at the moment at which it is told."""

    def __init__(self, journal: MemberJournal) -> None:
        self._journal = journal
        self.owned: set[int] = set()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Nothing of them was delivered yet."""
        self._move(assigned, is_given=True)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing of them is delivered any more. Lost ones come here too."""
        self._move(revoked, is_given=False)

    def _move(self, moved: set[TopicPartition], *, is_given: bool) -> None:
        numbers = tuple(sorted(each.partition for each in moved))
        self.owned = self.owned.union(numbers) if is_given else self.owned.difference(numbers)
        entry = Moved(at_ns=time.monotonic_ns(), partitions=numbers, is_given=is_given)
        self._journal.write([entry])


def main() -> int:
    """A line on standard input lets it subscribe, the end of it ends the member."""
    arguments = _parser().parse_args()
    tell(MemberProgress(is_ready=True))
    sys.stdin.readline()
    stop = threading.Event()
    threading.Thread(target=wait_end, args=(stop,), daemon=True).start()
    with MemberJournal(arguments.journal) as journal:
        listener = Listener(journal)
        consumer = Consumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=arguments.group,
            client_id=arguments.name,
            auto_offset_reset="earliest",
        )
        consumer.subscribe(arguments.topic, listener=listener)
        delivered = poll_until(stop, consumer, journal, listener)
        consumer.close()
        tell(MemberProgress(delivered=delivered))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    return parser


def poll_until(
    stop: threading.Event, consumer: Consumer, journal: MemberJournal, listener: Listener
) -> int:
    """Poll, write down, tell; the number of records."""
    delivered, told = 0, 0.0
    while not stop.is_set():
        found = consumer.poll(POLL_MS)
        returned_ns = time.monotonic_ns()
        names = {
            partition: tuple(name_of(record.value) for record in records)
            for partition, records in found.items()
        }
        done_ns = time.monotonic_ns()
        journal.write(
            [
                Delivered(
                    partition=partition.partition,
                    returned_ns=returned_ns,
                    done_ns=done_ns,
                    offsets=tuple(record.offset for record in records),
                    names=names[partition],
                )
                for partition, records in found.items()
            ]
        )
        delivered += sum(map(len, found.values()))
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            owned = len(listener.owned)
            tell(MemberProgress(is_ready=True, delivered=delivered, owned=owned))
    return delivered


def tell(progress: MemberProgress) -> None:
    """One line of progress."""
    print(msgspec.json.encode(progress).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
