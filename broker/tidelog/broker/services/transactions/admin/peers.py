"""The way to the coordinators and leaders of other brokers, and the answers to their operators.

Owns who is asked: this very broker without the network, another one on its `cluster` listener
within a deadline. It must never try twice: whoever called knows whether that is safe.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tidelog.broker.services.shared.peer_calls import (
    PEER_TIMEOUT_MS,
    PeerCalls,
    answered_here,
)
from tidelog.broker.services.transactions.admin.calls import TransactionCalls
from tidelog.broker.services.transactions.admin.methods import (
    SERVED,
    AnswerT,
    AskedT,
    TransactionMethod,
)
from tidelog.ports import Method, RequestContext, UnaryMethod
from tidelog.ports.bounds import count_message
from tidelog.v1 import broker_peer_pb2
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import invalid

ADMINISTER: Final = "/tidelog.v1.BrokerPeerService/AdministerTransactions"
METHOD_CHARACTERS_MAX: Final = 200


class OperatorPeers:
    """Calls to brokers, this one included, and the methods that others call here."""

    def __init__(
        self,
        own: TransactionCalls,
        calls: PeerCalls,
        wait_applied: Callable[[int], Awaitable[None]],
        *,
        topic_name: str,
    ) -> None:
        self._own = own
        self._calls = calls
        self._wait_applied = wait_applied
        """Until this broker acts on the metadata of a version."""
        self._topic_name = topic_name
        """Where this broker's coordinators store what they decide."""

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {ADMINISTER: UnaryMethod(self._on_administer)}

    async def ask(
        self,
        broker_id: BrokerId,
        method: TransactionMethod[AskedT, AnswerT],
        asked: AskedT,
        *,
        version: int,
    ) -> AnswerT:
        """What the coordinators and leaders of the broker say, by metadata of this version at
        least: one that is behind does not know that another broker has taken over."""
        if broker_id == self._calls.broker_id:
            answer = self._served(method, asked, version)
            return await answered_here(answer, PEER_TIMEOUT_MS, topic=self._topic_name)
        call = broker_peer_pb2.AdministerTransactionsRequest(
            cluster_id=self._calls.cluster_id,
            method=method.name,
            request=asked.SerializeToString(),
            metadata_version=version,
        )
        data = await self._calls.call(
            broker_id, ADMINISTER, call.SerializeToString(), PEER_TIMEOUT_MS
        )
        envelope = broker_peer_pb2.AdministerTransactionsResponse.FromString(data)
        return method.response.FromString(envelope.response)

    async def _served(
        self, method: TransactionMethod[AskedT, AnswerT], asked: AskedT, version: int
    ) -> AnswerT:
        await self._wait_applied(version)
        return await method.serve(self._own, asked)

    async def _on_administer(self, context: RequestContext, message: bytes) -> bytes:
        del context
        call = broker_peer_pb2.AdministerTransactionsRequest.FromString(message)
        self._calls.check_cluster(call.cluster_id)
        serve = SERVED.get(call.method)
        if serve is None:
            tried = f"administer {call.method[:METHOD_CHARACTERS_MAX]}"
            raise invalid(tried, "it is no method about transactions that brokers ask each other")
        # What the envelope holds was counted as bytes only.
        count_message(call.method, call.request)
        await answered_here(
            self._wait_applied(call.metadata_version), PEER_TIMEOUT_MS, topic=self._topic_name
        )
        response = await serve(self._own, call.request)
        return broker_peer_pb2.AdministerTransactionsResponse(response=response).SerializeToString()
