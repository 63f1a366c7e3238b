"""Metrics of calls, of what is refused or held back, and of records on their way in and out."""

from typing import Final

from tidelog.server.metrics.seen import (
    of_calls,
    of_directories,
    of_listeners,
    of_owners,
    of_quotas,
    of_records,
    of_replicas,
    of_servers,
)
from tidelog.server.metrics.table.metric import Rows, counter, gauge, histogram

REQUESTS: Final[Rows] = {
    "tidelog_requests": counter(
        "Requests answered, by what became of the call as a whole; of a produce stream each "
        "request in it, by its first refusal.",
        of_calls(lambda calls: calls.codes),
        "listener",
        "method",
        "code",
    ),
    "tidelog_request_duration_seconds": histogram(
        "How long they took; of a long poll with what it asked to wait.",
        of_calls(lambda calls: calls.durations if calls.codes else None),
        "listener",
        "method",
    ),
    "tidelog_requests_in_flight": gauge(
        "Calls and streams open.", of_calls(lambda calls: calls.in_flight), "listener", "method"
    ),
    "tidelog_request_bytes": counter(
        "Bytes of messages that came.",
        of_calls(lambda calls: calls.request_bytes),
        "listener",
        "method",
    ),
    "tidelog_response_bytes": counter(
        "Bytes of messages that went.",
        of_calls(lambda calls: calls.response_bytes),
        "listener",
        "method",
    ),
    "tidelog_slow_requests": counter(
        "Requests above `slow_request_ms`.",
        of_calls(lambda calls: calls.slow),
        "listener",
        "method",
    ),
    "tidelog_listener_connections": gauge(
        "Connections with a call or stream in progress.",
        of_listeners(lambda listener: listener.connections),
        "listener",
    ),
}
LIMITS: Final[Rows] = {
    "tidelog_listener_request_memory_bytes": gauge(
        "Messages whose handlers are at work.",
        of_servers(lambda usage: usage.request_bytes),
        "listener",
    ),
    "tidelog_listener_answer_memory_bytes": gauge(
        "Large answers that callers have not taken yet.",
        of_servers(lambda usage: usage.answer_bytes),
        "listener",
    ),
    "tidelog_listener_refusals": counter(
        "Calls refused before they began, or answers not kept, by the limit of the listener.",
        of_servers(lambda usage: usage.refused),
        "listener",
        "limit",
    ),
    "tidelog_quota_delays": counter(
        "Requests and answers held back by a quota.", of_quotas(lambda quotas: quotas.delayed_count)
    ),
    "tidelog_quota_refusals": counter(
        "Calls refused: too many of one client id waited.",
        of_quotas(lambda quotas: quotas.refused_count),
    ),
    "tidelog_produce_queued_bytes": gauge(
        "Batches between arrival and their log; `produce.queued_bytes_max` bounds it.",
        of_directories(lambda directory: directory.queued_bytes),
        "directory",
    ),
}
RECORDS: Final[Rows] = {
    "tidelog_produce_batches": counter(
        "Batches taken: checked and queued.", of_records(lambda meter: meter.produced_batches)
    ),
    "tidelog_produce_records": counter(
        "Records in them.", of_records(lambda meter: meter.produced_records)
    ),
    "tidelog_produce_bytes": counter(
        "Their bytes, as they are stored.", of_records(lambda meter: meter.produced_bytes)
    ),
    "tidelog_produce_refusals": counter(
        "Batches that were refused, or of which the outcome is unknown, by the code told: "
        "`FENCED_PRODUCER_EPOCH`, `NOT_ENOUGH_IN_SYNC_REPLICAS`, `RESOURCE_EXHAUSTED`, …",
        of_records(lambda meter: meter.produce_refusals),
        "code",
    ),
    "tidelog_fetch_bytes": counter(
        "Bytes of batches read by clients.", of_records(lambda meter: meter.fetched_bytes)
    ),
    "tidelog_fetch_refusals": counter(
        "Partitions of fetches answered with an error, by its code.",
        of_records(lambda meter: meter.fetch_refusals),
        "code",
    ),
    "tidelog_producers_known": gauge(
        "Idempotent producers that the replicas here know, one for each partition it writes.",
        of_replicas(lambda replicas: replicas.producers),
    ),
    "tidelog_producer_duplicates": counter(
        "Batches that were sent again and answered as the first time.",
        of_owners(lambda directory: directory.owner.duplicates_answered),
    ),
}
