"""The member that a broker is for one client: heartbeats, and what comes of their answers. Pure.

Owns epoch, sequence and deadlines. A stream's first joining takes the place of whoever has its
group_instance_id: the client has come back, perhaps from a broker that died. A later one does not:
another stream has taken this one's place then, and it has to end. It must never have two heartbeats
in flight, nor go on as a member after a silence in which the coordinator may have removed it.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import Begin
from tidelog.wire.calls.groups import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    Heartbeat,
    HeartbeatAnswer,
    Subscription,
)
from tidelog.wire.ids import PartitionKey

NEVER_MS: Final = 1 << 62


class Membership:
    """One stream's; joined anew after it was lost."""

    def __init__(self, begin: Begin, member_id: str, now_ms: int) -> None:
        self._begin: Final = begin
        self.member_id: Final = member_id
        self.epoch = JOINING_EPOCH
        self.is_idle = False
        self.is_in_flight = False
        self._sequence = 0
        self._has_joined = False
        """Once, at least."""
        self._due_ms = now_ms
        self._heard_ms = self._sent_ms = now_ms
        self._session_ms = NEVER_MS
        self._reported: frozenset[PartitionKey] | None = None
        """What the coordinator was last told that is owned; None: nothing yet."""

    @property
    def is_member(self) -> bool:
        """Whether it has joined and was not removed since."""
        return self.epoch != JOINING_EPOCH

    def next_deadline_ms(self) -> int:
        """When a heartbeat is due, or the session over."""
        over_ms = self._heard_ms + self._session_ms if self.is_member else NEVER_MS
        return over_ms if self.is_in_flight else min(over_ms, self._due_ms)

    def is_due(self, now_ms: int) -> bool:
        """Whether a heartbeat is to be sent now."""
        return not self.is_in_flight and now_ms >= self._due_ms

    def is_over(self, now_ms: int) -> bool:
        """Whether the coordinator may have removed it for its silence."""
        return self.is_member and now_ms >= self._heard_ms + self._session_ms

    def hurry(self, now_ms: int) -> None:
        """Something was given up: what is owned is reported soon, also if that was reported last:
        the coordinator may have given it something since."""
        self._reported = None
        self._due_ms = min(self._due_ms, now_ms)

    def heartbeat(self, owned: Iterable[PartitionKey], now_ms: int) -> Heartbeat:
        """The next one, with what is owned if the coordinator does not know it."""
        assert not self.is_in_flight, "one heartbeat of a member is in flight at a time"
        self.is_in_flight = True
        self._sent_ms = now_ms
        keys = frozenset(owned)
        is_joining = self.epoch == JOINING_EPOCH
        is_news = is_joining or keys != self._reported
        self._reported = keys
        begin = self._begin
        return self._request(
            self.epoch,
            takes_over=is_joining and begin.group_instance_id != "" and not self._has_joined,
            subscription=Subscription(topics=begin.topics, topic_pattern=begin.topic_pattern)
            if is_joining
            else None,
            rack=(begin.rack or None) if is_joining else None,
            rebalance_timeout_ms=begin.acknowledge_timeout_ms + limits.GIVING_UP_MS
            if is_joining
            else None,
            owned=tuple(sorted(keys)) if is_news else None,
        )

    def departure(self) -> Heartbeat | None:
        """The last heartbeat; None: it never sent one."""
        if self._sequence == 0:
            return None
        return self._request(AWAY_EPOCH if self._begin.group_instance_id else LEAVING_EPOCH)

    def take(self, answer: HeartbeatAnswer, now_ms: int) -> None:
        """The coordinator has answered."""
        self.is_in_flight = False
        self._has_joined = True
        self.epoch = answer.member_epoch
        self.is_idle = answer.is_idle
        # The coordinator counts from when it took it: not before this, but before its answer came.
        self._heard_ms = self._sent_ms
        self._session_ms = answer.session_timeout_ms or NEVER_MS
        has_news = self._reported is None
        self._due_ms = now_ms if has_news else now_ms + max(1, answer.heartbeat_interval_ms)

    def fail(self, now_ms: int) -> None:
        """It could not be asked: once more, soon; what it was told it may not have heard."""
        self.is_in_flight = False
        self._reported = None
        self._due_ms = now_ms + limits.RETRY_MS

    def lose(self, now_ms: int) -> None:
        """It is no member any more: it joins again."""
        self.epoch = JOINING_EPOCH
        self.is_idle = False
        self._reported = None
        self._due_ms = now_ms

    def _request(
        self,
        epoch: int,
        *,
        takes_over: bool = False,
        subscription: Subscription | None = None,
        rack: str | None = None,
        rebalance_timeout_ms: int | None = None,
        owned: tuple[PartitionKey, ...] | None = None,
    ) -> Heartbeat:
        self._sequence += 1
        begin = self._begin
        return Heartbeat(
            group=begin.group,
            member_id=self.member_id,
            member_epoch=epoch,
            heartbeat_sequence=self._sequence,
            group_instance_id=begin.group_instance_id,
            takes_over=takes_over,
            rack=rack,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscription=subscription,
            owned=owned,
        )
