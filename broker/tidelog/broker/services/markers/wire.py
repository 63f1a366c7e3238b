"""MarkerService: WriteMarkers, as coordinators at other brokers call it."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.broker.services.markers.handler import MarkerHandler
from tidelog.broker.transactions.marking import MARKERS_PER_CALL_MAX, PartitionMarker
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.contract.errors import fill_error
from tidelog.ports import Clock, Method, RequestContext, UnaryMethod
from tidelog.v1 import marker_pb2, transactions_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, PartitionKey, ProducerEpoch, ProducerId
from tidelog.wire.refusals import invalid, validate_cluster, validate_topic_id

WRITE_MARKERS: Final = "/tidelog.v1.MarkerService/WriteMarkers"
WAIT_MS_MAX: Final = 30_000
"""How long a coordinator is let wait for commits; it sends again what was not answered."""

_TRIED: Final = "write markers of transactions"
_DECISIONS: Final = {
    transactions_pb2.TRANSACTION_DECISION_COMMIT: Decision.COMMIT,
    transactions_pb2.TRANSACTION_DECISION_ABORT: Decision.ABORT,
}


class MarkerRpc:
    """The service's one method."""

    def __init__(self, handler: MarkerHandler, clock: Clock, *, cluster_id: str) -> None:
        self._handler = handler
        self._clock = clock
        self._cluster_id = cluster_id

    def methods(self) -> Mapping[str, Method]:
        """What coordinators may ask, by full name."""
        return {WRITE_MARKERS: UnaryMethod(self.write_markers)}

    async def write_markers(self, context: RequestContext, message: bytes) -> bytes:
        """`WriteMarkers`."""
        request = marker_pb2.WriteMarkersRequest.FromString(message)
        validate_cluster(request.cluster_id, self._cluster_id, tried=_TRIED)
        markers = read_request(request)
        left_ms = (context.deadline_ns - self._clock.monotonic_ns()) // 1_000_000
        # What is answered by then reaches the coordinator within its own deadline.
        wait_ms = max(0, min(left_ms - left_ms // 10, WAIT_MS_MAX))
        errors = await self._handler.write_all(markers, timeout_ms=wait_ms)
        return _response(request, errors).SerializeToString()


def read_request(message: marker_pb2.WriteMarkersRequest) -> list[PartitionMarker]:
    """The ends, one for each partition, in their order; INVALID_ARGUMENT for what no coordinator
    sends."""
    if len(message.markers) > MARKERS_PER_CALL_MAX:
        raise invalid(
            _TRIED, f"{len(message.markers)} markers, the limit is {MARKERS_PER_CALL_MAX}"
        )
    found = []
    for each in message.markers:
        decision = _DECISIONS.get(each.decision)
        if decision is None:
            raise invalid(_TRIED, "a marker neither commits nor aborts")
        identity = Identity(ProducerId(each.producer_id), ProducerEpoch(each.producer_epoch))
        found += [
            PartitionMarker(
                key=PartitionKey(
                    validate_topic_id(topic.topic_id, tried=_TRIED), PartitionId(partition)
                ),
                identity=identity,
                decision=decision,
                coordinator_epoch=LeaderEpoch(each.coordinator_epoch),
                transaction_version=each.transaction_version,
            )
            for topic in each.topics
            for partition in topic.partitions
        ]
    return found


def _response(
    message: marker_pb2.WriteMarkersRequest, errors: Sequence[TidelogError | None]
) -> marker_pb2.WriteMarkersResponse:
    """An error, or none, for each marker that was read, in the order of the request."""
    response, left = marker_pb2.WriteMarkersResponse(), iter(errors)
    for each in message.markers:
        result = response.results.add(producer_id=each.producer_id)
        for topic in each.topics:
            for partition in topic.partitions:
                place = result.partitions.add(topic_id=topic.topic_id, partition=partition)
                error = next(left)
                if error is not None:
                    fill_error(place.error, error)
    return response
