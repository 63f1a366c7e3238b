"""The way to the coordinators of transactions on other brokers, and the answers to theirs.

Owns both ends of TransactionCoordinatorService, and how a leader finds the coordinator that it has
to ask: by the image, in this process without the network. It must never try twice: whoever asked
knows whether there is still time.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.wire import identity_in, identity_message
from tidelog.broker.transactions.coordinator.keeper import TransactionCoordinators
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.limits import PARTITIONS_PER_REQUEST_MAX
from tidelog.broker.transactions.state.messages import AddPartitions
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.broker.transactions.state.refusals import check_id
from tidelog.contract.errors import fill_error, read_error
from tidelog.contract.partitions import by_topic, validate_partitions
from tidelog.metadata.image.image import Image
from tidelog.ports import Method, RequestContext, TaskScope, UnaryMethod
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.v1 import transaction_coordinator_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey
from tidelog.wire.refusals import invalid

ADD: Final = "/tidelog.v1.TransactionCoordinatorService/AddPartitions"
COUNT: Final = "/tidelog.v1.TransactionCoordinatorService/CountPrepared"
TRANSACTIONS_A_CALL_MAX: Final = 1_000
_ADD_TRIED: Final = "add partitions to a transaction"
_MEANT_FOR_BROKERS: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.UNAVAILABLE,
    ErrorCode.UNKNOWN_BROKER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_PARTITION,
)
"""A producer asks a leader, and cannot find that leader's coordinator for it, nor bring the
metadata of that one up to those of the leader, who knows the partition: it asks again."""


class TransactionPeers:
    """Calls to coordinators, those of this broker included, and the methods that others call here.

    Implements `TransactionAsking` and `PreparedCalls`.
    """

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        image: Callable[[], Image],
        calls: PeerCalls,
        *,
        own_prepared: Callable[[], Mapping[str, int]],
    ) -> None:
        self._coordinators = coordinators
        self._image = image
        self._calls = calls
        self._own_prepared = own_prepared

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {ADD: UnaryMethod(self._on_add), COUNT: UnaryMethod(self._on_count)}

    # -- asking ----------------------------------------------------------------------------------

    async def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        keys: tuple[PartitionKey, ...],
        *,
        verify_only: bool = False,
        timeout_ms: int,
    ) -> None:
        """See `TransactionAsking`."""
        check_id(_ADD_TRIED, transactional_id)
        image = self._image()
        TRANSACTIONS.check_on(image, tried=_ADD_TRIED)
        place = TRANSACTIONS.place_of(transactional_id, image, CLUSTER_LISTENER)
        asked = AddPartitions(
            transactional_id=transactional_id,
            identity=identity,
            keys=keys,
            verify_only=verify_only,
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if place.broker_id == self._calls.broker_id:
                    await self._coordinators.of(transactional_id).ask(asked)
                else:
                    await self._add_there(place.broker_id, asked, timeout_ms)
        except TimeoutError:
            raise TRANSACTIONS.not_available(
                transactional_id,
                f"broker {place.broker_id} has not answered within {timeout_ms} ms",
            ) from None
        except TidelogError as error:
            if error.code not in _MEANT_FOR_BROKERS:
                raise
            raise TRANSACTIONS.not_available(
                transactional_id,
                f"broker {place.broker_id}: {error.happened} ({error.code.name})",
            ) from None

    async def _add_there(self, broker_id: BrokerId, asked: AddPartitions, timeout_ms: int) -> None:
        call = transaction_coordinator_pb2.AddPartitionsRequest(cluster_id=self._calls.cluster_id)
        call.transactions.add(
            transactional_id=asked.transactional_id,
            identity=identity_message(asked.identity),
            topics=by_topic(asked.keys),
            verify_only=asked.verify_only,
        )
        data = await self._calls.call(broker_id, ADD, call.SerializeToString(), timeout_ms)
        answer = transaction_coordinator_pb2.AddPartitionsResponse.FromString(data)
        if [each.transactional_id for each in answer.results] != [asked.transactional_id]:
            raise TidelogError(
                ErrorCode.UNKNOWN,
                tried=f"ask broker {broker_id} to {_ADD_TRIED}",
                happened="it answered of something else",
            )
        (result,) = answer.results
        if result.HasField("error"):
            raise read_error(result.error)

    async def count_prepared(self, broker_id: BrokerId, *, timeout_ms: int) -> Mapping[str, int]:
        """See `PreparedCalls`."""
        call = transaction_coordinator_pb2.CountPreparedRequest(cluster_id=self._calls.cluster_id)
        data = await self._calls.call(broker_id, COUNT, call.SerializeToString(), timeout_ms)
        answer = transaction_coordinator_pb2.CountPreparedResponse.FromString(data)
        return {each.principal: each.count for each in answer.counts}

    # -- asked -----------------------------------------------------------------------------------

    async def _on_add(self, context: RequestContext, message: bytes) -> bytes:
        del context
        call = transaction_coordinator_pb2.AddPartitionsRequest.FromString(message)
        self._calls.check_cluster(call.cluster_id)
        if len(call.transactions) > TRANSACTIONS_A_CALL_MAX:
            raise invalid(
                _ADD_TRIED,
                f"{len(call.transactions)} transactions, at most {TRANSACTIONS_A_CALL_MAX} in one "
                "call",
            )
        names = [each.transactional_id for each in call.transactions]
        if len(dict.fromkeys(names)) < len(names):
            raise invalid(_ADD_TRIED, "a transactional id is named twice", "Name each one once.")
        response = transaction_coordinator_pb2.AddPartitionsResponse()
        async with TaskScope() as scope:
            for each in call.transactions:
                result = response.results.add(transactional_id=each.transactional_id)
                scope.start(self._add_here(each, result), name="add partitions")
        return response.SerializeToString()

    async def _add_here(
        self,
        asked: transaction_coordinator_pb2.TransactionPartitions,
        result: transaction_coordinator_pb2.TransactionPartitionsResult,
    ) -> None:
        try:
            keys = validate_partitions(
                asked.topics, tried=_ADD_TRIED, count_max=PARTITIONS_PER_REQUEST_MAX
            )
            check_id(_ADD_TRIED, asked.transactional_id)
            await self._coordinators.of(asked.transactional_id).ask(
                AddPartitions(
                    transactional_id=asked.transactional_id,
                    identity=identity_in(asked),
                    keys=keys,
                    verify_only=asked.verify_only,
                )
            )
        except TidelogError as error:
            fill_error(result.error, error)

    async def _on_count(self, context: RequestContext, message: bytes) -> bytes:
        del context
        call = transaction_coordinator_pb2.CountPreparedRequest.FromString(message)
        self._calls.check_cluster(call.cluster_id)
        response = transaction_coordinator_pb2.CountPreparedResponse()
        for principal, count in self._own_prepared().items():
            response.counts.add(principal=principal, count=count)
        return response.SerializeToString()
