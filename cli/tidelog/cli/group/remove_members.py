"""`tidelog group remove-members`."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import check_known
from tidelog.cli.group.describe import shown_partitions
from tidelog.cli.show.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from tidelog.client.types.groups import MemberDescription

COMMAND: Final = "tidelog group remove-members"
DESCRIPTION: Final = (
    "Make members leave a group; what they own goes to others. For one that is dead and whose "
    "session is long, or a static one that does not come back: a living member joins again at "
    "once. Without --execute it only says who would be removed."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing --instance till-3", "who would it be, and what does it own?"),
    (f"{COMMAND} billing --instance till-3 --execute", "till-3 is not coming back"),
    (f"{COMMAND} billing --all --execute", "everybody, for instance before a reset of offsets"),
)


def configure(parser: Parser) -> None:
    """Of which group, and whom."""
    parser.add_argument("group", metavar="GROUP", help="the group")
    parser.add_argument(
        "--member", action="append", default=[], metavar="ID", help="a member's id, repeated"
    )
    parser.add_argument(
        "--instance",
        action="append",
        default=[],
        metavar="NAME",
        help="a static member's group_instance_id, repeated",
    )
    parser.add_argument("--all", action="store_true", help="every member")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {member_id, group_instance_id, owns, is_removed}; owns: [{topic, partition}]",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say who goes; make them leave if that was asked for."""
    from tidelog.client.types.groups import MemberToRemove

    group: str = arguments.group
    named = bool(arguments.member or arguments.instance)
    if named == arguments.all:
        raise BadInput(
            f"{COMMAND} {group}",
            "it says both some and all" if named else "it does not say which members",
            "name them with --member or --instance, or say --all",
        )
    with admin_client(arguments) as admin, controller_hint(admin):
        check_known(admin, group)
        (found,) = admin.describe_groups([group], answer_timeout_ms())
        chosen = chosen_of(found.members, arguments)
        removed: list[str] = []
        if arguments.execute and chosen:
            wanted = [MemberToRemove(member_id=each.member_id) for each in chosen]
            removed = admin.remove_group_members(group, wanted, answer_timeout_ms())
    if arguments.json:
        print_json([as_json(each, is_removed=each.member_id in removed) for each in chosen])
        return EXIT_OK
    for each in chosen:
        print(line(each, is_executed=arguments.execute, is_removed=each.member_id in removed))
    if not chosen:
        print(f"group {group} has no members")
    elif not arguments.execute:
        print("nobody was removed; add --execute")
    return EXIT_OK


def chosen_of(
    members: "Iterable[MemberDescription]", arguments: argparse.Namespace
) -> "list[MemberDescription]":
    """Those that are meant; a name that nobody has is a mistake, or somebody who has left."""
    present = list(members)
    for option, wanted, known in (
        ("--member", arguments.member, {each.member_id for each in present}),
        ("--instance", arguments.instance, {each.group_instance_id for each in present}),
    ):
        for name in wanted:
            if name not in known:
                raise BadInput(
                    f"{COMMAND} {arguments.group} {option} {name}",
                    "the group has no such member",
                    f"`tidelog group describe {arguments.group} --members` shows who is there",
                )
    return [
        each
        for each in present
        if arguments.all
        or each.member_id in arguments.member
        or each.group_instance_id in arguments.instance
    ]


def line(member: "MemberDescription", *, is_executed: bool, is_removed: bool) -> str:
    """Of one member."""
    name = f" ({member.group_instance_id})" if member.group_instance_id else ""
    owns = shown_partitions(member.assigned) if member.assigned else "nothing"
    verb = "would remove"
    if is_executed:
        verb = "removed" if is_removed else "was gone already:"
    return f"{verb} {member.member_id}{name}, which owns {owns}"


def as_json(member: "MemberDescription", *, is_removed: bool) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "owns": [{"topic": name.topic, "partition": name.partition} for name in member.assigned],
        "is_removed": is_removed,
    }
