"""`tidelog topic describe`: a topic's settings, then a line for each partition."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.admin import admin_client, print_json
from tidelog.cli.errors import EXIT_OK
from tidelog.cli.parser import Parser, add_bootstrap, add_json
from tidelog.cli.table import known, listed, size, table

if TYPE_CHECKING:
    from tidelog.client.types import TopicDescription

DESCRIPTION: Final = (
    "Describe topics: partition count, replication factor and settings, then leader, "
    "replicas and in-sync replicas (Isr) of each partition, its first offset (Start), the "
    "offset behind its last committed record (End), and its size on the leader's disk, as the "
    "leader answers. `-`: it could not be reached."
)
EXAMPLES: Final = (
    ("tidelog topic describe orders", "one topic"),
    ("tidelog topic describe --json", "all topics, for programs"),
)
_HEAD: Final = ("Partition", "Leader", "Replicas", "Isr", "Start", "End", "Size")
_RIGHT: Final = "Partition Leader Start End Size"


def configure(parser: Parser) -> None:
    """Names and form."""
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    add_json(
        parser,
        "a list of {name, topic_id, is_internal, partition_count, replication_factor, configs, "
        "partitions: [{partition, leader, leader_epoch, replicas, isr, log_start_offset, "
        "high_watermark, size_bytes}]}; -1: not known",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin:
        found = admin.describe_topics(arguments.topics or None)
    if arguments.json:
        print_json([as_json(topic) for topic in found])
    else:
        print("\n\n".join(as_text(topic) for topic in found) or "there are no topics yet")
    return EXIT_OK


def as_text(topic: "TopicDescription") -> str:
    """What a person reads."""
    configs = ",".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))
    head = "  ".join(
        (
            f"Topic: {topic.name}",
            f"TopicId: {topic.topic_id.hex()}",
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {topic.replication_factor}",
            f"Configs: {configs or '-'}",
        )
    )
    rows = [
        (
            each.partition,
            known(each.leader),
            listed(each.replicas),
            listed(each.isr),
            known(each.log_start_offset),
            known(each.high_watermark),
            size(each.size_bytes),
        )
        for each in topic.partitions
    ]
    lines = table(_HEAD, rows, right=_RIGHT).splitlines()
    return "\n".join([head, *(f"  {line}" for line in lines)])


def as_json(topic: "TopicDescription") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": dict(sorted(topic.configs.items())),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "log_start_offset": each.log_start_offset,
                "high_watermark": each.high_watermark,
                "size_bytes": each.size_bytes,
            }
            for each in topic.partitions
        ],
    }
