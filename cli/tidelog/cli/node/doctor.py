"""`tidelog doctor`: whether this machine can run a node well.

Owns the checks and when one is worth a warning. It changes nothing but a file of its own in the
data directory, which it removes.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from tidelog.ports.real.disk.open_files import Limit

DESCRIPTION: Final = (
    "Look at what a node and its clients need on this machine: clock, open files, disk "
    "space, the time of a flush, ports, Java for Spark, and whether the fast codecs are in "
    "use. Exit code 1 if something is wrong; a warning alone is 0."
)
EXAMPLES: Final = (
    ("tidelog doctor", "this machine, with data below the current directory"),
    ("tidelog doctor --data-dir data --json", "for programs"),
)
OPEN_FILES_MIN: Final = 4_096
FREE_BYTES_MIN: Final = 1 << 30
FLUSH_MS_MAX: Final = 50.0
_FLUSHES: Final = 20
_FLUSH_BYTES: Final = 4_096
_PORTS: Final = (9192, 9193)
_YEAR_MIN: Final = 2025
_TIMEX_BYTES: Final = 512
_TIME_ERROR: Final = 5
"""What adjtimex answers of a clock that nothing synchronises."""
_JAVA_MIN: Final = 17
_JAVA_WANTED: Final = "version 17 or newer"
_JAVA_SECONDS_MAX: Final = 10.0


class Finding(NamedTuple):
    """What one check found."""

    check: str
    state: str
    """`ok`, `warning` or `wrong`."""
    found: str


def configure(parser: Parser) -> None:
    """Where the data would be."""
    parser.add_argument(
        "--data-dir", default=".", metavar="DIR", help="the node's data directory (default: here)"
    )
    add_json(parser, "a list of {check, state: ok | warning | wrong, found}")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found."""
    from tidelog.cli.node.dev import check_directory

    check_directory(arguments.data_dir, command="tidelog doctor")
    findings = list(examine(Path(arguments.data_dir)))
    if arguments.json:
        from tidelog.cli.frame.admin import print_json

        print_json([finding._asdict() for finding in findings])
    else:
        from tidelog.cli.show.table import table

        print(table(("Check", "State", "Found"), findings))
    return EXIT_FAILED if any(finding.state == "wrong" for finding in findings) else EXIT_OK


def examine(data_dir: Path) -> Iterator[Finding]:
    """Every check, in the order of the help."""
    yield clock()
    yield open_files()
    directory = next(each for each in (data_dir, *data_dir.absolute().parents) if each.is_dir())
    yield disk(directory)
    yield flush(directory)
    yield from map(port, _PORTS)
    yield java()
    yield from codecs()
    yield compression()


def clock() -> Finding:
    """Whether wall time can be right."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    text = now.isoformat(timespec="seconds")
    if now.year < _YEAR_MIN:
        return Finding("clock", "wrong", text)
    is_synchronised = synchronised()
    if is_synchronised is None:
        return Finding("clock", "ok", f"{text}; whether anything sets it is not known")
    if not is_synchronised:
        why = "nothing keeps it right: records may get wrong times; run an NTP service"
        return Finding("clock", "warning", f"{text}; {why}")
    return Finding("clock", "ok", f"{text}, kept right by NTP")


def synchronised() -> bool | None:
    """What Linux knows of its clock; None: it is not known."""
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    # All zero: nothing is changed. The buffer is larger than the struct of any architecture.
    state: int = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR


def open_files(limit: "Limit | None" = None) -> Finding:
    """How many files a node may hold open."""
    try:
        from tidelog.ports.real.disk import open_files as limits
    except ImportError:
        return Finding("open files", "ok", "this system has no such limit")
    soft, hard = (limit or limits.LIMIT).read()
    told, most = (each if each < limits.UNLIMITED else "no limit" for each in (soft, hard))
    found = f"{told}, which a node raises to {most} by itself" if soft < hard else f"{told}"
    if hard >= OPEN_FILES_MIN:
        return Finding("open files", "ok", found)
    hint = f"a node wants {OPEN_FILES_MIN}; raise the hard limit (ulimit -Hn, or LimitNOFILE=)"
    return Finding("open files", "warning", f"{found}: {hint}")


def disk(directory: Path) -> Finding:
    """Free space."""
    import shutil

    from tidelog.cli.show.table import size

    usage = shutil.disk_usage(directory)
    state = "ok" if usage.free >= FREE_BYTES_MIN else "warning"
    return Finding("disk", state, f"{size(usage.free)} of {size(usage.total)} free at {directory}")


def flush(directory: Path, now: Callable[[], float] | None = None) -> Finding:
    """How long a write of one page and its flush take."""
    import tempfile
    import time

    now = now or time.perf_counter
    taken_ms = []
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            for _ in range(_FLUSHES):
                started = now()
                file.write(bytes(_FLUSH_BYTES))
                os.fsync(file.fileno())
                taken_ms.append((now() - started) * 1000)
    except OSError as error:
        return Finding("flush", "wrong", f"{error.strerror} at {directory}")
    middle, slowest = sorted(taken_ms)[_FLUSHES // 2], max(taken_ms)
    state = "ok" if middle <= FLUSH_MS_MAX else "warning"
    return Finding("flush", state, f"{middle:.2f} ms in the middle, {slowest:.2f} ms at most")


def port(number: int) -> Finding:
    """Whether a node could listen there."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            return Finding(f"port {number}", "warning", f"{error.strerror}")
    return Finding(f"port {number}", "ok", "free")


def java() -> Finding:
    """Only Spark needs it."""
    import shutil

    home = os.environ.get("JAVA_HOME", "")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    if program is None or not Path(program).is_file():
        return Finding("java", "warning", f"none; only Spark needs it, {_JAVA_WANTED}")
    version = java_version(program)
    if version is None:
        return Finding("java", "warning", f"{program} does not tell its version")
    if version < _JAVA_MIN:
        why = f"{program} is version {version}; Spark needs {_JAVA_WANTED}"
        return Finding("java", "warning", why)
    return Finding("java", "ok", f"{program}, version {version}")


def java_version(program: str) -> int | None:
    """`17` of `openjdk version "17.0.9"`, `8` of `java version "1.8.0"`."""
    import re
    import subprocess

    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def codecs() -> Iterator[Finding]:
    """Whether records and checksums are handled by C."""
    import google_crc32c

    from tidelog.wire.batch import has_accelerator

    if has_accelerator():
        yield Finding("record decoder", "ok", "C (aiokafka)")
    else:
        yield Finding("record decoder", "warning", "Python: reading is slower; install aiokafka")
    implementation = google_crc32c.implementation
    state = "ok" if implementation == "c" else "warning"
    yield Finding("checksum", state, f"crc32c in {implementation}")


def compression() -> Finding:
    """Whether each codec gives back what it took, and with what it is made."""
    from importlib.metadata import version

    from tidelog.wire.batch import Codec, Columns, decode_records, encode_batch

    value = bytes(_FLUSH_BYTES)
    for codec in Codec:
        batch = encode_batch(Columns.of([(0, None, value, ())]), codec=codec)
        if [record[4] for record in decode_records(batch)] != [value]:
            return Finding("compression", "wrong", f"{codec.name.lower()} does not work here")
    names = ", ".join(codec.name.lower() for codec in Codec if codec is not Codec.NONE)
    return Finding("compression", "ok", f"{names} (cramjam {version('cramjam')})")
