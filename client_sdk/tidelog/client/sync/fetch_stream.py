"""One FetchStream: the reader thread takes answers from gRPC to the consumer's inbox.

Owns that thread. Credit bounds what it can put there.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any

from tidelog.client.engine.fetch.messages import ConsumerMessage, StreamBroken
from tidelog.client.reading.consumer_parts import answered
from tidelog.client.shared import lifecycle
from tidelog.client.sync.connections import Connections
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import ErrorCode, TidelogError


class FetchStream:
    """Open from construction until `cancel` or a break, which is reported once."""

    def __init__(
        self,
        connections: Connections,
        address: str,
        broker_id: int,
        stream: int,
        on_message: Callable[[ConsumerMessage], None],
    ) -> None:
        self._connections = connections
        self._address = address
        self._broker_id = broker_id
        self._stream = stream
        self._on_message = on_message
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        requests: Any = iter(self._requests.get, None)
        self._call = connections.stream(address, wire.FETCH_STREAM, requests)
        self._reader = threading.Thread(
            target=self._read, name=f"tidelog-fetch-answers-{broker_id}", daemon=True
        )
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

    def _read(self) -> None:
        import grpc

        tried = f"fetch from broker {self._broker_id} at {self._address}"
        try:
            for data in self._call:
                self._on_message(answered(self._broker_id, self._stream, data))
            broken = TidelogError(
                ErrorCode.UNAVAILABLE, tried=tried, happened="the broker ended the stream"
            )
        except grpc.RpcError:
            broken = self._connections.error_of(self._call, address=self._address, tried=tried)
        lifecycle.let_go(self._call)
        self._requests.put(None)
        self._on_message(StreamBroken(broker_id=self._broker_id, stream=self._stream, error=broken))
