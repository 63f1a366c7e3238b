"""What holds of every image and of every step from one image to the next."""

from tidelog.metadata_quorum.image import NO_LEADER, Image, TopicImage


def check(image: Image) -> None:
    """Names and ids agree; each partition's leader is in sync and each in-sync one a replica."""
    assert len(image.topic_ids) == len(image.topics), "each topic has one name"
    for name, topic_id in image.topic_ids.items():
        topic = image.topics.get(topic_id)
        assert topic is not None, f"the name {name} points at no topic"
        assert topic.name == name, f"the topic {topic.name} is found under the name {name}"
        check_topic(topic)


def check_topic(topic: TopicImage) -> None:
    """Partitions are numbered without gaps, and their replica sets are consistent."""
    for number, partition in enumerate(topic.partitions):
        where = f"{topic.name}-{partition.partition}"
        assert partition.partition == number, f"{where} stands at place {number}"
        assert partition.replicas, f"{where} has no replica"
        assert len(dict.fromkeys(partition.replicas)) == len(partition.replicas), (
            f"{where} has a replica twice"
        )
        assert all(member in partition.replicas for member in partition.in_sync_replicas), (
            f"{where} counts a broker in sync that is no replica"
        )
        assert partition.leader_id == NO_LEADER or (
            partition.leader_id in partition.in_sync_replicas
        ), f"{where} is led by a broker that is not in sync"


def check_step(before: Image, after: Image) -> None:
    """Versions grow, epochs never fall, untouched topics are shared; checks what changed."""
    assert after.version > before.version, "an image never goes back"
    assert before.cluster_id in ("", after.cluster_id), "a cluster keeps its id"
    assert len(after.topic_ids) == len(after.topics), "each topic has one name"
    for topic_id, topic in after.topics.items():
        earlier = before.topics.get(topic_id)
        if earlier is topic:
            continue
        check_topic(topic)
        if earlier is not None:
            _check_topic_step(earlier, topic)
    for broker_id, broker in before.brokers.items():
        later = after.brokers.get(broker_id)
        assert later is None or later.epoch >= broker.epoch, f"broker {broker_id}'s epoch fell"


def _check_topic_step(before: TopicImage, after: TopicImage) -> None:
    assert after.name == before.name, f"the topic {before.name} was renamed"
    assert len(after.partitions) >= len(before.partitions), f"{after.name} lost partitions"
    for earlier, later in zip(before.partitions, after.partitions, strict=False):
        where = f"{after.name}-{later.partition}"
        assert later.leader_epoch >= earlier.leader_epoch, f"the leader epoch of {where} fell"
        assert later.partition_epoch >= earlier.partition_epoch, f"the epoch of {where} fell"
