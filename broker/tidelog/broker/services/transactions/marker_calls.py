"""The way of markers to leaders on other brokers: one `WriteMarkers` for all that goes there.

Owns the conversions of the sender's end. It must never take silence about a partition for success.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.transactions.marking import MARKERS_PER_CALL_MAX, PartitionMarker
from tidelog.broker.transactions.state.states import Decision
from tidelog.contract.errors import read_error
from tidelog.contract.partitions import by_topic, read_partition
from tidelog.v1 import marker_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey

WRITE: Final = "/tidelog.v1.MarkerService/WriteMarkers"
_DECISIONS: Final = {
    Decision.COMMIT: transactions_pb2.TRANSACTION_DECISION_COMMIT,
    Decision.ABORT: transactions_pb2.TRANSACTION_DECISION_ABORT,
}
_Told = dict[tuple[int, PartitionKey], TidelogError | None]
"""By the place of the transaction in the call."""


class MarkerPeers:
    """Implements `MarkerCalls`."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls

    async def write_markers(
        self, broker_id: BrokerId, markers: Sequence[PartitionMarker], *, timeout_ms: int
    ) -> Sequence[TidelogError | None]:
        """See `MarkerCalls`."""
        assert len(markers) <= MARKERS_PER_CALL_MAX, f"{len(markers)} markers in one call"
        call = marker_pb2.WriteMarkersRequest(cluster_id=self._calls.cluster_id)
        places = _fill(call, markers)
        data = await self._calls.call(broker_id, WRITE, call.SerializeToString(), timeout_ms)
        told = _read(marker_pb2.WriteMarkersResponse.FromString(data))
        unanswered = TidelogError(
            ErrorCode.UNKNOWN,
            tried=f"have broker {broker_id} write a marker",
            happened="it has not answered of the partition",
        )
        return [told.get(place, unanswered) for place in places]


def _fill(
    call: marker_pb2.WriteMarkersRequest, markers: Sequence[PartitionMarker]
) -> list[tuple[int, PartitionKey]]:
    """Writes the markers, those of one transaction together; where each one stands."""
    ends: dict[tuple[object, ...], int] = {}
    keys: list[list[PartitionKey]] = []
    places: list[tuple[int, PartitionKey]] = []
    for each in markers:
        end = (each.identity, each.decision, each.coordinator_epoch, each.transaction_version)
        place = ends.setdefault(end, len(ends))
        if place == len(keys):
            keys.append([])
            call.markers.add(
                producer_id=each.identity.producer_id,
                producer_epoch=each.identity.producer_epoch,
                decision=_DECISIONS[each.decision],
                coordinator_epoch=each.coordinator_epoch,
                transaction_version=each.transaction_version,
            )
        keys[place].append(each.key)
        places.append((place, each.key))
    for marker, touched in zip(call.markers, keys, strict=True):
        marker.topics.extend(by_topic(touched))
    return places


def _read(answer: marker_pb2.WriteMarkersResponse) -> _Told:
    return {
        (place, read_partition(each.topic_id, each.partition)): (
            read_error(each.error) if each.HasField("error") else None
        )
        for place, result in enumerate(answer.results)
        for each in result.partitions
    }
