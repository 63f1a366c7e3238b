"""States of replicas put together from what several brokers answered."""

from tidelog.client.shared.leaders import topics_by_holder, with_replicas
from tidelog.client.types.records import PartitionDescription, ReplicaDescription, TopicDescription
from tidelog.wire.errors import ErrorCode, TidelogError

DAMAGE = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="x", happened="y")


def topic(*states: ReplicaDescription, topic_id: bytes = bytes(16)) -> TopicDescription:
    """One partition on brokers 1 (leads), 2 and 3."""
    part = PartitionDescription(
        partition=0,
        leader=1,
        leader_epoch=0,
        replicas=(1, 2, 3),
        isr=(1, 2),
        log_start_offset=-1,
        high_watermark=-1,
        size_bytes=-1,
        replica_states=states,
    )
    return TopicDescription(
        name="t",
        topic_id=topic_id,
        is_internal=False,
        replication_factor=3,
        configs={},
        partitions=(part,),
    )


def own(broker_id: int, size_bytes: int, failure: TidelogError | None = None) -> ReplicaDescription:
    return ReplicaDescription(
        broker_id=broker_id,
        log_end_offset=7,
        flushed_offset=7,
        size_bytes=size_bytes,
        is_known=True,
        failure=failure,
    )


def told(broker_id: int, lag: int) -> ReplicaDescription:
    return ReplicaDescription(
        broker_id=broker_id, log_end_offset=9 - lag, lag=lag, caught_up_ago_ms=40
    )


def test_a_leader_counts_for_how_far_behind_and_each_broker_for_itself() -> None:
    answers = {
        1: [topic(own(1, 10), told(2, 2), told(3, 5))],
        2: [topic(own(2, 20, DAMAGE), told(3, 99))],
    }
    (part,) = with_replicas(topic(), answers).partitions
    led, stopped, silent = part.replica_states
    assert (led.broker_id, led.size_bytes, led.is_known) == (1, 10, True)
    assert (stopped.lag, stopped.caught_up_ago_ms, stopped.size_bytes) == (2, 40, 20)
    assert stopped.failure is DAMAGE
    assert (silent.lag, silent.size_bytes, silent.is_known) == (5, -1, False)


def test_nothing_is_known_of_a_replica_of_which_nobody_told() -> None:
    (part,) = with_replicas(topic(), {}).partitions
    assert [each.broker_id for each in part.replica_states] == [1, 2, 3]
    assert not any(each.is_known for each in part.replica_states)


def test_what_was_told_of_an_earlier_topic_of_the_name_does_not_count() -> None:
    earlier = topic(own(1, 10), topic_id=b"x" * 16)
    (part,) = with_replicas(topic(), {1: [earlier]}).partitions
    assert not any(each.is_known for each in part.replica_states)


def test_everybody_who_holds_a_replica_is_asked_once_for_each_topic() -> None:
    assert topics_by_holder([topic()]) == {1: ["t"], 2: ["t"], 3: ["t"]}
