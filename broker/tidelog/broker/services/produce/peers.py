"""Batches of the easy path on their way to the broker that leads their partition.

Owns what an answer that does not come means: a broker that was certainly not reached has stored
nothing, any other silence leaves that open. It must never try twice: the client knows whether that
is safe.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.broker.services.produce.handler import (
    PartitionAcknowledgement,
    ProduceHandler,
    ProduceRequest,
)
from tidelog.broker.services.produce.wire import (
    fill_request,
    fill_response,
    read_request,
    read_response,
)
from tidelog.ports import (
    DeathHint,
    Method,
    Network,
    PeerUnreachable,
    RequestContext,
    UnaryMethod,
)
from tidelog.v1 import broker_peer_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import validate_cluster

PRODUCE: Final = "/tidelog.v1.BrokerPeerService/ProduceOwn"
MARGIN_MS: Final = 3_000
"""Beyond the wait for the acknowledgement, which the other broker ends by itself."""
_OPEN: Final = frozenset({ErrorCode.DEADLINE_EXCEEDED, ErrorCode.CANCELLED, ErrorCode.UNKNOWN})


class ProducePeers:
    """Calls to the other brokers, and the method that they call here."""

    def __init__(
        self,
        network: Network,
        *,
        cluster_id: str,
        address_of: Callable[[BrokerId], str | None],
        timeout_ms: int,
    ) -> None:
        """`timeout_ms`: of a request that asks for none."""
        self._network = network
        self._cluster_id = cluster_id
        self._address_of = address_of
        self._timeout_ms = timeout_ms

    def methods(self, handler: ProduceHandler) -> Mapping[str, Method]:
        """What other brokers may ask."""

        async def on_produce(context: RequestContext, message: bytes) -> bytes:
            return await self._on_produce(handler, context, message)

        return {PRODUCE: UnaryMethod(on_produce)}

    async def produce(
        self, context: RequestContext, broker_id: BrokerId, request: ProduceRequest
    ) -> Sequence[PartitionAcknowledgement]:
        """What the broker answers, or why it is not known, for each batch."""
        call = broker_peer_pb2.ProduceOwnRequest(
            cluster_id=self._cluster_id,
            principal=context.principal,
            client_id=context.client_id,
            client_address=context.address,
        )
        fill_request(call.produce, request)
        wait_ms = (request.timeout_ms or self._timeout_ms) + MARGIN_MS
        try:
            address = self._address_of(broker_id)
            if address is None:
                raise _unknown_broker(broker_id)
            data = await self._network.call(
                address, PRODUCE, call.SerializeToString(), timeout_ms=wait_ms
            )
        except TidelogError as error:
            told = _meaning(error, broker_id)
            return [
                PartitionAcknowledgement(
                    topic_id=batch.topic_id, partition=batch.partition, error=told
                )
                for batch in request.batches
            ]
        return read_response(broker_peer_pb2.ProduceOwnResponse.FromString(data).produce)

    async def _on_produce(
        self, handler: ProduceHandler, context: RequestContext, message: bytes
    ) -> bytes:
        call = broker_peer_pb2.ProduceOwnRequest.FromString(message)
        tried = "write for a client of another broker"
        validate_cluster(call.cluster_id, self._cluster_id, tried=tried)
        client = RequestContext(
            principal=call.principal,
            listener=context.listener,
            client_id=call.client_id,
            address=call.client_address,
            deadline_ns=context.deadline_ns,
        )
        response = broker_peer_pb2.ProduceOwnResponse()
        fill_response(response.produce, await handler.produce(client, read_request(call.produce)))
        return response.SerializeToString()


def _unknown_broker(broker_id: BrokerId) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"pass records on to broker {broker_id}",
        happened="where it listens is not known here",
    )


def _meaning(error: TidelogError, broker_id: BrokerId) -> TidelogError:
    """The error of each batch, when the call failed as a whole."""
    tried = f"pass records on to broker {broker_id}, which leads their partition"
    is_lost = isinstance(error, PeerUnreachable) and error.death_hint is DeathHint.NONE
    if is_lost or error.code in _OPEN:
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=tried,
            happened=f"it may have stored them, and no answer came: {error.happened}",
        )
    return TidelogError(error.code, tried=tried, happened=error.happened, hint=error.hint)
