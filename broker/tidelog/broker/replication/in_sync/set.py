"""The in-sync set of one partition, as its leader sees it: who lags, who has come near. Pure.

Owns the decision to ask for another set, and whom the watermark has to wait for meanwhile. It must
never ask for a broker that the watermark does not wait for yet, nor stop waiting for one that may
still be let in. Stops 7 and 8 of a record's walk.

Theory of operation. The owner of the log waits for `others`: the committed set without the leader,
and everybody who is on the way into it:

    far ──position ≥ watermark and ≥ start of the epoch──▶ coming ──the owner waits for it, and its
     ▲                                                     │        position still suffices──▶ asked
     └───────── lags, stops, is fenced ◀───────────────────┘                                   │
     └───────── refused, or withdrawn ◀────────────────────────────────────────────────────────┤
    in sync ◀── the image has a newer partition epoch ◀────────────────────────────────────────┘

Coming is a step of its own because the owner works through an inbox: between the decision and the
moment from which it waits, the watermark may pass the follower. Were the controller asked before, a
broker that lacks committed records could be in sync, and be elected.

Who is dropped from the replicas loses its log, and may be placed again before the leader hears of
either. So a follower comes only by what it said at the present partition epoch, or a later one: a
drop raises the epoch, and the controller makes a change at the very epoch that it was decided at.
Followers that are not in sync say it once more at each epoch.

A member of the set that was not caught up for `lag_ms` is asked out. It still counts until the
image is without it. Caught up at a moment means: its position has reached the log's end of that
moment, whenever that became known.

An answer that did not come leaves it open whether the set was changed, or will be. The same change
is asked for again until it is answered; if the answer is a refusal then, an earlier copy may still
be on its way, so that the change is withdrawn: the controller raises the partition epoch, and no
copy is good any more. Until the image shows a newer partition epoch everybody who was ever asked
for is waited for.

While a reassignment is about to leave one replica alone, what is flushed counts, whatever the topic
says. Once the owner goes by that, and the one that stays has flushed all that may be committed,
each set that is asked for says so; where no other set is wanted the present one is asked for again,
to say it: the controller lets nobody go before.

Why a leader that lost its session, and knows nothing of what the controller decided since, never
acknowledges (acks=all) what is lost: nobody but it can let a broker in, so the set that it waits
for holds the controller's whole set, or did when the controller took members out. Whoever leads in
the next epoch comes from that set, and has confirmed nothing in the old epoch after it learnt of
the new one; what it had confirmed before is in its log. A member that was taken out while too few
stayed (`eligible`) is elected only because the watermark could not move without it. acks=0 and 1
promise nothing. So no clock is needed, and none is asked.
"""

from collections.abc import Collection, Iterable
from typing import Final, Protocol

