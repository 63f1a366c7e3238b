"""RecordsService: conversions between protobuf and the handlers' Structs."""

from tidelog.broker.services.records.handler import (
    FetchRecordsRequest,
    PlainRecord,
    ProduceRecordsRequest,
    ProducerIdentity,
    RecordsHandler,
)
from tidelog.contract.errors import fill_error
from tidelog.contract.isolation import read_isolation
from tidelog.ports import RequestContext
from tidelog.v1 import records_pb2
from tidelog.wire.ids import Offset, PartitionId


class RecordsRpc:
    """The service's two methods."""

    def __init__(self, handler: RecordsHandler) -> None:
        self._handler = handler

    async def produce_records(self, context: RequestContext, message: bytes) -> bytes:
        """`ProduceRecords`."""
        asked = records_pb2.ProduceRecordsRequest.FromString(message)
        identity = None
        if asked.HasField("producer"):
            who = asked.producer
            identity = ProducerIdentity(who.producer_id, who.producer_epoch, who.sequence)
        request = ProduceRecordsRequest(
            asked.topic,
            asked.partition if asked.HasField("partition") else None,
            [_read_record(each) for each in asked.records],
            asked.timeout_ms,
            identity,
            asked.transactional_id,
        )
        places = await self._handler.produce_records(context, request)
        # With an identity the partition knows a resend again.
        response = records_pb2.ProduceRecordsResponse(duplicates_possible=identity is None)
        for place in places:
            each = response.places.add(
                partition=place.partition, offset=place.offset, leader_id=place.leader_id
            )
            if place.error is not None:
                fill_error(each.error, place.error)
        return response.SerializeToString()

    async def fetch_records(self, context: RequestContext, message: bytes) -> bytes:
        """`FetchRecords`."""
        asked = records_pb2.FetchRecordsRequest.FromString(message)
        request = FetchRecordsRequest(
            asked.topic,
            PartitionId(asked.partition),
            Offset(asked.fetch_offset),
            asked.max_records,
            asked.max_wait_ms,
            read_isolation(asked.isolation_level, tried="fetch records"),
        )
        fetched = await self._handler.fetch_records(context, request)
        response = records_pb2.FetchRecordsResponse(
            next_offset=fetched.next_offset,
            high_watermark=fetched.high_watermark,
            last_stable_offset=fetched.last_stable_offset,
            log_start_offset=fetched.log_start_offset,
        )
        for offset, timestamp_ms, _, key, value, headers in fetched.records:
            each = response.records.add(
                offset=offset, timestamp_ms=timestamp_ms, key=key, value=value
            )
            for name, content in headers:
                each.headers.add(key=name, value=content)
        return response.SerializeToString()


def _read_record(message: records_pb2.Record) -> PlainRecord:
    return PlainRecord(
        message.key if message.HasField("key") else None,
        message.value if message.HasField("value") else None,
        [(each.key, each.value if each.HasField("value") else None) for each in message.headers],
        message.timestamp_ms if message.HasField("timestamp_ms") else None,
    )
