"""Real adapters in a temporary directory and on loopback."""

import array
import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import shutil
import socket
import struct
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.ports.support.abilities import Ability
from tests.ports.support.mounts import can_mount, mounted
from tests.support.waiting import HANG_SECONDS
from tidelog.ports import DeathHint
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk import io as disk_io
from tidelog.ports.real.disk.disk import RealDisk, open_disk
from tidelog.ports.real.disk.flush import Flusher
from tidelog.ports.real.host import RealHost
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom
from tidelog.ports.real.worker.worker import ProcessWorker

T = TypeVar("T")

SMALL_FILE_SYSTEM: Final = "size=256k"
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of Linux, with 64 bits."""
_IMMUTABLE: Final = 0x10


class RealWorld:
    """What a node of this machine uses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._closing = contextlib.AsyncExitStack()

    @property
    def abilities(self) -> frozenset[Ability]:
        """A small file system has to be mounted."""
        found = {Ability.FILL_DISK} if can_mount() else set[Ability]()
        if _can_lock(self._directory):
            found.add(Ability.LOCK_FILES)
        return frozenset(found)

    @property
    def shows_every_order(self) -> bool:
        """Sockets choose."""
        return False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on a loop of its own, with a deadline."""

        async def run() -> T:
            async with self._closing:
                return await asyncio.wait_for(work, HANG_SECONDS)

        return asyncio.run(run())

    def clock(self) -> RealClock:
        """The machine's."""
        return RealClock()

    def random(self) -> RealRandom:
        """The kernel's."""
        return RealRandom()

    def host(self) -> RealHost:
        """This machine."""
        return RealHost()

    def network(self, name: str) -> GrpcNetwork:
        """Closed when the run ends."""
        network = GrpcNetwork(RealClock(), client_id=name)
        self._closing.push_async_callback(network.close)
        return network

    def bind(self, name: str) -> str:
        """A free port of loopback, whatever the name."""
        del name
        return "127.0.0.1:0"

    async def dead_peer(self, hint: DeathHint) -> str:
        """A port without a listener, one that closes at once, or one that never speaks."""
        listening = self._closing.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        host, port = listening.getsockname()
        if hint is DeathHint.REFUSED:
            listening.close()
        elif hint is DeathHint.CLOSED_EARLY:
            listening.close()
            server = await asyncio.start_server(_close_at_once, host, port)
            await self._closing.enter_async_context(server)
        else:
            # The system completes connections; nobody ever accepts or answers them.
            listening.listen()
        return f"{host}:{port}"

    async def disk(self, *, is_flush_failing: bool = False) -> RealDisk:
        """The one data directory of this world."""
        disk = await open_disk(
            self._directory / "data",
            make_flusher=_failing_flusher if is_flush_failing else Flusher,
            write_all=_write_all_or_fail,
        )
        self._closing.push_async_callback(disk.shutdown)
        return disk

    async def full_disk(self) -> RealDisk:
        """A data directory on a file system of 256 KiB."""
        small = self._closing.enter_context(mounted(self._directory / "small", SMALL_FILE_SYSTEM))
        disk = await open_disk(small)
        self._closing.push_async_callback(disk.shutdown)
        return disk

    @contextlib.contextmanager
    def cramped(self, size_bytes: int) -> Iterator[None]:
        """Writes beyond the limit fail with EIO, after a short one that ends at it."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def move_directory_away(self, *, is_replaced: bool) -> None:
        """By the file system."""
        root = self._directory / "data"
        root.rename(self._directory / "away")
        if is_replaced:
            root.mkdir()

    def move_directory_back(self) -> None:
        """Over what is there."""
        root = self._directory / "data"
        if root.exists():
            shutil.rmtree(root)
        (self._directory / "away").rename(root)

    def made_in_its_place(self) -> list[str]:
        """In the directory that is empty, or not there."""
        root = self._directory / "data"
        return sorted(each.name for each in root.iterdir()) if root.exists() else []

    def move_behind_its_back(self, old: str, new: str) -> None:
        """By the file system."""
        root = self._directory / "data"
        if new:
            (root / old).replace(root / new)
        elif (root / old).is_dir():
            shutil.rmtree(root / old)
        else:
            (root / old).unlink()

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """By the attribute that `chattr +i` sets."""
        _set_immutable(self._directory / "data" / path, is_on=True)
        try:
            yield
        finally:
            _set_immutable(self._directory / "data" / path, is_on=False)

    def crash(self, *, is_machine: bool) -> None:
        """Real machines crash in the lab, not in a test."""
        raise AssertionError(f"no ability to crash (machine: {is_machine})")

    def worker(self) -> ProcessWorker:
        """Its process ends with the run."""
        worker = ProcessWorker()
        self._closing.push_async_callback(worker.close)
        return worker


def _write_all_or_fail(descriptor: int, pieces: Sequence[disk_io.Piece], byte_position: int) -> int:
    """The limit of the process stands for a disk that fails: EFBIG says something of one file."""
    try:
        return disk_io.write_all(descriptor, pieces, byte_position)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise OSError(errno.EIO, os.strerror(errno.EIO)) from error


def _set_immutable(path: Path, *, is_on: bool) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flags = array.array("L", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        flags[0] = flags[0] | _IMMUTABLE if is_on else flags[0] & ~_IMMUTABLE
        fcntl.ioctl(descriptor, _SET_FLAGS, flags)
    finally:
        os.close(descriptor)


def _can_lock(directory: Path) -> bool:
    probe = directory / "lockable"
    probe.write_bytes(b"")
    try:
        _set_immutable(probe, is_on=True)
        _set_immutable(probe, is_on=False)
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


def _failing_flusher(root: str) -> Flusher:
    def fail(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    return Flusher(root, flush_file=fail, flush_file_system=fail, flush_directory=fail)


async def _close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    writer.close()
