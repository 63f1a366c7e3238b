"""`tidelog broker log-dirs`."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, number
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import known, size, table

if TYPE_CHECKING:
    from tidelog.client.types.directories import BrokerLogDirs, LogDir, LogDirReplica
    from tidelog.wire.errors import TidelogError

DESCRIPTION: Final = (
    "Describe the data directories of brokers: where they are, how many replicas they hold and "
    "of what size, the room that is left, and which have stopped and why. Any broker answers for "
    "all; one that it cannot ask is shown with the reason."
)
EXAMPLES: Final = (
    ("tidelog broker log-dirs", "all directories of all brokers"),
    ("tidelog broker log-dirs --broker 2 --replicas", "with a line for each replica"),
    ("tidelog broker log-dirs --topic orders --replicas", "where one topic lies, and how large"),
    ("tidelog broker log-dirs --json", "for programs"),
)
BROKER_ID_MAX: Final = 2_147_483_647
_HEAD: Final = ("Broker", "Directory", "State", "Replicas", "Size", "Free")
_REPLICA_HEAD: Final = ("Broker", "Directory", "Replica", "LogEnd", "Lag", "Size", "State")


def configure(parser: Parser) -> None:
    """Whose, which, and in what form."""
    parser.add_argument(
        "--broker",
        action="append",
        type=number(0, BROKER_ID_MAX, name="a broker id"),
        metavar="ID",
        help="only of this broker; may be given several times",
    )
    parser.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC",
        help="only replicas of this topic; may be given several times",
    )
    parser.add_argument("--replicas", action="store_true", help="a line for each replica")
    add_json(
        parser,
        "a list of {broker_id, failure, directories: [{path, directory_uuid, failure, "
        "free_bytes, size_bytes, replicas: [{topic, topic_id, partition, size_bytes, "
        "log_end_offset, lag, failure}]}]}; free_bytes -1: not known",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin:
        found = admin.describe_log_dirs(arguments.broker or (), arguments.topic or ())
    if arguments.json:
        print_json([as_json(each) for each in found])
    else:
        print(as_text(found, replicas=arguments.replicas))
    return EXIT_OK


def as_text(found: "list[BrokerLogDirs]", *, replicas: bool) -> str:
    """What a person reads."""
    rows = [row for broker in found for row in _rows(broker)]
    lines = table(_HEAD, rows, right="Broker Replicas Size Free").splitlines()
    if replicas:
        below = [
            (
                broker.broker_id,
                directory.path,
                f"{each.topic or each.topic_id.hex()}:{each.partition}",
                known(each.log_end_offset),
                each.offset_lag,
                size(each.size_bytes),
                "stopped" if each.failure is not None else "ok",
            )
            for broker in found
            for directory in broker.directories
            for each in directory.replicas
        ]
        lines += ["", *table(_REPLICA_HEAD, below, right="Broker LogEnd Lag Size").splitlines()]
    lines += [line for broker in found for line in _troubles(broker)]
    return "\n".join(lines)


def _rows(broker: "BrokerLogDirs") -> Iterator[tuple[object, ...]]:
    if broker.failure is not None:
        yield (broker.broker_id, "-", "not reached", "-", "-", "-")
    for each in broker.directories:
        yield (
            broker.broker_id,
            each.path,
            "ok" if each.failure is None else "stopped",
            len(each.replicas),
            size(each.size_bytes),
            size(each.free_bytes),
        )


def _troubles(broker: "BrokerLogDirs") -> Iterator[str]:
    if broker.failure is not None:
        yield f"broker {broker.broker_id}: {_text(broker.failure)}"
    for directory in broker.directories:
        if directory.failure is not None:
            yield f"broker {broker.broker_id}, {directory.path}: {_text(directory.failure)}"
            continue
        for each in directory.replicas:
            if each.failure is not None:
                name = f"{each.topic or each.topic_id.hex()}:{each.partition}"
                yield f"broker {broker.broker_id}, {name}: {_text(each.failure)}"


def _text(error: "TidelogError") -> str:
    return f"[{error.code.name}] {error.happened}" + (
        f" (hint: {error.hint})" if error.hint else ""
    )


def as_json(broker: "BrokerLogDirs") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "broker_id": broker.broker_id,
        "failure": None if broker.failure is None else str(broker.failure),
        "directories": [_directory_json(each) for each in broker.directories],
    }


def _directory_json(directory: "LogDir") -> dict[str, object]:
    return {
        "path": directory.path,
        "directory_uuid": directory.directory_uuid.hex(),
        "failure": None if directory.failure is None else str(directory.failure),
        "free_bytes": directory.free_bytes,
        "size_bytes": directory.size_bytes,
        "replicas": [_replica_json(each) for each in directory.replicas],
    }


def _replica_json(replica: "LogDirReplica") -> dict[str, object]:
    return {
        "topic": replica.topic,
        "topic_id": replica.topic_id.hex(),
        "partition": replica.partition,
        "size_bytes": replica.size_bytes,
        "log_end_offset": replica.log_end_offset,
        "lag": replica.offset_lag,
        "failure": None if replica.failure is None else str(replica.failure),
    }
