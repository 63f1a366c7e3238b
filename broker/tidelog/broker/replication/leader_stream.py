"""The leader's end of replication streams: what followers ask, and what they are sent.

Owns the sessions of all followers and which stream of a follower and lane is in force. Stop 7 of a
record's walk.
"""

from tidelog.broker.replicas import Replicas
from tidelog.broker.replication.stream_messages import (
    DEFAULT_REPLICATION_LIMITS,
    OnFollowerPosition,
    ReplicationLimits,
)
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock


class ReplicaFetchHandler:
    """One a broker; `rpc.replica.ReplicaRpc` puts it on the cluster listener."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: ImageSource,
        clock: Clock,
        *,
        cluster_id: str,
        on_follower_position: OnFollowerPosition,
        limits: ReplicationLimits = DEFAULT_REPLICATION_LIMITS,
    ) -> None:
        raise NotImplementedError
