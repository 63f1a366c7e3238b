"""A client of a plain log that speaks the contract itself: produce, fetch, and a history of both.

It stands on the Network port and the contract alone, not on the SDK, so that a mistake of the SDK
cannot hide one of the broker. It sends every batch at most once: a send without an answer is
written down as indeterminate and never tried again.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

import msgspec
from google.protobuf.message import Message

from tidelog.chaos.checkers.history.history import History, Outcome, Poll, Send
from tidelog.ports import Clock, DeathHint, Network, PeerUnreachable, Random
from tidelog.v1 import admin_pb2, errors_pb2, fetch_pb2, metadata_pb2, produce_pb2
from tidelog.wire.batch import (
    CorruptBatch,
    checksum,
    decode_batch,
    encode_batch,
    fetch_sum,
    iterate_headers,
    route_sum,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

CREATE_TOPICS: Final = "/tidelog.v1.AdminService/CreateTopics"
GET_METADATA: Final = "/tidelog.v1.MetadataService/GetMetadata"
PRODUCE: Final = "/tidelog.v1.ProduceService/Produce"
PRODUCE_STREAM: Final = "/tidelog.v1.ProduceService/ProduceStream"
FETCH: Final = "/tidelog.v1.FetchService/Fetch"
FETCH_STREAM: Final = "/tidelog.v1.FetchService/FetchStream"

_CRC_POSITION: Final = 17
_RETRIES_MAX: Final = 200
_RETRY_PAUSE_MS: Final = 100
_VALUE_BYTES: Final = (4, 16, 60, 300, 3_000)

REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.NOT_IMPLEMENTED,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_PARTITION,
        ErrorCode.NOT_LEADER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.CORRUPT_BATCH,
        ErrorCode.ROUTE_MISMATCH,
        ErrorCode.BATCH_TOO_LARGE,
        ErrorCode.STORAGE_FULL,
    }
)
"""Answers that mean: nothing was stored, and nothing will be."""

_M = TypeVar("_M", bound=Message)


class WorkloadPorts(Protocol):
    """What a client needs of the world."""

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def network(self) -> Network:
        """The way to the brokers."""
        ...

    @property
    def random(self) -> Random:
        """Sizes and choices."""
        ...


class Topic(msgspec.Struct, frozen=True):
    """What metadata told of a topic."""

    name: str
    topic_id: TopicId
    partition_count: int

    def key(self, partition: int) -> str:
        """The partition's name in a history."""
        return f"{self.name}-{partition}"


class Sealed(msgspec.Struct, frozen=True):
    """A batch ready to be sent."""

    partition: int
    values: tuple[str, ...]
    batch: bytes


