"""`python -m tidelog.chaos.live.transactions.auditor …`: reads every account, again and again.

Owns the walk of a reader with read_committed that uses `assign`: it asks where each partition ends
for it, and reads up to there; it goes on from where it stands.
"""

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tidelog.chaos.live.cluster.pace import wait_end
from tidelog.chaos.live.transactions.journal import (
    ClientJournal,
    ClientProgress,
    Placed,
    Polled,
    now_ns,
    tell,
)
from tidelog.client import Consumer, TopicPartition
from tidelog.client.errors import TidelogError

ROUND_SECONDS_MAX: Final = 20.0
FINAL_SECONDS_MAX: Final = 240.0
PAUSE_SECONDS: Final = 0.1
POLL_MS: Final = 100


def main() -> int:
    """Reads until standard input ends; with `--is-final` to the ends once, however long it is."""
    arguments = _parser().parse_args()
    stop = threading.Event()
    if not arguments.is_final:
        threading.Thread(target=wait_end, args=(stop,), daemon=True).start()
    names = [
        TopicPartition(topic, number)
        for topic in arguments.topic
        for number in range(arguments.partitions)
    ]
    journal = ClientJournal(arguments.journal)
    with Consumer(
        bootstrap_servers=arguments.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="none",
        client_id=arguments.name,
    ) as consumer:
        consumer.assign(names)
        for name in names:
            consumer.seek(name, 0)
        journal.write(Placed(now_ns(), {_said(name): 0 for name in names}))
        tell(ClientProgress(is_ready=True))
        read = 0
        while not stop.is_set():
            found, is_whole = read_once(consumer, names, journal, stop, is_final=arguments.is_final)
            read += found
            tell(ClientProgress(is_ready=True, done=read))
            if arguments.is_final:
                return 0 if is_whole else 1
            stop.wait(PAUSE_SECONDS)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--is-final", action="store_true")
    return parser


def read_once(
    consumer: Consumer,
    names: list[TopicPartition],
    journal: ClientJournal,
    stop: threading.Event,
    *,
    is_final: bool,
) -> tuple[int, bool]:
    """How many records, and whether every end was reached."""
    began_ns = now_ns()
    records: dict[str, list[tuple[int, str]]] = {}
    ends: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + (FINAL_SECONDS_MAX if is_final else ROUND_SECONDS_MAX)
    is_whole = False
    try:
        ends = consumer.end_offsets(names)
        while time.monotonic() < deadline and not stop.is_set():
            for name, found in consumer.poll(POLL_MS).items():
                told = records.setdefault(_said(name), [])
                told += [(record.offset, bytes(record.value or b"").decode()) for record in found]
            if all(consumer.position(name) >= ends[name] for name in names):
                is_whole = True
                break
    except TidelogError as error:
        print(f"read: {error}", file=sys.stderr)
    shown = {_said(name): end for name, end in ends.items()} if is_whole else {}
    journal.write(Polled(began_ns, now_ns(), records, shown, is_final and is_whole))
    return sum(map(len, records.values())), is_whole


def _said(name: TopicPartition) -> str:
    return f"{name.topic}-{name.partition}"


if __name__ == "__main__":
    sys.exit(main())
