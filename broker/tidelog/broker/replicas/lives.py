"""What becomes of each partition that is, was or will be placed here: one state each.

Owns the states and the steps between them, and tells of those that have stopped. It must never let
a partition be served while its files are being opened, or go.

                  ┌────────── the image lets it go ──────────┐
    placed ─┬─▶ Served ◀── opened ── Opening ──────────────┐ │
            │     └── has stopped, tried again ──▶ ┘       ▼ ▼
            └─▶ Unusable ◀── its directory failed ┘      Going ── files are gone ──▶ unknown
                   └────────────── placed anew ──▶ Served or Opening
"""

import asyncio
from collections.abc import Iterator

import msgspec

from tidelog.broker.replicas.types import Replica
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey


class Unusable(msgspec.Struct, frozen=True):
    """Placed here, in a directory that cannot be used: why not."""

    error: TidelogError


class Opening(msgspec.Struct, frozen=True):
    """Its files are being opened, or are about to be."""

    error: TidelogError
    """What is heard of it meanwhile."""


class Going(msgspec.Struct, frozen=True):
    """Not placed here any more, or set aside: its files are not gone yet."""


Life = Replica | Unusable | Opening | Going


class ReplicaLives:
    """By partition. A state is entered by one method each, which says what may have been before."""

    def __init__(self) -> None:
        self._lives: dict[PartitionKey, Life] = {}
        self._stopped: dict[PartitionKey, None] = {}
        """Served, and stopped: somebody sees to them."""
        self._has_stopped = asyncio.Event()

    def served(self, key: PartitionKey) -> Replica | None:
        """The replica, if it is served here; it may have stopped."""
        life = self._lives.get(key)
        return life if isinstance(life, Replica) else None

    def __iter__(self) -> Iterator[Replica]:
        """Those that are served, in the order in which they came to be."""
        return (life for life in self._lives.values() if isinstance(life, Replica))

    def stopped(self) -> list[Replica]:
        """Those that are served and have stopped, in the order in which they did."""
        found = (self.served(key) for key in self._stopped)
        return [each for each in found if each is not None]

    async def wait_stopped(self) -> None:
        """Until there is one that has stopped; at once if there is."""
        await self._has_stopped.wait()

    def note_stopped(self, key: PartitionKey) -> None:
        """Its owner says that it has stopped."""
        if self.served(key) is not None:
            self._stopped[key] = None
            self._has_stopped.set()

    def _note_going_on(self, key: PartitionKey) -> None:
        if self._stopped.pop(key, self) is None and not self._stopped:
            self._has_stopped.clear()

    def error_of(self, key: PartitionKey) -> TidelogError | None:
        """Why one that is placed here is not served; None: it is, or is not placed here."""
        life = self._lives.get(key)
        return life.error if isinstance(life, Unusable | Opening) else None

    def errors(self) -> Iterator[tuple[PartitionKey, TidelogError]]:
        """All that are placed here and not served, and why."""
        for key, life in self._lives.items():
            if isinstance(life, Unusable | Opening):
                yield key, life.error

    def is_busy(self, key: PartitionKey) -> bool:
        """Whether its files are being opened, or go: it is served once that is over."""
        return isinstance(self._lives.get(key), Opening | Going)

    def is_known(self, key: PartitionKey) -> bool:
        """Whether it was placed here before, and its files may be here."""
        life = self._lives.get(key)
        return life is not None and not isinstance(life, Going)

    def serve(self, replica: Replica) -> None:
        """It is served from now on, also if it was until now."""
        key = replica.log.key
        if not isinstance(self._lives.get(key), Replica):
            # The last one that came to be served is the last one that is looked at.
            self._lives.pop(key, None)
        self._lives[key] = replica
        self._note_going_on(key)
        if replica.log.failure is not None:
            # It was opened, and could not be read.
            self.note_stopped(key)

    def take_over(self, replica: Replica) -> None:
        """The image says something else of one that is served."""
        key = replica.log.key
        assert isinstance(self._lives.get(key), Replica), f"{key} is not served here"
        self._lives[key] = replica

    def be_unusable(self, key: PartitionKey, error: TidelogError) -> None:
        """The directory that it lies in cannot be used."""
        assert not isinstance(self._lives.get(key), Replica), f"{key} is served here"
        self._lives[key] = Unusable(error)

    def begin_opening(self, key: PartitionKey, error: TidelogError) -> None:
        """Its files are to be opened: meanwhile this is heard of it."""
        assert not self.is_busy(key), f"the files of {key} are being opened, or go"
        self._lives[key] = Opening(error)
        self._note_going_on(key)

    def let_go(self, key: PartitionKey) -> Replica | None:
        """The image does not place it here any more. One that is served, or whose files are being
        opened, is gone once its files are; the replica if it was served."""
        life = self._lives.get(key)
        if isinstance(life, Replica | Opening):
            self._lives[key] = Going()
            self._note_going_on(key)
        elif isinstance(life, Unusable):
            del self._lives[key]
        return life if isinstance(life, Replica) else None

    def set_aside(self, key: PartitionKey) -> None:
        """The files of one that is served go, and it is placed here again when they are gone."""
        assert isinstance(self._lives.get(key), Replica), f"{key} is not served here"
        self._lives[key] = Going()
        self._note_going_on(key)

    def be_gone(self, key: PartitionKey) -> None:
        """Its files are gone, or nothing came of their opening."""
        assert self.is_busy(key), f"{key} is served here"
        del self._lives[key]
