"""`tidelog log dump`: a segment file, readable.

Owns the lines that it prints. It opens the file to read only, also while a node writes to it, and
stops at the first byte that contradicts the format: everything before it was checked.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from tidelog.cli.errors import EXIT_OK, BadInput, CommandError
from tidelog.cli.parser import Parser

if TYPE_CHECKING:
    from tidelog.wire.batch import BatchHeader, Buffer

DESCRIPTION: Final = (
    "Print a segment file of a partition, a line for each batch: where it begins in the file, its "
    "offsets, time, codec, size, epoch. Every checksum is checked; at the first damage it "
    "names the byte and ends with exit code 1. A node may run meanwhile: a batch that is being "
    "written shows as one whose last bytes are missing."
)
EXAMPLES: Final = (
    ("tidelog log dump data/4b0e...-0/00000000000000000000.log", "the batches of a segment"),
    ("tidelog log dump 00000000000000000000.log --records", "and the records in them"),
)


def configure(parser: Parser) -> None:
    """The file, and how much of it."""
    parser.add_argument("file", metavar="FILE", help="a segment: DATA_DIR/TOPIC_ID-PARTITION/*.log")
    parser.add_argument(
        "-r", "--records", action="store_true", help="the records of each batch below it, as Python"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print until the end or the first damage."""
    import mmap

    what = f"tidelog log dump {arguments.file}"
    try:
        with open(arguments.file, "rb") as file:
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
                "a torn end is cut off when the node starts; keep a copy of anything else",
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
