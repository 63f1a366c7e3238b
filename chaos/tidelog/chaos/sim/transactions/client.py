"""What programs of the suite ask of a client: the calls of a transactional producer, and reading.

Two implementations: the SDK's core over the cores' small network, and the SDK's own driver against
whole nodes. Every call raises the TidelogError that a user of the SDK would get.
"""

import asyncio
import enum
from collections.abc import Mapping
from typing import Protocol

import msgspec

Records = list[tuple[int, str]]
"""Offsets and values, of committed transactions only."""


class Standing(enum.Enum):
    """Where a producer stands after a call, as its user can tell."""

    READY = "ready"
    OPEN = "open"
    MUST_ABORT = "must_abort"
    UNDECIDED = "undecided"
    """An end was sent, and nobody has said what became of it: it is to be called again."""
    FENCED = "fenced"
    NEW = "new"
    PREPARED = "prepared"
    BUSY = "busy"


class PreparedToken(msgspec.Struct, frozen=True):
    """What decides a prepared transaction, from any process."""

    token: object


class Read(msgspec.Struct, frozen=True):
    """What a poll of some partitions has brought."""

    records: dict[str, Records]
    positions: dict[str, int]
    """Where to go on."""
    ends: dict[str, int]
    """Last stable offsets, as they were told before anything was read."""


class Folded(msgspec.Struct, frozen=True):
    """How far a group has folded its input."""

    position: int
    state: int


class TransactionalClient(Protocol):
    """A producer with a transactional id, with a consumer beside it."""

    @property
    def standing(self) -> Standing:
        """Where it stands."""
        ...

    async def initialize(self) -> None:
        """Take the transactional id over."""
        ...

    async def begin(self) -> None:
        """A transaction begins."""
        ...

    async def send(self, partition: str, value: str) -> "asyncio.Future[int]":
        """A record leaves; its offset, once it is stored."""
        ...

    async def send_offsets(self, group: str, folded: Folded) -> None:
        """The offsets of a group are part of the transaction."""
        ...

    async def commit(self) -> None:
        """All of it counts."""
        ...

    async def abort(self) -> None:
        """None of it counts."""
        ...

    async def prepare(self) -> PreparedToken:
        """Whoever has the token decides."""
        ...

    async def decide(self, token: PreparedToken, *, is_commit: bool) -> None:
        """Decides a prepared transaction."""
        ...

    async def read(self, positions: Mapping[str, int], *, records_max: int, to_end: bool) -> Read:
        """Polls each partition from its position, with read_committed."""
        ...

    async def join(self, group: str) -> Folded:
        """Becomes the member of a group that reads its input, and learns where to begin."""
        ...

    async def committed(self, group: str) -> Folded:
        """How far the group has come."""
        ...

    async def close(self) -> None:
        """Nothing more is asked of it."""
        ...
