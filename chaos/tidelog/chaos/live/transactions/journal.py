"""What a client of a live run with transactions did: one JSON line an entry, in its own order.

Owns the file's format. Each line goes to the system at once, so that it outlives the process.
Times are monotonic nanoseconds, which all processes of a machine share.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A transaction begins."""

    at_ns: int


class Sending(msgspec.Struct, frozen=True, tag="sending"):
    """A record is about to leave."""

    at_ns: int
    partition: str
    value: str


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """It was acknowledged."""

    at_ns: int
    value: str
    offset: int


class GivenUp(msgspec.Struct, frozen=True, tag="given_up"):
    """A record outside any transaction was not acknowledged; its fate is not known."""

    at_ns: int
    value: str


class Deciding(msgspec.Struct, frozen=True, tag="deciding"):
    """Commit or abort is about to be called."""

    at_ns: int
    is_commit: bool


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The transaction is over, as far as the process knows: `ok`, `fail` or `info`."""

    at_ns: int
    outcome: str


class Placed(msgspec.Struct, frozen=True, tag="placed"):
    """The process reads exactly these partitions, each from an offset."""

    at_ns: int
    positions: dict[str, int]


class Polled(msgspec.Struct, frozen=True, tag="polled"):
    """What a reader was handed; with `ends` it asked for them first and read up to them."""

    began_ns: int
    ended_ns: int
    records: dict[str, list[tuple[int, str]]]
    ends: dict[str, int]
    is_final: bool = False


Entry = Began | Sending | Stored | GivenUp | Deciding | Ended | Placed | Polled
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Entry]] = msgspec.json.Decoder(Entry)


class ClientProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A client so far; each tells what it has."""

    is_ready: bool = False
    done: int = 0
    """Transactions or records that ended well, or records read."""


class ClientJournal:
    """Written by one process, on one thread or under its own lock."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, entry: Entry) -> None:
        """One line; it is the system's when this returns."""
        os.write(self._descriptor, _ENCODER.encode(entry) + b"\n")


def read_client_journal(file: Path) -> Iterator[Entry]:
    """Every whole entry, in the order in which the client wrote them."""
    with file.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _DECODER.decode(line)


def now_ns() -> int:
    """For entries."""
    return time.monotonic_ns()


def tell(progress: ClientProgress) -> None:
    """One line of progress to whoever has started this process."""
    print(msgspec.json.encode(progress).decode(), flush=True)
