"""How a consumer is put together from its options, and how an answer is cut into batches.

Owns the sizes of prefetching. Holds no state.
"""

import logging
from typing import Final

import msgspec

from tidelog.client.arguments.isolation import isolation_named
from tidelog.client.arguments.kinds import is_a, topic, wrong_type
from tidelog.client.arguments.options import ConsumerOptions
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.fetch.answer import reset_of
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.epochs import NO_EPOCH
from tidelog.client.engine.fetch.messages import (
    FetchAnswered,
    Fetched,
    OffsetsArrived,
    OffsetsFailed,
    QueryOffsets,
    SendFetch,
    TellReadAgain,
    TellUnread,
)
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.errors import with_article
from tidelog.client.shared.client_parts import topic_settings_of
from tidelog.client.types.records import OffsetAndMetadata, RawBatch, TopicPartition
from tidelog.client.wire import calls as wire
from tidelog.wire.batch import iterate_headers
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError

_log = logging.getLogger("tidelog.client")

WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Prefetched from one broker at most, whatever fetch_max_bytes allows."""
ANSWER_BYTES_MAX: Final = 2 * 1024 * 1024
GRANT_BYTES: Final = 2 * 1024 * 1024


class FetchLoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver needs of the options."""

    request_timeout_ms: int
    allow_auto_create_topics: bool
    client_rack: str
    answer_bytes_max: int
    isolation: IsolationLevel


def loop_settings(options: ConsumerOptions) -> FetchLoopSettings:
    """Of the consumer's options."""
    return FetchLoopSettings(
        request_timeout_ms=options.request_timeout_ms,
        allow_auto_create_topics=options.allow_auto_create_topics,
        client_rack=options.client_rack,
        answer_bytes_max=min(ANSWER_BYTES_MAX, options.fetch_max_bytes),
        isolation=isolation_of(options),
    )


def isolation_of(options: ConsumerOptions) -> IsolationLevel:
    """What the option says."""
    return isolation_named(options.isolation_level)


def _read(topic: str) -> str:
    return f"read {topic}"


