"""The way to the coordinators and readers of other brokers, and the answers to theirs.

Owns who is asked: this very broker without the network, another one on its `cluster` listener
within a deadline. It must never try twice: whoever called knows whether that is safe.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.broker.groups.state.messages import BrokerLife, Caller
from tidelog.broker.services.fetch.handler import FetchHandler
from tidelog.broker.services.fetch.wire import envelope_message, read_request
from tidelog.broker.services.groups.calls import GroupCalls
from tidelog.broker.services.groups.methods import SERVED, AnswerT, AskedT, GroupMethod
from tidelog.broker.services.shared.peer_calls import (
    PEER_TIMEOUT_MS,
    PeerCalls,
    answered_here,
)
from tidelog.metadata.internal_topics import GROUPS_TOPIC
from tidelog.ports import Method, RequestContext, UnaryMethod
from tidelog.ports.bounds import count_message
from tidelog.v1 import broker_peer_pb2, fetch_pb2
from tidelog.wire.ids import BrokerEpoch, BrokerId
from tidelog.wire.refusals import invalid

COORDINATE: Final = "/tidelog.v1.BrokerPeerService/CoordinateGroups"
FETCH: Final = "/tidelog.v1.BrokerPeerService/FetchOwn"
FETCH_MARGIN_MS: Final = 3_000
"""Beyond the wait that a long poll asks for."""
METHOD_CHARACTERS_MAX: Final = 200


class GroupPeers:
    """Calls to brokers, this one included, and the methods that others call here."""

    def __init__(self, groups: GroupCalls, fetch: FetchHandler, calls: PeerCalls) -> None:
        self._groups = groups
        self._fetch = fetch
        self._calls = calls

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {
            COORDINATE: UnaryMethod(self._on_coordinate),
            FETCH: UnaryMethod(self._on_fetch),
        }

    # -- asking ----------------------------------------------------------------------------------

    def is_own(self, broker_id: BrokerId) -> bool:
        """Whether it is this very broker."""
        return broker_id == self._calls.broker_id

    async def coordinate(
        self,
        caller: Caller,
        broker_id: BrokerId,
        method: GroupMethod[AskedT, AnswerT],
        asked: AskedT,
        *,
        timeout_ms: int = PEER_TIMEOUT_MS,
    ) -> AnswerT:
        """What the coordinators of the broker say."""
        if self.is_own(broker_id):
            answer = method.serve(self._groups, caller, asked)
            return await answered_here(answer, timeout_ms, topic=GROUPS_TOPIC)
        life = caller.carrier
        call = broker_peer_pb2.CoordinateGroupsRequest(
            cluster_id=self._calls.cluster_id,
            broker_id=self._calls.broker_id,
            client_id=caller.client_id,
            client_address=caller.address,
            broker_epoch=None if life is None else life.broker_epoch,
            method=method.name,
            request=asked.SerializeToString(),
        )
        data = await self._calls.call(broker_id, COORDINATE, call.SerializeToString(), timeout_ms)
        envelope = broker_peer_pb2.CoordinateGroupsResponse.FromString(data)
        return method.response.FromString(envelope.response)

    async def fetch(
        self, broker_id: BrokerId, request: fetch_pb2.FetchRequest
    ) -> Sequence[fetch_pb2.PartitionBatches]:
        """What the broker answers a reader."""
        asked = broker_peer_pb2.FetchOwnRequest(cluster_id=self._calls.cluster_id, fetch=request)
        timeout_ms = request.max_wait_ms + FETCH_MARGIN_MS
        data = await self._calls.call(broker_id, FETCH, asked.SerializeToString(), timeout_ms)
        return broker_peer_pb2.FetchOwnResponse.FromString(data).fetch.partitions

    # -- asked -----------------------------------------------------------------------------------

    async def _on_coordinate(self, context: RequestContext, message: bytes) -> bytes:
        del context
        call = broker_peer_pb2.CoordinateGroupsRequest.FromString(message)
        self._calls.check_cluster(call.cluster_id)
        serve = SERVED.get(call.method)
        if serve is None:
            tried = f"coordinate {call.method[:METHOD_CHARACTERS_MAX]}"
            raise invalid(tried, "it is no method about groups that brokers ask each other")
        carrier = None
        if call.HasField("broker_epoch"):
            carrier = BrokerLife(BrokerId(call.broker_id), BrokerEpoch(call.broker_epoch))
        caller = Caller(client_id=call.client_id, address=call.client_address, carrier=carrier)
        # What the envelope holds was counted as bytes only.
        count_message(call.method, call.request)
        response = await serve(self._groups, caller, call.request)
        return broker_peer_pb2.CoordinateGroupsResponse(response=response).SerializeToString()

    async def _on_fetch(self, context: RequestContext, message: bytes) -> bytes:
        asked = broker_peer_pb2.FetchOwnRequest.FromString(message)
        self._calls.check_cluster(asked.cluster_id)
        response = broker_peer_pb2.FetchOwnResponse()
        for answer in await self._fetch.fetch(context, read_request(asked.fetch)):
            each = envelope_message(answer)
            each.batches = answer.batches
            response.fetch.partitions.append(each)
        return response.SerializeToString()
