"""`tidelog storage format`: makes an empty directory a node's, once."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json, number
from tidelog.cli.node.dev import check_directory
from tidelog.cli.quorum.arguments import TypedVoter, address, initial_voters, node_id
from tidelog.cli.show.errors import EXIT_OK, BadInput
from tidelog.cli.show.table import count

if TYPE_CHECKING:
    from tidelog.server.settings.configuration import NodeConfiguration
    from tidelog.server.storage.formatting import FormatOptions, Formatted

COMMAND: Final = "tidelog storage format"
DESCRIPTION: Final = (
    "Make an empty directory the data directory of a node: whose it is, which cluster it belongs "
    "to, and how its part of the metadata quorum begins. A directory that is formatted already "
    "is never overwritten.\n\n"
    "A controller says one of three things. --standalone: a new cluster whose quorum is this "
    "node alone. --initial-voters: a new cluster whose quorum is the nodes listed, all formatted "
    "with the same list and the same --cluster-id. --join: a cluster that exists; the node "
    "becomes a learner of its quorum, and `tidelog quorum add-voter` makes it a voter. With "
    "--broker-only the node has no part in the quorum."
)
EXAMPLES: Final = (
    (f"{COMMAND} --standalone --node-id 1 --data-dir data", "the first node of a new cluster"),
    (
        f'{COMMAND} --config node2.toml -C ID --initial-voters "$VOTERS"',
        "VOTERS=1@host1:9193/UUID1,2@host2:9193/UUID2,3@host3:9193/UUID3",
    ),
    (f"{COMMAND} --config node4.toml -C ID --join", "to grow a quorum that exists"),
    (
        f"{COMMAND} --config node1.toml --standalone --restore metadata.tqs",
        "a new cluster from what `tidelog metadata export` wrote",
    ),
)
_BROKERS_MAX: Final = 32_767
_HINT: Final = f"{COMMAND} --help"


def configure(parser: Parser) -> None:
    """Where, who, how."""
    parser.add_argument(
        "--config", metavar="FILE", help="the node's settings as TOML: node_id, data_dir, listeners"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="goes before the file's data_dir")
    parser.add_argument("--node-id", type=node_id, metavar="N", help="goes before the file's")
    parser.add_argument(
        "-C",
        "--cluster-id",
        metavar="ID",
        help="default: a random one, printed, where the cluster is new",
    )
    parser.add_argument("--standalone", action="store_true", help="a quorum of this node alone")
    parser.add_argument(
        "--initial-voters",
        type=initial_voters,
        metavar="LIST",
        help="NODE_ID@HOST:PORT/UUID of every first voter's cluster listener and quorum "
        "directory, with commas",
    )
    parser.add_argument("--join", action="store_true", help="join a quorum that exists")
    parser.add_argument("--broker-only", action="store_true", help="no part in the quorum")
    parser.add_argument(
        "--address",
        type=address,
        metavar="HOST:PORT",
        help="of the cluster listener, as others reach it, with --standalone (default: the "
        "advertised or bound address of listeners.cluster)",
    )
    parser.add_argument(
        "--brokers",
        type=number(1, _BROKERS_MAX),
        metavar="N",
        help="how many brokers are expected: topics get as many replicas, at most 3, unless they "
        "ask for a number (default: the number of first voters)",
    )
    parser.add_argument(
        "--default-replication-factor",
        type=number(1, _BROKERS_MAX),
        metavar="N",
        help="replicas of topics that are created without a number (default: as --brokers says)",
    )
    parser.add_argument(
        "--restore", metavar="FILE", help="begin with metadata that was exported there"
    )
    add_json(
        parser,
        "{cluster_id, node_id, data_dir, directory_uuid, voters: [node id], "
        "default_replication_factor}",
    )


def run(arguments: argparse.Namespace) -> int:
    """Format, and say what stands there now."""
    check_way(arguments)
    configuration = _configuration(arguments)
    data_dir = arguments.data_dir if arguments.data_dir is not None else configuration.data_dir
    check_directory(data_dir, command=COMMAND)
    options = format_options(arguments, configuration, data_dir)
    if arguments.restore is not None:
        return _restore(arguments, options)
    from tidelog.server.storage.formatting import format_storage

    formatted = format_storage(options)
    if arguments.json:
        print_json(formatted)
    else:
        print(as_text(formatted))
    return EXIT_OK


def check_way(arguments: argparse.Namespace) -> None:
    """Exactly one of the four ways, and what goes with it."""
    ways = {
        "--standalone": arguments.standalone,
        "--initial-voters": arguments.initial_voters is not None,
        "--join": arguments.join,
        "--broker-only": arguments.broker_only,
    }
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) != 1:
        why = f"{' and '.join(given)} exclude each other" if given else "none of the ways is given"
        raise BadInput(COMMAND, why, f"give one of {', '.join(ways)}; more: {_HINT}")
    (way,) = given
    if way in ("--join", "--broker-only"):
        if arguments.cluster_id is None:
            raise BadInput(
                f"{COMMAND} {way}",
                "--cluster-id is missing, and the cluster exists already",
                "`tidelog cluster describe` prints its id",
            )
        if arguments.restore is not None:
            raise BadInput(
                f"{COMMAND} {way} --restore {arguments.restore}",
                "metadata is restored to the first voters of a new cluster only",
                "leave --restore out: the node gets everything from the cluster that it joins",
            )
    if way != "--standalone" and arguments.address is not None:
        raise BadInput(
            f"{COMMAND} {way} --address {arguments.address}",
            "--address goes with --standalone only",
            "the list of voters tells their addresses, the configuration those of other nodes",
        )
    if arguments.cluster_id == "":
        raise BadInput(COMMAND, "--cluster-id is empty", "leave it out, or give an id")
    if arguments.initial_voters is not None:
        _check_voters(arguments.initial_voters, arguments)


def _check_voters(voters: tuple[TypedVoter, ...], arguments: argparse.Namespace) -> None:
    what = f"{COMMAND} --initial-voters"
    for name, values in (
        ("node id", [str(voter.node_id) for voter in voters]),
        ("address", [voter.address for voter in voters]),
        ("uuid", [voter.directory_uuid.hex() for voter in voters]),
    ):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise BadInput(
                what, f"the {name} {twice} is given twice", "each voter has one of its own"
            )
    if arguments.cluster_id is None and arguments.restore is None and len(voters) > 1:
        raise BadInput(
            what,
            "--cluster-id is missing, and all the voters must have the same",
            "draw one with `tidelog storage random-uuid` and give it to every voter",
        )


def _configuration(arguments: argparse.Namespace) -> "NodeConfiguration":
    from tidelog.cli.node.settings import read_text
    from tidelog.server.settings.loading import load

    text = "" if arguments.config is None else read_text(arguments.config, f"{COMMAND} --config")
    flags = {}
    if arguments.node_id is not None:
        flags["node_id"] = str(arguments.node_id)
    return load(
        file_text=text,
        file_name=arguments.config or "",
        environment=os.environ,
        flags=flags,
    )


def format_options(
    arguments: argparse.Namespace, configuration: "NodeConfiguration", data_dir: str
) -> "FormatOptions":
    """What the server is asked to format."""
    from tidelog.server.storage.formatting import FormatOptions, InitialVoter

    voters = tuple(
        InitialVoter(
            node_id=voter.node_id, address=voter.address, directory_uuid=voter.directory_uuid
        )
        for voter in arguments.initial_voters or ()
    )
    return FormatOptions(
        data_dir=data_dir,
        node_id=configuration.node_id,
        cluster_id=arguments.cluster_id or "",
        is_controller=not arguments.broker_only,
        standalone_address=_own_address(arguments, configuration) if arguments.standalone else "",
        voters=voters,
        default_replication_factor=arguments.default_replication_factor
        or configuration.default_replication_factor,
        broker_count=arguments.brokers or max(1, len(voters)),
        log_dirs=configuration.log_dirs,
    )


def _own_address(arguments: argparse.Namespace, configuration: "NodeConfiguration") -> str:
    listener = configuration.listeners.cluster
    found: str = arguments.address or listener.advertised or listener.bind
    if found.endswith(":0"):
        raise BadInput(
            f"{COMMAND} --standalone",
            f"the cluster listener is {found}, a port that changes with each start",
            "give listeners.cluster a port of its own, or say --address HOST:PORT",
        )
    return found


def _restore(arguments: argparse.Namespace, options: "FormatOptions") -> int:
    from tidelog.server.commands.restore import restore_storage

    formatted, image = restore_storage(options, Path(arguments.restore))
    if arguments.json:
        print_json(formatted)
    else:
        topics, brokers = count(len(image.topics), "topic"), count(len(image.brokers), "broker")
        print(as_text(formatted))
        print(
            f"restored: {topics} with {count(image.partition_count, 'partition')}, {brokers}; "
            "a broker is fenced until it starts"
        )
    return EXIT_OK


def as_text(formatted: "Formatted") -> str:
    """What a person reads."""
    lines = [
        f"formatted {formatted.data_dir}",
        f"  cluster id:     {formatted.cluster_id}",
        f"  node id:        {formatted.node_id}",
    ]
    if formatted.directory_uuid:
        lines.append(f"  directory uuid: {formatted.directory_uuid}")
        voters = ", ".join(map(str, formatted.voters))
        told = f"first voters {voters}" if voters else "joins as a learner"
        lines.append(f"  quorum:         {told}")
    else:
        lines.append("  quorum:         no part in it")
    if formatted.default_replication_factor:
        lines.append(
            f"  replicas:       {formatted.default_replication_factor} of each partition, where a "
            "topic asks for no number"
        )
    return "\n".join(lines)
