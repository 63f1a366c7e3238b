"""What all lanes of a broker share: its ports, its limits, and which logs are busy.

Owns the count of what is under way in each log, whoever asked for it: a partition that goes from
lane to lane or from leader to leader is named only once its log has come to rest. Owns the numbers
of sessions as well, which ascend, and the throttle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.broker.replication.follower.throttle import Throttle
from tidelog.broker.replication.shared.messages import Lane, ReplicationLimits
from tidelog.metadata.settings.catalogue import REASSIGNMENT_THROTTLE
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock, Network, Random
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionKey

if TYPE_CHECKING:
    from tidelog.broker.replicas.replicas import Replica, Replicas

_NS_PER_MS: Final = 1_000_000
_SESSION_BITS: Final = 32


class FetchContext:
    """What all lanes of a broker share."""

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
        limits: ReplicationLimits,
        on_settled: Callable[[PartitionKey], None],
    ) -> None:
        """`on_settled` is called when nothing is under way in a log any more."""
        self.replicas = replicas
        self.network = network
        self.clock = clock
        self._random = random
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.address_of = address_of
        self.limits = limits
        self._metadata = metadata
        self._throttle = Throttle()
        self._on_settled = on_settled
        self._under_way: dict[PartitionKey, int] = {}
        self._sessions = 0
        self.copied_bytes: dict[Lane, int] = dict.fromkeys(Lane, 0)
        """Answers of leaders, by lane, since the start."""

    def next_session_id(self) -> int:
        """Ascending within this broker's epoch, so that the leader tells a stream that comes late;
        random besides."""
        self._sessions += 1
        return (self._sessions << _SESSION_BITS) + self._random.below(1 << _SESSION_BITS)

    def replica(self, key: PartitionKey) -> Replica | None:
        """None: it is not held here, or has stopped."""
        replica = self.replicas.get(key.topic_id, key.partition)
        return None if replica is None or replica.log.failure is not None else replica

    def is_in_sync(self, key: PartitionKey) -> bool:
        """By the newest metadata: what is served here may be behind."""
        partition = self._metadata.image().partition(key.topic_id, key.partition)
        return partition is not None and self.broker_id in partition.in_sync_replicas

    def is_settled(self, key: PartitionKey) -> bool:
        """See `FollowerView`."""
        return key not in self._under_way

    def begin(self, key: PartitionKey) -> None:
        """Something was asked of the log."""
        self._under_way[key] = self._under_way.get(key, 0) + 1

    def end(self, key: PartitionKey) -> None:
        """It is done, or refused."""
        left = self._under_way[key] - 1
        if left:
            self._under_way[key] = left
        else:
            del self._under_way[key]
            self._on_settled(key)

    def throttle(self) -> Throttle:
        """At the rate that the metadata say now."""
        rate = self._metadata.image().cluster_configuration.get(REASSIGNMENT_THROTTLE)
        self._throttle.set_rate(0 if rate is None else int(rate))
        return self._throttle

    def now_ms(self) -> int:
        """Monotonic."""
        return self.clock.monotonic_ns() // _NS_PER_MS
