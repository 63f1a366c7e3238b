"""Puts the SDK's asyncio clients into a simulated world: their gRPC, time, log and chance are its.

Owns the substitutions, which are made for the time of a run and undone at its end. The SDK knows
nothing of them: its cores and its drivers run as they are.
"""

import importlib
import logging
import pkgutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final

import msgspec
from grpc import aio

import tidelog.client
from tidelog.chaos.sim.base.loop import PROCESS
from tidelog.chaos.sim.clients.channel import SimulatedChannel
from tidelog.chaos.sim.ports.clock import WALL_START_MS
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.client.shared.lifecycle import hold

_NS_PER_MS: Final = 1_000_000


class Line(msgspec.Struct, frozen=True):
    """Of a client's log."""

    at_ns: int
    process: str
    level: int
    text: str


class VirtualTime:
    """Stands for the module `time`, as far as the SDK uses it."""

    def __init__(self, world: World) -> None:
        self._loop = world.loop

    def monotonic_ns(self) -> int:
        """Virtual nanoseconds."""
        return self._loop.now_ns

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._loop.now_ns / 1e9

    def time_ns(self) -> int:
        """Of the wall."""
        return WALL_START_MS * _NS_PER_MS + self._loop.now_ns

    def time(self) -> float:
        """Of the wall, in seconds."""
        return self.time_ns() / 1e9


class SeededUuids:
    """Stands for the module `uuid`."""

    def __init__(self, world: World) -> None:
        self._random = world.seeds.purpose("client ids")

    def uuid4(self) -> uuid.UUID:
        """By seed."""
        return uuid.UUID(bytes=self._random.uuid())


class ClientLog:
    """Stands for the logger of the SDK: what is told, by whom and when."""

    def __init__(self, world: World) -> None:
        self._loop = world.loop
        self.lines: list[Line] = []

    def log(self, level: int, text: str, *arguments: object) -> None:
        """One line."""
        owner = PROCESS.get()
        name = "" if owner is None else owner.name
        said = text % arguments if arguments else text
        self.lines.append(Line(self._loop.now_ns, name, level, said))

    def debug(self, text: str, *arguments: object) -> None:
        """Nobody reads it."""

    def info(self, text: str, *arguments: object) -> None:
        """For who looks."""
        self.log(logging.INFO, text, *arguments)

    def warning(self, text: str, *arguments: object) -> None:
        """For who waits."""
        self.log(logging.WARNING, text, *arguments)

    def error(self, text: str, *arguments: object) -> None:
        """Something is wrong."""
        self.log(logging.ERROR, text, *arguments)

    def exception(self, text: str, *arguments: object) -> None:
        """A bug: the cell that sees it fails."""
        error = sys.exc_info()[1]
        self.log(logging.CRITICAL, f"{text}: {error!r}", *arguments)


@contextmanager
def sdk_within(world: World) -> Iterator[ClientLog]:
    """While inside, clients that are made in a process of this world live in it."""
    log, clock, ids = ClientLog(world), VirtualTime(world), SeededUuids(world)

    def make_channel(address: str, **options: object) -> SimulatedChannel:
        del options
        process = PROCESS.get()
        assert isinstance(process, Process), "a client belongs to a simulated process"
        return SimulatedChannel(world.fabric, process, address)

    with ExitStack() as undo:
        _put(undo, aio, "insecure_channel", make_channel)
        for module in _modules():
            for name, real, substitute in (
                ("time", time, clock),
                ("uuid", uuid, ids),
                ("_log", logging.getLogger("tidelog.client"), log),
                ("hold", hold, _hold_nothing),
            ):
                if getattr(module, name, None) is real:
                    _put(undo, module, name, substitute)
        yield log


def _hold_nothing(_: object) -> None:
    """Nobody forks here, and clients that are killed let nothing go: their world would stay."""


def _put(undo: ExitStack, owner: object, name: str, substitute: object) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, substitute)


def _modules() -> list[ModuleType]:
    """All of the SDK's, loaded: what is imported later would have the real world."""
    found: list[Any] = [tidelog.client]
    for each in pkgutil.walk_packages(tidelog.client.__path__, "tidelog.client."):
        if ".sync." in each.name or ".arrow" in each.name:
            continue
        found.append(importlib.import_module(each.name))
    return found
