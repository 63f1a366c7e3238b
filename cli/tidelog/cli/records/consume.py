"""`tidelog consume`: records to stdout.

Owns where reading begins and when it ends. It decodes whole batches and writes in large
pieces, but never holds a record back to fill one. What a group adds is in `consume_group`. Stop 10
of a record's walk.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.frame.parser import Parser, add_bootstrap, number
from tidelog.cli.show.errors import EXIT_OK, BadInput, print_stderr
from tidelog.wire.nearest import nearest_name

if TYPE_CHECKING:
    from tidelog.cli.records.format import Record
    from tidelog.cli.records.start_offset import Start
    from tidelog.client import Consumer, TopicPartition

DESCRIPTION: Final = (
    "Read records of a topic to stdout, each partition in its order. Without -o it begins "
    "at the end and waits for what comes; Ctrl-C stops it. Nothing is committed without "
    "-g, and no topic is created.\n\n"
    "Formats: %t topic, %p partition, %o offset, %k key, %v or %s value, %h headers as "
    "name=value,..., %T timestamp in ms, %K and %S length of key and value (-1: null), %%; "
    "\\n \\t \\r \\0 \\\\ \\xHH. Keys and values come through as the bytes that they are."
)
EXAMPLES: Final = (
    ("tidelog consume orders -o beginning -e", "everything there is, then stop"),
    ("tidelog consume orders", "what comes from now on"),
    ("tidelog consume orders -o beginning -e -K ,", "key and value, as `produce -K ,` takes them"),
    ("tidelog consume orders -o -5 -e -f '%p %o %k %v\\n'", "the last five of each partition"),
    ("tidelog consume orders -g billing", "share it with the group's other members"),
    ("tidelog consume orders -o @2023-11-14T22:13:20Z -c 10", "ten from a moment on"),
    ("tidelog consume orders -o beginning -e --json", "a JSON object a line"),
)
Render = Callable[[str, int, Sequence["Record"]], bytes]
"""Topic, partition and records to what is printed."""
_PARTITION_MAX: Final = 2_147_483_646
_STALL_SECONDS_MAX: Final = 30.0
"""With -e the end is known to exist: nothing for so long is a failure, not a silence."""
_POLL_MS: Final = 500
_POLL_BYTES: Final = 4 * 1024 * 1024


def configure(parser: Parser) -> None:
    """What is read, how it is printed."""
    from tidelog.cli.frame.client_options import add_options

    parser.add_argument("topic", metavar="TOPIC", help="what to read")
    parser.add_argument(
        "-o",
        "--offset",
        default="end",
        metavar="WHERE",
        help="beginning, end (default), N (an offset), -N (N before the end of each partition), "
        "@TIME (ms since 1970 or ISO 8601)",
    )
    parser.add_argument(
        "-e",
        "--exit",
        action="store_true",
        help="stop at the end, as it was when the command started",
    )
    parser.add_argument(
        "-c", "--count", type=number(1, 2**63 - 1), metavar="N", help="stop after N records"
    )
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="as a member of this group: read the partitions that it assigns, from where it has "
        "come to, and commit what is printed; -o beginning or end: where it has committed nothing",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=number(0, _PARTITION_MAX, name="a partition"),
        action="append",
        default=[],
        metavar="N",
        help="only this partition; may be repeated",
    )
    _add_isolation(parser)
    _add_printing(parser)
    add_options(parser)
    add_bootstrap(parser)


def _add_isolation(parser: Parser) -> None:
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        metavar="LEVEL",
        help="read_uncommitted (default): records of open and aborted transactions too; "
        "read_committed: only those of committed transactions and of none, up to the first that "
        "is open",
    )


def _add_printing(parser: Parser) -> None:
    parser.add_argument(
        "-f", "--format", metavar="FORMAT", help="how a record is printed (default: %%v\\n)"
    )
    parser.add_argument(
        "-K", "--key-separator", metavar="SEP", help="print the key and SEP before the value"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="a JSON object a line: {topic, partition, offset, timestamp, timestamp_type, key, "
        "value, headers: [[name, value]]}; bytes that are not UTF-8 are {base64}",
    )
    parser.add_argument(
        "-Z", "--null", action="store_true", help="print NULL for null (default: nothing)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Read until the end, the count or Ctrl-C."""
    from tidelog.cli.records.start_offset import parse_start

    if sys.stdout is None:
        raise BadInput("tidelog consume", "stdout is closed", "give it a file or a pipe")
    start = parse_start(arguments.offset)
    printing = _printing(arguments)
    if arguments.group is not None:
        return _run_in_group(arguments, printing, start)
    with _make_consumer(arguments, auto_offset_reset="none") as consumer:
        positions, ends = _bounds(consumer, arguments, start)
        if arguments.exit:
            positions = {name: at for name, at in positions.items() if at < ends[name]}
        else:
            ends = {}
            _announce(arguments, len(positions))
        if positions:
            consumer.assign(positions)
            for name, offset in positions.items():
                consumer.seek(name, offset)
            _Reading(consumer, printing, ends, set(positions)).run()
    return EXIT_OK