def make_core(options: ConsumerOptions, metadata: MetadataCache, backoff: Backoff) -> ConsumerCore:
    """The core, with the window that the options allow."""
    desk = TopicDesk(
        topic_settings_of(options),
        metadata,
        backoff,
        _read,
    )
    window_bytes = min(options.fetch_max_bytes, WINDOW_BYTES_MAX)
    settings = ConsumerSettings(
        reset=reset_of(options.auto_offset_reset),
        window_bytes=window_bytes,
        grant_bytes=min(GRANT_BYTES, max(1, window_bytes // 2)),
        partition_bytes_max=options.max_partition_fetch_bytes,
        verify=options.check_crcs,
        isolation=isolation_of(options),
        replica_lease_ms=max(1, options.metadata_max_age_ms),
    )
    return ConsumerCore(settings, metadata, desk, backoff)


def fetch_request(effect: SendFetch, settings: FetchLoopSettings) -> bytes:
    """A request on a fetch stream."""
    return wire.fetch_stream_request(
        effect.positions,
        effect.removed,
        credit_bytes=effect.credit_bytes,
        session_epoch=effect.session_epoch,
        max_bytes=settings.answer_bytes_max,
        client_rack=settings.client_rack,
        isolation=settings.isolation,
    )


def answered(broker_id: int, stream: int, data: bytes) -> FetchAnswered:
    """What a broker said on a fetch stream."""
    session_epoch, partitions = wire.read_fetch_answer(data)
    return FetchAnswered(
        broker_id=broker_id,
        stream=stream,
        session_epoch=session_epoch,
        size_bytes=len(data),
        partitions=partitions,
    )


def offsets_came(
    query: QueryOffsets, answer: bytes | TidelogError
) -> OffsetsArrived | OffsetsFailed:
    """What came of a query."""
    if isinstance(answer, TidelogError):
        return OffsetsFailed(query=query, error=answer)
    return OffsetsArrived(query=query, answers=wire.read_offsets(answer))


def log_reading(effect: TellUnread | TellReadAgain) -> None:
    """A line in the log: what is in the way, where, and since when; or that it is over."""
    if isinstance(effect, TellReadAgain):
        _log.info("every partition is read again, after %.0f s", effect.waited_ms / 1000)
        return
    error, name = effect.error, f"{effect.partition.topic}-{effect.partition.partition}"
    leader = f" from its leader {effect.address}" if effect.address else ""
    others = f"; other partitions that wait: {effect.others}" if effect.others else ""
    _log.warning(
        "waiting: %s is not read%s for %.0f s: %s [%s]%s; it is tried on",
        name,
        leader,
        effect.waited_ms / 1000,
        error.happened,
        error.code.name,
        others,
    )


def split(fetched: Fetched, *, include_left_out: bool = False) -> list[RawBatch]:
    """The batches of an answer, without those that end below what was asked for, and those whose
    records the reader is not given unless it wants to see where they stand."""
    batches: list[RawBatch] = []
    first_offset, left_out = fetched.first_offset, fetched.left_out
    for position, header in iterate_headers(fetched.data, is_compacted=True):
        if header.next_offset <= first_offset:
            continue
        is_left_out = header.is_control or (bool(left_out) and header.base_offset in left_out)
        if is_left_out and not include_left_out:
            continue
        batches.append(
            RawBatch(
                topic_partition=fetched.topic_partition,
                data=fetched.data[position : position + header.size_bytes],
                high_watermark=fetched.high_watermark,
                first_offset=max(first_offset, header.base_offset),
                next_offset=header.next_offset,
                leader_epoch=header.leader_epoch,
                is_left_out=is_left_out,
            )
        )
    return batches


def metrics_of(core: ConsumerCore, records_read: int) -> dict[str, float]:
    """A snapshot of a consumer's counters."""
    return {
        "bytes_received": core.intake.bytes_received,
        "records_read": records_read,
        "batches_dropped": core.intake.batches_dropped,
        "bytes_buffered": sum(len(fetched.data) for fetched in core.ready),
        "streams_opened": core.streams_opened,
        "truncations": core.recovery.truncations,
        "partitions_assigned": len(core.partitions),
    }


def checked_offset(partition: TopicPartition, offset: int | OffsetAndMetadata) -> tuple[int, int]:
    """Where to seek to, and the leader epoch of the record before it; -1: not known."""
    at, epoch = (offset, NO_EPOCH) if isinstance(offset, int) else (offset[0], offset[2])
    if at < 0:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"seek {partition.topic}-{partition.partition}",
            happened=f"{at!r} is not an offset",
        )
    return at, epoch


def first_topics(client: str, topics: tuple[object, ...]) -> list[str]:
    """Names that stand in a constructor's call one after another."""
    tried = f"make {with_article(client)}"
    for at, each in enumerate(topics):
        if is_a(each, list, tuple, set, frozenset):
            hint = f"write them one after another: {client}('a', 'b'), or {client}(*topics)"
            raise wrong_type(tried, f"topics[{at}]", each, "a topic's name", hint)
    return [topic(each, tried, f"topics[{at}]") for at, each in enumerate(topics)]


def concurrent_use(tried: str) -> TidelogError:
    """For a call that came while another thread is inside one."""
    return TidelogError(
        ErrorCode.CONCURRENT_USE,
        tried=tried,
        happened="another thread is inside a call of this consumer",
        hint="give each thread a consumer of its own; only wakeup() may come from another",
    )


def inside_listener(tried: str) -> TidelogError:
    """For a poll inside a rebalance listener: the poll that called it is not over."""
    return TidelogError(
        ErrorCode.CONCURRENT_USE,
        tried=tried,
        happened="a rebalance listener of this consumer is being called",
        hint="commit, seek and look up in a listener; records come after it has returned",
    )
