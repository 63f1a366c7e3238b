"""What topics ask of their replicas, and which brokers may lead, be in sync, take more. Pure."""

from tidelog.metadata.image.image import BrokerImage, TopicImage
from tidelog.metadata.settings.catalogue import FLUSH, MIN_IN_SYNC_REPLICAS


def in_sync_min(topic: TopicImage) -> int:
    """With fewer in sync the watermark stands still; resolved when the topic was created."""
    return int(topic.configuration.get(MIN_IN_SYNC_REPLICAS, "1"))


def is_flush_sync(topic: TopicImage) -> bool:
    """Whether an acknowledged record is on the disks of its in-sync replicas."""
    return topic.configuration.get(FLUSH, "sync") == "sync"


def is_able(broker: BrokerImage | None) -> bool:
    """Whether the broker may be elected and come into sync."""
    return broker is not None and not broker.is_fenced and not broker.is_shutting_down


def has_directory(broker: BrokerImage | None, directory: bytes) -> bool:
    """Whether the broker can reach what it keeps there.

    Where that is not known one directory that is online will do; so will a broker that names none.
    """
    if broker is None:
        return False
    if not directory:
        return has_room(broker)
    return any(each.uuid == directory and each.is_online for each in broker.directories)


def has_room(broker: BrokerImage) -> bool:
    """Whether it can hold a log at all, be it an empty one."""
    return not broker.directories or any(each.is_online for each in broker.directories)


def may_take_replicas(broker: BrokerImage) -> bool:
    """Alive, with a directory, and to stay: neither stopping nor being emptied."""
    return is_able(broker) and not broker.is_draining and has_room(broker)
