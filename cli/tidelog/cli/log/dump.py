"""`tidelog log dump`: a segment file and what lies beside it, readable.

Owns the lines that it prints of a segment; `log.dump_files` owns those of the other files. It opens
the file to read only, also while a node writes to it, and stops at the first byte that contradicts
the format: everything before it was checked.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.log.dump_files import CHECKPOINT, MARKS, SIDECAR, kind_of, lines_of, read
from tidelog.cli.show.errors import EXIT_OK, BadInput, CommandError

if TYPE_CHECKING:
    from tidelog.wire.batch import BatchHeader, Buffer

DESCRIPTION: Final = (
    "Print a segment file of a partition, a line for each batch: where it begins in the file, its "
    "offsets, time, codec, size, epoch. Or a file beside segments: a .sidecar (what is derived "
    "from a sealed segment), the marks of a data directory (what is known to be durable), its "
    "log_checkpoint (what a clean stop left). Every checksum is checked; at the first damage it "
    "names the byte and ends with exit code 1. A node may run meanwhile: a batch that is being "
    "written shows as one whose last bytes are missing."
)
EXAMPLES: Final = (
    ("tidelog log dump data/4b0e...-0/00000000000000000000.log", "the batches of a segment"),
    ("tidelog log dump 00000000000000000000.log --records", "and the records in them"),
    ("tidelog log dump 00000000000000000000.sidecar --entries", "a sidecar with its whole index"),
    ("tidelog log dump data/marks --json", "for programs"),
)

FIRST_BYTES: Final = 16
HINTS: Final = {
    SIDECAR: "it is made again from its segment by a node that runs; keep a copy to look into it",
    MARKS: "a torn end is normal after a crash; keep a copy of anything else",
    CHECKPOINT: "a node does without it and opens its logs the long way",
}
"""What to do when one of these is damaged."""


def configure(parser: Parser) -> None:
    """The file, and how much of it."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="DATA_DIR/TOPIC_ID-PARTITION/*.log or *.sidecar, DATA_DIR/marks or log_checkpoint",
    )
    parser.add_argument(
        "-r", "--records", action="store_true", help="the records of each batch below it, as Python"
    )
    parser.add_argument(
        "--entries", action="store_true", help="each entry of a sidecar's index and digests"
    )
    add_json(
        parser,
        "all of a file that is no segment: {kind, ...} with the names of the lines; offsets, "
        "times and producers of -1: none",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print until the end or the first damage."""
    import mmap

    what = f"tidelog log dump {arguments.file}"
    try:
        with open(arguments.file, "rb") as file:
            kind = kind_of(arguments.file, file.read(FIRST_BYTES))
            _check_options(arguments, what, kind)
            if kind:
                file.seek(0)
                return _dump_other(arguments, what, kind, file.read())
            if not os.fstat(file.fileno()).st_size:
                return EXIT_OK
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for line in lines(cast("Buffer", data), what, with_records=arguments.records):
                    sys.stdout.write(line + "\n")
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            what, why, "name a segment file that is there and that you may read"
        ) from None
    return EXIT_OK


def _check_options(arguments: argparse.Namespace, what: str, kind: str) -> None:
    for name, is_fitting in (
        ("records", not kind),
        ("entries", kind == SIDECAR),
        ("json", bool(kind)),
    ):
        if getattr(arguments, name) and not is_fitting:
            told = kind or "segment"
            raise BadInput(what, f"--{name} does not go with a {told}", f"leave --{name} out")


def _dump_other(arguments: argparse.Namespace, what: str, kind: str, data: bytes) -> int:
    from tidelog.wire.errors import ErrorCode, TidelogError

    try:
        told, damage = read(kind, data)
        if arguments.json:
            print_json(told)
        else:
            for line in lines_of(kind, told, with_entries=arguments.entries):
                sys.stdout.write(line + "\n")
    except TidelogError as error:
        damage = error
    if damage is None:
        return EXIT_OK
    hint = damage.hint
    if damage.code is ErrorCode.STORAGE_CORRUPT:
        hint = HINTS[kind]
    raise CommandError(f"{what} [{damage.code.name}]", damage.happened, hint)


def lines(data: "Buffer", what: str, *, with_records: bool) -> Iterator[str]:
    """What is printed; a CommandError at the first damage."""
    from tidelog.wire.batch import decode_records, read_header, verify_checksum
    from tidelog.wire.errors import TidelogError

    position = 0
    while position < len(data):
        try:
            header = read_header(data, position, is_compacted=True)
            batch = data[position : position + header.size_bytes]
            verify_checksum(batch, header)
            yield batch_line(position, header)
            if with_records and not header.is_control:
                for offset, timestamp_ms, _, key, value, headers in decode_records(
                    batch, is_compacted=True
                ):
                    told = f" headers={list(headers)!r}" if headers else ""
                    yield f"  {offset} {timestamp_ms} key={key!r} value={value!r}{told}"
        except TidelogError as error:
            raise CommandError(
                f"{what}: damage at byte {position} of {len(data)} [{error.code.name}]",
                error.happened,
                "a torn end is cut off when the node starts; keep a copy of anything else"
                if position or what.endswith(".log")
                else "it begins with no batch: name a segment (*.log), or a file beside segments",
            ) from None
        position += header.size_bytes


def batch_line(position: int, header: "BatchHeader") -> str:
    """One batch."""
    marks = [
        name
        for name, is_set in (
            ("control", header.is_control),
            ("transactional", header.is_transactional),
            ("append-time", header.timestamp_type),
        )
        if is_set
    ]
    producer = f" producer={header.producer_id}/{header.producer_epoch}"
    return (
        f"byte {position}: offsets {header.base_offset}-{header.last_offset} "
        f"records={header.record_count} bytes={header.size_bytes} "
        f"codec={header.codec.name.lower()} time={header.max_timestamp} "
        f"leader_epoch={header.leader_epoch}"
        f"{producer if header.producer_id >= 0 else ''}"
        f"{' ' + ','.join(marks) if marks else ''}"
    )
