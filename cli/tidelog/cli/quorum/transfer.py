"""`tidelog quorum transfer`."""

import argparse
from typing import Final

from tidelog.cli.frame.admin import admin_client, print_json, quorum_hint
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.quorum.arguments import node_id
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = (
    "Hand the leadership of the metadata quorum to another voter, without an election timeout: "
    "before a leader is stopped, for example. Writes wait meanwhile."
)
EXAMPLES: Final = (
    ("tidelog quorum transfer", "to the voter that is furthest"),
    ("tidelog quorum transfer 2", "to node 2"),
)
FURTHEST: Final = -1


def configure(parser: Parser) -> None:
    """To whom."""
    parser.add_argument(
        "node",
        type=node_id,
        nargs="?",
        metavar="NODE_ID",
        help="a voter (default: the one that is furthest)",
    )
    add_json(parser, "{leader_id, term}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Hand over, and say who leads."""
    from tidelog.cli.quorum import choice as quorum_choice

    with quorum_hint(), admin_client(arguments) as admin:
        wanted = FURTHEST
        if arguments.node is not None:
            quorum = admin.describe_metadata_quorum(answer_timeout_ms())
            wanted = quorum_choice.to_lead(quorum, arguments.node).node_id
        leader = admin.transfer_leadership(wanted)
    if arguments.json:
        print_json(leader)
    else:
        print(f"node {leader.leader_id} leads in term {leader.term}")
    return EXIT_OK
