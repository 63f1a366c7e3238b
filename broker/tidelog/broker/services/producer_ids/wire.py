"""ProducerIdService, and the call to the controller behind it: conversions only."""

from collections.abc import Callable
from typing import Final

from tidelog.broker.services.producer_ids.handler import Block, ProducerIds
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.ports import RequestContext
from tidelog.v1 import controller_pb2, producer_id_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId

ALLOCATE_BLOCK: Final = "/tidelog.v1.ControllerService/AllocateProducerIdBlock"
_TRIED: Final = "fetch producer ids from the controller"


class ProducerIdRpc:
    """The service's one method."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def allocate_producer_id(self, context: RequestContext, message: bytes) -> bytes:
        """`AllocateProducerId`."""
        producer_id_pb2.AllocateProducerIdRequest.FromString(message)
        identity = await self._producer_ids.allocate(context)
        return producer_id_pb2.AllocateProducerIdResponse(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            max_in_flight_batches=identity.batches_in_flight_max,
        ).SerializeToString()


class ControllerBlocks:
    """Blocks from the active controller."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self._controller = controller
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def fetch(self, timeout_ms: int) -> Block:
        """See `BlockSource`. A block whose answer was lost is never used: asked again freely."""
        request = controller_pb2.AllocateProducerIdBlockRequest(
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
        )
        data = await self._controller.call(
            ALLOCATE_BLOCK, request.SerializeToString(), tried=_TRIED, timeout_ms=timeout_ms
        )
        answer = controller_pb2.AllocateProducerIdBlockResponse.FromString(data)
        if answer.first_producer_id < 0 or answer.count < 1:
            raise TidelogError(
                ErrorCode.UNKNOWN,
                tried=_TRIED,
                happened=f"it gave {answer.count} ids from {answer.first_producer_id} on",
            )
        return Block(first_producer_id=answer.first_producer_id, count=answer.count)
