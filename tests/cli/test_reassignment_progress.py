"""What is left of a move, from what each replica stores."""

from tidelog.cli.show.reassignment_progress import remaining_bytes
from tidelog.client import TopicPartition
from tidelog.client.types.admin import PartitionReassignment
from tidelog.client.types.records import PartitionDescription, ReplicaDescription, TopicDescription

THERE = TopicPartition("t", 0)


def on_the_move(*sizes: int, leader_size: int = 100, told: int = -1) -> int:
    """What is left of a partition with coming replicas 3, 4, … of which these sizes are known."""
    coming = tuple(range(3, 3 + max(1, len(sizes))))
    states = tuple(
        ReplicaDescription(broker_id=number, size_bytes=stored)
        for number, stored in zip(coming, sizes, strict=False)
    )
    part = PartitionDescription(
        partition=0,
        leader=1,
        leader_epoch=1,
        replicas=(*coming, 1),
        isr=(1,),
        log_start_offset=0,
        high_watermark=5,
        size_bytes=leader_size,
        replica_states=states,
    )
    topic = TopicDescription(
        name="t",
        topic_id=bytes(16),
        is_internal=False,
        replication_factor=2,
        configs={},
        partitions=(part,),
    )
    move = PartitionReassignment(
        partition=THERE,
        replicas=(*coming, 1),
        adding_replicas=coming,
        removing_replicas=(1,),
        remaining_bytes=told,
    )
    return remaining_bytes([move], [topic])[THERE]


def test_what_is_left_is_what_the_coming_replicas_lack_of_the_leaders_bytes() -> None:
    assert on_the_move(30) == 70
    assert on_the_move(30, 100) == 70
    assert on_the_move(130) == 0, "it has not deleted what its leader has"
    assert on_the_move(30, told=5) == 5, "who knows better is believed"


def test_what_nobody_could_be_asked_is_not_known() -> None:
    assert on_the_move(-1, 30) == -1
    assert on_the_move() == -1
    assert on_the_move(30, leader_size=-1) == -1
