"""`tidelog topic delete`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import count

if TYPE_CHECKING:
    from tidelog.client.types.records import TopicDescription

DESCRIPTION: Final = (
    "Delete topics with all their records. Without --execute it only says what would be deleted. "
    "The names can be used again at once; the new topics have other ids."
)
EXAMPLES: Final = (
    ("tidelog topic delete orders", "what would be lost"),
    ("tidelog topic delete orders --execute", "delete it"),
)


def configure(parser: Parser) -> None:
    """Which."""
    parser.add_argument("topic", metavar="TOPIC", help="a topic's name")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="more of them")
    parser.add_argument("--execute", action="store_true", help="do it")
    parser.add_argument(
        "--if-exists", action="store_true", help="a topic that is not there is no error"
    )
    add_json(parser, "a list of {name, topic_id, partition_count, is_deleted}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what goes; delete it if that was asked for."""
    from tidelog.wire.errors import ErrorCode, TidelogError

    names = list(dict.fromkeys([arguments.topic, *arguments.topics]))
    found: list[TopicDescription] = []
    with admin_client(arguments) as admin:
        for name in names:
            try:
                found += admin.describe_topics([name])
            except TidelogError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC or not arguments.if_exists:
                    raise
        if found:
            # By id: nobody's new topic of the name is hit.
            admin.delete_topics(
                [topic.topic_id for topic in found], validate_only=not arguments.execute
            )
    rows = [as_json(topic, is_deleted=arguments.execute) for topic in found]
    if arguments.json:
        print_json(rows)
        return EXIT_OK
    verb = "deleted" if arguments.execute else "would delete"
    for row, topic in zip(rows, found, strict=True):
        print(f"{verb} {row['name']}: {count(len(topic.partitions), 'partition')} with all records")
    if rows and not arguments.execute:
        print("nothing was done; add --execute")
    return EXIT_OK


def as_json(topic: "TopicDescription", *, is_deleted: bool) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "partition_count": len(topic.partitions),
        "is_deleted": is_deleted,
    }
