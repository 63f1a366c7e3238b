"""A node in a few lines that speaks the served contract from memory, and misbehaves when told to.

For tests of the client alone: what a real node does belongs to tests on a real node.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc

from tests.client.support.contract_errors import error
from tests.client.support.group_service import GroupService
from tests.client.support.transaction_service import TransactionService
from tests.support.waiting import HANG_SECONDS
from tidelog.client.wire import calls as wire
from tidelog.v1 import (
    admin_pb2,
    fetch_pb2,
    metadata_pb2,
    produce_pb2,
    producer_id_pb2,
)
from tidelog.wire.batch import BatchHeader, checksum, fetch_sum, read_header, route_sum, stamp
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import TopicId

BROKER_ID = 1
Judge = Callable[[str, int, int], ErrorCode | None]
"""Called with topic, partition and how many batches came before; an error refuses the batch."""
Lose = Callable[[str], str | None]
"""Called with each request's method; `before` and `after` break the connection there."""


class Log:
    """One partition in memory."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.numbered: dict[tuple[int, int, int], int] = {}
        """Base offsets by producer id, epoch and sequence."""
        self.end_offset = 0
        self.start_offset = 0

    def has(self, header: BatchHeader) -> bool:
        """Whether it is stored already."""
        number = (header.producer_id, header.producer_epoch, header.base_sequence)
        return number in self.numbered

    def gap(self, header: BatchHeader) -> ErrorCode | None:
        """A batch continues what is there of its identity, from 0 on."""
        if self.has(header):
            return None
        before = [
            found.base_sequence + found.record_count
            for found in (read_header(data) for _, _, data in self.batches)
            if (found.producer_id, found.producer_epoch)
            == (header.producer_id, header.producer_epoch)
        ]
        fits = header.base_sequence == max(before, default=0)
        return None if fits else ErrorCode.OUT_OF_ORDER_SEQUENCE

    def append(self, data: bytes) -> int:
        header = read_header(data)
        number = (header.producer_id, header.producer_epoch, header.base_sequence)
        if header.producer_id >= 0:
            if number in self.numbered:
                return self.numbered[number]
            self.numbered[number] = self.end_offset
        base_offset = self.end_offset
        buffer = bytearray(data)
        stamp(buffer, 0, base_offset=base_offset, leader_epoch=1)
        self.end_offset += read_header(data).record_count
        self.batches.append((base_offset, self.end_offset, bytes(buffer)))
        return base_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for _, end, data in self.batches:
            if end <= offset:
                continue
            if parts and size + len(data) > max_bytes:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)


class ContractServer:
    """`with ContractServer() as server:` serves at `server.address`."""

    def __init__(
        self,
        *,
        auto_create: bool = True,
        default_partitions: int = 1,
        port: int = 0,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.topics: dict[str, bytes] = {}
        self.logs: dict[tuple[bytes, int], Log] = {}
        self.auto_create = auto_create
        self.default_partitions = default_partitions
        self.version = 1
        self.changed = threading.Condition()
        self.produce_requests: list[produce_pb2.ProduceRequest] = []
        self.fetch_requests: list[fetch_pb2.FetchStreamRequest] = []
        self.on_read: Callable[[], object] | None = None
        """Called with each request of a reader."""
        self.judge: Judge | None = None
        self.is_silent = threading.Event()
        """Set: produce requests are taken and never answered."""
        self.break_produce_at: int | None = None
        """The stream breaks, once, after so many requests were stored."""
        self.wrong_fetch_sum = False
        self.seen_batches = 0
        self.metadata_requests = 0
        self.ids_given = 0
        self.groups = GroupService(self)
        self.transactions = TransactionService(self)
        self.lose: Lose | None = None
        """Breaks calls and produce streams, before or after they were carried out."""
        self._is_closing = False
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
        bind = f"127.0.0.1:{port}"
        self.port = (
            self._server.add_insecure_port(bind)
            if credentials is None
            else self._server.add_secure_port(bind, credentials)
        )
        self.address = f"127.0.0.1:{self.port}"
        self._server.add_generic_rpc_handlers(self.handlers())

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.changed:
            self._is_closing = True
            self.changed.notify_all()
        self._server.stop(0).wait(HANG_SECONDS)

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The first that knows a call answers it."""
        return (_Handlers(self),)

    def create(self, name: str, partitions: int = 1) -> bytes:
        """A topic."""
        with self.changed:
            topic_id = checksum(name.encode()).to_bytes(4, "big") * 4
            self.topics[name] = topic_id
            for number in range(partitions):
                self.logs[topic_id, number] = Log()
            self.groups.on_created(name, topic_id, partitions)
            self.version += 1
        return topic_id

    def log(self, name: str, partition: int = 0) -> Log:
        """A partition's log."""
        return self.logs[self.topics[name], partition]

    def partitions_of(self, topic_id: bytes) -> list[int]:
        return [number for found, number in self.logs if found == topic_id]

    # Handlers.

    def get_metadata(self, data: bytes, context: Any) -> bytes:
        self.metadata_requests += 1
        request = metadata_pb2.GetMetadataRequest.FromString(data)
        names = list(self.topics) if request.all_topics else list(request.topic_names)
        topics = []
        for name in names:
            if name not in self.topics:
                if not (self.auto_create and request.allow_auto_create_topics):
                    topics.append(
                        metadata_pb2.TopicMetadata(name=name, error=error(ErrorCode.UNKNOWN_TOPIC))
                    )
                    continue
                self.create(name, self.default_partitions)
            topic_id = self.topics[name]
            topics.append(
                metadata_pb2.TopicMetadata(
                    name=name,
                    topic_id=topic_id,
                    partitions=[
                        metadata_pb2.PartitionMetadata(
                            partition=number, leader_id=BROKER_ID, leader_epoch=1
                        )
                        for number in self.partitions_of(topic_id)
                    ],
                )
            )
        return metadata_pb2.GetMetadataResponse(
            cluster_id="test",
            controller_id=BROKER_ID,
            brokers=[metadata_pb2.BrokerMetadata(broker_id=BROKER_ID, address=self.address)],
            topics=topics,
            metadata_version=self.version,
        ).SerializeToString()

    def allocate_producer_id(self, data: bytes, context: Any) -> bytes:
        self.ids_given += 1
        return producer_id_pb2.AllocateProducerIdResponse(
            producer_id=self.ids_given, max_in_flight_batches=16
        ).SerializeToString()

    def list_offsets(self, data: bytes, context: Any) -> bytes:
        request = metadata_pb2.ListOffsetsRequest.FromString(data)
        answers = []
        for query in request.queries:
            log = self.logs[query.topic_id, query.partition]
            offset, timestamp = log.end_offset, -1
            if query.spec == metadata_pb2.OFFSET_SPEC_EARLIEST:
                offset = log.start_offset
            elif query.spec != metadata_pb2.OFFSET_SPEC_LATEST:
                offset, timestamp = self._by_time(log, query.timestamp_ms)
            answers.append(
                metadata_pb2.OffsetAnswer(
                    topic_id=query.topic_id,
                    partition=query.partition,
                    offset=offset,
                    timestamp_ms=timestamp,
                    leader_epoch=1,
                )
            )
        return metadata_pb2.ListOffsetsResponse(answers=answers).SerializeToString()

    def _by_time(self, log: Log, timestamp_ms: int) -> tuple[int, int]:
        for base_offset, _, data in log.batches:
            header = read_header(data)
            if header.max_timestamp >= timestamp_ms:
                return base_offset, header.base_timestamp
        return -1, -1

    def produce_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for served, data in enumerate(requests, start=1):
            envelope = produce_pb2.ProduceStreamRequest.FromString(data)
            self.produce_requests.append(envelope.request)
            answer = produce_pb2.ProduceStreamResponse(correlation_id=envelope.correlation_id)
            lost = self.lose("Produce") if self.lose is not None else None
            if lost == "before":
                context.abort(grpc.StatusCode.UNAVAILABLE, "the test loses the request")
            for part in envelope.request.batches:
                stored = self._store(part, envelope.request.transactional_id)
                answer.response.acknowledgements.append(stored)
            if self.break_produce_at == served or lost == "after":
                self.break_produce_at = None
                context.abort(grpc.StatusCode.UNAVAILABLE, "the test breaks the stream")
            if self.is_silent.is_set():
                continue
            yield answer.SerializeToString()

    def _store(
        self, part: produce_pb2.PartitionBatch, transactional_id: str
    ) -> produce_pb2.PartitionAcknowledgement:
        with self.changed:
            name = {found: name for name, found in self.topics.items()}.get(part.topic_id, "")
            before, self.seen_batches = self.seen_batches, self.seen_batches + 1
            code = self.judge(name, part.partition, before) if self.judge else None
            header = read_header(part.batch)
            expected = route_sum(TopicId(part.topic_id), part.partition, header.crc)
            if part.route_sum != expected:
                code = ErrorCode.ROUTE_MISMATCH
            log = self.logs.get((part.topic_id, part.partition))
            if log is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            if header.is_transactional != bool(transactional_id):
                code = ErrorCode.INVALID_ARGUMENT
            if header.is_transactional and code is None:
                assert log is not None
                if not log.has(header):
                    code = self.transactions.admit(header, transactional_id)
                if code is None:
                    code = log.gap(header)
            offset = -1
            if code is None:
                assert log is not None
                offset = log.append(part.batch)
                self.changed.notify_all()
        return produce_pb2.PartitionAcknowledgement(
            topic_id=part.topic_id,
            partition=part.partition,
            error=None if code is None else error(code),
            base_offset=offset,
            append_time_ms=-1,
            leader_epoch=1,
        )

    def fetch_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        session = _Session()
        reader = threading.Thread(target=self._read_fetches, args=(requests, session), daemon=True)
        reader.start()
        context.add_callback(self._wake)
        while context.is_active() and not self._is_closing:
            with self.changed:
                answer = self._next_answer(session)
                if answer is None:
                    self.changed.wait(1.0)
            if answer is not None:
                yield answer

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _read_fetches(self, requests: Iterator[bytes], session: "_Session") -> None:
        try:
            for data in requests:
                request = fetch_pb2.FetchStreamRequest.FromString(data)
                with self.changed:
                    self.fetch_requests.append(request)
                    if self.on_read is not None:
                        self.on_read()
                    session.apply(request)
                    self.changed.notify_all()
        except grpc.RpcError:
            return

    def _next_answer(self, session: "_Session") -> bytes | None:
        answer = fetch_pb2.FetchStreamResponse(session_epoch=session.epoch)
        for key, offset in list(session.positions.items()):
            log = self.logs.get(key)
            code = None
            if log is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif not log.start_offset <= offset <= log.end_offset:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            if code is not None:
                del session.positions[key]
                answer.partitions.append(
                    fetch_pb2.PartitionBatches(
                        topic_id=key[0], partition=key[1], error=error(code), high_watermark=-1
                    )
                )
                continue
            assert log is not None
            if session.credit <= 0 or offset >= log.end_offset:
                continue
            data = log.read(offset, 1024 * 1024)
            session.credit -= len(data)
            first = read_header(data).base_offset
            session.positions[key] = self._end_of(log, first, len(data))
            sum_ = fetch_sum(TopicId(key[0]), key[1], first, checksum(data))
            answer.partitions.append(
                fetch_pb2.PartitionBatches(
                    topic_id=key[0],
                    partition=key[1],
                    batches=data,
                    fetch_sum=sum_ ^ (1 if self.wrong_fetch_sum else 0),
                    high_watermark=log.end_offset,
                    last_stable_offset=log.end_offset,
                    log_start_offset=log.start_offset,
                    leader_epoch=1,
                )
            )
        return answer.SerializeToString() if answer.partitions else None

    def _end_of(self, log: Log, first: int, size: int) -> int:
        for base, end, data in log.batches:
            if base >= first:
                size -= len(data)
                if size <= 0:
                    return end
        raise AssertionError("a read ends with a batch")

    def create_topics(self, data: bytes, context: Any) -> bytes:
        request = admin_pb2.CreateTopicsRequest.FromString(data)
        results = []
        for topic in request.topics:
            if topic.name in self.topics:
                results.append(
                    admin_pb2.CreateTopicResult(
                        name=topic.name, error=error(ErrorCode.TOPIC_ALREADY_EXISTS)
                    )
                )
                continue
            topic_id = self.create(topic.name, topic.partition_count or 1)
            results.append(
                admin_pb2.CreateTopicResult(
                    name=topic.name,
                    topic_id=topic_id,
                    partition_count=topic.partition_count or 1,
                    replication_factor=1,
                )
            )
        return admin_pb2.CreateTopicsResponse(results=results).SerializeToString()

    def describe_topics(self, data: bytes, context: Any) -> bytes:
        request = admin_pb2.DescribeTopicsRequest.FromString(data)
        topics = []
        for name in request.topic_names or list(self.topics):
            if name not in self.topics:
                topics.append(
                    admin_pb2.TopicDescription(name=name, error=error(ErrorCode.UNKNOWN_TOPIC))
                )
                continue
            topic_id = self.topics[name]
            topics.append(
                admin_pb2.TopicDescription(
                    name=name,
                    topic_id=topic_id,
                    replication_factor=1,
                    partitions=[
                        admin_pb2.PartitionDescription(
                            partition=number,
                            leader_id=BROKER_ID,
                            leader_epoch=1,
                            replicas=[BROKER_ID],
                            in_sync_replicas=[BROKER_ID],
                            high_watermark=self.logs[topic_id, number].end_offset,
                        )
                        for number in self.partitions_of(topic_id)
                    ],
                )
            )
        return admin_pb2.DescribeTopicsResponse(topics=topics).SerializeToString()

    def describe_cluster(self, data: bytes, context: Any) -> bytes:
        return admin_pb2.DescribeClusterResponse(
            cluster_id="test",
            controller_id=BROKER_ID,
            brokers=[admin_pb2.BrokerDescription(broker_id=BROKER_ID, address=self.address)],
            release="test",
        ).SerializeToString()


