"""The easy path: plain records in and out; the broker builds and reads the batches.

Goes through the same handlers as sealed batches do, so that it gives the same guarantees.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.log.state.watermark_lag import lag_of
from tidelog.broker.services.fetch.handler import FetchHandler, FetchRequest
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.produce.handler import (
    Acks,
    PartitionAcknowledgement,
    ProduceHandler,
    ProduceRequest,
)
from tidelog.broker.services.produce.words import with_consequence
from tidelog.broker.services.records.decode_turns import DecodeTurns, caller_of
from tidelog.broker.shared.limits import RECORDS_ANSWER_BYTES, BrokerLimits
from tidelog.broker.shared.node_time import WallTime
from tidelog.metadata.image.image import NO_LEADER, TopicImage
from tidelog.ports import Random, RequestContext, TaskScope
from tidelog.ports.network import MESSAGE_BYTES_MAX
from tidelog.wire.batch import (
    NONE_LEFT_OUT,
    AbortedStretch,
    BatchHeader,
    DecodedRecord,
    RecordTuple,
    aborted_batches,
    decode_batch,
    decode_parts,
    encode_batch,
    iterate_headers,
    read_header,
    record_size_estimate,
    route_sum,
)
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import ErrorCode, ReadPlace, TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BrokerId,
    Offset,
    PartitionId,
)
from tidelog.wire.partitioner import partition_for_key
from tidelog.wire.refusals import invalid

RECORD_ENVELOPE_BYTES: Final = 48
HEADER_ENVELOPE_BYTES: Final = 16
"""What protobuf adds to a record and to each of its headers at most."""

RECORD_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 64 * 1024
"""Of a single record in an answer; the rest is for the envelope."""

PART_RECORDS: Final = 256
"""Read of a batch at a time, where not all of it is wanted."""

Place = tuple[str, int]
"""A topic's name and a partition's number."""
NOWHERE: Final[Place] = ("", 0)
"""Whoever asked names the partition."""
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class PlainRecord(msgspec.Struct, frozen=True):
    """A record as it came in; without timestamp: the time of its arrival."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int | None


class ProducerIdentity(msgspec.Struct, frozen=True):
    """Lets the broker recognise a resend."""

    producer_id: int
    producer_epoch: int
    sequence: int


class ProduceRecordsRequest(msgspec.Struct, frozen=True):
    """Records for one topic."""

    topic: str
    partition: int | None
    records: Sequence[PlainRecord]
    timeout_ms: int
    producer: ProducerIdentity | None
    transactional_id: str = ""
    """Empty: they are part of no transaction."""


class RecordPlace(msgspec.Struct, frozen=True):
    """Where a record went."""

    partition: PartitionId
    offset: Offset
    error: TidelogError | None
    leader_id: int | None = None
    """Of one that another broker should have been sent: which one; None: not known."""


PassOn = Callable[
    [RequestContext, BrokerId, ProduceRequest], Awaitable[Sequence[PartitionAcknowledgement]]
]
"""Writes at another broker; its errors stand in the acknowledgements."""


