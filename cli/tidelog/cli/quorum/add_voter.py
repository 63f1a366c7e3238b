"""`tidelog quorum add-voter`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json, quorum_hint
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.quorum.arguments import directory_uuid, node_id
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "Make a learner a voter of the metadata quorum, once it has caught up. A node becomes a "
    "learner by itself: format its directory with `tidelog storage format --join` and start it. "
    "One change of the members at a time. A voter stays a voter."
)
EXAMPLES: Final = (
    ("tidelog quorum add-voter 4", "node 4 is a learner and has caught up"),
    ("tidelog quorum add-voter 4 --dry-run", "whether it could be"),
)


def configure(parser: Parser) -> None:
    """Who."""
    parser.add_argument("node", type=node_id, metavar="NODE_ID", help="the learner's node id")
    parser.add_argument(
        "--directory-uuid",
        type=directory_uuid,
        metavar="UUID",
        help="of its quorum directory (default: that of the only learner of this node id)",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(parser, "{is_changed, members: [{node_id, directory_uuid, address, is_learner}]}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Find the learner, promote it, say who votes now."""
    from tidelog.cli.quorum import choice as quorum_choice
    from tidelog.cli.quorum import describe as quorum_describe

    with quorum_hint(), admin_client(arguments) as admin:
        quorum = admin.describe_metadata_quorum(answer_timeout_ms())
        chosen = quorum_choice.to_promote(quorum, arguments.node, arguments.directory_uuid)
        if chosen.is_learner:
            members = admin.add_voter(
                chosen.node_id, chosen.directory_uuid, validate_only=arguments.dry_run
            )
        else:
            members = tuple(each.member for each in quorum.members)
    is_changed = chosen.is_learner and not arguments.dry_run
    if arguments.json:
        shown = [quorum_describe.member_json(each) for each in members]
        print_json({"is_changed": is_changed, "members": shown})
        return EXIT_OK
    uuid = chosen.directory_uuid.hex()
    if not chosen.is_learner:
        print(f"node {chosen.node_id} with directory {uuid} is a voter already")
    elif arguments.dry_run:
        print(f"node {chosen.node_id} with directory {uuid} can be made a voter; nothing was done")
    else:
        print(f"node {chosen.node_id} with directory {uuid} is a voter")
        print(quorum_describe.members_text(members))
    return EXIT_OK