def _run_in_group(arguments: argparse.Namespace, printing: "Printing", start: "Start") -> int:
    """As a member: which partitions it reads the group says, and where it goes on."""
    from tidelog.cli.records.consume_group import GroupReading

    what = f"tidelog consume {arguments.topic} -g {arguments.group}"
    if arguments.partition:
        raise BadInput(what, "a group assigns partitions itself", "leave -p out, or -g")
    if start.kind not in ("beginning", "end"):
        why = f"the group says where it goes on, not -o {arguments.offset}"
        hint = f"tidelog group reset-offsets {arguments.group} {arguments.topic} --help"
        raise BadInput(what, why, hint)
    reset = "earliest" if start.kind == "beginning" else "latest"
    with _make_consumer(arguments, auto_offset_reset=reset) as consumer:
        names = _partitions(consumer, arguments)
        ends = consumer.end_offsets(names) if arguments.exit else None
        consumer.subscribe([arguments.topic])
        GroupReading(consumer, printing, ends).run()
    return EXIT_OK


class Printing:
    """What becomes of a batch: which of its records are wanted, and how they look."""

    def __init__(
        self, render: Render, count: int | None = None, value_end: bytes | None = None
    ) -> None:
        self._render = render
        self._left = count
        self._value_end = value_end
        """Behind each value, where only values are printed."""

    @property
    def is_full(self) -> bool:
        """As many as were asked for are printed."""
        return self._left == 0

    def take(self, batch: Any, end: int | None) -> tuple[bytes, int | None]:
        """A batch's wanted records as they are printed, and the offset behind the last of them;
        None: nothing of it was looked at."""
        if self.is_full:
            return b"", None
        header = batch.header
        if batch.is_left_out:
            return b"", batch.next_offset
        is_whole = header.base_offset >= batch.first_offset and (
            end is None or batch.next_offset <= end
        )
        if self._value_end is not None and self._left is None and is_whole:
            from tidelog.cli.show.value_lines import open_values

            lines, records = open_values(batch.data, self._value_end)
            if lines is not None:
                return lines, batch.next_offset
        else:
            from tidelog.wire.batch import decode_records

            records = decode_records(batch.data, is_compacted=True)
        if header.base_offset < batch.first_offset:
            records = [record for record in records if record[0] >= batch.first_offset]
        if end is not None and batch.next_offset > end:
            records = [record for record in records if record[0] < end]
        next_offset = batch.next_offset
        if self._left is not None:
            if len(records) > self._left:
                next_offset = records[self._left][0]
                records = records[: self._left]
            self._left -= len(records)
        name = batch.topic_partition
        return self._render(name.topic, name.partition, records), next_offset


class _Reading:
    """The loop: batches in, bytes out."""

    def __init__(
        self,
        consumer: "Consumer",
        printing: Printing,
        ends: "dict[TopicPartition, int]",
        unfinished: "set[TopicPartition]",
    ) -> None:
        self._consumer = consumer
        self._printing = printing
        self._ends = ends
        """Empty: there is no end."""
        self._unfinished = unfinished

    def run(self) -> None:
        """Until all ends are reached or the count is used up."""
        import time

        last_news = time.monotonic()
        while self._unfinished and not self._printing.is_full:
            batches = self._consumer.poll_batches(_POLL_MS, _POLL_BYTES, include_left_out=True)
            if batches:
                last_news = time.monotonic()
                write_out(b"".join(map(self._take, batches)))
                continue
            check_reader(sys.stdout.fileno())
            if self._ends and time.monotonic() - last_news > _STALL_SECONDS_MAX:
                raise self._stalled()

    def _take(self, batch: Any) -> bytes:
        """A batch's wanted records as they are printed."""
        name = batch.topic_partition
        if name not in self._unfinished:
            return b""
        end = self._ends.get(name)
        rendered, _ = self._printing.take(batch, end)
        if end is not None and batch.next_offset >= end:
            self._unfinished.discard(name)
        return rendered

    def _stalled(self) -> Exception:
        from tidelog.wire.errors import ErrorCode, TidelogError

        waiting = ", ".join(f"{name.topic}-{name.partition}" for name in sorted(self._unfinished))
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried="read to the end",
            happened=f"nothing came for {_STALL_SECONDS_MAX:.0f} s from {waiting}",
            hint="look whether its leader runs: tidelog topic describe",
        )