class FetchRecordsRequest(msgspec.Struct, frozen=True):
    """Records of one partition."""

    topic: str
    partition: PartitionId
    fetch_offset: Offset
    max_records: int
    max_wait_ms: int
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class FetchedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records and where to go on."""

    records: Sequence[DecodedRecord]
    next_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class RecordsHandler:
    """Plain records over the batch handlers."""

    def __init__(
        self,
        topics: MetadataHandler,
        produce: ProduceHandler,
        fetch: FetchHandler,
        pass_on: PassOn,
        *,
        broker_id: BrokerId,
        time: WallTime,
        random: Random,
        limits: BrokerLimits,
    ) -> None:
        self._topics = topics
        self._produce = produce
        self._fetch = fetch
        self._pass_on = pass_on
        self._turns = DecodeTurns()
        self._broker_id = broker_id
        self._time = time
        self._random = random
        self._limits = limits

    async def produce_records(
        self, context: RequestContext, request: ProduceRecordsRequest
    ) -> list[RecordPlace]:
        """Seal one batch a partition, append them here or at their leaders, tell each place."""
        tried = f"produce records to {request.topic}"
        self._validate(request, tried)
        self._validate_size(request, tried)
        topic = await self._topics.topic(context, request.topic, may_create=True, tried=tried)
        partitions = self._partitions(request, topic, tried)
        by_partition: dict[int, list[int]] = {}
        for place, partition in enumerate(partitions):
            by_partition.setdefault(partition, []).append(place)
        by_leader: dict[BrokerId, list[PartitionBatch]] = {}
        for partition, places in by_partition.items():
            leader_id = topic.partitions[partition].leader_id
            # Without a leader this broker says so as well as any other.
            target = self._broker_id if leader_id == NO_LEADER else leader_id
            batch = self._seal(request, topic, partition, places)
            by_leader.setdefault(target, []).append(batch)
        answers = await self._write(context, by_leader, request)
        # Where another broker wrote them, only this one knows that no answer came.
        has_identity = request.producer is not None
        return [
            _with_consequence(place, has_identity=has_identity)
            for place in _places(partitions, answers)
        ]

    async def _write(
        self,
        context: RequestContext,
        by_leader: Mapping[BrokerId, list[PartitionBatch]],
        asked: ProduceRecordsRequest,
    ) -> list[PartitionAcknowledgement]:
        """At all leaders at the same time: nobody waits for the slowest one before it."""
        found: list[PartitionAcknowledgement] = []

        async def write(broker_id: BrokerId, batches: list[PartitionBatch]) -> None:
            request = ProduceRequest(batches, Acks.ALL, asked.timeout_ms, asked.transactional_id)
            if broker_id == self._broker_id:
                found.extend(await self._produce.produce(context, request))
            else:
                found.extend(await self._pass_on(context, broker_id, request))

        async with TaskScope() as scope:
            for broker_id, batches in by_leader.items():
                scope.start(write(broker_id, batches), name=f"records of broker {broker_id}")
        return found

    async def fetch_records(
        self, context: RequestContext, request: FetchRecordsRequest
    ) -> FetchedRecords:
        """Records from the offset on; waits for the first one if asked to."""
        tried = f"fetch records from {request.topic}-{request.partition}"
        topic = await self._topics.topic(context, request.topic, may_create=False, tried=tried)
        position = FetchPosition(
            topic_id=topic.topic_id,
            partition=PartitionId(request.partition),
            leader_epoch=NO_LEADER_EPOCH,
            fetch_offset=Offset(request.fetch_offset),
            last_fetched_epoch=NO_LEADER_EPOCH,
            max_bytes=0,
        )
        replica = self._fetch.find(position)
        wanted = FetchRequest([position], request.max_wait_ms, 1, 0, isolation=request.isolation)
        answers = await self._fetch.fetch(context, wanted)
        count = request.max_records or self._limits.records_fetch_default
        if answers and answers[0].error is not None:
            raise answers[0].error
        lag = lag_of(replica.log, tried)
        if lag is not None:
            # Who reads up to the watermark that is shown would take it for the end.
            raise lag
        batches = answers[0].batches if answers else b""
        aborted = answers[0].aborted if answers else ()
        most = min(count, self._limits.records_per_request_max)
        records, next_offset = await self._turns.run(
            lambda: decoded_records(
                batches,
                request.fetch_offset,
                most,
                aborted=aborted,
                place=(request.topic, request.partition),
            ),
            caller=caller_of(context),
            tried=tried,
        )
        return FetchedRecords(
            records=records,
            next_offset=Offset(next_offset),
            high_watermark=replica.log.high_watermark,
            last_stable_offset=replica.log.last_stable_offset,
            log_start_offset=replica.log.log_start_offset,
        )

    def _validate(self, request: ProduceRecordsRequest, tried: str) -> None:
        if not request.records:
            raise invalid(tried, "the request holds no records")
        count_max = self._limits.records_per_request_max
        if len(request.records) > count_max:
            raise TidelogError(
                ErrorCode.BATCH_TOO_LARGE,
                tried=tried,
                happened=f"{len(request.records)} records, the limit is {count_max}",
            )
        if request.transactional_id and request.producer is None:
            raise invalid(
                tried,
                "records of a transaction need a producer identity",
                "Get one from TransactionService.InitTransactionalProducer and send it as "
                "`producer`, with sequences from 0 for each transaction and partition.",
            )
        if request.producer is not None and request.partition is None:
            raise invalid(tried, "a producer identity needs `partition` to be set")
        if request.producer is not None:
            _validate_producer(request.producer, tried)

    def _validate_size(self, request: ProduceRecordsRequest, tried: str) -> None:
        """All partitions together: what one request may cost in memory."""
        size_bytes = sum(
            record_size_estimate(each.key, each.value, each.headers) for each in request.records
        )
        if size_bytes > self._limits.records_bytes_max:
            raise TidelogError(
                ErrorCode.BATCH_TOO_LARGE,
                tried=tried,
                happened=f"about {size_bytes} bytes of records, the limit "
                f"records.request_bytes_max is {self._limits.records_bytes_max}",
            )

    def _partitions(
        self, request: ProduceRecordsRequest, topic: TopicImage, tried: str
    ) -> list[int]:
        """Each record's partition: as asked, by its key, or one for all that have none."""
        count = len(topic.partitions)
        if request.partition is not None:
            if request.partition >= count:
                raise TidelogError(
                    ErrorCode.UNKNOWN_PARTITION,
                    tried=tried,
                    happened=f"partition {request.partition}, the topic has {count}",
                )
            return [request.partition] * len(request.records)
        keyless = self._keyless(topic)
        return [
            keyless if record.key is None else partition_for_key(record.key, count)
            for record in request.records
        ]

    def _keyless(self, topic: TopicImage) -> int:
        """One that this broker leads, which saves a hop; else one that somebody leads."""
        led = [each.partition for each in topic.partitions if each.leader_id == self._broker_id]
        led = led or [each.partition for each in topic.partitions if each.leader_id != NO_LEADER]
        return led[self._random.below(len(led))] if led else 0

    def _seal(
        self,
        request: ProduceRecordsRequest,
        topic: TopicImage,
        partition: int,
        places: Sequence[int],
    ) -> PartitionBatch:
        now_ms = self._time.wall_ms()
        records: list[RecordTuple] = []
        for place in places:
            record = request.records[place]
            timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            records.append((timestamp_ms, record.key, record.value, record.headers))
        who = request.producer or ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        batch = encode_batch(
            records,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=who.sequence,
            is_transactional=bool(request.transactional_id),
        )
        total = route_sum(topic.topic_id, partition, read_header(batch).crc)
        return PartitionBatch(topic.topic_id, PartitionId(partition), NO_LEADER_EPOCH, batch, total)


