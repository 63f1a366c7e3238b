"""Keeps the in-sync sets of all partitions that this broker leads.

Glue around `InSyncSet`: tells the owners of the logs whom to wait for, and asks the controller for
other sets, many in one call and one call at a time. It must never ask before the owner waits: that
is what `DirectoryOwner.turn` is for. Stops 7 and 8 of a record's walk.

A follower may learn of its replica before the leader does. What it said by then counted for
nothing, and in a log to which nobody writes it has nothing more to say: so the streams are asked
for it (`told_by`) whenever the image names a follower of which nothing is known.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.in_sync.set import RETRY_MS_MIN, InSyncSet
from tidelog.broker.replication.shared.in_sync_types import Change, Count, Led
from tidelog.broker.replication.shared.messages import ToldBy
from tidelog.broker.replication.tasks.controller_calls import InSyncCalls
from tidelog.metadata.eligibility import is_able
from tidelog.metadata.image.image import BrokerImage, Image
from tidelog.metadata.settings.catalogue import CATALOGUE, REPLICA_LAG_MS
from tidelog.ports import Clock, TaskScope
from tidelog.wire.ids import BrokerEpoch, BrokerId, Offset, PartitionKey

TICKS_A_LAG: Final = 4
CHANGES_AT_ONCE_MAX: Final = 1_000
_NS_PER_MS: Final = 1_000_000


class FollowerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader knows of one follower, for descriptions."""

    broker_id: BrokerId
    log_end_offset: Offset
    flushed_offset: Offset
    caught_up_ago_ms: int
    """-1: never in this epoch."""


class _Held(msgspec.Struct, frozen=True):
    """A partition that is led here."""

    set: InSyncSet
    log: PartitionLog
    owner: DirectoryOwner


class _Brokers:
    """The brokers of the newest image."""

    def __init__(self) -> None:
        self.image = Image()

    def _find(self, broker_id: BrokerId) -> BrokerImage | None:
        return self.image.brokers.get(broker_id)

    def epoch_of(self, broker_id: BrokerId) -> BrokerEpoch | None:
        """Of its registration."""
        found = self._find(broker_id)
        return None if found is None else found.epoch

    def is_able(self, broker_id: BrokerId) -> bool:
        """Neither fenced nor stopping."""
        return is_able(self._find(broker_id))


