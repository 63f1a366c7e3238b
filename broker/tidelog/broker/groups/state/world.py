"""What every decision about groups may look at. Pure.

Owns nothing that is persistent: the groups are `replay`'s, the view is the metadata's.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.groups.state.group import Group
from tidelog.broker.groups.state.messages import BrokerLife, BrokerState, GroupSettings
from tidelog.broker.groups.state.notes import Notes
from tidelog.broker.groups.state.timers import Timers
from tidelog.broker.groups.state.topics import TopicView
from tidelog.wire.ids import BrokerId


class World(msgspec.Struct, kw_only=True):
    """The insides of a core."""

    groups: dict[str, Group] = msgspec.field(default_factory=dict)
    topics: TopicView = msgspec.field(default_factory=TopicView)
    timers: Timers = msgspec.field(default_factory=Timers)
    defaults: GroupSettings = msgspec.field(default_factory=GroupSettings)
    by_group: dict[str, GroupSettings] = msgspec.field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerState] = {}
    """As the metadata have them; of one that is not there nothing is known."""
    notes: Notes = msgspec.field(default_factory=Notes)
    now_ms: int = 0
    wall_ms: int = 0
    """To be compared with stamps; falls when a clock is put right."""
    stamp_ms: int = 0
    """The latest that `wall_ms` ever was: a stamp may be too late, and what it is on is kept for
    longer; one that is too early would let offsets expire that are in use."""

    def settings(self, group: str) -> GroupSettings:
        """Those of the group, else the defaults."""
        return self.by_group.get(group, self.defaults) if self.by_group else self.defaults

    def is_over(self, life: BrokerLife) -> bool:
        """Whether the broker is known not to carry what it carried in that life."""
        state = self.brokers.get(life.broker_id)
        if state is None or state.broker_epoch < life.broker_epoch:
            # This view of the metadata is older than the broker's registration.
            return False
        return state.broker_epoch > life.broker_epoch or state.is_fenced

    def see_time(self, now_ms: int, wall_ms: int) -> None:
        """Ticks never fall for a core."""
        self.now_ms = max(self.now_ms, now_ms)
        self.wall_ms = wall_ms
        self.stamp_ms = max(self.stamp_ms, wall_ms)