class _Session:
    """What one fetch stream reads."""

    def __init__(self) -> None:
        self.positions: dict[tuple[bytes, int], int] = {}
        self.credit = 0
        self.epoch = 0

    def apply(self, request: fetch_pb2.FetchStreamRequest) -> None:
        for position in request.positions:
            self.positions[position.topic_id, position.partition] = position.fetch_offset
        for removed in request.removed:
            self.positions.pop((removed.topic_id, removed.partition), None)
        self.credit += request.credit_bytes
        self.epoch = request.session_epoch


Handler = Callable[[bytes, Any], bytes]


def _losing(server: ContractServer, method: str, handler: Handler) -> Handler:
    """The same, unless the test breaks the connection before or after it."""

    def call(data: bytes, context: Any) -> bytes:
        lost = server.lose(method.rpartition("/")[2]) if server.lose is not None else None
        if lost == "before":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the test loses the request")
        if lost == "not done, unknown":
            context.abort(grpc.StatusCode.UNKNOWN, "the test does not say what became of it")
        answer = handler(data, context)
        if lost == "after":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the test loses the answer")
        if lost == "done, unknown":
            context.abort(grpc.StatusCode.UNKNOWN, "the test does not say what became of it")
        return answer

    return call


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, server: ContractServer) -> None:
        unary = {
            wire.GET_METADATA: server.get_metadata,
            wire.LIST_OFFSETS: server.list_offsets,
            wire.ALLOCATE_PRODUCER_ID: server.allocate_producer_id,
            wire.CREATE_TOPICS: server.create_topics,
            wire.DESCRIBE_TOPICS: server.describe_topics,
            wire.DESCRIBE_CLUSTER: server.describe_cluster,
            **server.groups.handlers(),
            **server.transactions.handlers(),
        }
        streams = {
            wire.PRODUCE_STREAM: server.produce_stream,
            wire.FETCH_STREAM: server.fetch_stream,
        }
        self._handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(_losing(server, name, handler))
            for name, handler in unary.items()
        } | {
            name: grpc.stream_stream_rpc_method_handler(handler)
            for name, handler in streams.items()
        }

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)


if __name__ == "__main__":
    with ContractServer(default_partitions=6) as running:
        print(f"bootstrap: {running.address}", flush=True)
        while True:
            time.sleep(3600)
