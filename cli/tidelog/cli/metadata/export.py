"""`tidelog metadata export`: a copy of all metadata, for safe-keeping.

Owns the file: it gets its name when all of it is there, checked and flushed.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.show.errors import EXIT_OK, BadInput
from tidelog.cli.show.table import count, size

if TYPE_CHECKING:
    from tidelog.client import AdminClient

COMMAND: Final = "tidelog metadata export"
DESCRIPTION: Final = (
    "Write a copy of all of the cluster's metadata to a file: topics, settings, brokers, quotas, "
    "feature levels; no records. `tidelog storage format --restore` begins a new cluster with it. "
    "The file is checked before it gets its name; one that is there is not overwritten."
)
EXAMPLES: Final = ((f"{COMMAND} metadata.tqs", "before an upgrade, or every night"),)


def configure(parser: Parser) -> None:
    """Where to."""
    parser.add_argument("file", metavar="FILE", help="must not exist yet")
    add_json(parser, "{file, size_bytes, cluster_id, version, topics, partitions, brokers}")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Fetch, check, name, say what it holds."""
    file = check_file(arguments.file)
    beside = file.with_name(f"{file.name}.part")
    try:
        with admin_client(arguments) as admin:
            size_bytes = _write(admin, beside)
        from tidelog.server.commands.restore import decode_export

        image = decode_export(beside.read_bytes(), str(beside))
        # Fails where a file of the name has come meanwhile; a rename would replace it.
        os.link(beside, file)
    finally:
        beside.unlink(missing_ok=True)
    _flush_directory(file.parent)
    told = {
        "file": str(file),
        "size_bytes": size_bytes,
        "cluster_id": image.cluster_id,
        "version": image.version,
        "topics": len(image.topics),
        "partitions": image.partition_count,
        "brokers": len(image.brokers),
    }
    if arguments.json:
        print_json(told)
    else:
        topics, brokers = count(len(image.topics), "topic"), count(len(image.brokers), "broker")
        print(
            f"wrote {file}: {size(size_bytes)}, checked; {topics} with "
            f"{count(image.partition_count, 'partition')}, {brokers}, as of entry {image.version}"
        )
    return EXIT_OK


def check_file(name: str) -> Path:
    """Refuse what can never be written, before anything is asked."""
    file = Path(name)
    if not file.name or "\0" in name:
        raise BadInput(f"{COMMAND} {name}", "this is not the name of a file", "name a new file")
    if os.path.lexists(file):
        raise BadInput(f"{COMMAND} {name}", "it exists already", "name a new file")
    if not file.parent.is_dir():
        raise BadInput(
            f"{COMMAND} {name}", f"{file.parent} is not a directory", "make the directory first"
        )
    return file


def _write(admin: "AdminClient", beside: Path) -> int:
    with open(beside, "wb") as out:
        for piece in admin.export_metadata():
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
        return out.tell()


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