import msgspec

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.replication.in_sync import invariants
from tidelog.broker.replication.shared.in_sync_types import (
    Asking,
    Brokers,
    Change,
    Count,
    Led,
    Outcome,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, Offset, PartitionKey

RETRY_MS_MIN: Final = 100
RETRY_MS_MAX: Final = 3_200


class LogView(Protocol):
    """What is looked at of the leader's log."""

    @property
    def log_end_offset(self) -> Offset:
        """The next offset to assign."""

    @property
    def high_watermark(self) -> Offset:
        """The first uncommitted one."""

    @property
    def flushed_offset(self) -> Offset:
        """All below it is durable."""

    @property
    def failure(self) -> TidelogError | None:
        """Why it has stopped; None: it has not."""


class InSyncSet:
    """Each method is one input; what is to be told to the log's owner comes back, if anything."""

    def __init__(
        self,
        key: PartitionKey,
        broker_id: BrokerId,
        log: LogView,
        led: Led,
        brokers: Brokers,
        *,
        is_flush_sync: bool,
        lag_ms: int,
        now_ms: int,
    ) -> None:
        assert lag_ms > 0, "a follower may lag for some time"
        self.key = key
        self.led = led
        self.is_flush_sync = is_flush_sync
        """Whether what a follower has flushed counts, or what it has written."""
        self._broker_id = broker_id
        self._log = log
        self._brokers = brokers
        self.lag_ms = lag_ms
        """So long may a member of the set be behind before it is asked out."""
        self._positions: dict[BrokerId, FollowerAt] = {}
        self._caught_up_ms: dict[BrokerId, int] = {}
        self._awaited: dict[BrokerId, tuple[Offset, int]] = {}
        """A follower that reaches the offset was caught up at the moment."""
        self._epoch_start: Offset | None = None
        """Where the epoch begins, or somewhat behind; None: the owner has not begun it yet."""
        self._coming: dict[BrokerId, int] = {}
        """On the way in, not asked for yet: since when."""
        self._has_given_up = False
        """Some are on the way in no more, and the owner waits for them still."""
        self._asked: dict[BrokerId, None] = {}
        """Whoever was asked for at this partition epoch."""
        self._change: Change | None = None
        """To be asked for until it is answered, and not shown by the image yet."""
        self._asking = Asking.NOTHING
        self._retry_at_ms = now_ms
        self._retry_ms = RETRY_MS_MIN
        self._round = 0
        self._round_counted = 0
        self._told: tuple[tuple[BrokerId, ...], int] | None = None
        self._begin_epoch(led, now_ms)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def others(self) -> tuple[BrokerId, ...]:
        """Whom the watermark waits for, without this broker."""
        waited_for = dict.fromkeys((*self.led.in_sync, *self._asked, *self._coming))
        return tuple(sorted(each for each in waited_for if each != self._broker_id))

    @property
    def has_news(self) -> bool:
        """Whether `take_change` may give something out without another input."""
        if self._change is None:
            return bool(self._coming) or self.led.last_replica in self.led.in_sync
        return bool(self._coming) or self._asking in (Asking.NOTHING, Asking.OPEN)

    def caught_up_ms(self, broker_id: BrokerId) -> int | None:
        """When the follower was last known to be caught up."""
        return self._caught_up_ms.get(broker_id)

    def position(self, broker_id: BrokerId) -> FollowerAt | None:
        """Where the follower stood last."""
        return self._positions.get(broker_id)

    # -- inputs ----------------------------------------------------------------------------------

    def on_image(self, led: Led, now_ms: int) -> Count | None:
        """The image has news of the partition."""
        assert led.leader_epoch >= self.led.leader_epoch, f"{self.key}: the leader epoch fell"
        assert self._broker_id in led.in_sync, f"{self.key} is led by a broker out of sync"
        if led.leader_epoch > self.led.leader_epoch:
            self._begin_epoch(led, now_ms)
        elif led.partition_epoch > self.led.partition_epoch:
            self._begin_partition_epoch(led, now_ms)
        count = self.on_brokers(now_ms)
        # Rare enough for production: what is decided in this epoch stands on it.
        invariants.check(self)
        return count

    def on_log(self, log: LogView) -> None:
        """The log was opened again, within the epoch or not: its owner knows of nobody to wait for.
        Who was asked for still may be let in, and is waited for."""
        self._log = log
        self._told = None

    def on_brokers(self, now_ms: int) -> Count | None:
        """The image has news of brokers."""
        self._forget_unable()
        return self._settle(now_ms)

    def on_position(self, position: FollowerAt, now_ms: int) -> Count | None:
        """A follower has told where it stands."""
        broker_id = position.broker_id
        if position.leader_epoch != self.led.leader_epoch or broker_id not in self.led.replicas:
            return None
        known = self._positions.get(broker_id)
        if known is not None and position.is_behind(known):
            return None
        if known is not None and known.broker_epoch < position.broker_epoch:
            self._awaited.pop(broker_id, None)
        self._positions[broker_id] = position
        self._note_caught_up(position, now_ms)
        if broker_id in self.led.in_sync:
            return None
        return self._settle(now_ms)

    def on_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> Count | None:
        """A follower pulls no more: it may have lost what it said it had, and says so by this."""
        known = self._positions.get(broker_id)
        if known is None or known.broker_epoch > broker_epoch:
            return None
        del self._positions[broker_id]
        self._awaited.pop(broker_id, None)
        self._coming.pop(broker_id, None)
        return self._settle(now_ms)

    def on_tick(self, now_ms: int) -> Count | None:
        """Time has passed."""
        end = self._log.log_end_offset
        for broker_id, position in self._positions.items():
            if position.counted(is_flush_sync=self.is_flush_sync) >= end:
                self._caught_up_ms[broker_id] = now_ms
        if not (self._coming or self._has_given_up):
            # Nothing else becomes different by time alone, and there may be thousands of these.
            return None
        for broker_id, since_ms in list(self._coming.items()):
            if now_ms - since_ms > self.lag_ms:
                del self._coming[broker_id]
        return self._settle(now_ms)

    def on_held_up(self, held_up_ms: int) -> None:
        """This process was held up: what followers said meanwhile waits still."""
        for broker_id, caught_up_ms in self._caught_up_ms.items():
            self._caught_up_ms[broker_id] = caught_up_ms + held_up_ms

    def on_settings(self, *, is_flush_sync: bool, now_ms: int) -> Count | None:
        """The partition's way of flushing has changed: the owner has heard of it before."""
        self.set_flush_sync(is_flush_sync=is_flush_sync)
        return self._settle(now_ms)

    def set_flush_sync(self, *, is_flush_sync: bool) -> None:
        """The same, where an image is told next."""
        if self.is_flush_sync != is_flush_sync:
            self.is_flush_sync = is_flush_sync
            # What is told next is counted once the owner goes by it.
            self._told = None

    def on_counted(self, round_: int, now_ms: int) -> Count | None:
        """The log's owner has waited for the round's `others` since some moment before now."""
        assert round_ <= self._round, f"{self.key}: round {round_} was never asked for"
        self._round_counted = max(self._round_counted, round_)
        if self._epoch_start is None and round_ >= self._first_round:
            self._epoch_start = self._log.log_end_offset
        return self._settle(now_ms)

    def on_outcome(self, change: Change, outcome: Outcome, now_ms: int) -> Count | None:
        """What became of a change that `take_change` gave out."""
        if change != self._change:
            # The image was faster: it shows a newer epoch, and with it what became of the change.
            return None
        is_open = self._asking in (Asking.OPEN, Asking.AGAIN)
        if outcome.is_made and outcome.partition_epoch > change.partition_epoch:
            self._asking = Asking.MADE
        elif outcome.is_made:
            # The same set once more changed nothing.
            self._drop_change()
            if change.is_flushed:
                # The one that stays cannot lead now: nothing tells when it can.
                self._wait(now_ms)
        elif outcome.is_unknown or is_open:
            if not (outcome.is_unknown or change.is_withdrawal):
                self._change = self._withdrawal()
            self._asking = Asking.OPEN
            self._wait(now_ms)
        else:
            self._drop_change()
            self._wait(now_ms)
        return self._settle(now_ms)

    def is_lagging(self, now_ms: int) -> bool:
        """Whether somebody is to be asked out."""
        return self._change is None and bool(self._lagging(now_ms))

    def take_change(self, now_ms: int) -> Change | None:
        """What to ask the controller for now; it is in flight until `on_outcome`."""
        if self._asking not in (Asking.NOTHING, Asking.OPEN) or now_ms < self._retry_at_ms:
            return None
        if self._change is None:
            self._change = self._decided(now_ms)
        if self._change is None:
            return None
        self._asking = Asking.FIRST if self._asking is Asking.NOTHING else Asking.AGAIN
        self._asked.update(dict.fromkeys(each for each, _ in self._change.members))
        return self._change

    # -- decisions -------------------------------------------------------------------------------

    def _decided(self, now_ms: int) -> Change | None:
        """Another set than the committed one, or None. Who lags goes before anybody comes."""
        lagging = self._lagging(now_ms)
        if lagging:
            self._has_given_up = bool(self._coming)
            self._coming.clear()
            return self._asking_for(each for each in self.led.in_sync if each not in lagging)
        if self._round_counted < self._round:
            return None
        ready = [each for each in self._coming if self._is_heard(each) and self._is_near(each)]
        if not ready:
            is_end = self._is_last_flushed(self.led.in_sync)
            return self._asking_for(self.led.in_sync) if is_end else None
        for each in ready:
            del self._coming[each]
        wanted = (*self.led.in_sync, *ready)
        return self._asking_for(each for each in self.led.replicas if each in wanted)

    def _is_last_flushed(self, wanted: Collection[BrokerId]) -> bool:
        """Whether the one that stays, a member, has flushed all that is or will be committed."""
        last = self.led.last_replica
        if last is None or last not in wanted or not self.is_flush_sync:
            return False
        if self._round_counted < self._round:
            return False
        if last == self._broker_id:
            # Of a log that has stopped nobody knows what can still be read.
            return self._log.failure is None and self._has_all(self._log.flushed_offset)
        position = self._positions.get(last)
        return position is not None and self._has_all(position.flushed_offset)

    def _lagging(self, now_ms: int) -> tuple[BrokerId, ...]:
        return tuple(
            each
            for each in self.led.in_sync
            if each != self._broker_id
            and now_ms - self._caught_up_ms.get(each, now_ms) > self.lag_ms
        )

    def _asking_for(self, wanted: Iterable[BrokerId]) -> Change | None:
        """With the epoch of each as the leader saw it: of members as the image has it, of those
        that come as they began the session in which they caught up."""
        members, wanted = [], tuple(wanted)
        for each in wanted:
            if each in self.led.in_sync:
                epoch = self._brokers.epoch_of(each)
            else:
                epoch = self._positions[each].broker_epoch
            if epoch is None:
                # The image is about to say what became of it.
                return None
            members.append((each, epoch))
        return Change(
            key=self.key,
            leader_epoch=self.led.leader_epoch,
            partition_epoch=self.led.partition_epoch,
            members=tuple(members),
            is_flushed=self._is_last_flushed(wanted),
        )

    def _withdrawal(self) -> Change | None:
        same = self._asking_for(self.led.in_sync)
        return None if same is None else msgspec.structs.replace(same, is_withdrawal=True)

    def _is_near(self, broker_id: BrokerId) -> bool:
        """Whether the follower has everything that is, or may be, committed."""
        position = self._positions.get(broker_id)
        if position is None:
            return False
        return self._has_all(position.counted(is_flush_sync=self.is_flush_sync))

    def _has_all(self, offset: Offset) -> bool:
        """Whether all that is, or may be, committed is below it. A new leader's watermark may be
        behind that of the one before, which was within what it has."""
        start = self._epoch_start
        return start is not None and offset >= self._log.high_watermark and offset >= start

    def _is_heard(self, broker_id: BrokerId) -> bool:
        """Whether the follower, not in sync, has said at this partition epoch where it stands."""
        position = self._positions.get(broker_id)
        return position is not None and position.partition_epoch >= self.led.partition_epoch

    def _is_able(self, broker_id: BrokerId) -> bool:
        """Whether the controller would let it in: alive, and the process that caught up, with the
        log that it caught up with."""
        position = self._positions.get(broker_id)
        if position is None or position.broker_epoch != self._brokers.epoch_of(broker_id):
            return False
        return self._is_heard(broker_id) and self._brokers.is_able(broker_id)

    def _settle(self, now_ms: int) -> Count | None:
        """Let those come who are near; tell the owner if it has to wait for others now."""
        if self._change is None:
            for each in self._positions:
                is_new = each not in self.led.in_sync and each not in self._coming
                if is_new and self._is_able(each) and self._is_near(each):
                    self._coming[each] = now_ms
                    self._caught_up_ms[each] = now_ms
        self._has_given_up = False
        others, in_sync_count = self.others, len(self.led.in_sync)
        if self._told == (others, in_sync_count):
            return None
        self._told = (others, in_sync_count)
        self._round += 1
        return Count(
            key=self.key,
            leader_epoch=self.led.leader_epoch,
            others=others,
            in_sync_count=in_sync_count,
            positions=tuple(self._positions[each] for each in others if each in self._positions),
            round=self._round,
        )

    # -- state -----------------------------------------------------------------------------------

    def _begin_epoch(self, led: Led, now_ms: int) -> None:
        """Nothing of the epoch before counts: neither positions nor what was asked for."""
        self.led = led
        self._positions.clear()
        self._awaited.clear()
        self._caught_up_ms = dict.fromkeys(led.in_sync, now_ms)
        self._epoch_start = None
        self._told = None
        self._first_round = self._round + 1
        self._coming.clear()
        self._asked.clear()
        self._drop_change()
        self._retry_at_ms, self._retry_ms = now_ms, RETRY_MS_MIN

    def _begin_partition_epoch(self, led: Led, now_ms: int) -> None:
        """What was asked for at the partition epoch before is made, or will never be."""
        for each in led.in_sync:
            if each not in self.led.in_sync:
                self._caught_up_ms[each] = now_ms
                self._coming.pop(each, None)
        self.led = led
        self._asked.clear()
        self._drop_change()
        self._retry_at_ms, self._retry_ms = now_ms, RETRY_MS_MIN

    def _drop_change(self) -> None:
        """Certainly made or certainly not: whoever was asked for counts by the image alone."""
        self._change = None
        self._asked.clear()
        self._asking = Asking.NOTHING

    def _forget_unable(self) -> None:
        for each in list(self._coming):
            if not self._is_able(each):
                del self._coming[each]
        for each in list(self._positions):
            if each not in self.led.replicas:
                del self._positions[each]

    def _note_caught_up(self, position: FollowerAt, now_ms: int) -> None:
        broker_id, end = position.broker_id, self._log.log_end_offset
        counted = position.counted(is_flush_sync=self.is_flush_sync)
        if counted >= end:
            self._caught_up_ms[broker_id] = now_ms
            self._awaited.pop(broker_id, None)
            return
        awaited_end, since_ms = self._awaited.get(broker_id, (end, now_ms))
        if counted >= awaited_end:
            before_ms = self._caught_up_ms.get(broker_id, since_ms)
            self._caught_up_ms[broker_id] = max(before_ms, since_ms)
            awaited_end, since_ms = end, now_ms
        self._awaited[broker_id] = (awaited_end, since_ms)

    def _wait(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + self._retry_ms
        self._retry_ms = min(RETRY_MS_MAX, 2 * self._retry_ms)
