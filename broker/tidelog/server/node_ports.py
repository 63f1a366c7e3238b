"""Everything through which a node touches the world. Whoever made the ports closes them."""

import msgspec

from tidelog.ports import Authorizer, Clock, Disk, Host, Network, Random


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """Real ones, or simulated ones."""

    clock: Clock
    random: Random
    disk: Disk
    quorum_disk: Disk | None
    """The quorum's directory, with a lock and flush rounds of its own; None: no controller."""
    network: Network
    host: Host
    authorizer: Authorizer
