"""The adapters that the contract tests run on: one class per world, made anew for each test.

A world supplies every port of a few nodes, and the troubles that it can make. What only one world
can show (a machine that crashes) is an `Ability`; a test asks for it by the mark `needs`.
"""

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from tests.ports.support.abilities import Ability
from tests.ports.support.real_world import RealWorld
from tests.ports.support.simulated_world import SimulatedWorld
from tidelog.ports import Clock, DeathHint, Disk, Host, Network, Random, Worker

T = TypeVar("T")


class World(Protocol):
    """Ports of named nodes on one loop."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do."""
        ...

    @property
    def shows_every_order(self) -> bool:
        """Whether what may come in two orders does so within a few tries."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to its end on this world's loop; afterwards everything that was made is closed."""
        ...

    def clock(self) -> Clock:
        """The clock of one node."""
        ...

    def random(self) -> Random:
        """The randomness of one node."""
        ...

    def host(self) -> Host:
        """The machine of one node."""
        ...

    def network(self, name: str) -> Network:
        """The network of a node; `name` is its client id too."""
        ...

    def bind(self, name: str) -> str:
        """Where a node of this name may listen: an address for Listener.bind."""
        ...

    async def dead_peer(self, hint: DeathHint) -> str:
        """An address at which a connection fails with this hint (NONE: silence)."""
        ...

    async def disk(self, *, is_flush_failing: bool = False) -> Disk:
        """Open the data directory, the same one each time; flushes may be made to fail."""
        ...

    async def full_disk(self) -> Disk:
        """A data directory with room for 1 MiB or less. Ability FILL_DISK."""
        ...

    def cramped(self, size_bytes: int) -> AbstractContextManager[None]:
        """No file of the data directory grows beyond this size, until there is room again.

        What fails may say that there is no space (STORAGE_FULL) or that it failed.
        """
        ...

    def locked(self, path: str) -> AbstractContextManager[None]:
        """Another program lets nobody write to a file of the data directory, nor open it. Ability
        LOCK_FILES."""
        ...

    def move_directory_away(self, *, is_replaced: bool) -> None:
        """Another program gives the data directory another name; `is_replaced`: an empty one is in
        its place, as when a disk is unmounted."""
        ...

    def move_directory_back(self) -> None:
        """It has its name again."""
        ...

    def made_in_its_place(self) -> list[str]:
        """Names in the place of a directory that was moved away."""
        ...

    def move_behind_its_back(self, old: str, new: str) -> None:
        """Another program renames a file or directory of the data directory; `new` may be empty:
        then it removes it."""
        ...

    def crash(self, *, is_machine: bool) -> None:
        """The process, or the machine, that holds the open disk dies. CRASH_*, KILL_PROCESS."""
        ...

    def worker(self) -> Worker:
        """The worker of one node."""
        ...


WORLDS: Final[dict[str, Callable[[Path], World]]] = {
    "real": RealWorld,
    "simulated": SimulatedWorld,
}
"""By name; each is made with an empty temporary directory of its own."""
