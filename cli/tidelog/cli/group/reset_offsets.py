"""`tidelog group reset-offsets`: where a group goes on reading.

Owns which partitions are meant and when something is done. It must never set an offset that it has
not shown, nor any while the group has members: the cluster refuses that, in a dry run too.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, number
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import add_places, is_meant
from tidelog.cli.group.targets import COMMAND, OFFSET_MAX
from tidelog.cli.show.errors import EXIT_OK, BadInput, print_stderr
from tidelog.cli.show.table import table

if TYPE_CHECKING:
    from tidelog.cli.group.arguments import Place
    from tidelog.cli.group.targets import Step, Target
    from tidelog.client import AdminClient, TopicPartition

DESCRIPTION: Final = (
    "Set where a consumer group goes on reading. The group must have no members. Without "
    "--execute it only shows what would change: the offset committed now, the new one, how far "
    "they are apart, and how many records there would be to read (Lag). An offset that the "
    "partition does not hold becomes its start or its end, and the note says so."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing --to-earliest", "what would change"),
    (f"{COMMAND} billing orders --to-datetime 2023-11-14T22:13:20Z --execute", "since a moment"),
    (f"{COMMAND} billing orders:0 --shift-by -100 --execute", "the last hundred once more"),
    (f"{COMMAND} billing --by-duration 2h --execute", "the last two hours once more"),
    (f"{COMMAND} billing --to-current --export offsets.csv", "keep a copy of the offsets"),
    (f"{COMMAND} billing --from-file offsets.csv --execute", "and go back to it"),
)
_HEAD: Final = ("Topic", "Partition", "Committed", "New", "Change", "Lag", "Note")
_WAYS: Final = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "to_datetime",
    "shift_by",
    "by_duration",
    "from_file",
)


def configure(parser: Parser) -> None:
    """Whose, which, where to."""
    parser.add_argument("group", metavar="GROUP", help="the group; it may be a new one")
    add_places(parser, of="all that the group has committed, or those in the file")
    parser.add_argument("--to-earliest", action="store_true", help="where each partition begins")
    parser.add_argument("--to-latest", action="store_true", help="where each partition ends")
    parser.add_argument(
        "--to-current", action="store_true", help="what is committed; where nothing is: the end"
    )
    parser.add_argument(
        "--to-offset", type=number(0, OFFSET_MAX, name="an offset"), metavar="N", help="this offset"
    )
    parser.add_argument(
        "--to-datetime", metavar="TIME", help="the first record at or after (ISO 8601, or ms)"
    )
    parser.add_argument(
        "--shift-by",
        type=number(-OFFSET_MAX, OFFSET_MAX),
        metavar="N",
        help="so many records on, or back with a minus",
    )
    parser.add_argument(
        "--by-duration", metavar="TIME", help="so long ago: 90s, 15m, 36h, 7d, or PT15M"
    )
    parser.add_argument(
        "--from-file", metavar="FILE", help="what the file says: lines of TOPIC,PARTITION,OFFSET"
    )
    parser.add_argument(
        "--export", metavar="FILE", help="write the new offsets for --from-file; - is stdout"
    )
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {topic, partition, committed_offset, new_offset, log_start_offset, "
        "high_watermark, note, is_set}; committed_offset -1: nothing was committed",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plan, have the cluster check it, show it; set it if that was asked for."""
    target = target_of(arguments, time.time_ns() // 1_000_000)
    filed = _filed(arguments)
    with admin_client(arguments) as admin, controller_hint(admin):
        steps = plan(admin, arguments.group, arguments.places, target, filed)
        # What is only written to a file may be that of a group at work.
        if arguments.execute or arguments.export is None:
            admin.alter_group_offsets(
                arguments.group,
                {each.partition: each.new for each in steps},
                answer_timeout_ms(),
                validate_only=not arguments.execute,
            )
    _print(arguments, steps)
    return EXIT_OK


def target_of(arguments: argparse.Namespace, now_ms: int) -> "Target":
    """The one way that was chosen."""
    from tidelog.cli.group.targets import Target, duration_ms
    from tidelog.cli.records.start_offset import time_ms

    values = {name: getattr(arguments, name) for name in _WAYS}
    # By identity: an offset of 0 equals False.
    given = [name for name, value in values.items() if value is not None and value is not False]
    if len(given) != 1:
        ways = ", ".join(f"--{name.replace('_', '-')}" for name in _WAYS)
        why = "it is not said where to" if not given else "two places are named"
        raise BadInput(f"{COMMAND} {arguments.group}", why, f"choose one of {ways}")
    (way,) = given
    if way == "to_offset":
        return Target("offset", arguments.to_offset)
    if way == "shift_by":
        return Target("shift", arguments.shift_by)
    if way == "to_datetime":
        what = f"{COMMAND} --to-datetime {arguments.to_datetime}"
        return Target("time", time_ms(arguments.to_datetime, what))
    if way == "by_duration":
        return Target("time", max(0, now_ms - duration_ms(arguments.by_duration)))
    return Target(way.rpartition("_")[2])


def _filed(arguments: argparse.Namespace) -> "dict[TopicPartition, int]":
    if arguments.from_file is None:
        return {}
    from tidelog.cli.group.targets import read_file
    from tidelog.cli.node.settings import read_text

    text = read_text(arguments.from_file, f"{COMMAND} --from-file")
    return read_file(text, arguments.from_file)


def plan(
    admin: "AdminClient",
    group: str,
    places: "list[Place]",
    target: "Target",
    filed: "dict[TopicPartition, int]",
) -> "list[Step]":
    """A step for each partition that is meant, in order."""
    from tidelog.cli.group.targets import NOTHING, Bounds, step

    committed = admin.list_group_offsets(group, answer_timeout_ms())[group]
    if target.kind == "file":
        names = [name for name in sorted(filed) if not places or is_meant(name, places)]
    else:
        names = _meant(admin, places) if places else sorted(committed)
    if not names:
        raise BadInput(
            f"{COMMAND} {group}",
            "the file names no such partition" if filed else "the group has committed nothing",
            f"name topics: {COMMAND} {group} TOPIC ...; `tidelog group list` names the groups",
        )
    starts = admin.list_partition_offsets(dict.fromkeys(names, "earliest"))
    ends = admin.list_partition_offsets(dict.fromkeys(names, "latest"))
    wanted = dict(filed)
    if target.kind == "time":
        times = admin.list_partition_offsets(dict.fromkeys(names, target.number))
        wanted = {name: found.offset for name, found in times.items() if found is not None}
    steps = []
    for name in names:
        start, end = starts[name], ends[name]
        assert start is not None, "a partition has a beginning"
        assert end is not None, "and an end"
        at = committed[name].offset if name in committed else NOTHING
        bounds = Bounds(at, start.offset, end.offset, wanted.get(name, NOTHING))
        steps.append(step(target, name, bounds))
    return steps


def _meant(admin: "AdminClient", places: "list[Place]") -> "list[TopicPartition]":
    """What was named; a topic stands for all of its partitions."""
    from tidelog.client import TopicPartition

    topics = {each.name: each for each in admin.describe_topics({topic for topic, _ in places})}
    found: set[TopicPartition] = set()
    for topic, partition in places:
        numbers = range(len(topics[topic].partitions))
        if partition is not None and partition not in numbers:
            raise BadInput(
                f"{COMMAND} {topic}:{partition}",
                f"{topic} has the partitions 0 to {len(numbers) - 1}",
                "choose one of them, or the topic alone for all",
            )
        found.update(
            TopicPartition(topic, each) for each in (numbers if partition is None else [partition])
        )
    return sorted(found)


def _print(arguments: argparse.Namespace, steps: "list[Step]") -> None:
    from tidelog.cli.group.targets import as_json, as_rows, export

    if arguments.export == "-":
        sys.stdout.write(export(steps))
    elif arguments.export is not None:
        Path(arguments.export).write_text(export(steps), encoding="utf-8")
    if arguments.json:
        print_json(as_json(steps, is_set=arguments.execute))
    elif arguments.export != "-":
        right = "Partition Committed New Change Lag"
        print(table(_HEAD, as_rows(steps), right=right))
    if not arguments.execute and not arguments.json:
        told = "no offset was set; add --execute"
        print_stderr(told) if arguments.export == "-" else print(told)
