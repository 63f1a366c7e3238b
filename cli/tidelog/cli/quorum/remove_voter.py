"""`tidelog quorum remove-voter`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json, quorum_hint
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.quorum.arguments import directory_uuid, node_id
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "Remove a voter or learner from the metadata quorum. The leader may remove itself: it hands "
    "over first. The last voter cannot be removed. A member that was removed stays out: to come "
    "back, its node needs a directory that is formatted anew."
)
EXAMPLES: Final = (
    ("tidelog quorum remove-voter 4", "node 4 has one directory in the quorum"),
    (
        "tidelog quorum remove-voter 2 --directory-uuid 4b96e22f7fe2bf26e2b53e2da233217b",
        "the directory that node 2 lost; its new one stays",
    ),
)


def configure(parser: Parser) -> None:
    """Who."""
    parser.add_argument("node", type=node_id, metavar="NODE_ID", help="the member's node id")
    parser.add_argument(
        "--directory-uuid",
        type=directory_uuid,
        metavar="UUID",
        help="of its quorum directory (default: that of the only member of this node id)",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, "{is_changed, members: [{node_id, directory_uuid, address, is_learner}]}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Find the member, remove it, say who votes now."""
    from tidelog.cli.quorum import choice as quorum_choice
    from tidelog.cli.quorum import describe as quorum_describe

    with quorum_hint(), admin_client(arguments) as admin:
        quorum = admin.describe_metadata_quorum(answer_timeout_ms())
        chosen = quorum_choice.to_remove(quorum, arguments.node, arguments.directory_uuid)
        members = admin.remove_voter(
            chosen.node_id, chosen.directory_uuid, validate_only=arguments.dry_run
        )
    if arguments.json:
        shown = [quorum_describe.member_json(each) for each in members]
        print_json({"is_changed": not arguments.dry_run, "members": shown})
        return EXIT_OK
    name = f"{quorum_describe.role_of(chosen)} {chosen.node_id}"
    name += f" with directory {chosen.directory_uuid.hex()}"
    if arguments.dry_run:
        print(f"{name} can be removed; nothing was done")
    else:
        print(f"{name} is removed")
        print(quorum_describe.members_text(members))
    return EXIT_OK