class LogClient:
    """One client; several loops of it may run at once."""

    def __init__(self, ports: WorkloadPorts, history: History, *, name: str, address: str) -> None:
        self.ports = ports
        self.history = history
        self.name = name
        self.address = address
        self._sealed = 0
        self._sessions = 0

    # -- topics --------------------------------------------------------------------------------

    async def ensure_topic(
        self, name: str, partition_count: int, configuration: Mapping[str, str]
    ) -> Topic:
        """Create the topic unless it is there; tries until the cluster answers."""
        wanted = admin_pb2.NewTopic(
            name=name, partition_count=partition_count, configuration=configuration
        )
        request = admin_pb2.CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)
        for _ in range(_RETRIES_MAX):
            try:
                answer = await self._ask(CREATE_TOPICS, request, admin_pb2.CreateTopicsResponse)
                error = answer.results[0].error
                if error.code in (0, errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS):
                    return await self._describe(name)
            except TidelogError:
                pass
            await self.ports.clock.sleep(_RETRY_PAUSE_MS)
        raise AssertionError(f"{self.name} could not create {name} in {_RETRIES_MAX} tries")

    async def _describe(self, name: str) -> Topic:
        request = metadata_pb2.GetMetadataRequest(topic_names=[name])
        answer = await self._ask(GET_METADATA, request, metadata_pb2.GetMetadataResponse)
        topic = answer.topics[0]
        if topic.error.code:
            raise error_of(topic.error)
        return Topic(name, TopicId(topic.topic_id), len(topic.partitions))

    # -- producing -----------------------------------------------------------------------------

    def seal(self, partition: int) -> Sealed:
        """A batch of values that nobody ever sent."""
        random = self.ports.random
        values: list[str] = []
        for _ in range(1 + random.below(4)):
            self._sealed += 1
            padding = "x" * random.below(_VALUE_BYTES[random.below(len(_VALUE_BYTES))])
            values.append(f"{self.name}.{self._sealed}.{padding}")
        wall_ms = self.ports.clock.wall_ms()
        batch = encode_batch([(wall_ms, None, value.encode(), ()) for value in values])
        return Sealed(partition, tuple(values), batch)

    async def produce(
        self,
        topic: Topic,
        partition: int,
        *,
        timeout_ms: int,
        on_error: Callable[[TidelogError], None] = lambda _: None,
    ) -> Outcome:
        """One unary produce."""
        sealed = self.seal(partition)
        send = self._begin(topic, sealed)
        outcome, base_offset = Outcome.INDETERMINATE, -1
        try:
            answer = await self._ask(
                PRODUCE,
                produce_request(topic, sealed, timeout_ms),
                produce_pb2.ProduceResponse,
                timeout_ms=timeout_ms,
            )
            base_offset = base_offset_of(answer)
            outcome = Outcome.ACKNOWLEDGED
        except TidelogError as error:
            outcome = outcome_of_error(error)
            on_error(error)
        finally:
            self._end(send, outcome, base_offset)
        return outcome

    async def produce_stream(
        self,
        topic: Topic,
        partition: int,
        count: int,
        on_error: Callable[[TidelogError], None] = lambda _: None,
    ) -> None:
        """A pipeline of produces over one stream; unanswered ones are indeterminate."""
        self._sessions += 1
        session = f"{self.name}/stream-{self._sessions}"
        stream = self.ports.network.stream(self.address, PRODUCE_STREAM)
        waiting: dict[int, Send] = {}
        sent = 0
        in_flight_max = 1 + self.ports.random.below(6)
        try:
            while sent < count or waiting:
                if sent < count and len(waiting) < in_flight_max:
                    sent += 1
                    sealed = self.seal(partition)
                    waiting[sent] = self._begin(topic, sealed, session, sent)
                    message = produce_pb2.ProduceStreamRequest(
                        correlation_id=sent, request=produce_request(topic, sealed, 10_000)
                    )
                    await stream.send(message.SerializeToString())
                    continue
                reply = await stream.receive()
                if reply is None:
                    break
                self._note_reply(waiting, reply, on_error)
        except TidelogError as error:
            on_error(error)
        finally:
            stream.cancel()
            for send in waiting.values():
                self._end(send, Outcome.INDETERMINATE, -1)

    def _note_reply(
        self,
        waiting: dict[int, Send],
        reply: bytes,
        on_error: Callable[[TidelogError], None],
    ) -> None:
        answer = produce_pb2.ProduceStreamResponse.FromString(reply)
        assert answer.correlation_id in waiting, "an answer names a request that waits for one"
        send = waiting.pop(answer.correlation_id)
        try:
            if answer.error.code:
                raise error_of(answer.error)
            base_offset = base_offset_of(answer.response)
        except TidelogError as error:
            self._end(send, outcome_of_error(error), -1)
            on_error(error)
        else:
            self._end(send, Outcome.ACKNOWLEDGED, base_offset)

    def _begin(
        self, topic: Topic, sealed: Sealed, stream: str = "", stream_position: int = 0
    ) -> Send:
        now_ns = self.ports.clock.monotonic_ns()
        send = Send(
            client=self.name,
            partition=topic.key(sealed.partition),
            values=sealed.values,
            began_ns=now_ns,
            ended_ns=now_ns,
            outcome=Outcome.INDETERMINATE,
            stream=stream,
            stream_position=stream_position,
        )
        self.history.begin(send)
        return send

    def _end(self, send: Send, outcome: Outcome, base_offset: int) -> None:
        now_ns = self.ports.clock.monotonic_ns()
        self.history.end(
            msgspec.structs.replace(send, ended_ns=now_ns, outcome=outcome, base_offset=base_offset)
        )

    # -- reading -------------------------------------------------------------------------------

    def session(self) -> str:
        """A name for reads that follow each other."""
        self._sessions += 1
        return f"{self.name}/reader-{self._sessions}"

    async def fetch(
        self,
        topic: Topic,
        partition: int,
        position: int,
        *,
        reader: str,
        is_final: bool = False,
        max_wait_ms: int = 200,
    ) -> int:
        """One unary fetch; returns where to go on. Raises what the broker answered."""
        began_ns = self.ports.clock.monotonic_ns()
        request = fetch_pb2.FetchRequest(
            positions=[fetch_position(topic, partition, position)], max_wait_ms=max_wait_ms
        )
        answer = await self._ask(FETCH, request, fetch_pb2.FetchResponse, timeout_ms=3_000)
        for part in answer.partitions:
            if part.error.code:
                raise error_of(part.error)
            position = self.note_poll(topic, part, position, began_ns, reader, is_final)
        return position

    async def fetch_stream(
        self, topic: Topic, partition: int, position: int, *, reader: str, answers: int
    ) -> int:
        """Some answers over one stream; returns where to go on."""
        began_ns = self.ports.clock.monotonic_ns()
        stream = self.ports.network.stream(self.address, FETCH_STREAM)
        try:
            request = fetch_pb2.FetchStreamRequest(
                positions=[fetch_position(topic, partition, position)],
                credit_bytes=64 * 1024,
                session_epoch=1,
            )
            await stream.send(request.SerializeToString())
            for _ in range(answers):
                reply = await stream.receive()
                if reply is None:
                    break
                answer = fetch_pb2.FetchStreamResponse.FromString(reply)
                for part in answer.partitions:
                    if part.error.code:
                        raise error_of(part.error)
                    position = self.note_poll(topic, part, position, began_ns, reader, False)
                credit = fetch_pb2.FetchStreamRequest(credit_bytes=16 * 1024, session_epoch=1)
                await stream.send(credit.SerializeToString())
        finally:
            stream.cancel()
        return position

    def note_poll(
        self,
        topic: Topic,
        part: fetch_pb2.PartitionBatches,
        position: int,
        began_ns: int,
        reader: str,
        is_final: bool,
    ) -> int:
        """Decode an answer and write it down; a corrupt batch raises CorruptBatch."""
        try:
            found = decode_answer(topic, part, position)
        except CorruptBatch as error:
            self.history.damage.append(f"{topic.key(part.partition)} at {position}: {error}")
            raise
        self.history.polls.append(
            Poll(
                reader=reader,
                partition=topic.key(part.partition),
                began_ns=began_ns,
                ended_ns=self.ports.clock.monotonic_ns(),
                position=position,
                records=tuple(found),
                high_watermark=part.high_watermark,
                is_final=is_final,
            )
        )
        return found[-1][0] + 1 if found else position

    async def _ask(
        self, method: str, request: Message, reply: type[_M], *, timeout_ms: int = 5_000
    ) -> _M:
        answer = await self.ports.network.call(
            self.address, method, request.SerializeToString(), timeout_ms=timeout_ms
        )
        return reply.FromString(answer)


