"""Watches answers leave the node and compares them with what a crash could not take.

Only a simulator can do this: it sees the medium. An acknowledgement, or a fetched batch, of which
the bytes are not flushed when the answer leaves breaks the promise of flush=sync at once, not only
when a crash happens to fall into the gap.
"""

from typing import Final

from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.chaos.workloads.log_client import FETCH, FETCH_STREAM, PRODUCE, PRODUCE_STREAM
from tidelog.v1 import fetch_pb2, produce_pb2
from tidelog.wire.batch import iterate_headers

_OPAQUE_FROM: Final = 16
"""From the magic byte on a broker never changes a batch: offset and epoch lie before."""


class DurabilityWatch:
    """A tap of the fabric."""

    def __init__(self, *media: Medium) -> None:
        self._media = media
        self._requested: dict[tuple[int, int], list[produce_pb2.PartitionBatch]] = {}
        self._known: set[bytes] = set()
        self.violations: list[str] = []
        self.acknowledged = 0

    def __call__(self, exchange: Exchange, direction: str, message: bytes) -> None:
        """Look at one message."""
        if exchange.method == PRODUCE:
            self._on_produce(exchange, direction, message)
        elif exchange.method == PRODUCE_STREAM:
            self._on_produce_stream(exchange, direction, message)
        elif direction == "reply" and exchange.method == FETCH:
            self._on_batches(list(fetch_pb2.FetchResponse.FromString(message).partitions))
        elif direction == "reply" and exchange.method == FETCH_STREAM:
            self._on_batches(list(fetch_pb2.FetchStreamResponse.FromString(message).partitions))

    def _on_produce(self, exchange: Exchange, direction: str, message: bytes) -> None:
        if direction == "request":
            self._remember(exchange, 0, produce_pb2.ProduceRequest.FromString(message))
        else:
            self._on_answer(exchange, 0, produce_pb2.ProduceResponse.FromString(message))

    def _on_produce_stream(self, exchange: Exchange, direction: str, message: bytes) -> None:
        if direction == "request":
            request = produce_pb2.ProduceStreamRequest.FromString(message)
            self._remember(exchange, request.correlation_id, request.request)
        else:
            answer = produce_pb2.ProduceStreamResponse.FromString(message)
            self._on_answer(exchange, answer.correlation_id, answer.response)

    def _remember(
        self, exchange: Exchange, number: int, request: produce_pb2.ProduceRequest
    ) -> None:
        self._requested[exchange.number, number] = list(request.batches)

    def _on_answer(
        self, exchange: Exchange, number: int, answer: produce_pb2.ProduceResponse
    ) -> None:
        batches = self._requested.pop((exchange.number, number))
        for acknowledgement, batch in zip(answer.acknowledgements, batches, strict=False):
            if not acknowledgement.error.code:
                self.acknowledged += 1
                what = f"acknowledged at {acknowledgement.base_offset}"
                self._check(batch.topic_id, batch.partition, batch.batch, what)

    def _on_batches(self, parts: list[fetch_pb2.PartitionBatches]) -> None:
        for part in parts:
            for byte_position, header in iterate_headers(part.batches):
                batch = part.batches[byte_position : byte_position + header.size_bytes]
                what = f"served at {header.base_offset}"
                self._check(part.topic_id, part.partition, batch, what)

    def _check(self, topic_id: bytes, partition: int, batch: bytes, what: str) -> None:
        opaque = batch[_OPAQUE_FROM:]
        if opaque in self._known:
            return
        directory = f"{topic_id.hex()}-{partition}"
        places = [inode for medium in self._media for inode in medium.durable_in(directory)]
        if any(opaque in inode.durable for inode in places):
            self._known.add(opaque)
        else:
            self.violations.append(f"not_flushed: a batch of {len(batch)} bytes was {what}")
