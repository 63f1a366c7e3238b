"""Which partitions are pulled from which leaders, and on which lanes.

Owns the choice of the lane: a partition begins on the live one, and goes to the other when its
leader says so. It must never have a partition on two lanes at once, nor let one be named before its
owner has settled: what this broker was writing when it ceased to lead still comes into the log, and
may part from the new leader's. One task a leader and lane.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replication.follower.partition import MoveTo
from tidelog.broker.replication.follower.session import FollowerSession
from tidelog.broker.replication.shared.messages import (
    DEFAULT_REPLICATION_LIMITS,
    Followed,
    Lane,
    ReplicationLimits,
)
from tidelog.broker.replication.tasks.fetch_context import FetchContext
from tidelog.broker.replication.tasks.fetch_lane import FetchLane
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock, Network, Random, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, Offset, PartitionKey

_BEHIND_ALL: Final = Offset((1 << 63) - 1)
_SETTLE_MS: Final = 10


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """How one lane stands."""

    leader_id: BrokerId
    lane: Lane
    partitions: int
    trouble: TidelogError | None


class Fetchers:
    """`set_followed` on every image, `run` for the broker's life."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: ImageSource,
        network: Network,
        clock: Clock,
        random: Random,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        address_of: Callable[[BrokerId], str | None],
        limits: ReplicationLimits = DEFAULT_REPLICATION_LIMITS,
    ) -> None:
        self._context = FetchContext(
            replicas,
            metadata,
            network,
            clock,
            random,
            cluster_id=cluster_id,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            address_of=address_of,
            limits=limits,
            on_settled=self._on_settled,
        )
        self._replicas = replicas
        self._followed: dict[PartitionKey, Followed] = {}
        self._lane_of: dict[PartitionKey, FetchLane] = {}
        self._lanes: dict[tuple[BrokerId, Lane], FetchLane] = {}
        self._unstarted: list[FetchLane] = []
        self._unsettled: list[PartitionKey] = []
        self._news = asyncio.Event()

    @property
    def sessions(self) -> Iterator[FollowerSession]:
        """The follower's end of every lane, for whoever checks them."""
        return (lane.session for lane in self._lanes.values())

    @property
    def copied_bytes(self) -> Mapping[Lane, int]:
        """What came from leaders, by lane, since the start."""
        return self._context.copied_bytes

    def set_followed(self, followed: Mapping[PartitionKey, Followed]) -> None:
        """All partitions that this broker follows, and whom; replaces what was said before.

        Their owners were told to follow before this.
        """
        for key in [key for key in self._followed if key not in followed]:
            del self._followed[key]
            self._leave(key)
        for key, wanted in followed.items():
            known = self._followed.get(key)
            if known is wanted or known == wanted:
                continue
            self._followed[key] = wanted
            if known is None or known.leader_epoch != wanted.leader_epoch:
                self._context.begin(key)
                self._unsettled.append(key)
            lane = self._lane_of.get(key)
            if lane is None or lane.leader_id != wanted.leader_id:
                if lane is not None:
                    self._leave(key)
                lane = self._lane(wanted.leader_id, Lane.LIVE)
            self._enter(key, wanted, lane)
        for lane in self._lanes.values():
            lane.wake()
        self._news.set()

    async def run(self, scope: TaskScope) -> None:
        """Pull until cancelled; the lanes are children of the scope."""
        while True:
            unstarted, self._unstarted = self._unstarted, []
            for lane in unstarted:
                scope.start(lane.run(), name=f"copies from broker {lane.leader_id}")
            unsettled, self._unsettled = self._unsettled, []
            for key in unsettled:
                scope.start(self._settle(key), name="end of a log")
            await self._news.wait()
            self._news.clear()

    def describe(self) -> list[LaneDescription]:
        """For operators and metrics."""
        return [
            LaneDescription(
                leader_id=lane.leader_id,
                lane=lane.lane,
                partitions=len(lane.session.partitions),
                trouble=lane.trouble,
            )
            for lane in self._lanes.values()
        ]

    def _lane(self, leader_id: BrokerId, lane: Lane) -> FetchLane:
        found = self._lanes.get((leader_id, lane))
        if found is None:
            found = FetchLane(self._context, leader_id, lane, self._on_move)
            self._lanes[leader_id, lane] = found
            self._unstarted.append(found)
            self._news.set()
        return found

    def _enter(self, key: PartitionKey, followed: Followed, lane: FetchLane) -> None:
        if key not in self._lane_of:
            self._replicas.watch(key, self._on_advanced)
            self._replicas.watch_end(key, self._on_moved)
        self._lane_of[key] = lane
        lane.follow(key, followed)

    def _leave(self, key: PartitionKey) -> None:
        lane = self._lane_of.pop(key, None)
        if lane is not None:
            lane.unfollow(key)
            self._replicas.unwatch(key, self._on_advanced)
            self._replicas.unwatch_end(key, self._on_moved)

    def _on_move(self, lane: FetchLane, move: MoveTo) -> None:
        """The leader says that the partition belongs on the other lane."""
        if self._lane_of.get(move.key) is not lane:
            return
        other = Lane.CATCH_UP if lane.lane is Lane.LIVE else Lane.LIVE
        self._leave(move.key)
        self._enter(move.key, self._followed[move.key], self._lane(lane.leader_id, other))

    def _on_moved(self, key: PartitionKey) -> None:
        lane = self._lane_of.get(key)
        if lane is not None:
            lane.on_moved(key)

    def _on_advanced(self, key: PartitionKey) -> None:
        lane = self._lane_of.get(key)
        if lane is not None:
            lane.on_advanced(key)

    async def _settle(self, key: PartitionKey) -> None:
        """Until nothing is written to the log any more that was asked for before it followed."""
        context = self._context
        while (replica := context.replica(key)) is not None:
            try:
                # Cuts nothing off, but is done behind what is being written.
                await replica.directory.owner.truncate(replica.log, _BEHIND_ALL)
            except TidelogError as error:
                if error.code is ErrorCode.UNAVAILABLE and not replica.log.failure:
                    # The log is being trimmed, or cut.
                    await context.clock.sleep(_SETTLE_MS)
                    continue
            break
        context.end(key)

    def _on_settled(self, key: PartitionKey) -> None:
        lane = self._lane_of.get(key)
        if lane is not None:
            lane.wake()
