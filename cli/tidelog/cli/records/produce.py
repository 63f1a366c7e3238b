"""`tidelog produce`: lines from stdin, each a record.

Owns how a line becomes key and value, and the promise behind exit code 0: every line is stored as
`acks` says. A line whose outcome is unknown is sent again only under a number by which the cluster
knows it (`enable_idempotence`). Stop 1 of a record's walk.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tidelog.cli.frame.interrupt import on_interrupt
from tidelog.cli.frame.parser import Parser, add_bootstrap, number, pair
from tidelog.cli.frame.waiting import show_warnings
from tidelog.cli.show.errors import EXIT_OK, BadInput, CommandError, print_stderr
from tidelog.cli.show.escapes import unescape
from tidelog.cli.show.terminal import is_terminal

if TYPE_CHECKING:
    from tidelog.cli.show.tally import Tally
    from tidelog.client import Producer, SendFuture
    from tidelog.wire.errors import TidelogError

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

Split = Callable[[list[bytes]], tuple[list[bytes | None], list[bytes | None] | None]]
"""Lines to values, and keys if there are any."""


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
    from tidelog.cli.frame.client_options import add_options

    add_options(parser)
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send every line, wait for every answer."""
    from tidelog.cli.show.tally import Tally

    if sys.stdin is None:
        raise BadInput("tidelog produce", "stdin is closed", "hand the lines in: < FILE")
    show_warnings()
    producer = _make_producer(arguments)
    tally = Tally()
    sender = _Sender(producer, tally, arguments)
    delimiter = unescape(_bytes(arguments.delimiter), what="-D")
    if not delimiter:
        raise BadInput("tidelog produce -D", "the delimiter is empty", "for example -D '\\0'")
    _check_partition(producer, arguments)
    on_interrupt(lambda: print_stderr(_interrupted(tally)))
    if sys.stdin.isatty():
        _converse(sender)
    else:
        _pump(sender, delimiter)
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
    from tidelog.cli.frame.admin import CLIENT_ID, bootstrap_servers
    from tidelog.cli.frame.client_options import convert
    from tidelog.cli.frame.patience import reach_timeout_ms
    from tidelog.client import Producer
    from tidelog.client.arguments.options import ProducerOptions

    options = convert(arguments.option, ProducerOptions, "tidelog produce")
    if arguments.compression is not None:
        if "compression_type" in options:
            raise BadInput(
                "tidelog produce",
                "-z and -X compression_type are given both",
                "leave one of them out",
            )
        options["compression_type"] = arguments.compression
    defaults: dict[str, Any] = {"client_id": CLIENT_ID, "bootstrap_timeout_ms": reach_timeout_ms()}
    return Producer(bootstrap_servers=bootstrap_servers(arguments), **{**defaults, **options})


def make_split(arguments: argparse.Namespace) -> Split:
    """What becomes of lines."""
    null = None if arguments.null else b""
    if arguments.key_separator is None:
        if null is not None:
            return lambda lines: (list(lines), None)
        return lambda lines: ([line or None for line in lines], None)
    separator = unescape(_bytes(arguments.key_separator), what="-K")
    if not separator:
        raise BadInput(
            "tidelog produce -K", "the separator is empty", "for example -K , or -K '\\t'"
        )

    def split_keys(lines: list[bytes]) -> tuple[list[bytes | None], list[bytes | None] | None]:
        values: list[bytes | None] = []
        keys: list[bytes | None] = []
        for line in lines:
            key, found, value = line.partition(separator)
            values.append((value if found else line) or null)
            keys.append((key or null) if found else None)
        return values, keys

    return split_keys


def _check_partition(producer: "Producer", arguments: argparse.Namespace) -> None:
    """Fail before the first line is read, rather than at it."""
    count = len(producer.partitions_for(arguments.topic))
    if arguments.partition is not None and arguments.partition >= count:
        raise BadInput(
            f"tidelog produce {arguments.topic} -p {arguments.partition}",
            f"{arguments.topic} has {count} partition{'s' if count != 1 else ''}, numbered from 0",
            f"choose a partition from 0 to {count - 1}",
        )


class _Sender:
    """Sends lines, many at once, and counts them."""

    def __init__(self, producer: "Producer", tally: "Tally", arguments: argparse.Namespace) -> None:
        self.producer = producer
        self.tally = tally
        self._topic = arguments.topic
        self._partition = arguments.partition
        self._split = make_split(arguments)
        headers = [(_text_of(name), _bytes(value)) for name, value in arguments.header]
        self._headers = headers or None

    def send(self, lines: list[bytes]) -> None:
        """A line that cannot be sent ends the command; those before it keep their outcome."""
        from tidelog.cli.show.tally import SentTogether
        from tidelog.client import PartlySentError
        from tidelog.wire.errors import TidelogError

        values, keys = self._split(lines)
        headers = None if self._headers is None else [self._headers] * len(lines)
        self.tally.begin(len(lines))
        try:
            future = self.producer.send_batch(
                self._topic, values, keys, headers, partition=self._partition
            )
        except PartlySentError as error:
            self.tally.add(SentTogether(error.sent))
            self._refuse(error)
        except TidelogError:
            # All are checked before any is taken: one by one it shows which one is wrong.
            self._send_singly(values, keys)
        else:
            self.tally.add(SentTogether(future))

    def _send_singly(self, values: list[bytes | None], keys: list[bytes | None] | None) -> None:
        from tidelog.cli.show.tally import SentSingly
        from tidelog.wire.errors import TidelogError

        futures: list[SendFuture] = []
        try:
            for value, key in zip(values, keys or [None] * len(values), strict=True):
                futures.append(
                    self.producer.send(self._topic, value, key, self._headers, self._partition)
                )
        except TidelogError as error:
            self.tally.add(SentSingly(futures))
            self._refuse(error)
        self.tally.add(SentSingly(futures))

    def _refuse(self, error: "TidelogError") -> NoReturn:
        self.producer.flush()
        self.tally.settle()
        _raise_failed(self.tally)
        raise CommandError(
            f"{error.tried}: line {self.tally.sent + 1} is not stored [{error.code.name}]",
            f"{error.happened}; {_before(self.tally)}",
            error.hint,
        ) from None


def _pump(sender: _Sender, delimiter: bytes) -> None:
    """From a pipe or file: many lines on their way at once."""
    from tidelog.cli.show.lines import read_lines

    for lines in read_lines(sys.stdin.fileno(), delimiter):
        sender.send(lines)
        sender.tally.settle()
        if sender.tally.first_error is not None:
            break
    sender.producer.flush()
    sender.tally.settle()
    _raise_failed(sender.tally)


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


def _converse(sender: _Sender) -> None:
    """With a person: one line at a time, the next prompt says that it is stored."""
    prompt, end = ("> ", "\n") if is_terminal(sys.stderr) else ("", "")
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not line:
            print(end=end, file=sys.stderr)
            return
        sender.send([line.removesuffix(b"\n")])
        sender.producer.flush()
        sender.tally.settle()
        _raise_failed(sender.tally)


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
