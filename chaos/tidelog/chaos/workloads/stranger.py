"""Comes to brokers with nothing but an offset: no leader epoch, no choice of whom to ask.

A program that was just started, or one in another language, reads so. It asks at offsets of records
that somebody has acknowledged, and writes down what it was told.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.chaos.checkers.history.history import Inquiry
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.log_client import FETCH, FETCH_STREAM, error_of, fetch_position
from tidelog.v1 import fetch_pb2, records_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

FETCH_RECORDS: Final = "/tidelog.v1.RecordsService/FetchRecords"
_TIMEOUT_MS: Final = 2_000
_PARKED_S: Final = 0.4
"""An error comes on a stream at once, and nothing at all where the position can be read."""
_NOT_TOLD: Final = -1

Leads = Callable[[str, Incarnation, int], int | None]
"""The leader epoch in which the broker at an address leads a partition; None: it does not."""

_Ask = Callable[[str, Incarnation, int, int], Awaitable[int]]
"""Asks an address for a partition from an offset on; the high watermark, if one was shown."""


class Stranger:
    """Of one client."""

    def __init__(self, client: ClusterClient, leads: Leads, *, kept_topic: str) -> None:
        self._client = client
        self._leads = leads
        self._kept_topic = kept_topic
        """Never deleted: only there does a name mean the same to every broker."""
        self._ends: dict[str, int] = {}
        """By partition, the end of what is known to be acknowledged; the newest comes last."""
        self._seen = 0
        """Sends of the history that were looked at."""
        self._methods: tuple[tuple[str, _Ask], ...] = (
            (FETCH, self._fetch),
            (FETCH_STREAM, self._fetch_stream),
            (FETCH_RECORDS, self._fetch_records),
        )

    async def ask(self, address: str, topic: Incarnation) -> None:
        """One question to one broker, whatever it is to the partition."""
        client = self._client
        self._look()
        partition = self._choose(topic)
        key = topic.key(partition)
        end_offset = self._ends.get(key, 0)
        offset = end_offset - client.below(min(end_offset + 1, 3))
        count = len(self._methods) - (topic.name != self._kept_topic)
        method, ask = self._methods[client.below(count)]
        led_before, began_ns = self._leads(address, topic, partition), client.now_ns
        high_watermark, is_refused_for_good = _NOT_TOLD, False
        try:
            high_watermark = await ask(address, topic, partition, offset)
        except TidelogError as error:
            client.on_error(error)
            is_refused_for_good = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        led_after = self._leads(address, topic, partition)
        client.history.inquiries.append(
            Inquiry(
                client=client.name,
                partition=key,
                broker=address,
                method=method.rpartition("/")[2],
                began_ns=began_ns,
                ended_ns=client.now_ns,
                offset=offset,
                is_refused_for_good=is_refused_for_good,
                high_watermark=high_watermark,
                is_leader=led_before is not None and led_before == led_after,
            )
        )

    def _choose(self, topic: Incarnation) -> int:
        """Mostly the partition that took records last: what a broker missed is news there."""
        if self._client.below(3):
            own = {topic.key(number): number for number in range(topic.partition_count)}
            for key in reversed(self._ends):
                if key in own:
                    return own[key]
        return self._client.below(topic.partition_count)

    def _look(self) -> None:
        """What was acknowledged since the last look."""
        sends = self._client.history.sends
        for send in sends[self._seen :]:
            if send.is_committed:
                end_offset = send.base_offset + len(send.values)
                self._ends[send.partition] = max(end_offset, self._ends.pop(send.partition, 0))
        self._seen = len(sends)

    async def _fetch(self, address: str, topic: Incarnation, partition: int, offset: int) -> int:
        request = fetch_pb2.FetchRequest(positions=[fetch_position(topic, partition, offset)])
        answer = await self._client.ask(
            address, FETCH, request, fetch_pb2.FetchResponse, timeout_ms=_TIMEOUT_MS
        )
        for part in answer.partitions:
            _raise_error_of(part)
        # A watermark beside batches is a step behind: whoever wants the end asks for it.
        return _NOT_TOLD

    async def _fetch_stream(
        self, address: str, topic: Incarnation, partition: int, offset: int
    ) -> int:
        request = fetch_pb2.FetchStreamRequest(
            positions=[fetch_position(topic, partition, offset)], session_epoch=1
        )
        stream = self._client.ports.network.stream(address, FETCH_STREAM)
        try:
            async with asyncio.timeout(_PARKED_S):
                await stream.send(request.SerializeToString())
                reply = await stream.receive()
            for part in fetch_pb2.FetchStreamResponse.FromString(reply or b"").partitions:
                _raise_error_of(part)
        except TimeoutError:
            return _NOT_TOLD
        finally:
            stream.cancel()
        return _NOT_TOLD

    async def _fetch_records(
        self, address: str, topic: Incarnation, partition: int, offset: int
    ) -> int:
        request = records_pb2.FetchRecordsRequest(
            topic=topic.name, partition=partition, fetch_offset=offset
        )
        answer = await self._client.ask(
            address,
            FETCH_RECORDS,
            request,
            records_pb2.FetchRecordsResponse,
            timeout_ms=_TIMEOUT_MS,
        )
        return answer.high_watermark


def _raise_error_of(part: fetch_pb2.PartitionBatches) -> None:
    if part.error.code:
        raise error_of(part.error)
