"""How much of the moves under way is left. Pure.

Owns the estimate: what the leader stores of a partition, less what a coming replica stores already.
"""

from collections.abc import Iterable, Mapping

from tidelog.client.types.admin import PartitionReassignment
from tidelog.client.types.records import PartitionDescription, TopicDescription, TopicPartition

UNKNOWN = -1


def remaining_bytes(
    moves: Iterable[PartitionReassignment], topics: Iterable[TopicDescription]
) -> dict[TopicPartition, int]:
    """By partition, of all coming replicas together; -1: not known. `topics` with replicas."""
    parts = {
        TopicPartition(topic.name, part.partition): part
        for topic in topics
        for part in topic.partitions
    }
    return {move.partition: _left(move, parts) for move in moves}


def _left(move: PartitionReassignment, parts: Mapping[TopicPartition, PartitionDescription]) -> int:
    part = parts.get(move.partition)
    if move.remaining_bytes >= 0 or part is None:
        return move.remaining_bytes
    if part.size_bytes < 0:
        return UNKNOWN
    sizes = {each.broker_id: each.size_bytes for each in part.replica_states}
    found = [sizes.get(each, UNKNOWN) for each in move.adding_replicas]
    if UNKNOWN in found:
        return UNKNOWN
    return sum(max(0, part.size_bytes - each) for each in found)
