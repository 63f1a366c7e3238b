"""What a scrape asks: the parts of a node, as soon as they are there, and what is counted of them.

Owns nothing of the node: whoever looks here changes nothing.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.shared.meter import Meter
from tidelog.ports import Clock, Server
from tidelog.server.events.image import RoleCounts
from tidelog.server.metrics.health import Health
from tidelog.server.metrics.metered_disk import MeteredDisk
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.server.settings.configuration import NodeConfiguration


class WatchCounts(msgspec.Struct, kw_only=True):
    """What a node's watch has seen since the start; none of them ever falls."""

    stalls: int = 0
    stalled_ms: int = 0
    leader_changes: int = 0
    elections_won: int = 0


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to ask; without its parts while the node is not built yet."""

    configuration: NodeConfiguration
    clock: Clock
    meter: Meter
    health: Health
    disks: Sequence[MeteredDisk] = ()
    servers: Mapping[str, Server] = {}
    quotas: Quotas | None = None
    cluster_id: str = ""
    controller: ControllerRole | None = None
    broker: BrokerRole | None = None
    side: MetadataSide | None = None
    watched: WatchCounts = msgspec.field(default_factory=WatchCounts)
    roles: RoleCounts = msgspec.field(default_factory=RoleCounts)
