"""One call to another broker's `cluster` listener, and the check of one that comes from there.

Owns how a broker's address is found, and that both belong to one cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidelog.ports import Network
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import validate_cluster

AnswerT = TypeVar("AnswerT")
PEER_TIMEOUT_MS: Final = 5_000
"""Longest wait for another broker's coordinator."""


class PeerCalls:
    """Calls from this broker."""

    def __init__(
        self,
        network: Network,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        address_of: Callable[[BrokerId], str | None],
    ) -> None:
        self._network = network
        self.cluster_id: Final = cluster_id
        self.broker_id: Final = broker_id
        """This broker's, which is never called over the network."""
        self._address_of = address_of

    async def call(
        self, broker_id: BrokerId, method: str, message: bytes, timeout_ms: int
    ) -> bytes:
        """What the broker answers; UNKNOWN_BROKER if it is not registered."""
        address = self._address_of(broker_id)
        if address is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_BROKER,
                tried=f"call {method} at broker {broker_id}",
                happened="no such broker is registered",
            )
        return await self._network.call(address, method, message, timeout_ms=timeout_ms)

    def check_cluster(self, cluster_id: str) -> None:
        """WRONG_CLUSTER unless the caller belongs to this node's cluster."""
        validate_cluster(cluster_id, self.cluster_id, tried="ask another broker for a client")


async def answered_here(answer: Awaitable[AnswerT], timeout_ms: int, *, topic: str) -> AnswerT:
    """What this broker's own coordinators say: they wait for what they store in the topic, for as
    long as another broker may."""
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            return await answer
    except TimeoutError:
        raise TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried="ask a coordinator on this broker",
            happened=f"what it has to store is not committed after {timeout_ms} ms",
            hint=f"`tidelog topic describe {topic}` shows which replicas are missing.",
        ) from None
