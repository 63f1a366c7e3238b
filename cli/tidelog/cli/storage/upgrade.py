"""`tidelog storage upgrade`: brings the directories of a stopped node to this release's format."""

import argparse
import os
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.node.dev import check_directory
from tidelog.cli.show.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from tidelog.server.commands.upgrade import Upgraded

COMMAND: Final = "tidelog storage upgrade"
DESCRIPTION: Final = (
    "Bring the directories of a stopped node to the format of this release. No segment is "
    "changed. All directories are looked at before the first is changed; one that a crash "
    "interrupted is gone over again. There is no way back but a copy made before."
)
EXAMPLES: Final = (
    (f"{COMMAND} --data-dir data --dry-run", "say what would be done, change nothing"),
    (f"{COMMAND} --config node1.toml", "data_dir and every one of log_dirs"),
)


def configure(parser: Parser) -> None:
    """Which directories."""
    parser.add_argument("--config", metavar="FILE", help="the node's settings as TOML")
    parser.add_argument("--data-dir", metavar="DIR", help="one directory, without a file")
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    add_json(parser, "[{directory, from_version, to_version, steps: [sentence], is_done}]")


def run(arguments: argparse.Namespace) -> int:
    """Plan, and unless it is a dry run, do it."""
    if (arguments.config is None) == (arguments.data_dir is None):
        raise BadInput(
            COMMAND, "either --config or --data-dir says which directories", f"{COMMAND} --help"
        )
    from tidelog.server.commands.upgrade import UpgradeOptions, upgrade_storage

    done = upgrade_storage(
        UpgradeOptions(directories=_directories(arguments), is_dry_run=arguments.dry_run)
    )
    if arguments.json:
        print_json(done)
    else:
        print("\n".join(as_text(each) for each in done))
    return EXIT_OK


def _directories(arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.data_dir is not None:
        check_directory(arguments.data_dir, command=COMMAND)
        return (arguments.data_dir,)
    from tidelog.cli.node.settings import read_text
    from tidelog.server.settings.loading import load

    configuration = load(
        file_text=read_text(arguments.config, f"{COMMAND} --config"),
        file_name=arguments.config,
        environment=os.environ,
    )
    return (configuration.data_dir, *configuration.log_dirs)


def as_text(upgraded: "Upgraded") -> str:
    """What a person reads."""
    where = f"{upgraded.directory}: format {upgraded.from_version}"
    if not upgraded.steps:
        return f"{where}, as this release has it; nothing to do"
    verb = "upgraded" if upgraded.is_done else "would be upgraded"
    return "\n".join(
        [f"{where}, {verb} to {upgraded.to_version}", *(f"  {step}" for step in upgraded.steps)]
    )
