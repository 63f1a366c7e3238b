"""`tidelog topic trim`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.partition.arguments import shown, topic_partition
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, BadInput

if TYPE_CHECKING:
    from tidelog.client import AdminClient, TopicPartition
    from tidelog.wire.errors import TidelogError

COMMAND: Final = "tidelog topic trim"
DESCRIPTION: Final = (
    "Delete records from the head of partitions: all below an offset, or up to the end. Without "
    "--execute it only says how many offsets would go. What Kafka's users know as "
    "kafka-delete-records."
)
EXAMPLES: Final = (
    (f"{COMMAND} orders:0=1500 orders:1=900", "what would be lost"),
    (f"{COMMAND} orders:0=1500 --execute", "delete all below offset 1500"),
    (f"{COMMAND} orders:0=end --execute", "delete all that is there now"),
)
END: Final = "end"
_ALL: Final = -1
_OFFSET_MAX: Final = 2**63 - 1


def trim_point(text: str) -> "tuple[TopicPartition, int]":
    """`TOPIC:PARTITION=OFFSET`; `end` as -1."""
    place, equals, offset = text.rpartition("=")
    is_number = offset.isascii() and offset.isdigit() and int(offset) <= _OFFSET_MAX
    if not equals or not (is_number or offset == END):
        raise argparse.ArgumentTypeError(
            f"`{text}` is not TOPIC:PARTITION=OFFSET or TOPIC:PARTITION={END}"
        )
    return topic_partition(place), _ALL if offset == END else int(offset)


def configure(parser: Parser) -> None:
    """Where each partition is to begin."""
    point = "TOPIC:PARTITION=OFFSET"
    parser.add_argument(
        "point", type=trim_point, metavar=point, help="all below the offset goes; end: all"
    )
    parser.add_argument("points", nargs="*", type=trim_point, metavar=point, help="more of them")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {topic, partition, before_offset, log_start_offset, is_trimmed, error}; "
        "before_offset -1: end; log_start_offset is the first offset that is left, or would be; "
        "error null: nothing is wrong",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what goes; delete it if that was asked for."""
    from tidelog.wire.errors import TidelogError

    points = [arguments.point, *arguments.points]
    wanted = dict(points)
    if len(wanted) < len(points):
        raise BadInput(COMMAND, "a partition is named twice", "name each partition once")
    with admin_client(arguments) as admin:
        if arguments.execute:
            outcomes = admin.try_delete_records(wanted)
            before: dict[TopicPartition, int] = {}
        else:
            before, outcomes = _foreseen(admin, wanted)
    rows = [
        _as_json(partition, wanted[partition], outcome, is_executed=arguments.execute)
        for partition, outcome in outcomes.items()
    ]
    if arguments.json:
        print_json(rows)
    else:
        for partition, outcome in outcomes.items():
            print(_line(partition, outcome, before.get(partition)))
        if not arguments.execute:
            print("nothing was done; add --execute")
    has_failed = any(isinstance(each, TidelogError) for each in outcomes.values())
    return EXIT_FAILED if has_failed else EXIT_OK


def _foreseen(
    admin: "AdminClient", wanted: "dict[TopicPartition, int]"
) -> "tuple[dict[TopicPartition, int], dict[TopicPartition, int | TidelogError]]":
    """Where each partition begins now, and where it would."""
    from tidelog.wire.errors import ErrorCode, TidelogError

    starts = admin.list_partition_offsets(dict.fromkeys(wanted, "earliest"))
    ends = admin.list_partition_offsets(dict.fromkeys(wanted, "latest"))
    before: dict[TopicPartition, int] = {}
    foreseen: dict[TopicPartition, int | TidelogError] = {}
    for partition, offset in wanted.items():
        start, end = starts[partition], ends[partition]
        assert start is not None, "a partition has a beginning"
        assert end is not None, "and an end"
        before[partition] = start.offset
        if offset > end.offset:
            foreseen[partition] = TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                tried=f"trim {shown(partition)}",
                happened=f"offset {offset} is above the high watermark {end.offset}",
            )
        else:
            foreseen[partition] = end.offset if offset == _ALL else max(start.offset, offset)
    return before, foreseen


def _line(partition: "TopicPartition", outcome: "int | TidelogError", before: int | None) -> str:
    name = shown(partition)
    if not isinstance(outcome, int):
        return f"{name}: {outcome.code.name}: {outcome.happened}"
    if before is None:
        return f"{name} begins at offset {outcome}"
    return f"{name} would begin at offset {outcome}, now {before}: {outcome - before} offsets go"


def _as_json(
    partition: "TopicPartition",
    before_offset: int,
    outcome: "int | TidelogError",
    *,
    is_executed: bool,
) -> dict[str, object]:
    """What a program reads; the names stay."""
    is_right = isinstance(outcome, int)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "before_offset": before_offset,
        "log_start_offset": outcome if is_right else -1,
        "is_trimmed": is_executed and is_right,
        "error": None if isinstance(outcome, int) else outcome.code.name,
    }
