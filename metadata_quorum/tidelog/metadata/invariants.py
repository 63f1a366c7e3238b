"""What holds of every image (`check`) and of every step from one image to the next (`check_step`).

`check_step` looks only at what changed, so that it can run after every step.
"""

from tidelog.metadata import features
from tidelog.metadata.image.image import NO_LEADER, ClusterImage, Image, PartitionImage, TopicImage
from tidelog.metadata.image.index import IndexChanges, PartitionIndex
from tidelog.wire.ids import BrokerId, TopicId


def check(image: Image) -> None:
    """Names and ids agree, every topic is sound, the index says what the topics say."""
    assert len(image.topic_ids) == len(image.topics), "each topic has one name"
    changes = IndexChanges()
    for topic_id, topic in image.topics.items():
        assert topic.topic_id == topic_id, f"{topic.name} is found under another topic's id"
        assert image.topic_ids.get(topic.name) == topic_id, f"{topic.name} is not found by name"
        check_topic(topic)
        for partition in topic.partitions:
            changes.add(topic_id, None, partition)
    assert changes.apply_to(PartitionIndex()) == image.index, "the index differs from the topics"
    for broker_id, broker in image.brokers.items():
        assert broker.broker_id == broker_id, f"broker {broker_id} is found under another id"
        assert broker.epoch <= image.last_broker_epoch, f"the epoch of broker {broker_id} is ahead"
    _check_features(image)


def check_topic(topic: TopicImage) -> None:
    """Partitions are numbered without gaps, and their replica sets are consistent."""
    for number, partition in enumerate(topic.partitions):
        assert partition.partition == number, (
            f"{topic.name}-{partition.partition} stands at place {number}"
        )
        _check_partition(f"{topic.name}-{number}", partition)


def _check_partition(where: str, partition: PartitionImage) -> None:
    replicas = partition.replicas
    assert replicas, f"{where} has no replica"
    for brokers in (replicas, partition.in_sync_replicas, partition.eligible_replicas):
        assert len(dict.fromkeys(brokers)) == len(brokers), f"{where} has a replica twice"
    in_sync = partition.in_sync_replicas
    assert _is_part(in_sync, replicas), f"{where} counts a broker in sync that is no replica"
    assert partition.leader_id == NO_LEADER or partition.leader_id in in_sync, (
        f"{where} is led by a broker that is not in sync"
    )
    assert _is_part(partition.eligible_replicas, replicas), f"{where}: who is eligible is a replica"
    assert not any(member in in_sync for member in partition.eligible_replicas), (
        f"{where} has a replica both in sync and eligible"
    )
    assert _is_part(partition.last_known_eligible, replicas), (
        f"{where}: who was eligible last is a replica"
    )
    assert _is_part(partition.adding_replicas, replicas), f"{where} adds a broker outside its set"
    assert _is_part(partition.removing_replicas, replicas), (
        f"{where} removes a broker outside its set"
    )
    assert not any(member in partition.adding_replicas for member in partition.removing_replicas), (
        f"{where} adds and removes the same replica"
    )
    assert _is_part(partition.called_off_replicas, partition.removing_replicas), (
        f"{where}: who came by a move that was called off goes"
    )
    assert len(partition.directories) in (0, len(replicas)), f"{where}: a directory a replica"


def _is_part(part: tuple[BrokerId, ...], whole: tuple[BrokerId, ...]) -> bool:
    return all(member in whole for member in part)


def check_step(before: Image, after: Image) -> None:
    """Versions, epochs and ids never fall; what changed is sound and in the index."""
    assert after.version >= before.version, "an image never goes back"
    assert before.cluster_id in ("", after.cluster_id), "a cluster keeps its id"
    assert before.cluster in (ClusterImage(), after.cluster), "a cluster is formatted once"
    assert after.next_producer_id >= before.next_producer_id, "producer ids never fall"
    assert after.last_broker_epoch >= before.last_broker_epoch, "broker epochs never fall"
    assert len(after.topic_ids) == len(after.topics), "each topic has one name"
    if after.features is not before.features:
        _check_features(after)
    _check_broker_steps(before, after)
    for topic_id in after.topics.changed_keys(before.topics):
        earlier, later = before.topics.get(topic_id), after.topics.get(topic_id)
        if later is not None:
            assert after.topic_ids.get(later.name) == topic_id, f"{later.name} is found by name"
            _check_topic_step(after, earlier, later)
        elif earlier is not None:
            _check_gone(after, earlier)


def _check_features(image: Image) -> None:
    for name, level in image.features.items():
        features.validate_level(name, level)


def _check_broker_steps(before: Image, after: Image) -> None:
    for broker_id in after.brokers.changed_keys(before.brokers):
        earlier, later = before.brokers.get(broker_id), after.brokers.get(broker_id)
        if later is None:
            assert not after.held_by(broker_id).count, f"broker {broker_id} went with replicas"
        elif earlier is None or later.epoch != earlier.epoch:
            assert later.epoch > before.last_broker_epoch, (
                f"broker {broker_id} registers with the old epoch {later.epoch}"
            )


def _check_topic_step(image: Image, before: TopicImage | None, after: TopicImage) -> None:
    known = () if before is None else before.partitions
    assert before is None or after.name == before.name, f"the topic {before.name} was renamed"
    assert len(after.partitions) >= len(known), f"{after.name} lost partitions"
    for number, later in enumerate(after.partitions):
        earlier = known[number] if number < len(known) else None
        if earlier is later:
            continue
        where = f"{after.name}-{number}"
        assert later.partition == number, f"{where} is numbered {later.partition}"
        _check_partition(where, later)
        _check_index_step(image, after.topic_id, earlier, later)
        if earlier is not None:
            _check_partition_step(where, earlier, later)


def _check_partition_step(where: str, earlier: PartitionImage, later: PartitionImage) -> None:
    assert later.leader_epoch >= earlier.leader_epoch, f"the leader epoch of {where} fell"
    assert later.partition_epoch > earlier.partition_epoch, f"the epoch of {where} stood still"
    if later.leader_id not in (NO_LEADER, earlier.leader_id):
        assert later.leader_epoch > earlier.leader_epoch, f"{where}: a leader without an epoch"


def _check_index_step(
    image: Image, topic_id: TopicId, before: PartitionImage | None, after: PartitionImage | None
) -> None:
    """The index says of this partition what the partition says."""
    known = after or before
    assert known is not None, "a partition that changed was there before or is there now"
    replicas = () if after is None else after.replicas
    leader_id = None if after is None else after.leader_id
    for each in (before, after):
        if each is None:
            continue
        for broker_id in each.replicas:
            is_held = image.held_by(broker_id).has(topic_id, known.partition)
            assert is_held == (broker_id in replicas), f"the index is wrong: held by {broker_id}"
        is_led = image.led_by(each.leader_id).has(topic_id, known.partition)
        assert is_led == (each.leader_id == leader_id), f"the index is wrong: led by {leader_id}"


def _check_gone(image: Image, before: TopicImage) -> None:
    for partition in before.partitions:
        _check_index_step(image, before.topic_id, partition, None)
