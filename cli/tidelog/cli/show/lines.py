"""Cuts a byte stream into lines as it comes: large reads, no wait for a read to be full.

Owns the carry between reads and the bound on a line that does not end.
"""

import os
from collections.abc import Iterator
from typing import Final

from tidelog.cli.show.errors import CommandError

READ_BYTES: Final = 1024 * 1024
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Beyond every record that a cluster could take."""


class LineSplitter:
    """Bytes in, whole lines out; what follows the last delimiter is the last line."""

    def __init__(self, delimiter: bytes = b"\n") -> None:
        assert delimiter, "an empty delimiter cuts nowhere"
        self._delimiter = delimiter
        self._carry = b""
        self._count = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes end."""
        lines = (self._carry + data).split(self._delimiter)
        self._carry = lines.pop()
        self._count += len(lines)
        if len(self._carry) > LINE_BYTES_MAX:
            raise CommandError(
                f"read line {self._count + 1} of stdin",
                f"it is longer than {LINE_BYTES_MAX} bytes and goes on",
                "is this text? -D says what ends a record",
            )
        return lines

    def finish(self) -> list[bytes]:
        """The line that the end of the input ended, if there is one."""
        rest, self._carry = self._carry, b""
        return [rest] if rest else []


def read_lines(descriptor: int, delimiter: bytes) -> Iterator[list[bytes]]:
    """Lists of lines until the end of the file."""
    splitter = LineSplitter(delimiter)
    while data := os.read(descriptor, READ_BYTES):
        if lines := splitter.feed(data):
            yield lines
    if lines := splitter.finish():
        yield lines
