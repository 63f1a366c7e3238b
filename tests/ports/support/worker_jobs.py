"""Jobs for the tests of the Worker port; every world finds them by name."""

import os
import threading
import zlib
from collections.abc import Generator

from tidelog.ports.worker import JobFiles
from tidelog.wire.errors import ErrorCode, TidelogError

Steps = Generator[int, None, bytes]

PIECE_BYTES = 64 * 1024


def compress(files: JobFiles, arguments: bytes) -> Steps:
    """The arguments, compressed; moves nothing."""
    del files
    yield 0
    return zlib.compress(arguments)


def decompress(files: JobFiles, arguments: bytes) -> Steps:
    """The reverse; raises what is no TidelogError."""
    del files
    yield 0
    return zlib.decompress(arguments)


def refuse(files: JobFiles, arguments: bytes) -> Steps:
    """Raise a TidelogError with words of its own."""
    del files
    yield 0
    raise TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=arguments.decode(),
        happened="byte 7 is not what it was",
        hint="look at byte 7",
    )


def answer_text(files: JobFiles, arguments: bytes) -> Generator[int, None, str]:
    """No job: its result is no bytes."""
    del files
    yield 0
    return arguments.decode()


def copy(files: JobFiles, arguments: bytes) -> Steps:
    """`from to`: copy a file piece by piece, flush the copy, say how long it is."""
    source, target = arguments.decode().split(" ")
    files.create(target)
    byte_position = 0
    while piece := files.read(source, byte_position, PIECE_BYTES):
        files.append(target, [piece[:10], memoryview(piece)[10:]])
        byte_position += len(piece)
        yield 2 * len(piece)
    files.flush(target)
    assert files.read(target, 0, 10) == files.read(source, 0, 10), "a job sees what it wrote"
    return str(files.size_bytes(target)).encode()


def copy_and_remove(files: JobFiles, arguments: bytes) -> Steps:
    """Copy, then take the copy away again."""
    length = yield from copy(files, arguments)
    target = arguments.decode().split(" ")[1]
    files.remove(target)
    return length + b" %d" % files.size_bytes(target)


def size(files: JobFiles, arguments: bytes) -> Steps:
    """How long a file is."""
    yield 0
    return str(files.size_bytes(arguments.decode())).encode()


def read(files: JobFiles, arguments: bytes) -> Steps:
    """`path`: its first bytes."""
    yield 0
    return files.read(arguments.decode(), 0, PIECE_BYTES)


def create(files: JobFiles, arguments: bytes) -> Steps:
    """Make an empty file, unflushed."""
    yield 0
    files.create(arguments.decode())
    return b""


def append_to_a_foreign_file(files: JobFiles, arguments: bytes) -> Steps:
    """Break the rule of the port."""
    yield 0
    files.append(arguments.decode(), [b"x"])
    return b""


def flush_twice(files: JobFiles, arguments: bytes) -> Steps:
    """Write, flush, and flush again whatever the first flush said."""
    path = arguments.decode()
    files.create(path)
    files.append(path, [b"a" * 1_000])
    yield 1_000
    try:
        files.flush(path)
    except TidelogError:
        files.flush(path)
    return b"flushed"


def leave_unflushed(files: JobFiles, arguments: bytes) -> Steps:
    """Write two files and flush the first."""
    flushed, unflushed = arguments.decode().split(" ")
    for path in (flushed, unflushed):
        files.create(path)
        files.append(path, [b"a" * 1_000])
        yield 1_000
    files.flush(flushed)
    return b""


def evaluate(files: JobFiles, arguments: bytes) -> Steps:
    """Whatever only a process can do."""
    del files
    yield 0
    return eval(arguments, {"os": os, "threading": threading})  # type: ignore[no-any-return]
