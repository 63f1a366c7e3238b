"""Producers that write down what they sent and what became of it.

Each producer is a thread with an SDK producer of its own; values are unique, so that a value names
its send. A producer that meets an error goes on with the next record.
"""

import threading
import time
from typing import Final

from tidelog.chaos.checkers import History, Outcome, Send
from tidelog.client import Producer, RecordMetadata
from tidelog.wire.errors import ErrorCode, TidelogError

UNANSWERED_MAX: Final = 2_000
"""A producer waits when so many of its records are unanswered."""
_PAUSE_SECONDS: Final = 0.001

_UNKNOWN: Final = frozenset(
    {ErrorCode.INDETERMINATE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.UNKNOWN, ErrorCode.CANCELLED}
)


def is_unknown(error: TidelogError) -> bool:
    """Whether a record that failed so may be stored all the same."""
    return error.code in _UNKNOWN


class Ledger:
    """What every producer saw, in one history; used from many threads."""

    def __init__(self) -> None:
        self.history = History()
        self.begun = 0
        self.acknowledged = 0
        self.indeterminate = 0
        self.failed = 0
        self._lock = threading.Lock()

    @property
    def under_way(self) -> int:
        """Records that were handed to a producer and have no outcome yet."""
        with self._lock:
            return self.begun - self.acknowledged - self.indeterminate - self.failed

    def begin(self, send: Send) -> None:
        """A record is about to leave."""
        with self._lock:
            self.history.begin(send)
            self.begun += 1

    def end(self, send: Send, outcome: Outcome, base_offset: int = -1) -> None:
        """It was answered, or its fate is unknown."""
        ended = Send(
            client=send.client,
            partition=send.partition,
            values=send.values,
            began_ns=send.began_ns,
            ended_ns=time.monotonic_ns(),
            outcome=outcome,
            base_offset=base_offset,
            stream=send.stream,
            stream_position=send.stream_position,
        )
        with self._lock:
            self.history.end(ended)
            if outcome is Outcome.ACKNOWLEDGED:
                self.acknowledged += 1
            elif outcome is Outcome.INDETERMINATE:
                self.indeterminate += 1
            else:
                self.failed += 1


class Writer:
    """One producer in a thread, over all partitions in turn, until `stop`."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partition_count: int, ledger: Ledger
    ) -> None:
        self._name = name
        self._bootstrap = bootstrap
        self._topic = topic
        self._partition_count = partition_count
        self._ledger = ledger
        self._stop = threading.Event()
        self._slots = threading.BoundedSemaphore(UNANSWERED_MAX)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: TidelogError | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, seconds_max: float) -> bool:
        """Write no more, wait until all is answered; False if it took too long."""
        self._stop.set()
        self._thread.join(seconds_max)
        return not self._thread.is_alive()

    def _run(self) -> None:
        producer = Producer(
            bootstrap_servers=self._bootstrap, acks="all", linger_ms=5, batch_size=16_384
        )
        try:
            number = 0
            while not self._stop.is_set():
                if self._slots.acquire(timeout=0.1):
                    self._send(producer, number)
                    number += 1
            producer.flush(timeout=30)
        except TidelogError as error:
            self.failure = error
        finally:
            producer.close()

    def _send(self, producer: Producer, number: int) -> None:
        partition = number % self._partition_count
        send = Send(
            client=self._name,
            partition=f"{self._topic}-{partition}",
            values=(f"{self._name}:{number}",),
            began_ns=time.monotonic_ns(),
            ended_ns=0,
            outcome=Outcome.INDETERMINATE,
            stream=f"{self._name}/{partition}",
            stream_position=number,
        )
        self._ledger.begin(send)
        try:
            future = producer.send(self._topic, send.values[0].encode("utf-8"), partition=partition)
        except TidelogError:
            self._finish(send, Outcome.FAILED)
            time.sleep(_PAUSE_SECONDS)
            return
        future.add_callback(self._on_acknowledged, send)
        future.add_errback(self._on_error, send)

    def _on_acknowledged(self, send: Send, place: RecordMetadata) -> None:
        self._finish(send, Outcome.ACKNOWLEDGED, place.offset)

    def _on_error(self, send: Send, error: TidelogError) -> None:
        outcome = Outcome.INDETERMINATE if is_unknown(error) else Outcome.FAILED
        self._finish(send, outcome)

    def _finish(self, send: Send, outcome: Outcome, base_offset: int = -1) -> None:
        self._ledger.end(send, outcome, base_offset)
        self._slots.release()
