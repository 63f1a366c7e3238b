"""Who leads the partitions of a topic and who is in sync, asked by plain gRPC.

Owns one call: no SDK, no cache, no retry, so that it tells what the broker asked believes now. A
`Lookout` keeps its connections: who asks many times a second must not cost the cluster more than
what it asks.
"""

from typing import Any, Final

import grpc
import msgspec

from tidelog.v1 import metadata_pb2, metadata_pb2_grpc
from tidelog.wire.errors import ErrorCode, TidelogError

CALL_SECONDS_MAX: Final = 2.0
_SOON: Final = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
)
"""A broker that was started again is seen again at once."""


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, by its place in the list that it stands in."""

    leader: int
    """-1: nobody."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Led, and every replica in sync."""
        return self.leader >= 0 and len(self.in_sync) == len(self.replicas)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker knows."""

    version: int
    controller: int
    addresses: dict[int, str]
    """Of every broker that is not fenced."""
    seats: tuple[Seat, ...]


def look(address: str, topic: str, seconds_max: float = CALL_SECONDS_MAX) -> Seen:
    """Ask the broker at this address. Raises a TidelogError when it does not tell."""
    with grpc.insecure_channel(address) as channel:
        return _ask(channel, address, topic, seconds_max)


class Lookout:
    """Asks again and again; one connection a broker."""

    def __init__(self) -> None:
        self._channels: dict[str, Any] = {}

    def look(self, address: str, topic: str, seconds_max: float = CALL_SECONDS_MAX) -> Seen:
        """See the function of that name."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.insecure_channel(address, options=_SOON)
        return _ask(channel, address, topic, seconds_max)

    def close(self) -> None:
        """Let the connections go."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _ask(channel: Any, address: str, topic: str, seconds_max: float) -> Seen:
    stub = metadata_pb2_grpc.MetadataServiceStub(channel)
    request = metadata_pb2.GetMetadataRequest(topic_names=[topic])
    try:
        answer = stub.GetMetadata(request, timeout=seconds_max)
    except grpc.RpcError as error:
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried=f"ask {address} for {topic}", happened=str(error)
        ) from None
    return Seen(
        version=answer.metadata_version,
        controller=answer.controller_id,
        addresses={each.broker_id: each.address for each in answer.brokers if not each.is_fenced},
        seats=tuple(
            Seat(
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replicas),
                in_sync=tuple(each.in_sync_replicas),
            )
            for each in answer.topics[0].partitions
        ),
    )
