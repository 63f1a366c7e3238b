"""Tells of partitions that have stopped while the node serves, each once until it is in order.

Owns nothing but what was told. A start tells what it finds itself, whoever repairs one of several
replicas tells of its damage, and a directory that fails is told as a whole.
"""

from tidelog.broker.housekeeping.events import EventLog
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.replicas import Replica
from tidelog.server.broker_role import BrokerRole
from tidelog.wire.errors import ErrorCode, TidelogError


class StoppedPartitions:
    """`look` now and then."""

    def __init__(self, broker: BrokerRole, events: EventLog) -> None:
        self._broker = broker
        self._events = events
        self._told: dict[PartitionKey, TidelogError] = {}
        self._is_begun = False

    def look(self) -> None:
        """At every replica; most are in order, and cost nothing but that."""
        if not self._broker.is_recovered:
            return
        stopped: dict[PartitionKey, TidelogError] = {}
        for replica in self._broker.replicas:
            failure = replica.log.failure
            if failure is not None:
                stopped[replica.log.key] = failure
                if self._is_begun and replica.log.key not in self._told:
                    self._tell(replica, failure)
        self._told, self._is_begun = stopped, True

    def _tell(self, replica: Replica, failure: TidelogError) -> None:
        key = replica.log.key
        partition = self._broker.image().partition(key.topic_id, key.partition)
        has_others = partition is not None and len(partition.replicas) > 1
        is_repaired = has_others and failure.code is ErrorCode.STORAGE_CORRUPT
        if replica.directory.failure is None and not is_repaired:
            name = f"{replica.topic_name}-{key.partition}"
            self._events.error("partition_stopped", partition=name, error=failure)