def _places(
    partitions: Sequence[int], answers: Sequence[PartitionAcknowledgement]
) -> list[RecordPlace]:
    by_partition = {answer.partition: answer for answer in answers}
    seen: dict[PartitionId, int] = {}
    places = []
    for chosen in partitions:
        partition = PartitionId(chosen)
        answer = by_partition[partition]
        number = seen.get(partition, 0)
        seen[partition] = number + 1
        offset = NO_OFFSET if answer.error else Offset(answer.base_offset + number)
        places.append(RecordPlace(partition, offset, answer.error, answer.leader_id))
    return places


def _with_consequence(place: RecordPlace, *, has_identity: bool) -> RecordPlace:
    if place.error is None:
        return place
    error = with_consequence(place.error, has_identity=has_identity)
    return msgspec.structs.replace(place, error=error)


def _validate_producer(who: ProducerIdentity, tried: str) -> None:
    """Within the widths that a batch has for them."""
    bounds = (
        ("producer_id", who.producer_id, INT64_MAX),
        ("producer_epoch", who.producer_epoch, INT16_MAX),
        ("sequence", who.sequence, INT32_MAX),
    )
    for name, value, highest in bounds:
        if not 0 <= value <= highest:
            raise invalid(tried, f"`{name}` is {value}, not from 0 to {highest}")


