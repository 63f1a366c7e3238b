"""Which lanes to which leaders this broker pulls on. One task a leader and lane."""

from collections.abc import Callable, Mapping

from tidelog.broker.log.names import PartitionKey
from tidelog.broker.replicas import Replicas
from tidelog.broker.replication.stream_messages import (
    DEFAULT_REPLICATION_LIMITS,
    Followed,
    ReplicationLimits,
)
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock, Network, Random, TaskScope
from tidelog.wire.ids import BrokerEpoch, BrokerId


class Fetchers:
    """`set_followed` on every image, `run` for the broker's life."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: ImageSource,
        network: Network,
        clock: Clock,
        random: Random,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        address_of: Callable[[BrokerId], str | None],
        limits: ReplicationLimits = DEFAULT_REPLICATION_LIMITS,
    ) -> None:
        raise NotImplementedError

    def set_followed(self, followed: Mapping[PartitionKey, Followed]) -> None:
        """All partitions that this broker follows, and whom; replaces what was said before."""
        raise NotImplementedError

    async def run(self, scope: TaskScope) -> None:
        """Pull until cancelled; the lanes are children of the scope."""
        raise NotImplementedError
