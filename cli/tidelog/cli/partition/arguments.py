"""Partitions and brokers as they are typed. Pure."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.quorum.arguments import node_id

if TYPE_CHECKING:
    from tidelog.client import TopicPartition

_PARTITION_MAX: Final = 2_147_483_646


def topic_partition(text: str) -> "TopicPartition":
    """`TOPIC:PARTITION`."""
    from tidelog.client.types.records import TopicPartition

    topic, colon, number = text.rpartition(":")
    is_number = number.isascii() and number.isdigit() and int(number) <= _PARTITION_MAX
    if not topic or not colon or not is_number:
        raise argparse.ArgumentTypeError(f"`{text}` is not TOPIC:PARTITION")
    return TopicPartition(topic, int(number))


def brokers(text: str) -> tuple[int, ...]:
    """Broker ids with commas, none twice."""
    found = tuple(node_id(part.strip()) for part in text.split(","))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"`{text}` names a broker twice")
    return found


def move(text: str) -> "tuple[TopicPartition, tuple[int, ...]]":
    """`TOPIC:PARTITION=BROKER,BROKER`."""
    place, equals, ids = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"`{text}` is not TOPIC:PARTITION=BROKER_ID,BROKER_ID")
    return topic_partition(place), brokers(ids)


def shown(partition: "TopicPartition") -> str:
    """As it is typed."""
    return f"{partition.topic}:{partition.partition}"
