"""`tidelog group delete-offsets`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import check_known, is_meant, place
from tidelog.cli.partition.arguments import shown
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, BadInput

if TYPE_CHECKING:
    from tidelog.client import TopicPartition
    from tidelog.wire.errors import TidelogError

COMMAND: Final = "tidelog group delete-offsets"
DESCRIPTION: Final = (
    "Forget the offsets that a group has committed for topics or partitions; refused for topics "
    "that a member subscribes to. Who reads them next begins where auto_offset_reset says. Without "
    "--execute it only says what would be forgotten."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing orders", "what would be forgotten"),
    (f"{COMMAND} billing orders:0 refunds --execute", "one partition, and a whole topic"),
)


def configure(parser: Parser) -> None:
    """Whose, and which."""
    parser.add_argument("group", metavar="GROUP", help="the group")
    parser.add_argument(
        "places",
        nargs="+",
        type=place,
        metavar="TOPIC[:PARTITION]",
        help="topics, or partitions of them",
    )
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {topic, partition, committed_offset, is_deleted, error}; error null: "
        "nothing is wrong",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what goes; forget it if that was asked for."""
    group, places = arguments.group, arguments.places
    with admin_client(arguments) as admin, controller_hint(admin):
        check_known(admin, group)
        committed = admin.list_group_offsets(group, answer_timeout_ms())[group]
        offsets = {name: at.offset for name, at in committed.items() if is_meant(name, places)}
        if not offsets:
            raise BadInput(
                f"{COMMAND} {group}",
                "the group has committed nothing there",
                f"`tidelog group describe {group}` shows what it has committed",
            )
        outcomes = admin.try_delete_group_offsets(
            group, offsets, answer_timeout_ms(), validate_only=not arguments.execute
        )
    if arguments.json:
        print_json(
            [
                as_json(name, offsets[name], error, is_done=arguments.execute)
                for name, error in outcomes.items()
            ]
        )
    else:
        verb = "forgot" if arguments.execute else "would forget"
        for name, error in outcomes.items():
            print(line(name, offsets[name], error, verb))
        if not arguments.execute:
            print("nothing was done; add --execute")
    return EXIT_OK if all(error is None for error in outcomes.values()) else EXIT_FAILED


def line(name: "TopicPartition", offset: int, error: "TidelogError | None", verb: str) -> str:
    """Of one partition."""
    if error is not None:
        return f"{shown(name)}: {error.code.name}: {error.happened}"
    return f"{verb} offset {offset} of {shown(name)}"


def as_json(
    name: "TopicPartition", offset: int, error: "TidelogError | None", *, is_done: bool
) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "topic": name.topic,
        "partition": name.partition,
        "committed_offset": offset,
        "is_deleted": is_done and error is None,
        "error": None if error is None else error.code.name,
    }
