"""Reads partitions of a cluster, in sessions without a seek: from their leaders, or, with a rack,
from the replica near by that a leader names."""

from typing import Final

from tidelog.chaos.checkers.history.history import Poll
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.log_client import (
    FETCH,
    FETCH_STREAM,
    decode_answer,
    error_of,
    fetch_position,
)
from tidelog.v1 import fetch_pb2, metadata_pb2
from tidelog.wire.batch import CorruptBatch
from tidelog.wire.errors import ErrorCode, TidelogError

_WAIT_MS: Final = 200
_NEAR_NS: Final = 3_000_000_000
_CREDIT_BYTES: Final = 64 * 1024


class ClusterReader:
    """Of one client; remembers where it stands in each partition."""

    def __init__(self, client: ClusterClient, *, rack: str = "") -> None:
        self.client = client
        self._rack = rack
        self._near: dict[str, tuple[str, int]] = {}
        """By partition, the replica to ask, and until when."""
        self._sessions = 0
        self._stands: dict[str, tuple[str, int]] = {}

    def begin_session(self, key: str, position: int = 0) -> None:
        """The next read of the partition begins anew."""
        self._sessions += 1
        self._stands[key] = (f"{self.client.name}/reader-{self._sessions}", position)

    async def read(self, topic: Incarnation, partition: int, *, is_final: bool = False) -> int:
        """One answer, or some of a stream; returns the records read, -1 without an answer."""
        key = topic.key(partition)
        if key not in self._stands or (not is_final and self.client.below(40) == 0):
            self.begin_session(key)
        address = await self._find(topic, partition)
        if address is None:
            return -1
        try:
            if is_final or self.client.below(3):
                return await self._fetch(address, topic, partition, is_final)
            return await self._fetch_stream(address, topic, partition)
        except CorruptBatch:
            del self._stands[key]
            return -1
        except TidelogError as error:
            self.client.on_error(error)
            self.client.forget_leader(topic, partition)
            self._near.pop(key, None)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._begin_at_start(topic, partition)
            return -1

    async def _begin_at_start(self, topic: Incarnation, partition: int) -> None:
        """Where it stands was trimmed: go on where the log begins, as a session of its own."""
        try:
            spec = metadata_pb2.OFFSET_SPEC_EARLIEST
            start = await self.client.offset_of(topic, partition, spec)
        except TidelogError as error:
            self.client.on_error(error)
        else:
            self.begin_session(topic.key(partition), start)

    async def _find(self, topic: Incarnation, partition: int) -> str | None:
        """Whom to ask."""
        near = self._near.get(topic.key(partition))
        if near is not None and self.client.now_ns < near[1]:
            return near[0]
        leader = await self.client.find_leader(topic, partition)
        return None if leader is None else leader.address

    def position(self, topic: Incarnation, partition: int) -> int:
        """Where it stands."""
        return self._stands[topic.key(partition)][1]

    async def _fetch(self, address: str, topic: Incarnation, partition: int, final: bool) -> int:
        began_ns = self.client.now_ns
        request = fetch_pb2.FetchRequest(
            positions=[fetch_position(topic, partition, self.position(topic, partition))],
            max_wait_ms=0 if final else _WAIT_MS,
            client_rack=self._rack,
        )
        answer = await self.client.ask(
            address, FETCH, request, fetch_pb2.FetchResponse, timeout_ms=3_000
        )
        return sum(self._note(topic, part, began_ns, final) for part in answer.partitions)

    async def _fetch_stream(self, address: str, topic: Incarnation, partition: int) -> int:
        began_ns = self.client.now_ns
        stream = self.client.ports.network.stream(address, FETCH_STREAM)
        found = 0
        try:
            request = fetch_pb2.FetchStreamRequest(
                positions=[fetch_position(topic, partition, self.position(topic, partition))],
                credit_bytes=_CREDIT_BYTES,
                session_epoch=1,
                client_rack=self._rack,
            )
            await stream.send(request.SerializeToString())
            for _ in range(1 + self.client.below(4)):
                reply = await stream.receive()
                if reply is None:
                    break
                answer = fetch_pb2.FetchStreamResponse.FromString(reply)
                found += sum(self._note(topic, part, began_ns, False) for part in answer.partitions)
                credit = fetch_pb2.FetchStreamRequest(
                    credit_bytes=_CREDIT_BYTES // 4, session_epoch=1
                )
                await stream.send(credit.SerializeToString())
        finally:
            stream.cancel()
        return found

    def _note(
        self,
        topic: Incarnation,
        part: fetch_pb2.PartitionBatches,
        began_ns: int,
        is_final: bool,
    ) -> int:
        if part.error.code:
            raise error_of(part.error)
        key = topic.key(part.partition)
        if self._rack and part.preferred_replica in self.client.addresses:
            until_ns = self.client.now_ns + _NEAR_NS
            self._near[key] = (self.client.addresses[part.preferred_replica], until_ns)
        reader, position = self._stands[key]
        try:
            found = decode_answer(topic, part, position)
        except CorruptBatch as error:
            self.client.history.damage.append(f"{key} at {position}: {error}")
            raise
        self.client.history.polls.append(
            Poll(
                reader=reader,
                partition=key,
                began_ns=began_ns,
                ended_ns=self.client.now_ns,
                position=position,
                records=tuple(found),
                high_watermark=part.high_watermark,
                is_final=is_final,
            )
        )
        if found:
            self._stands[key] = (reader, found[-1][0] + 1)
        return len(found)
