"""The slow-request log: what took long, for whom, how large it was, and what it waited for.

Owns the event `slow_request` and what is told with it. A request is parsed here a second time, and
only once it was slow. A long poll is slow by what it takes beyond the wait that it asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from tidelog.broker.services.middleware.metering import NOT_KNOWN, LongCall
from tidelog.broker.shared.events import EventLog
from tidelog.ports import Clock
from tidelog.server.metrics.metered_disk import MeteredDisk
from tidelog.v1 import broker_peer_pb2, fetch_pb2, produce_pb2, records_pb2

NS_PER_MS: Final = 1_000_000


def _produce(message: bytes) -> tuple[int, int]:
    return len(produce_pb2.ProduceRequest.FromString(message).batches), 0


def _fetch(message: bytes) -> tuple[int, int]:
    asked = fetch_pb2.FetchRequest.FromString(message)
    return len(asked.positions), asked.max_wait_ms


def _fetch_own(message: bytes) -> tuple[int, int]:
    asked = broker_peer_pb2.FetchOwnRequest.FromString(message).fetch
    return len(asked.positions), asked.max_wait_ms


def _produce_own(message: bytes) -> tuple[int, int]:
    return len(broker_peer_pb2.ProduceOwnRequest.FromString(message).produce.batches), 0


def _fetch_records(message: bytes) -> tuple[int, int]:
    return 1, records_pb2.FetchRecordsRequest.FromString(message).max_wait_ms


_KNOWN: Final[Mapping[str, Callable[[bytes], tuple[int, int]]]] = {
    "/tidelog.v1.ProduceService/Produce": _produce,
    "/tidelog.v1.FetchService/Fetch": _fetch,
    "/tidelog.v1.RecordsService/FetchRecords": _fetch_records,
    "/tidelog.v1.BrokerPeerService/ProduceOwn": _produce_own,
    "/tidelog.v1.BrokerPeerService/FetchOwn": _fetch_own,
}
"""How many partitions a request names, and how long it asked to wait."""


class SlowRequests:
    """Told of every request above the threshold."""

    def __init__(
        self,
        threshold_ms: int,
        events: EventLog,
        clock: Clock,
        disks: Sequence[MeteredDisk],
    ) -> None:
        assert threshold_ms > 0, "0 keeps no such log"
        self.threshold_ns: Final = threshold_ms * NS_PER_MS
        self._events = events
        self._clock = clock
        self._disks = disks

    def tell(self, call: LongCall) -> bool:
        """Whether it was slow."""
        partitions, wait_ms = _look(call)
        if call.duration_ns - wait_ms * NS_PER_MS <= self.threshold_ns:
            return False
        begun_ns = self._clock.monotonic_ns() - call.duration_ns
        flush_ns = max((each.longest_flush_ns(begun_ns) for each in self._disks), default=0)
        values: dict[str, object] = {
            "method": call.method.rpartition("/")[2],
            "took_ms": call.duration_ns // NS_PER_MS,
            "code": call.code,
            "client_id": call.context.client_id,
            "principal": call.context.principal,
            "address": call.context.address,
            "listener": call.context.listener,
            "request_bytes": call.request_bytes,
            "response_bytes": call.response_bytes,
            "held_ms": call.held_ns // NS_PER_MS,
            "longest_flush_ms": flush_ns // NS_PER_MS,
        }
        if partitions != NOT_KNOWN:
            values["partitions"] = partitions
        if wait_ms:
            values["asked_to_wait_ms"] = wait_ms
        self._events.warning("slow_request", **values)
        return True


def _look(call: LongCall) -> tuple[int, int]:
    read = _KNOWN.get(call.method)
    if read is None or not call.request:
        return call.partitions, 0
    try:
        return read(call.request)
    except DecodeError:
        return NOT_KNOWN, 0
