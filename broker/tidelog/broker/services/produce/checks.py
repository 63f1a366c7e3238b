"""What is looked at of a produce request and of each of its batches before one is queued. Pure.

Owns the border: a batch that passes is whole, undamaged, meant for its partition, within the
limits, and marked with nothing that only a broker sets. It must never look at what a log holds:
whether the batch is its producer's next one, and whether its transaction may write, is told in its
turn.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.broker.shared.limits import PARTS_PER_REQUEST_MAX
from tidelog.broker.transactions.state.places import validate_transactional_id
from tidelog.broker.transactions.state.states import EPOCH_MAX
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import (
    BatchHeader,
    CorruptBatch,
    TimestampType,
    read_header,
    route_sum,
    verify_checksum,
)
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.refusals import invalid

HOW_TO_BEGIN: Final = (
    "Get an identity from TransactionService.InitTransactionalProducer, send its batches with the "
    "transactional flag, and name the transactional id in the request."
)


def validate_request(
    batches: Sequence[PartitionBatch], transactional_id: str, *, is_for_all: bool
) -> None:
    """INVALID_ARGUMENT for a request that is wrong as a whole."""
    if transactional_id:
        validate_transactional_id(transactional_id, tried="produce")
        if not is_for_all:
            # Its commit would tell of records that a new leader may lack.
            raise invalid(
                "produce",
                "batches of a transaction were sent with other acks than all",
                "Send them with acks=all: a transaction is committed with all its records or not "
                "at all.",
            )
    if len(batches) > PARTS_PER_REQUEST_MAX:
        raise invalid("produce", f"{len(batches)} batches, the limit is {PARTS_PER_REQUEST_MAX}")
    places = dict.fromkeys((batch.topic_id, batch.partition) for batch in batches)
    if len(places) != len(batches):
        raise invalid(
            "produce", "the request names a partition twice", "Send one batch a partition."
        )


def checked_header(
    batch: PartitionBatch, settings: TopicSettings, *, is_transactional: bool, tried: str
) -> BatchHeader:
    """The header of a batch that may be queued; `is_transactional`: its request names a
    transactional id."""
    data = batch.batch
    bytes_max = settings.batch_bytes_max
    if len(data) > bytes_max:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            tried=tried,
            happened=f"the batch has {len(data)} bytes, "
            f"the topic's max.message.bytes is {bytes_max}",
        )
    header = read_header(data)
    if header.size_bytes != len(data):
        raise CorruptBatch(
            tried=tried,
            happened=f"the batch ends after {header.size_bytes} of {len(data)} bytes",
        )
    verify_checksum(data, header)
    if route_sum(batch.topic_id, batch.partition, header.crc) != batch.route_sum:
        raise TidelogError(
            ErrorCode.ROUTE_MISMATCH,
            tried=tried,
            happened="the route sum was computed for another topic, partition or batch",
        )
    if header.is_control:
        raise invalid(
            tried,
            "the batch is marked as a control batch",
            "End a transaction with TransactionService.EndTransaction: brokers write its markers.",
        )
    if header.is_transactional or is_transactional:
        _check_transactional(header, is_named=is_transactional, tried=tried)
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise invalid(
            tried,
            f"the batch has the producer id {header.producer_id} and no sequence: sent again it "
            "would be stored twice",
            "Number the batches of a producer from 0 in each partition, or send none of both.",
        )
    if header.timestamp_type is not TimestampType.CREATE or header.has_delete_horizon:
        raise invalid(tried, "the batch is marked with what only a broker sets: BATCH.md")
    return header


def _check_transactional(header: BatchHeader, *, is_named: bool, tried: str) -> None:
    if not is_named:
        raise invalid(
            tried,
            "the batch is marked as one of a transaction, and the request names no transactional "
            "id",
            HOW_TO_BEGIN,
        )
    if not header.is_transactional:
        raise invalid(
            tried,
            "the request names a transactional id, and the batch is marked as one of no "
            "transaction",
            "Mark each batch of the request, or send this one without the transactional id once "
            "the transaction has ended.",
        )
    if header.producer_id < 0:
        raise invalid(
            tried,
            "the batch is marked as one of a transaction, and has no producer id",
            HOW_TO_BEGIN,
        )
    if not 0 <= header.producer_epoch <= EPOCH_MAX:
        raise invalid(
            tried,
            f"the batch carries producer epoch {header.producer_epoch}, a transaction has one from "
            f"0 to {EPOCH_MAX}",
            HOW_TO_BEGIN,
        )
