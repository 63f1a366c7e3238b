"""What a member of a live run was given and when it owned what: one JSON line an entry.

Owns the file's format and what a running member tells of itself. Times are monotonic nanoseconds,
which all processes of a machine share, so that the entries of all members stand on one axis.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec


class Delivered(msgspec.Struct, frozen=True, kw_only=True, tag="delivered", gc=False):
    """Records of one partition that one poll gave to a member."""

    partition: int
    returned_ns: int
    """When the poll came back with them."""
    done_ns: int
    """When the member had done with them: its next poll begins after that."""
    offsets: tuple[int, ...]
    names: tuple[str, ...]
    """What each value says of its send."""


class Moved(msgspec.Struct, frozen=True, kw_only=True, tag="moved", gc=False):
    """Partitions that the listener was told of."""

    at_ns: int
    partitions: tuple[int, ...]
    is_given: bool
    """Given to the member; else taken from it."""


Entry = Delivered | Moved
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Entry]] = msgspec.json.Decoder(Entry)


class MemberProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A member so far."""

    is_ready: bool = False
    """Its program is loaded: it subscribes as soon as it is let."""
    delivered: int = 0
    owned: int = 0
    """Partitions that it owns now."""


class MemberJournal:
    """Written by one member, on the thread that polls."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("wb")

    def write(self, entries: Sequence[Entry]) -> None:
        """One line each."""
        self._file.writelines(_ENCODER.encode(each) + b"\n" for each in entries)

    def __enter__(self) -> "MemberJournal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_member_journal(file: Path) -> Iterator[Entry]:
    """Every entry, in the order in which the member wrote them."""
    with file.open("rb") as lines:
        for line in lines:
            yield _DECODER.decode(line)
