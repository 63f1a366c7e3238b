"""`tidelog storage add-log-dirs`: makes empty directories further log directories of a node."""

import argparse
import os
from typing import Final

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.show.errors import EXIT_OK, BadInput

COMMAND: Final = "tidelog storage add-log-dirs"
DESCRIPTION: Final = (
    "Make every empty directory of the setting log_dirs one of the node's: partitions that are "
    "placed on it later go to the directory with the fewest. One that is the node's already is "
    "left as it is. The directories have to be there, and the node has to be stopped."
)
EXAMPLES: Final = (
    (f"{COMMAND} --config node1.toml", 'with log_dirs = ["/disk2/tidelog", "/disk3/tidelog"]'),
)


def configure(parser: Parser) -> None:
    """Whose."""
    parser.add_argument(
        "--config", metavar="FILE", required=True, help="the node's settings as TOML"
    )
    add_json(parser, "[{directory, is_new}]")


def run(arguments: argparse.Namespace) -> int:
    """Format what is new."""
    from tidelog.cli.node.settings import read_text
    from tidelog.server.settings.loading import load
    from tidelog.server.storage.log_directories import add_log_directories

    configuration = load(
        file_text=read_text(arguments.config, f"{COMMAND} --config"),
        file_name=arguments.config,
        environment=os.environ,
    )
    if not configuration.log_dirs:
        raise BadInput(
            f"{COMMAND} --config {arguments.config}",
            "it has no log_dirs",
            "name the new directories there first; data_dir always holds partitions, too",
        )
    added = add_log_directories(
        configuration.data_dir, configuration.node_id, configuration.log_dirs
    )
    if arguments.json:
        print_json(added)
    else:
        for each in added:
            print(f"{each.directory}: {'formatted' if each.is_new else 'was formatted already'}")
    return EXIT_OK
