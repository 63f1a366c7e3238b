"""`tidelog group list`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, print_stderr
from tidelog.cli.show.table import count, known, table

if TYPE_CHECKING:
    from tidelog.client.types.groups import GroupListing

DESCRIPTION: Final = (
    "List the consumer groups: state, number of members, and how many records they have not read "
    "yet (Lag). `-`: the lag of a partition is not known at the moment. Exit code 1 if the groups "
    "of a coordinator are missing because it could not be asked."
)
EXAMPLES: Final = (
    ("tidelog group list", "all groups"),
    ("tidelog group list --only-with-lag", "who is behind"),
    ("tidelog group list --state empty -q", "names of those that nobody is a member of"),
)
STATES: Final = ("empty", "assigning", "reconciling", "stable")


def configure(parser: Parser) -> None:
    """Choice and form."""
    parser.add_argument("-q", "--quiet", action="store_true", help="names only, one a line")
    parser.add_argument(
        "--state",
        choices=STATES,
        action="append",
        default=[],
        metavar="STATE",
        help=f"only this state: {', '.join(STATES)}; may be repeated",
    )
    parser.add_argument(
        "--only-with-lag", action="store_true", help="only groups that have something to read"
    )
    add_json(
        parser,
        "a list of {group, state, type, member_count, lag}; lag -1: not known",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    from tidelog.client.types.groups import GroupState
    from tidelog.wire.errors import ErrorCode, TidelogError

    states = [GroupState(each) for each in arguments.state]
    with admin_client(arguments) as admin, controller_hint(admin):
        found = admin.try_list_groups(states, timeout_ms=answer_timeout_ms())
        if found.missing_coordinators and not found.groups:
            # "No groups yet" would be a guess.
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried="list the groups",
                happened=f"{count(found.missing_coordinators, 'coordinator')} could not be asked, "
                "and the others know of no group",
            )
    groups = [each for each in found.groups if each.lag or not arguments.only_with_lag]
    if arguments.json:
        print_json([as_json(each) for each in groups])
    elif arguments.quiet:
        print("".join(f"{each.group_id}\n" for each in groups), end="")
    elif groups:
        print(as_text(groups))
    else:
        print("there are no such groups" if states or arguments.only_with_lag else "no groups yet")
    if found.missing_coordinators:
        missing = count(found.missing_coordinators, "coordinator")
        print_stderr(f"{missing} could not be asked: their groups are missing here")
        return EXIT_FAILED
    return EXIT_OK


def as_text(groups: "list[GroupListing]") -> str:
    """What a person reads."""
    rows = [
        (each.group_id, each.state.value, each.group_type.value, each.member_count, known(each.lag))
        for each in groups
    ]
    return table(("Group", "State", "Type", "Members", "Lag"), rows, right="Members Lag")


def as_json(group: "GroupListing") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "group": group.group_id,
        "state": group.state.value,
        "type": group.group_type.value,
        "member_count": group.member_count,
        "lag": group.lag,
    }
