"""One ProduceStream: requests go in from the I/O thread, answers come out to its inbox.

Owns the reader thread of the stream. gRPC takes requests from a queue on a thread of its own.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tidelog.client.engine.produce.messages import ProducerMessage, StreamBroken
from tidelog.client.shared import lifecycle
from tidelog.client.sync.connections import Connections
from tidelog.client.wire import calls as wire
from tidelog.client.writing.producer_parts import answered
from tidelog.wire.errors import ErrorCode, TidelogError


class ProduceStream:
    """Open from construction until `cancel` or a break, which is reported once."""

    def __init__(
        self,
        connections: Connections,
        address: str,
        broker_id: int,
        stream: int,
        on_message: Callable[[ProducerMessage], None],
    ) -> None:
        self._connections = connections
        self._address = address
        self._broker_id = broker_id
        self._stream = stream
        self._on_message = on_message
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        requests: Any = iter(self._requests.get, None)
        self._call = connections.stream(address, wire.PRODUCE_STREAM, requests)
        self._reader = threading.Thread(
            target=self._read, name=f"tidelog-produce-answers-{broker_id}", daemon=True
        )
        with lifecycle.watching_threads():
            self._reader.start()

    def send(self, request: bytes) -> None:
        """Queue a request; at most max_in_flight of them are unanswered."""
        self._requests.put(request)

    def cancel(self) -> None:
        """End it now."""
        self._requests.put(None)
        self._call.cancel()
        lifecycle.let_go(self._call)

    def _read(self) -> None:
        import grpc

        tried = f"produce to broker {self._broker_id} at {self._address}"
        try:
            for data in self._call:
                wall_ms = time.time_ns() // 1_000_000
                self._on_message(answered(self._broker_id, self._stream, data, wall_ms))
            broken = TidelogError(
                ErrorCode.UNAVAILABLE, tried=tried, happened="the broker ended the stream"
            )
        except grpc.RpcError:
            broken = self._connections.error_of(self._call, address=self._address, tried=tried)
        lifecycle.let_go(self._call)
        self._requests.put(None)
        self._on_message(StreamBroken(broker_id=self._broker_id, stream=self._stream, error=broken))
