"""What a run under faults needs of a cluster, whichever system it is.

Owns the protocol by which the same kill script drives Tidelog and its peers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tidelog.chaos.live.cluster.seats import Seat


class ClusterUnderTest(Protocol):
    """Brokers by number, one topic on all of them, and how its programs are started."""

    name: str
    topic: str
    partition_count: int

    @property
    def numbers(self) -> Sequence[int]:
        """Of its brokers."""
        ...

    def seats(self, *, without: int | None = None) -> Sequence[Seat]:
        """As a broker knows them that answers; `without`: not that one. Empty: nobody answers."""
        ...

    def controller(self, *, without: int | None = None) -> int:
        """The broker that decides who leads, by what others than that one say; -1: not known."""
        ...

    def kill(self, number: int) -> None:
        """kill -9."""
        ...

    def start(self, number: int) -> None:
        """Its process begins; whoever needs it waits."""
        ...

    def balance(self) -> None:
        """Each partition is led again by its first replica, as far as the cluster agrees."""
        ...

    def restart_all(self) -> None:
        """kill -9 of all brokers, what they have stored leaves memory, and they start again."""
        ...

    def writer(self, name: str, journal: Path, rate: float) -> Sequence[str]:
        """The command of a producer."""
        ...

    def reader(self) -> Sequence[str]:
        """The command of a reader of everything."""
        ...

    def log_tails(self) -> str:
        """What the brokers said last."""
        ...


class StoppableCluster(ClusterUnderTest, Protocol):
    """One whose brokers can be stopped for a while."""

    def pause(self, number: int) -> None:
        """SIGSTOP: alive to the kernel, silent to everybody."""
        ...

    def resume(self, number: int) -> None:
        """SIGCONT."""
        ...
