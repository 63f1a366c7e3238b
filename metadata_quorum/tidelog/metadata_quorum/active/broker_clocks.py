"""The brokers' clocks as the active controller hears them: verdicts, what is shown, who may stamp.

Glue around `controller.cluster_clock` for the time in which this node decides. It must never fence
a broker for its clock: one that is off serves and stores as every other one.
"""

from collections.abc import Callable

from tidelog.metadata.broker_reports import ClockState, ClockVerdict
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.inherited import cluster_value
from tidelog.metadata_quorum.controller.brokers.changes import Heartbeat
from tidelog.metadata_quorum.controller.brokers.clock import ClockShown, ClusterClock, electorate
from tidelog.ports import Clock
from tidelog.wire.ids import BrokerId

_NS_PER_MS = 1_000_000


class BrokerClocks:
    """Of one node that may be the active controller."""

    def __init__(self, clock: Clock, *, node_id: int, image: Callable[[], Image]) -> None:
        self._clock = clock
        self._node_id = node_id
        self._image = image
        self._heard = ClusterClock()

    def begin(self) -> None:
        """This node decides from now on: nobody has told it anything before."""
        self._heard = ClusterClock()

    def forget(self, broker_id: BrokerId) -> None:
        """Another process of the broker has registered."""
        self._heard.forget(broker_id)

    def hear(self, heartbeat: Heartbeat) -> ClockVerdict:
        """What the broker is told of the clock that it told; nothing, if it told none."""
        if heartbeat.wall_ms is None:
            return ClockVerdict(skew_max_ms=self._skew_max_ms())
        self._heard.see(
            heartbeat.broker_id,
            heartbeat.wall_ms,
            self._now_ms(),
            off_own_ms=heartbeat.clock_off_own_ms,
        )
        return self._heard.judge(
            heartbeat.broker_id,
            self._electorate(),
            self._now_ms(),
            skew_max_ms=self._skew_max_ms(),
        )

    def shown(self, broker_id: BrokerId) -> ClockShown:
        """For operators."""
        return self._heard.show(
            broker_id, self._electorate(), self._now_ms(), skew_max_ms=self._skew_max_ms()
        )

    def off(self) -> frozenset[int]:
        """Brokers whose clocks are known to be off."""
        return self._in_state(ClockState.OFF)

    def right(self) -> frozenset[int]:
        """Brokers whose clocks are known to be right."""
        return self._in_state(ClockState.RIGHT)

    def _in_state(self, state: ClockState) -> frozenset[int]:
        return self._heard.in_state(
            state, self._electorate(), self._now_ms(), skew_max_ms=self._skew_max_ms()
        )

    def _electorate(self) -> frozenset[int]:
        """With this node's own clock, unless it is a broker and tells it with its heartbeats."""
        brokers = self._image().brokers
        if BrokerId(self._node_id) not in brokers:
            self._heard.see(self._node_id, self._clock.wall_ms(), self._now_ms())
        return electorate((each.broker_id for each in brokers.values()), self._node_id)

    def _skew_max_ms(self) -> int:
        return int(cluster_value(self._image(), catalogue.CLOCK_SKEW_MAX_MS))

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // _NS_PER_MS
