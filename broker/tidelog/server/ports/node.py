"""Everything through which a node touches the world. Whoever made the ports closes them."""

import msgspec

from tidelog.ports import (
    Authorizer,
    Certificates,
    Clock,
    Disk,
    Host,
    Network,
    NoCertificates,
    Pages,
    Random,
    Worker,
)
from tidelog.wire.errors import TidelogError


class FurtherDisk(msgspec.Struct, frozen=True, kw_only=True):
    """One of `log_dirs`: a directory for partition logs besides the data directory."""

    path: str
    disk: Disk | None = None
    """None: it could not be opened; the node runs without it."""
    failure: TidelogError | None = None
    """Why it could not be opened."""


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """Real ones, or simulated ones."""

    clock: Clock
    random: Random
    disk: Disk
    """The data directory: whose node it is, and partition logs."""
    quorum_disk: Disk | None
    """The quorum's directory, with a lock and flush rounds of its own; None: no controller."""
    further_disks: tuple[FurtherDisk, ...] = ()
    """More directories for partition logs; any of them may fail alone."""
    worker: Worker
    """For compaction and scrubbing on all of the directories, one job at a time."""
    sealer: Worker
    """For seals on all of the directories, one at a time, whatever the other one is busy with."""
    network: Network
    host: Host
    authorizer: Authorizer
    certificates: Certificates = NoCertificates()
    """Of the network's listeners and connections."""
    pages: Pages | None = None
    """None: nobody watches, as in the simulator."""
