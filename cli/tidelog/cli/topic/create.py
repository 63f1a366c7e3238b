"""`tidelog topic create`."""

import argparse
import sys
from typing import Final

from tidelog.cli.frame.admin import admin_client
from tidelog.cli.frame.parser import Parser, add_bootstrap, number, pair
from tidelog.cli.show.errors import EXIT_OK, BadInput
from tidelog.cli.show.table import count

DESCRIPTION: Final = "Create a topic. What is not said is the cluster's default."
EXAMPLES: Final = (
    ("tidelog topic create orders -p 3", "three partitions"),
    ("tidelog topic create orders --config segment.bytes=67108864", "small segments"),
    ("tidelog topic create orders --if-not-exists", "for scripts that may run twice"),
)
_COUNT_MAX: Final = 10_000
"""In one call; `tidelog topic alter` adds more."""
REPLICAS_MAX: Final = 3
"""Advised at most: any one may die while another one is being restarted."""


def configure(parser: Parser) -> None:
    """Name, numbers, settings."""
    parser.add_argument("topic", metavar="TOPIC", help="1-249 of the characters a-z A-Z 0-9 . _ -")
    parser.add_argument(
        "-p", "--partitions", type=number(1, _COUNT_MAX), default=0, metavar="N", help="how many"
    )
    parser.add_argument(
        "-r",
        "--replication-factor",
        type=number(1, 32_767),
        default=0,
        metavar="N",
        help="copies of each partition; at most the number of live brokers",
    )
    parser.add_argument(
        "--config",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the topic; may be repeated",
    )
    parser.add_argument(
        "--if-not-exists", action="store_true", help="a topic that exists is left as it is: exit 0"
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Create it, and say with what."""
    configs = _configs(arguments.config)
    from tidelog.client import NewTopic
    from tidelog.wire.errors import ErrorCode, TidelogError

    wanted = NewTopic(arguments.topic, arguments.partitions, arguments.replication_factor, configs)
    with admin_client(arguments) as admin:
        try:
            (created,) = admin.create_topics([wanted])
        except TidelogError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
                print(f"topic {arguments.topic} exists already")
                return EXIT_OK
            raise
        partitions = count(created.num_partitions, "partition")
        is_alone = created.replication_factor == 1 and not arguments.replication_factor
        brokers = len(admin.describe_cluster().brokers) if is_alone else 1
    print(
        f"created topic {created.name}: {partitions}, "
        f"replication factor {created.replication_factor}"
    )
    if brokers > 1:
        # The cluster was formatted for one broker and has grown since: nothing else tells.
        print(
            f"note: {brokers} brokers, and one copy of each partition, as the cluster's default "
            "says: what its broker loses is lost.\n"
            f"hint: `-r {min(REPLICAS_MAX, brokers)}` for this topic, `tidelog config set "
            f"--cluster default.replication.factor={min(REPLICAS_MAX, brokers)}` for those to come",
            file=sys.stderr,
        )
    return EXIT_OK


def _configs(pairs: list[tuple[str, str]]) -> dict[str, str]:
    configs: dict[str, str] = {}
    for name, value in pairs:
        if name in configs:
            raise BadInput(
                "tidelog topic create", f"--config {name} is given twice", "leave one of them out"
            )
        configs[name] = value
    return configs
