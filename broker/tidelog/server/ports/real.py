"""The real ports of one node, made and closed together."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog.ports import AllowAll, TlsFiles
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk import open_files
from tidelog.ports.real.disk.disk import RealDisk, open_disk
from tidelog.ports.real.host import RealHost
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.pages import HttpPages
from tidelog.ports.real.random import RealRandom
from tidelog.ports.real.worker.worker import ProcessWorker
from tidelog.server.ports.node import FurtherDisk, NodePorts
from tidelog.server.storage.format import QUORUM_DIRECTORY
from tidelog.wire.errors import ErrorCode, TidelogError


@asynccontextmanager
async def real_ports(
    data_dir: Path,
    *,
    is_controller: bool,
    log_dirs: Sequence[str] = (),
    outbound_tls: TlsFiles | None = None,
) -> AsyncIterator[NodePorts]:
    """Locks the data directories; lets everything go at the end, in the opposite order.

    The process is a node's own: its limit of open files becomes what the system admits.
    """
    clock = RealClock()
    open_files.raise_limit()
    kept = open_files.table_size(1 + is_controller + len(log_dirs))
    disk = await open_disk(data_dir, descriptors_max=kept)
    try:
        async with (
            _quorum_disk(data_dir, kept, is_controller=is_controller) as quorum_disk,
            _further_disks(log_dirs, kept) as further_disks,
        ):
            network = GrpcNetwork(clock, outbound=outbound_tls)
            worker, sealer = ProcessWorker(), ProcessWorker()
            try:
                yield NodePorts(
                    clock=clock,
                    random=RealRandom(),
                    disk=disk,
                    quorum_disk=quorum_disk,
                    further_disks=further_disks,
                    worker=worker,
                    sealer=sealer,
                    network=network,
                    host=RealHost(),
                    authorizer=AllowAll(),
                    certificates=network.certificates,
                    pages=HttpPages(),
                )
            finally:
                await sealer.close()
                await worker.close()
                await network.close()
    finally:
        await disk.shutdown()


@asynccontextmanager
async def _quorum_disk(
    data_dir: Path, kept: int, *, is_controller: bool
) -> AsyncIterator[RealDisk | None]:
    """A directory of its own in the data directory, with a lock and flush rounds of its own."""
    if not is_controller:
        yield None
        return
    disk = await open_disk(data_dir / QUORUM_DIRECTORY, descriptors_max=kept)
    try:
        yield disk
    finally:
        await disk.shutdown()


@asynccontextmanager
async def _further_disks(
    log_dirs: Sequence[str], kept: int
) -> AsyncIterator[tuple[FurtherDisk, ...]]:
    """Those that open. One that is missing is not made: it may be a disk that is not mounted."""
    found: list[FurtherDisk] = []
    try:
        for path in log_dirs:
            found.append(await _further_disk(path, kept, is_there=_is_directory(path)))
        yield tuple(found)
    finally:
        for each in reversed(found):
            if each.disk is not None:
                await each.disk.shutdown()


async def _further_disk(path: str, kept: int, *, is_there: bool) -> FurtherDisk:
    if not is_there:
        missing = TidelogError(
            ErrorCode.STORAGE_FAILED,
            tried=f"open the log directory {path}",
            happened="it is not there",
            hint="Mount or make it; `tidelog storage add-log-dirs` formats a new one.",
        )
        return FurtherDisk(path=path, failure=missing)
    try:
        return FurtherDisk(path=path, disk=await open_disk(Path(path), descriptors_max=kept))
    except TidelogError as error:
        if error.code is ErrorCode.STORAGE_IN_USE:
            raise
        return FurtherDisk(path=path, failure=error)


def _is_directory(path: str) -> bool:
    return Path(path).is_dir()
