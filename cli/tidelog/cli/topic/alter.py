"""`tidelog topic alter`."""

import argparse
from typing import Final

from tidelog.cli.config.targets import changes_of
from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, number, pair
from tidelog.cli.show.errors import EXIT_OK, BadInput

COMMAND: Final = "tidelog topic alter"
DESCRIPTION: Final = (
    "Change a topic: raise its number of partitions, set or unset settings. Records stay where "
    "they are, so that with more partitions a key may go to another one from then on."
)
EXAMPLES: Final = (
    (f"{COMMAND} orders -p 12", "twelve partitions in all"),
    (f"{COMMAND} orders --config segment.bytes=67108864", "small segments"),
    (f"{COMMAND} orders --unset segment.bytes", "as the cluster has it"),
)
_COUNT_MAX: Final = 2_147_483_647


def configure(parser: Parser) -> None:
    """What to change."""
    parser.add_argument("topic", metavar="TOPIC", help="its name")
    parser.add_argument(
        "-p", "--partitions", type=number(1, _COUNT_MAX), metavar="N", help="how many in all"
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
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="a setting that is to be the cluster's again; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(
        parser,
        "{topic, partition_count, configs: {name: value or null}, is_changed}; what "
        "was not asked for is absent",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Settings first, then partitions: the new ones begin with the settings."""
    changes = changes_of(arguments.config, arguments.unset, COMMAND)
    if not changes and arguments.partitions is None:
        raise BadInput(
            f"{COMMAND} {arguments.topic}",
            "nothing to change is given",
            "say -p N, --config NAME=VALUE or --unset NAME",
        )
    from tidelog.client import ConfigResource, ConfigResourceType

    told: dict[str, object] = {"topic": arguments.topic}
    with admin_client(arguments) as admin:
        if changes:
            resource = ConfigResource(ConfigResourceType.TOPIC, arguments.topic, changes)
            admin.alter_configs([resource], validate_only=arguments.dry_run)
            told["configs"] = changes
        if arguments.partitions is not None:
            counts = admin.create_partitions(
                {arguments.topic: arguments.partitions}, validate_only=arguments.dry_run
            )
            told["partition_count"] = counts[arguments.topic]
    told["is_changed"] = not arguments.dry_run
    if arguments.json:
        print_json(told)
        return EXIT_OK
    said = [
        f"{name}={value}" if value is not None else f"{name} unset"
        for name, value in changes.items()
    ]
    if "partition_count" in told:
        said.append(f"{told['partition_count']} partitions")
    end = "; nothing was done" if arguments.dry_run else ""
    print(
        f"{'would alter' if arguments.dry_run else 'altered'} topic {arguments.topic}: "
        f"{', '.join(said)}{end}"
    )
    return EXIT_OK
