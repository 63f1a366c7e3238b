"""CoordinatorService: conversions only."""

from collections.abc import Mapping
from typing import TypeAlias

from tidelog.broker.coordination.finding import RETRY_AFTER_MS, CoordinatorFinder
from tidelog.broker.coordination.places import Place
from tidelog.contract.errors import fill_error
from tidelog.ports import RequestContext
from tidelog.v1 import coordinator_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.refusals import invalid

CoordinatorKind: TypeAlias = "coordinator_pb2.CoordinatorKind.ValueType"

_TRIED = "find coordinators"
NO_BROKER = -1


class CoordinatorRpc:
    """The service's one method."""

    def __init__(self, finders: Mapping[CoordinatorKind, CoordinatorFinder]) -> None:
        self._finders = finders

    async def find_coordinators(self, context: RequestContext, message: bytes) -> bytes:
        """`FindCoordinators`."""
        asked = coordinator_pb2.FindCoordinatorsRequest.FromString(message)
        found = await self._of(asked.kind).find(context, asked.keys)
        response = coordinator_pb2.FindCoordinatorsResponse()
        for key, place in zip(asked.keys, found, strict=True):
            _fill(response.coordinators.add(key=key), place)
        return response.SerializeToString()

    def _of(self, kind: CoordinatorKind) -> CoordinatorFinder:
        finder = self._finders.get(kind)
        if finder is not None:
            return finder
        if kind == coordinator_pb2.COORDINATOR_KIND_SINK:
            raise TidelogError(
                ErrorCode.NOT_IMPLEMENTED, tried=_TRIED, happened="sinks are not served"
            )
        raise invalid(_TRIED, f"the kind is number {kind}", "Set `kind` to GROUP or TRANSACTION.")


def _fill(message: coordinator_pb2.CoordinatorPlace, place: Place | TidelogError) -> None:
    if isinstance(place, TidelogError):
        message.broker_id = NO_BROKER
        fill_error(message.error, place)
        message.error.retry_after_ms = RETRY_AFTER_MS
        return
    message.broker_id = place.broker_id
    message.address = place.address