def write_out(data: bytes) -> None:
    """Records as they are printed. Raises BrokenPipeError also where a pipe took a part before its
    reader went, which can look like a whole write: a group would commit what nobody has read.
    """
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    check_reader(sys.stdout.fileno())


def check_reader(descriptor: int) -> None:
    """Raise BrokenPipeError once nobody reads the pipe any more: a silent topic never writes."""
    import select

    if not hasattr(select, "poll"):
        return
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


def _printing(arguments: argparse.Namespace) -> Printing:
    null = b"NULL" if arguments.null else b""
    ways = {"--json": arguments.json, "-f": arguments.format, "-K": arguments.key_separator}
    given = [name for name, value in ways.items() if value not in (None, False)]
    if len(given) > 1:
        both = " and ".join(given)
        raise BadInput("tidelog consume", f"{both} are given both", "leave one of them out")
    if arguments.json:
        from tidelog.cli.records.json import render

        return Printing(render, arguments.count)
    from tidelog.cli.records.format import DEFAULT, RecordFormat

    text = DEFAULT if arguments.format is None else os.fsencode(arguments.format)
    if arguments.key_separator is not None:
        text = b"%k" + os.fsencode(arguments.key_separator).replace(b"%", b"%%") + DEFAULT
    format_ = RecordFormat(text, null=null)
    return Printing(format_.render, arguments.count, format_.value_end)


def _make_consumer(arguments: argparse.Namespace, *, auto_offset_reset: str) -> "Consumer":
    from tidelog.cli.frame.admin import CLIENT_ID, bootstrap_servers
    from tidelog.cli.frame.client_options import convert
    from tidelog.cli.frame.patience import reach_timeout_ms
    from tidelog.client import Consumer
    from tidelog.client.arguments.options import ConsumerOptions

    options = convert(arguments.option, ConsumerOptions, "tidelog consume")
    defaults: dict[str, Any] = {
        "client_id": CLIENT_ID,
        "bootstrap_timeout_ms": reach_timeout_ms(),
        "allow_auto_create_topics": False,
        # Without a group: records that vanish while they are read must not vanish in silence.
        "auto_offset_reset": auto_offset_reset,
        "group_id": arguments.group,
        "isolation_level": arguments.isolation,
        "enable_auto_commit": False,
    }
    return Consumer(bootstrap_servers=bootstrap_servers(arguments), **{**defaults, **options})


def _bounds(
    consumer: "Consumer", arguments: argparse.Namespace, start: "Start"
) -> "tuple[dict[TopicPartition, int], dict[TopicPartition, int]]":
    """Where each partition begins to be read, and where it ends now."""
    from tidelog.cli.records.start_offset import resolve

    names = _partitions(consumer, arguments)
    ends = consumer.end_offsets(names)
    beginnings = consumer.beginning_offsets(names) if start.kind != "end" else ends
    times: dict[TopicPartition, Any] = {}
    if start.kind == "time":
        times = dict(consumer.offsets_for_times(dict.fromkeys(names, start.number)))
    positions = {}
    for name in names:
        found = times.get(name)
        positions[name] = resolve(
            start,
            beginnings[name],
            ends[name],
            None if found is None else found.offset,
            topic=name.topic,
            partition=name.partition,
        )
    return positions, ends


def _partitions(consumer: "Consumer", arguments: argparse.Namespace) -> "list[TopicPartition]":
    from tidelog.client import TopicPartition

    topic = arguments.topic
    found = consumer.partitions_for_topic(topic)
    if found is None:
        raise _unknown(topic, sorted(consumer.topics()))
    for partition in arguments.partition:
        if partition not in found:
            raise BadInput(
                f"tidelog consume {topic} -p {partition}",
                f"{topic} has {len(found)} partition{'s' if len(found) != 1 else ''}, "
                "numbered from 0",
                f"choose a partition from 0 to {len(found) - 1}",
            )
    return [TopicPartition(topic, number) for number in sorted(set(arguments.partition) or found)]


def _unknown(topic: str, topics: list[str]) -> BadInput:
    found = nearest_name(topic, topics)
    return BadInput(
        f"read topic {topic} [UNKNOWN_TOPIC]",
        f"there is no topic `{topic}`",
        f"did you mean `{found}`?" if found else "`tidelog topic list` names those that there are",
    )


def _announce(arguments: argparse.Namespace, count: int) -> None:
    """To a person only: silence at the end of a topic looks like a hang."""
    from tidelog.cli.show.terminal import is_terminal

    if is_terminal(sys.stderr) and arguments.offset == "end":
        partitions = "1 partition" if count == 1 else f"{count} partitions"
        print_stderr(
            f"waiting for what comes to {arguments.topic} ({partitions}); "
            "-o beginning reads what is there; Ctrl-C stops"
        )