def decoded_records(
    data: bytes,
    fetch_offset: int,
    count: int,
    *,
    aborted: Sequence[AbortedStretch] = (),
    place: Place = NOWHERE,
) -> tuple[list[DecodedRecord], int]:
    """Records at or above the offset within both limits, and where to go on.

    Markers are passed over, and so are the batches of `aborted` transactions: a reader that is
    given nothing of them goes on behind them all the same.

    One batch is open at a time: a compressed one may be many times its size. No more of it is read
    than is asked for. Damage is an error only where the answer begins, so that a reader gets
    everything before it.
    """
    records: list[DecodedRecord] = []
    next_offset, left_bytes = fetch_offset, RECORDS_ANSWER_BYTES
    left_out = NONE_LEFT_OUT
    if aborted:
        left_out = aborted_batches(
            (header for _, header in iterate_headers(data, is_compacted=True)), aborted
        )
    for position, header in iterate_headers(data, is_compacted=True):
        if header.is_control or (left_out and header.base_offset in left_out):
            next_offset = max(next_offset, header.next_offset)
            continue
        try:
            left = count - len(records)
            for record in _wanted(data, position, header, fetch_offset, left, place):
                size_bytes = _answer_bytes(record)
                left_bytes -= size_bytes
                if len(records) == count or (records and left_bytes < 0):
                    return records, next_offset
                _validate_fits(record[0], size_bytes, place)
                records.append(record)
                next_offset = record[0] + 1
        except TidelogError:
            if records:
                break
            raise
        next_offset = max(next_offset, header.next_offset)
    return records, next_offset


def _unreadable(place: Place, header: BatchHeader, error: TidelogError) -> TidelogError:
    """What a reader of plain records can do: the place of the batch stands in bytes else."""
    name = f"{place[0]}-{place[1]}" if place[0] else "the partition"
    return TidelogError(
        error.code,
        tried=f"read the batch of {name} at offsets {header.base_offset} to "
        f"{header.next_offset - 1}",
        happened=error.happened,
        hint=f"Go on at offset {header.next_offset}: no more of the batch can be read as plain "
        "records. Its producer wrote it so, unless a disk has damaged it.",
        go_on_at=ReadPlace(*place, header.next_offset),
    )


def _wanted(
    data: bytes, position: int, header: BatchHeader, fetch_offset: int, count: int, place: Place
) -> Iterator[DecodedRecord]:
    """Records at or above the offset; the caller stops after `count`, and seldom before."""
    try:
        if header.base_offset >= fetch_offset and header.record_count <= count:
            yield from decode_batch(data, position, is_compacted=True)
            return
        parts = decode_parts(
            data,
            position,
            from_offset=fetch_offset,
            part_records=min(PART_RECORDS, count + 1),
            is_compacted=True,
        )
        for part in parts:
            yield from (record for record in part if record[0] >= fetch_offset)
    except TidelogError as error:
        raise _unreadable(place, header, error) from None


def _answer_bytes(record: DecodedRecord) -> int:
    """About what the record takes in an answer."""
    *_, key, value, headers = record
    envelope_bytes = RECORD_ENVELOPE_BYTES + HEADER_ENVELOPE_BYTES * len(headers)
    return record_size_estimate(key, value, headers) + envelope_bytes


def _validate_fits(offset: int, size_bytes: int, place: Place) -> None:
    if size_bytes > RECORD_BYTES_MAX:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            tried=f"fetch the record at offset {offset}",
            happened=f"it has about {size_bytes} bytes, more than the {RECORD_BYTES_MAX} "
            "that an answer holds",
            hint=f"Read it with FetchService, or go on at offset {offset + 1}.",
            go_on_at=ReadPlace(*place, offset + 1),
        )
