"""`tidelog produce`: lines from stdin, each a record.

Owns how a line becomes key and value, and the promise behind exit code 0: every line is stored as
`acks` says. A line whose outcome is unknown is sent again only under a number by which the cluster
knows it (`enable_idempotence`). Stop 1 of a record's walk.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.errors import EXIT_OK, BadInput, CommandError, print_stderr
from tidelog.cli.escapes import unescape
from tidelog.cli.interrupt import on_interrupt
from tidelog.cli.parser import Parser, add_bootstrap, number, pair
from tidelog.cli.terminal import is_terminal
from tidelog.cli.waiting import show_warnings

if TYPE_CHECKING:
    from tidelog.cli.tally import Tally
    from tidelog.client import Producer, SendFuture

DESCRIPTION: Final = (
    "Write each line of stdin as a record, without its line end. On a terminal a `>` asks "
    "for each line, and Ctrl-D ends. Exit code 0 means that every line is stored: with "
    "acks=all, the default, on disk. A topic that is not there is created, if the cluster "
    "allows it."
)
EXAMPLES: Final = (
    ("printf 'hello\\nworld\\n' | tidelog produce greetings", "two records"),
    ("tidelog produce orders -K , < orders.csv", "key before the first comma, value behind it"),
    (
        "tidelog produce orders -z zstd -X linger_ms=50 < orders.txt",
        "compressed, in larger batches",
    ),
    ("tidelog produce orders -H source=till-4 -p 2 < orders.txt", "a header, one partition"),
)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_PARTITION_MAX: Final = 2_147_483_646

Send = Callable[[bytes], "SendFuture"]


def configure(parser: Parser) -> None:
    """Topic, what a line means, how it is sent."""
    parser.add_argument("topic", metavar="TOPIC", help="where to")
    parser.add_argument(
        "-K",
        "--key-separator",
        metavar="SEP",
        help="key before the first SEP, value behind it; a line without SEP has no key",
    )
    parser.add_argument(
        "-D", "--delimiter", default="\\n", metavar="SEP", help="what ends a record (default: \\n)"
    )
    parser.add_argument(
        "-Z", "--null", action="store_true", help="an empty key or value is null, not empty bytes"
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=number(0, _PARTITION_MAX, name="a partition"),
        metavar="N",
        help="this partition (default: by key; without a key they take turns)",
    )
    parser.add_argument(
        "-H",
        "--header",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated",
    )
    parser.add_argument(
        "-z", "--compression", choices=CODECS, metavar="CODEC", help=", ".join(CODECS)
    )
    from tidelog.cli.client_options import add_options

    add_options(parser)
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send every line, wait for every answer."""
    from tidelog.cli.tally import Tally
    from tidelog.client import SendFuture

    if sys.stdin is None:
        raise BadInput("tidelog produce", "stdin is closed", "hand the lines in: < FILE")
    show_warnings()
    producer = _make_producer(arguments)
    tally = Tally(SendFuture.succeeded)
    send = _make_send(producer, arguments)
    delimiter = unescape(_bytes(arguments.delimiter), what="-D")
    if not delimiter:
        raise BadInput("tidelog produce -D", "the delimiter is empty", "for example -D '\\0'")
    _check_partition(producer, arguments)
    on_interrupt(lambda: print_stderr(_interrupted(tally)))
    if sys.stdin.isatty():
        _converse(send, tally)
    else:
        _pump(send, tally, producer, delimiter)
    producer.close()
    return EXIT_OK


def _interrupted(tally: "Tally") -> str:
    tally.settle_all()
    return f"interrupted: {describe(tally)}"


def describe(tally: "Tally") -> str:
    """How many lines came to what."""
    if not tally.sent:
        return "nothing was sent"
    parts = [f"{tally.stored} of {tally.sent} lines are stored"]
    if tally.refused:
        parts.append(f"{tally.refused} are not stored")
    if tally.indeterminate + tally.on_their_way:
        parts.append(f"{tally.indeterminate + tally.on_their_way} may or may not be stored")
    return ", ".join(parts)


