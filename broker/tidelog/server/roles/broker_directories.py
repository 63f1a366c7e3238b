"""A broker's data directories: whose they are, and which of them can be used.

One that belongs to another node or cluster, or was never formatted, keeps the node from starting:
that is a mistake. One that is missing or broken does not: its partitions stop, the others go on.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.broker.replicas.directory import DirectoryLimits, LogDirectory
from tidelog.broker.shared.node_time import HouseTime
from tidelog.ports import Disk
from tidelog.server.events import log as log_events
from tidelog.server.ports.node import FurtherDisk, NodePorts
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.storage.format import NodeIdentity, check_log_directory
from tidelog.wire.errors import ErrorCode, TidelogError

_MISTAKES: Final = (
    ErrorCode.STORAGE_NOT_FORMATTED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.WRONG_CLUSTER,
)


async def broker_directories(
    identity: NodeIdentity, configuration: NodeConfiguration, ports: NodePorts, time: HouseTime
) -> tuple[LogDirectory, ...]:
    """The data directory and every one of log_dirs, in this order."""
    limits = DirectoryLimits(
        queued_bytes_max=configuration.produce.queued_bytes_max,
        flush_interval_ms=configuration.flush.replicated_interval_ms,
        housekeeping=configuration.housekeeping,
    )
    directories = [
        LogDirectory(
            ports.disk,
            ports.worker,
            ports.clock,
            time=time,
            sealer=ports.sealer,
            name=ports.disk.name,
            events=log_events,
            directory_uuid=bytes.fromhex(identity.directory_id),
            limits=limits,
        )
    ]
    for further in ports.further_disks:
        found = await _further(further, identity, ports, limits, time)
        _refuse_copy(found, directories)
        directories.append(found)
    return tuple(directories)


def _refuse_copy(found: LogDirectory, others: Sequence[LogDirectory]) -> None:
    """Two with one id hold the same partitions, and no longer the same records."""
    for other in others:
        if found.directory_uuid and found.directory_uuid == other.directory_uuid:
            raise TidelogError(
                ErrorCode.WRONG_CLUSTER,
                tried=f"open the log directory {found.name}",
                happened=f"it is a copy of {other.name}, or that of it: both have one id",
                hint="Nothing was changed. Check log_dirs.",
            )


async def _further(
    further: FurtherDisk,
    identity: NodeIdentity,
    ports: NodePorts,
    limits: DirectoryLimits,
    time: HouseTime,
) -> LogDirectory:
    disk: Disk | TidelogError
    directory_id = ""
    if further.disk is None:
        assert further.failure is not None, f"{further.path} is there or it is not"
        disk = further.failure
    else:
        disk = further.disk
        try:
            directory_id = (await check_log_directory(disk, identity)).directory_id
        except TidelogError as error:
            if error.code in _MISTAKES:
                raise
            disk = error
    return LogDirectory(
        disk,
        ports.worker,
        ports.clock,
        time=time,
        sealer=ports.sealer,
        name=further.path,
        events=log_events,
        directory_uuid=bytes.fromhex(directory_id),
        limits=limits,
    )
