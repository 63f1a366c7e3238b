"""Streams to one broker: requests go in from the I/O thread, answers come out to its inbox.

Owns the reader thread of each stream. gRPC takes requests from a queue on a thread of its own; how
many are on their way is bounded by the producer's window, and by the consumer's credit.
"""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tidelog.client.engine.fetch import messages as fetching
from tidelog.client.engine.produce import messages as producing
from tidelog.client.reading import consumer_parts
from tidelog.client.shared import lifecycle
from tidelog.client.sync.connections import Connections
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import ErrorCode, TidelogError

_NS_PER_MS = 1_000_000


class BrokerStream(ABC):
    """Open from construction until `cancel` or a break, which is reported once."""

    def __init__(
        self, connections: Connections, address: str, method: str, *, thread: str, tried: str
    ) -> None:
        self._connections = connections
        self._address = address
        self._tried = tried
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        requests: Any = iter(self._requests.get, None)
        self._call = connections.stream(address, method, requests)
        self._reader = threading.Thread(target=self._read, name=thread, daemon=True)
        with lifecycle.watching_threads():
            self._reader.start()

    def send(self, request: bytes) -> None:
        """Queue a request."""
        self._requests.put(request)

    def cancel(self) -> None:
        """End it now."""
        self._requests.put(None)
        self._call.cancel()
        lifecycle.let_go(self._call)

    @abstractmethod
    def _on_answer(self, data: bytes) -> None:
        """An answer came, on the reader thread."""

    @abstractmethod
    def _on_broken(self, error: TidelogError) -> None:
        """Nothing comes any more, on the reader thread."""

    def _read(self) -> None:
        import grpc

        try:
            for data in self._call:
                self._on_answer(data)
            broken = TidelogError(
                ErrorCode.UNAVAILABLE, tried=self._tried, happened="the broker ended the stream"
            )
        except grpc.RpcError:
            broken = self._connections.error_of(
                self._call, address=self._address, tried=self._tried
            )
        lifecycle.let_go(self._call)
        self._requests.put(None)
        self._on_broken(broken)


class FetchStream(BrokerStream):
    """Batches of the partitions that one broker serves."""

    def __init__(
        self,
        connections: Connections,
        address: str,
        broker_id: int,
        stream: int,
        on_message: Callable[[fetching.ConsumerMessage], None],
    ) -> None:
        self._broker_id = broker_id
        self._stream = stream
        self._on_message = on_message
        super().__init__(
            connections,
            address,
            wire.FETCH_STREAM,
            thread=f"tidelog-fetch-answers-{broker_id}",
            tried=f"fetch from broker {broker_id} at {address}",
        )

    def _on_answer(self, data: bytes) -> None:
        self._on_message(consumer_parts.answered(self._broker_id, self._stream, data))

    def _on_broken(self, error: TidelogError) -> None:
        self._on_message(
            fetching.StreamBroken(broker_id=self._broker_id, stream=self._stream, error=error)
        )


class ProduceStream(BrokerStream):
    """Batches for the partitions that one broker leads."""

    def __init__(
        self,
        connections: Connections,
        address: str,
        broker_id: int,
        stream: int,
        on_message: Callable[[producing.ProducerMessage], None],
    ) -> None:
        self._broker_id = broker_id
        self._stream = stream
        self._on_message = on_message
        super().__init__(
            connections,
            address,
            wire.PRODUCE_STREAM,
            thread=f"tidelog-produce-answers-{broker_id}",
            tried=f"produce to broker {broker_id} at {address}",
        )

    def _on_answer(self, data: bytes) -> None:
        wall_ms = time.time_ns() // _NS_PER_MS
        self._on_message(wire.read_produce_answer(self._broker_id, self._stream, data, wall_ms))

    def _on_broken(self, error: TidelogError) -> None:
        self._on_message(
            producing.StreamBroken(broker_id=self._broker_id, stream=self._stream, error=error)
        )