def _make_producer(arguments: argparse.Namespace) -> "Producer":
    from tidelog.cli.admin import CLIENT_ID, REACH_TIMEOUT_MS, bootstrap_servers
    from tidelog.cli.client_options import convert
    from tidelog.client import Producer
    from tidelog.client.options import ProducerOptions

    options = convert(arguments.option, ProducerOptions, "tidelog produce")
    if arguments.compression is not None:
        if "compression_type" in options:
            raise BadInput(
                "tidelog produce",
                "-z and -X compression_type are given both",
                "leave one of them out",
            )
        options["compression_type"] = arguments.compression
    defaults: dict[str, Any] = {"client_id": CLIENT_ID, "bootstrap_timeout_ms": REACH_TIMEOUT_MS}
    return Producer(bootstrap_servers=bootstrap_servers(arguments), **{**defaults, **options})


def _make_send(producer: "Producer", arguments: argparse.Namespace) -> Send:
    """What is done with one line."""
    topic, partition = arguments.topic, arguments.partition
    headers = [(_text_of(name), _bytes(value)) for name, value in arguments.header] or None
    null = None if arguments.null else b""
    send = producer.send
    if arguments.key_separator is None:
        if headers is None and partition is None and null is not None:
            return lambda line: send(topic, line)
        return lambda line: send(topic, line or null, None, headers, partition)
    separator = unescape(_bytes(arguments.key_separator), what="-K")
    if not separator:
        raise BadInput(
            "tidelog produce -K", "the separator is empty", "for example -K , or -K '\\t'"
        )

    def send_keyed(line: bytes) -> "SendFuture":
        key, found, value = line.partition(separator)
        if not found:
            return send(topic, line or null, None, headers, partition)
        return send(topic, value or null, key or null, headers, partition)

    return send_keyed


def _check_partition(producer: "Producer", arguments: argparse.Namespace) -> None:
    """Fail before the first line is read, rather than at it."""
    count = len(producer.partitions_for(arguments.topic))
    if arguments.partition is not None and arguments.partition >= count:
        raise BadInput(
            f"tidelog produce {arguments.topic} -p {arguments.partition}",
            f"{arguments.topic} has {count} partition{'s' if count != 1 else ''}, numbered from 0",
            f"choose a partition from 0 to {count - 1}",
        )


def _pump(send: Send, tally: "Tally", producer: "Producer", delimiter: bytes) -> None:
    """From a pipe or file: many lines on their way at once."""
    from tidelog.cli.lines import read_lines

    for lines in read_lines(sys.stdin.fileno(), delimiter):
        _send_all(send, tally, lines, producer)
        tally.settle()
        if tally.first_error is not None:
            break
    producer.flush()
    tally.settle()
    _raise_failed(tally)


def _send_all(send: Send, tally: "Tally", lines: list[bytes], producer: "Producer") -> None:
    """A line that cannot be sent ends the command; those before it keep their outcome."""
    from tidelog.wire.errors import TidelogError

    futures: list[SendFuture] = []
    append = futures.append
    tally.begin(futures)
    try:
        for line in lines:
            append(send(line))
    except TidelogError as error:
        tally.add(futures)
        producer.flush()
        tally.settle()
        _raise_failed(tally)
        raise CommandError(
            f"{error.tried}: line {tally.sent + 1} is not stored [{error.code.name}]",
            f"{error.happened}; {_before(tally)}",
            error.hint,
        ) from None
    tally.add(futures)


def _before(tally: "Tally") -> str:
    if not tally.sent:
        return "it is the first one"
    return (
        f"the {tally.sent} before it are stored" if tally.sent > 1 else "the one before is stored"
    )


def _raise_failed(tally: "Tally") -> None:
    error = tally.first_error
    if error is not None:
        raise CommandError(
            f"{error.tried}: {describe(tally)} [{error.code.name}]",
            f"line {tally.first_failed_line}: {error.happened}",
            error.hint,
        )


def _converse(send: Send, tally: "Tally") -> None:
    """With a person: one line at a time, the next prompt says that it is stored."""
    prompt, end = ("> ", "\n") if is_terminal(sys.stderr) else ("", "")
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            print(end=end, file=sys.stderr)
            return
        future = send(line.removesuffix(b"\n"))
        tally.add([future])
        future.get()
        tally.settle()


def _bytes(text: str) -> bytes:
    return os.fsencode(text)


def _text_of(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"tidelog produce -H {name!a}", "the name of a header is text", "use UTF-8"
        ) from None
    return name
