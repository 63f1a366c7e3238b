"""What each broker bears: replicas and leaders, counted from the image.

Pure. It walks every partition once, so whoever needs it for several topics keeps the result.
"""

import msgspec

from tidelog.metadata_quorum.controller.placement import Candidate
from tidelog.metadata_quorum.image import Image
from tidelog.wire.ids import BrokerId


class BrokerLoad(msgspec.Struct):
    """One broker's share."""

    replica_count: int = 0
    leader_count: int = 0
    """Partitions that it leads now."""
    preferred_count: int = 0
    """Partitions of which it is the first replica."""


def count_loads(image: Image) -> dict[BrokerId, BrokerLoad]:
    """For every registered broker, and every other id that a partition names."""
    loads = {broker_id: BrokerLoad() for broker_id in sorted(image.brokers)}
    for topic in image.topics.values():
        for partition in topic.partitions:
            for place, replica in enumerate(partition.replicas):
                load = loads.setdefault(replica, BrokerLoad())
                load.replica_count += 1
                load.preferred_count += place == 0
            if partition.leader_id in loads:
                loads[partition.leader_id].leader_count += 1
    return loads


def candidates_of(image: Image) -> list[Candidate]:
    """Brokers that may be given replicas, in ascending order of id."""
    loads = count_loads(image)
    return [
        Candidate(
            broker_id=broker.broker_id,
            rack=broker.rack,
            host=broker.host_name,
            replica_count=loads[broker.broker_id].replica_count,
            leader_count=loads[broker.broker_id].preferred_count,
        )
        for broker in image.live_brokers()
    ]
