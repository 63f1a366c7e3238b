"""`python -m tidelog.chaos.live.transactions.stage …`: one worker of one stage of a pipeline.

It consumes as a member of a group, folds, and produces; each round is one transaction that commits
the offsets as well, and with them the state of the fold as their metadata: whoever goes on with a
partition, after a crash or a rebalance, has both from one place or neither.
"""

import argparse
import sys
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidelog.chaos.checkers.transactions import Derived
from tidelog.chaos.live.cluster.pace import wait_end
from tidelog.chaos.live.transactions.journal import ClientProgress, tell
from tidelog.client import (
    Consumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tidelog.client.errors import ErrorCode, TidelogError, TransactionError

INITIAL: Final = "0"
POLL_MS: Final = 200
RECORDS_MAX: Final = 200
TIMEOUT_MS: Final = 10_000


def fold(state: str, value: str) -> str:
    """Every record before this one has a part in it."""
    return f"{zlib.crc32(f'{state} {value}'.encode()):08x}"


def output_of(partition: str, offset: int, state: str) -> str:
    """What answers one input record."""
    return f"{partition}|{offset}|{state}"


def read_output(value: str) -> Derived:
    """The same, read."""
    source, offset, state = value.split("|")
    return Derived(source, int(offset), state)


class States(ConsumerRebalanceListener):
    """Of the partitions that this worker has; what it has not looked up is not there."""

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, str] = {}

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Somebody else may have gone on with them."""
        self._forget(assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Somebody else goes on with them."""
        self._forget(revoked)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.by_partition.pop(partition, None)


class Worker:
    """One life of it, with one consumer and one producer."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._target: str = arguments.target
        self.done = 0
        self._states = States()
        self._consumer = Consumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=arguments.group,
            client_id=arguments.name,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=RECORDS_MAX,
        )
        self._consumer.subscribe(arguments.source, listener=self._states)
        self._producer = Producer(
            bootstrap_servers=arguments.bootstrap,
            transactional_id=arguments.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            client_id=arguments.name,
        )

    def begin(self) -> None:
        """Whoever had the id is fenced."""
        self._producer.init_transactions()

    def close(self) -> None:
        """Leave the group."""
        self._producer.close()
        self._consumer.close()

    def round(self) -> None:
        """One poll, one transaction."""
        found = self._consumer.poll(POLL_MS)
        if not found:
            return
        try:
            states, offsets, outputs = self._folded(found)
            with self._producer.transaction() as transaction:
                for partition, value in outputs:
                    transaction.send(self._target, value.encode(), partition=partition)
                transaction.send_offsets(offsets, self._consumer.group_metadata())
        except TidelogError:
            self._go_back(found)
            raise
        self._states.by_partition.update(states)
        self.done += len(outputs)

    def _folded(
        self, found: dict[TopicPartition, list[ConsumerRecord]]
    ) -> tuple[
        dict[TopicPartition, str],
        dict[TopicPartition, OffsetAndMetadata | int],
        list[tuple[int, str]],
    ]:
        states: dict[TopicPartition, str] = {}
        offsets: dict[TopicPartition, OffsetAndMetadata | int] = {}
        outputs: list[tuple[int, str]] = []
        for partition, records in found.items():
            state = self._state_of(partition)
            for record in records:
                state = fold(state, bytes(record.value or b"").decode())
                source = f"{partition.topic}-{partition.partition}"
                outputs.append((partition.partition, output_of(source, record.offset, state)))
            states[partition] = state
            offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, metadata=state)
        return states, offsets, outputs

    def _state_of(self, partition: TopicPartition) -> str:
        known = self._states.by_partition.get(partition)
        if known is not None:
            return known
        committed = self._consumer.committed(partition, metadata=True)
        if not isinstance(committed, OffsetAndMetadata):
            return INITIAL
        return committed.metadata or INITIAL

    def _go_back(self, found: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """What was polled is polled again, from where the group stands."""
        for partition in found:
            self._states.by_partition.pop(partition, None)
            if partition in self._consumer.assignment():
                committed = self._consumer.committed(partition)
                if committed is None:
                    self._consumer.seek_to_beginning(partition)
                else:
                    self._consumer.seek(partition, committed)


def main() -> int:
    """Rounds until standard input ends, or until another process has the transactional id; after
    any other fatal error consumer and producer are made anew."""
    arguments = _parser().parse_args()
    stop = threading.Event()
    threading.Thread(target=wait_end, args=(stop,), daemon=True).start()
    done = 0
    while not stop.is_set():
        worker = Worker(arguments)
        try:
            work(worker, stop, done)
        except TidelogError as error:
            print(f"does not go on: {error}", file=sys.stderr, flush=True)
            if error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
                stop.set()
        finally:
            done += worker.done
            worker.close()
    return 0


def work(worker: Worker, stop: threading.Event, done: int) -> None:
    """Until a fatal error, or the end."""
    worker.begin()
    while not stop.is_set():
        try:
            worker.round()
        except TidelogError as error:
            print(f"again: {error}", file=sys.stderr, flush=True)
            if not isinstance(error, TransactionError) or error.fatal:
                raise
        tell(ClientProgress(is_ready=True, done=done + worker.done))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
