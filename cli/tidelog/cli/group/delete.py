"""`tidelog group delete`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import unknown_groups
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from tidelog.wire.errors import TidelogError

COMMAND: Final = "tidelog group delete"
DESCRIPTION: Final = (
    "Delete consumer groups with the offsets that they have committed; refused while a group has "
    "members. Without --execute it only says what would be deleted."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing", "would it be possible?"),
    (f"{COMMAND} billing reports --execute", "delete two groups"),
)


def configure(parser: Parser) -> None:
    """Which."""
    parser.add_argument("group", metavar="GROUP", help="a group's name")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="more of them")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(parser, "a list of {group, is_deleted, error}; error null: nothing is wrong")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what goes; delete it if that was asked for."""
    names = list(dict.fromkeys([arguments.group, *arguments.groups]))
    with admin_client(arguments) as admin, controller_hint(admin):
        unknown = unknown_groups(admin, names)
        known = [name for name in names if name not in unknown]
        outcomes = dict(unknown) | admin.try_delete_groups(
            known, answer_timeout_ms(), validate_only=not arguments.execute
        )
    outcomes = {name: outcomes[name] for name in names}
    errors = [error for error in outcomes.values() if error is not None]
    if len(names) == 1 and errors and not arguments.json:
        raise errors[0]
    if arguments.json:
        print_json(
            [as_json(name, each, is_done=arguments.execute) for name, each in outcomes.items()]
        )
    else:
        verb = "deleted" if arguments.execute else "would delete"
        for name, error in outcomes.items():
            told = "" if error is None else f": {error.code.name}: {error.happened}; {error.hint}"
            print(f"{verb} group {name}" if error is None else f"group {name}{told}")
        if not arguments.execute:
            print("nothing was done; add --execute")
    return EXIT_FAILED if errors else EXIT_OK


def as_json(name: str, error: "TidelogError | None", *, is_done: bool) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "group": name,
        "is_deleted": is_done and error is None,
        "error": None if error is None else error.code.name,
    }
