"""What the two forms of a test cluster share: the thread, the settings, the rules of a fork.

Owns the life of the thread and of the core in it, and every deadline of a call. Importing it
imports neither gRPC nor the server: a start does.
"""

from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.client.shared import lifecycle
from tidelog.client.shared.checked import checked
from tidelog.client.shared.lifecycle import Client
from tidelog.testing.loop import LoopThread
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.testing.core import ClusterCore

BROKERS_MAX: Final = 9
START_S: Final = 30.0
CHANGE_S: Final = 30.0
"""A kill, a stop, a restart: what each may take."""
CLIENT_CLOSE_S: Final = 5.0
"""What a producer may take at the end to send what it was given."""

Settings: TypeAlias = Mapping[str, str | int | bool]
"""Of every node, by the paths of docs/configuration.md: `{"auto_create_topics": False}`."""


class ClusterBase(Client):
    """Not started until it is told to."""

    __test__ = False
    """No test, whatever its name begins with."""

    def __init__(self, brokers: int, settings: Settings | None) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=f"make a test cluster of {brokers} brokers",
                happened=f"1 to {BROKERS_MAX} fit into one process",
            )
        given = {name: _text(value) for name, value in (settings or {}).items()}
        super().__init__()
        self._brokers = brokers
        self._settings = given
        self._thread: LoopThread | None = None
        self._running: ClusterCore | None = None

    @property
    def bootstrap(self) -> str:
        """For `bootstrap_servers`: every node's address, also of those that are down."""
        return self._core("tell its addresses").bootstrap

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of all nodes, from 1 on."""
        return tuple(range(1, self._brokers + 1))

    @checked
    def state_of(self, node: int) -> str:
        """`running`, `paused`, `stopped`, `killed`, `crashed`, or `ended by itself`."""
        return self._core("look at a node").state(node).value

    @checked
    def directory_of(self, node: int) -> Path:
        """The node's data directory, gone at the end of the cluster."""
        return self._core("look at a node").node(node, "look at").directory

    @checked
    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads the partition; 0: none does at present."""
        return self._core("find a leader").leader_of(topic, partition)

    def controller(self) -> int:
        """The node that decides about metadata; 0: none does at present."""
        return self._core("find the controller").controller()

    # -- for the two forms ---------------------------------------------------------------------

    def _begin(self) -> "tuple[LoopThread, Coroutine[Any, Any, ClusterCore]]":
        """A thread at work, and what is to be run in it."""
        self._check_usable("start the test cluster")
        if self._thread is not None:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried="start the test cluster",
                happened="it was started before",
            )
        # From now on a fork matters, and nobody may forget us.
        lifecycle.hold(self)
        thread = self._thread = LoopThread()
        thread.start()
        return thread, _start(thread, self._brokers, self._settings)

    def _core(self, tried: str) -> "ClusterCore":
        self._check_usable(tried)
        if self._running is None:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=tried,
                happened="the test cluster was not started",
                hint="Use it in a `with` statement.",
            )
        return self._running

    def _end_thread(self) -> None:
        """Nothing runs any more."""
        self._running = None
        if self._thread is not None:
            self._thread.stop()
            lifecycle.let_go(self)

    def close_at_exit(self) -> None:
        """The interpreter ends: nodes, threads and the directory go."""
        self._become_closed()
        thread, core = self._thread, self._running
        if thread is not None and core is not None:
            thread.run(core.close(), CHANGE_S, "end the test cluster")
        self._end_thread()


async def _start(thread: LoopThread, brokers: int, settings: Mapping[str, str]) -> "ClusterCore":
    """In the thread, so that an event loop of the user does not wait for these imports."""
    from tidelog.testing.core import ClusterCore

    core = ClusterCore(thread.loop, brokers, settings)
    try:
        await core.start()
    except BaseException:
        await core.close()
        raise
    return core


def raise_failures(core: "ClusterCore") -> None:
    """A node that ended by itself is told, however the test went."""
    if core.failures:
        raise TidelogError(
            ErrorCode.UNKNOWN, tried="run the test cluster", happened="; ".join(core.failures)
        )


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