def produce_request(topic: Topic, sealed: Sealed, timeout_ms: int) -> produce_pb2.ProduceRequest:
    """One batch, acknowledged by all."""
    crc = int.from_bytes(sealed.batch[_CRC_POSITION : _CRC_POSITION + 4], "big")
    batch = produce_pb2.PartitionBatch(
        topic_id=topic.topic_id,
        partition=sealed.partition,
        leader_epoch=-1,
        batch=sealed.batch,
        route_sum=route_sum(topic.topic_id, sealed.partition, crc),
    )
    return produce_pb2.ProduceRequest(
        batches=[batch], acks=produce_pb2.ACKS_ALL, timeout_ms=timeout_ms
    )


def decode_answer(
    topic: Topic, part: fetch_pb2.PartitionBatches, position: int
) -> list[tuple[int, str]]:
    """Offset and value from `position` on; CorruptBatch for anything that does not add up."""
    found: list[tuple[int, str]] = []
    data = part.batches
    for byte_position, header in iterate_headers(data):
        if not byte_position:
            expected = fetch_sum(topic.topic_id, part.partition, header.base_offset, checksum(data))
            if part.fetch_sum != expected:
                raise CorruptBatch(
                    tried="check a fetch answer", happened="its sum does not fit its bytes"
                )
        for offset, _, _, _, value, _ in decode_batch(data, byte_position):
            if offset >= position:
                assert value is not None, "the workload writes no tombstones"
                found.append((offset, value.decode()))
    return found


def fetch_position(topic: Topic, partition: int, offset: int) -> fetch_pb2.FetchPosition:
    """From where to read one partition."""
    return fetch_pb2.FetchPosition(
        topic_id=topic.topic_id,
        partition=partition,
        leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        max_bytes=16 * 1024,
    )


def base_offset_of(answer: produce_pb2.ProduceResponse) -> int:
    """Of a produce of one batch; raises what it was refused with."""
    (acknowledgement,) = answer.acknowledgements
    if acknowledgement.error.code:
        raise error_of(acknowledgement.error)
    return acknowledgement.base_offset


def outcome_of_error(error: TidelogError) -> Outcome:
    """Refused for certain, or unknown."""
    if isinstance(error, PeerUnreachable):
        is_certain = error.death_hint is not DeathHint.NONE
        return Outcome.FAILED if is_certain else Outcome.INDETERMINATE
    return Outcome.FAILED if error.code in REFUSALS else Outcome.INDETERMINATE


def error_of(error: errors_pb2.Error) -> TidelogError:
    """The contract's error as ours."""
    return TidelogError(
        ErrorCode(error.code), tried=error.tried, happened=error.happened, hint=error.hint
    )