class InSyncKeeper:
    """`run` for the broker's life; everything else is said on the same loop."""

    def __init__(
        self,
        clock: Clock,
        calls: InSyncCalls,
        *,
        broker_id: BrokerId,
        told_by: ToldBy | None = None,
    ) -> None:
        """`told_by` asks the streams; None: nobody pulls anything."""
        self._clock = clock
        self._calls = calls
        self._broker_id = broker_id
        self._told_by = told_by or _nobody_told
        self._lag_ms = _lag_ms(Image())
        self._held: dict[PartitionKey, _Held] = {}
        self._brokers = _Brokers()
        self._to_ask: dict[PartitionKey, None] = {}
        self._news = asyncio.Event()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // _NS_PER_MS

    @property
    def sets(self) -> Iterator[InSyncSet]:
        """The in-sync sets of all partitions that this broker leads, for whoever checks them."""
        return (held.set for held in self._held.values())

    # -- what the image says ---------------------------------------------------------------------

    def on_image(self, image: Image) -> None:
        """Before the roles of that image are told."""
        before, self._brokers.image = self._brokers.image, image
        if image.cluster_configuration is not before.cluster_configuration:
            self._lag_ms = _lag_ms(image)
            for held in self._held.values():
                held.set.lag_ms = self._lag_ms
        if before.brokers is image.brokers:
            return
        now_ms = self._now_ms()
        for held in self._held.values():
            self._perform(held, held.set.on_brokers(now_ms))

    def lead(
        self, log: PartitionLog, owner: DirectoryOwner, led: Led, *, is_flush_sync: bool
    ) -> None:
        """This broker leads the partition, or its sets have changed within the epoch."""
        key, now_ms = log.key, self._now_ms()
        held = self._held.get(key)
        if held is not None:
            if held.log is not log or held.owner is not owner:
                held = self._held[key] = _Held(held.set, log, owner)
                held.set.on_log(log)
            held.set.set_flush_sync(is_flush_sync=is_flush_sync)
            self._take_image(held, led, now_ms)
            return
        held = self._held[key] = _Held(
            InSyncSet(
                key,
                self._broker_id,
                log,
                led,
                self._brokers,
                is_flush_sync=is_flush_sync,
                lag_ms=self._lag_ms,
                now_ms=now_ms,
            ),
            log,
            owner,
        )
        self._take_image(held, led, now_ms)

    def _take_image(self, held: _Held, led: Led, now_ms: int) -> None:
        self._perform(held, held.set.on_image(led, now_ms))
        for broker_id in led.replicas:
            if broker_id == self._broker_id or held.set.position(broker_id) is not None:
                continue
            told = self._told_by(held.log, broker_id)
            if told is not None:
                self.on_follower_position(told)

    def configure(self, key: PartitionKey, *, is_flush_sync: bool) -> None:
        """The partition's settings have changed."""
        held = self._held.get(key)
        if held is not None:
            count = held.set.on_settings(is_flush_sync=is_flush_sync, now_ms=self._now_ms())
            self._perform(held, count)

    def resign(self, key: PartitionKey) -> None:
        """Another broker leads it, or nobody."""
        self._held.pop(key, None)
        self._to_ask.pop(key, None)

    # -- what followers say ----------------------------------------------------------------------

    def on_follower_position(self, at: FollowerAt) -> None:
        """Of a follower whose log goes on as the leader's does."""
        held = self._held.get(at.key)
        if held is not None:
            self._perform(held, held.set.on_position(at, self._now_ms()))

    def on_follower_gone(
        self, key: PartitionKey, broker_id: BrokerId, broker_epoch: BrokerEpoch
    ) -> None:
        """Of a follower that does not pull the partition any more."""
        held = self._held.get(key)
        if held is not None:
            self._perform(held, held.set.on_gone(broker_id, broker_epoch, self._now_ms()))

    def followers(self, key: PartitionKey) -> tuple[FollowerState, ...]:
        """What is known of the partition's followers; nothing of one that is not led here."""
        held = self._held.get(key)
        if held is None:
            return ()
        now_ms, states = self._now_ms(), []
        for broker_id in held.set.led.replicas:
            position = held.set.position(broker_id)
            if position is not None:
                caught_up_ms = held.set.caught_up_ms(broker_id)
                states.append(
                    FollowerState(
                        broker_id=broker_id,
                        log_end_offset=position.log_end_offset,
                        flushed_offset=position.flushed_offset,
                        caught_up_ago_ms=-1 if caught_up_ms is None else now_ms - caught_up_ms,
                    )
                )
        return tuple(states)

    # -- what follows from it --------------------------------------------------------------------

    def _perform(self, held: _Held, count: Count | None) -> None:
        if count is not None:
            held.owner.lead(
                held.log,
                count.leader_epoch,
                others=count.others,
                in_sync_count=count.in_sync_count,
                is_sole=False,
            )
            for at in count.positions:
                held.owner.follower_at(at)
            round_ = count.round
            held.owner.turn().add_done_callback(lambda _: self._on_counted(held, round_))
        if held.set.has_news:
            self._to_ask[held.set.key] = None
            self._news.set()

    def _on_counted(self, held: _Held, round_: int) -> None:
        if self._held.get(held.set.key) is held:
            self._perform(held, held.set.on_counted(round_, self._now_ms()))

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            scope.start(self._tick(), name="in-sync ticks")
            scope.start(self._ask(), name="in-sync sets")

    async def _tick(self) -> None:
        last_ms = self._now_ms()
        while True:
            tick_ms = self._lag_ms // TICKS_A_LAG
            await self._clock.sleep(tick_ms)
            now_ms = self._now_ms()
            held_up_ms, last_ms = now_ms - last_ms - tick_ms, now_ms
            for held in list(self._held.values()):
                if held_up_ms > tick_ms:
                    held.set.on_held_up(held_up_ms)
                self._perform(held, held.set.on_tick(now_ms))
                if held.set.is_lagging(now_ms):
                    self._to_ask[held.set.key] = None
                    self._news.set()

    async def _ask(self) -> None:
        while True:
            await self._wait_news()
            now_ms = self._now_ms()
            asked: list[tuple[_Held, Change]] = []
            for key in list(self._to_ask):
                held = self._held[key]
                change = held.set.take_change(now_ms)
                if change is not None:
                    asked.append((held, change))
                if change is not None or not held.set.has_news:
                    del self._to_ask[key]
                if len(asked) == CHANGES_AT_ONCE_MAX:
                    break
            if not asked:
                continue
            outcomes = await self._calls.change([change for _, change in asked])
            now_ms = self._now_ms()
            for (held, change), outcome in zip(asked, outcomes, strict=True):
                now = self._held.get(change.key)
                if now is not None and now.set is held.set:
                    self._perform(now, held.set.on_outcome(change, outcome, now_ms))

    async def _wait_news(self) -> None:
        """What waits for its next try, or for a follower, is looked at now and then."""
        self._news.clear()
        if not self._to_ask:
            await self._news.wait()
            return
        await self._clock.sleep(RETRY_MS_MIN)


def _nobody_told(log: PartitionLog, broker_id: BrokerId) -> FollowerAt | None:
    del log, broker_id
    return None


def _lag_ms(image: Image) -> int:
    """So long may a member of a set be behind before it is asked out."""
    default = CATALOGUE[REPLICA_LAG_MS].default
    return int(image.cluster_configuration.get(REPLICA_LAG_MS, default))
