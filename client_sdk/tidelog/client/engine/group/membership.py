"""Keeps a consumer a member of its group: joins, stays, gives up what is taken away, leaves.

Owns the member's epoch, what it holds, and what the user's side was told of it. It must never let
the coordinator believe that a partition was given up while the user's side still reads it, nor
have two heartbeats in flight: only who closes sends the departure behind one that is not answered
yet, over the same connection, since he does not wait long. Commits and lookups belong to
`offsets_desk`.

Theory of operation. A heartbeat says what the member holds; its answer, what it should hold. What
is missing from it is to be given up: the user's side is told (`Revoke`), finishes, commits, and
says `Reconciled`; only then the next heartbeat reports it, and the coordinator may give it to
somebody else. What is new was given up by its former owner before: the user's side is told
(`Assign`) and reads at once. One news of these is on its way at a time; a newer answer replaces
the target meanwhile, and what is left to do is computed when the user's side has done the last.

    OUTSIDE ──subscribed──► JOINING ──answer──► JOINED ──removed, fenced, too slow──► STOPPED
       ▲                       ▲                   │                                      │
       └────── unsubscribed ───┴───────────────────┴──── the user's side let go of all ───┘

    reading ⊆ held ⊆ reading ∪ target, but for what the next heartbeat reports as given up

The lease. Silence for the session timeout makes the coordinator give everything to others. The
member counts that time from when it sent the last heartbeat that was answered, which is earlier
than the coordinator's count: who delivers nothing behind `lease_until_ns` never reads what somebody
else owns, whatever the network loses.
"""

import enum
from collections.abc import Iterable

import msgspec

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.group.coordinator import CoordinatorDesk, is_elsewhere
from tidelog.client.engine.group.messages import (
    Assign,
    AssignedPartition,
    GroupEffect,
    GroupPartition,
    HasLeft,
    Heartbeat,
    HeartbeatAnswered,
    Lost,
    Note,
    Revoke,
    SendHeartbeat,
    Severity,
    Tell,
)
from tidelog.client.engine.group.settings import (
    HEARTBEAT_INTERVAL_MS,
    HEARTBEAT_TIMEOUT_MS_MIN,
    GroupSettings,
)
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

LEAVE = -1
LEAVE_FOR_A_WHILE = -2
_REMOVED = frozenset({ErrorCode.UNKNOWN_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH})


class Stage(enum.Enum):
    """Where the member stands."""

    OUTSIDE = "outside"
    JOINING = "joining"
    JOINED = "joined"
    STOPPED = "stopped"
    """Not a member any more; the user's side has not let go of everything yet."""


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The heartbeat that is in flight."""

    number: int
    life: int
    address: str
    departs: bool
    subscription_version: int
    held_version: int
    at_ns: int


class Membership:
    """One per consumer with a group."""

    def __init__(
        self, settings: GroupSettings, coordinator: CoordinatorDesk, backoff: Backoff
    ) -> None:
        self.stage = Stage.OUTSIDE
        self.subscription = Subscription()
        self.member_epoch = 0
        self.held: dict[PartitionKey, AssignedPartition] = {}
        """The coordinator believes that the member has these."""
        self.target: dict[PartitionKey, AssignedPartition] = {}
        self.reading: dict[PartitionKey, AssignedPartition] = {}
        """The user's side has these."""
        self.pending: Revoke | Assign | Lost | None = None
        """Told, not done yet."""
        self.departure: int | None = None
        """LEAVE or LEAVE_FOR_A_WHILE, while the coordinator is still to be told."""
        self.lease_until_ns: int | None = None
        """Behind it nothing is delivered; None: not a member."""
        self.is_idle = False
        self.loss: TidelogError | None = None
        """Why the member was last stopped."""
        self.in_flight: _Sent | None = None
        self.polled_at_ns: int | None = None
        """When the user's last poll ended; None: he is inside one, or never polled."""
        self.rebalances = 0
        self._settings = settings
        self._coordinator = coordinator
        self._backoff = backoff
        self._due_at_ns = 0
        self._departs_until_ns = 0
        self._is_closing = False
        self._is_fresh = False
        """Joined, and the user's side was told nothing yet."""
        self._life = 0
        """Grows with each end of a membership: answers of an earlier one are void."""
        self._may_be_known = False
        """A heartbeat was sent, and the coordinator has not said since that it knows no member."""
        self._may_depart = True
        self._failures = 0
        self._subscription_version = 0
        self._held_version = 0
        self._known_subscription = -1
        self._known_held = -1
        self._news = 0
        self._sent = 0
        self._effects: list[GroupEffect] = []

    # From the user's side.

    def subscribe(self, subscription: Subscription, now_ns: int) -> None:
        """Read these from now on; an empty subscription leaves the group."""
        if subscription.is_empty:
            self._leave_if_known(now_ns, now_ns + self._session_ns)
            self._end_life(Stage.OUTSIDE)
            self.pending = None
            self.subscription = subscription
            return
        if subscription != self.subscription:
            self.subscription = subscription
            self._subscription_version += 1
        if self.stage is Stage.OUTSIDE:
            self.stage = Stage.JOINING
        self._due_at_ns = now_ns

    def leave(self, deadline_ns: int, now_ns: int) -> None:
        """For good: HasLeft follows by the deadline."""
        self._is_closing = True
        self._leave_if_known(now_ns, deadline_ns)
        self._departs_until_ns = deadline_ns
        self._end_life(Stage.OUTSIDE)
        self.pending = None
        self.subscription = Subscription()
        if self.departure is None:
            self._tell_left()

    def on_reconciled(self, number: int, now_ns: int) -> None:
        """The user's side has done what it was told."""
        done = self.pending
        if done is None or done.number != number:
            return
        self.pending = None
        match done:
            case Revoke():
                for each in done.partitions:
                    self.reading.pop(each.key, None)
                    if each.key not in self.target and self.held.pop(each.key, None) is not None:
                        self._held_version += 1
                        self._due_at_ns = now_ns
            case Assign():
                self.reading.update((each.key, each) for each in done.partitions)
            case Lost():
                assert self.stage is Stage.STOPPED, f"let go of everything while {self.stage.value}"
                self.stage = Stage.JOINING
                self._due_at_ns = now_ns
                return
        self._reconcile(now_ns)

    def suspect(self, now_ns: int) -> None:
        """A commit was answered as if this were no member: the next heartbeat tells."""
        if self.stage is Stage.JOINED:
            self._due_at_ns = now_ns

    # From the coordinator.

    def on_answer(self, message: HeartbeatAnswered, now_ns: int) -> None:
        """What came of the heartbeat."""
        sent = self.in_flight
        if sent is None or sent.number != message.number:
            return
        self.in_flight = None
        answer = message.answer
        if answer.error is not None:
            self._on_error(sent, answer.error, now_ns)
            return
        self._coordinator.works()
        self._failures = 0
        if sent.departs:
            self._departed()
            return
        if sent.life != self._life or self.stage not in (Stage.JOINING, Stage.JOINED):
            return
        if self.stage is Stage.JOINING:
            self.stage, self._is_fresh = Stage.JOINED, True
        self.member_epoch = answer.member_epoch
        self._known_subscription = sent.subscription_version
        self._known_held = sent.held_version
        session_ms = answer.session_timeout_ms or self._settings.session_timeout_ms
        self.lease_until_ns = sent.at_ns + session_ms * NS_PER_MS
        interval_ms = answer.heartbeat_interval_ms or HEARTBEAT_INTERVAL_MS
        self._due_at_ns = now_ns + interval_ms * NS_PER_MS
        if self._has_change:
            self._due_at_ns = now_ns
        self._note_idle(answer.is_idle)
        if answer.assignment is not None:
            self._take_target(answer.assignment)
        self._reconcile(now_ns)

    def _on_error(self, sent: _Sent, error: TidelogError, now_ns: int) -> None:
        if is_elsewhere(error):
            self._coordinator.forget(sent.address, error, now_ns)
        # The answer may be what was lost: the repetition says everything anew, and is known by it.
        self._known_subscription = self._known_held = -1
        if sent.departs:
            if not error.retriable:
                self._departed()
            else:
                self._retry(now_ns)
            return
        if sent.life != self._life or self.stage not in (Stage.JOINING, Stage.JOINED):
            return
        if error.code in _REMOVED:
            self._may_be_known = False
            if self.stage is Stage.JOINED:
                self._stop(self._removed(error))
            else:
                self._retry(now_ns)
        elif error.retriable:
            self._retry(now_ns)
        else:
            self._may_be_known = self.stage is Stage.JOINED
            self._leave_if_known(now_ns, now_ns + self._session_ns)
            self._stop(error, is_refused=True)

    def _retry(self, now_ns: int) -> None:
        self._failures += 1
        self._due_at_ns = now_ns + self._backoff.delay_ns(self._failures)

    # Time.

    def tick(self, now_ns: int, *, may_depart: bool) -> list[GroupEffect]:
        """Send what is due; `may_depart`: no commit waits any more."""
        self._may_depart = may_depart
        self._check_poll(now_ns)
        if self.departure is not None and now_ns >= self._departs_until_ns:
            self._departed()
        if self._can_send and now_ns >= self._due_at_ns:
            self._send(now_ns)
        effects, self._effects = self._effects, []
        return effects

    @property
    def is_coordinator_needed(self) -> bool:
        """Whether there is something to tell it."""
        return self.departure is not None or self.stage in (Stage.JOINING, Stage.JOINED)

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes."""
        deadlines: list[int] = []
        if self._can_send:
            deadlines.append(self._due_at_ns)
        if self.departure is not None:
            deadlines.append(self._departs_until_ns)
        if self.stage in (Stage.JOINING, Stage.JOINED) and self.polled_at_ns is not None:
            deadlines.append(self.polled_at_ns + self._poll_ns)
        return min(deadlines, default=None)

    def _check_poll(self, now_ns: int) -> None:
        polled_at_ns = self.polled_at_ns
        if self.stage not in (Stage.JOINING, Stage.JOINED) or polled_at_ns is None:
            return
        if now_ns < polled_at_ns + self._poll_ns:
            return
        limit_ms = self._settings.max_poll_interval_ms
        error = TidelogError(
            ErrorCode.UNKNOWN_MEMBER,
            tried=f"stay a member of group {self._settings.group!r}",
            happened=f"the consumer was not polled for {(now_ns - polled_at_ns) // NS_PER_MS} ms, "
            f"longer than max_poll_interval_ms={limit_ms}; its partitions go to others, and the "
            "next poll joins again",
            hint="handle fewer records between two polls (max_poll_records="
            f"{self._settings.max_poll_records}), or raise max_poll_interval_ms",
        )
        self._effects.append(Note(severity=Severity.WARNING, text=str(error)))
        self._leave_if_known(now_ns, now_ns + self._session_ns)
        self._stop(error)

    # Inside.

    @property
    def _session_ns(self) -> int:
        return self._settings.session_timeout_ms * NS_PER_MS

    @property
    def _poll_ns(self) -> int:
        return self._settings.max_poll_interval_ms * NS_PER_MS

    @property
    def _has_change(self) -> bool:
        """Whether the coordinator does not know something that it must."""
        return (
            self._known_subscription != self._subscription_version
            or self._known_held != self._held_version
        )

    @property
    def _can_send(self) -> bool:
        address = self._coordinator.address
        if address is None:
            return False
        if self.in_flight is not None:
            is_behind = self._is_closing and self.in_flight.address == address
            if self.in_flight.departs or not is_behind:
                return False
        if self.departure is not None:
            return self._may_depart
        return self.stage in (Stage.JOINING, Stage.JOINED)

    def _send(self, now_ns: int) -> None:
        address = self._coordinator.address
        is_last = self._is_closing and self.departure is not None
        assert self.in_flight is None or is_last, "a heartbeat is in flight already"
        assert address is not None, "a heartbeat goes to a coordinator that is known"
        self._sent += 1
        departs = self.departure is not None
        joins = self.stage is Stage.JOINING
        epoch = self.member_epoch if self.departure is None else self.departure
        self._may_be_known = True
        self.in_flight = _Sent(
            number=self._sent,
            life=self._life,
            address=address,
            departs=departs,
            subscription_version=self._subscription_version,
            held_version=self._held_version,
            at_ns=now_ns,
        )
        tells_held = not departs and (joins or self._known_held != self._held_version)
        tells_wish = not departs and (
            joins or self._known_subscription != self._subscription_version
        )
        heartbeat = Heartbeat(
            member_epoch=epoch,
            subscription=self.subscription if tells_wish else None,
            owned=_plain(self.held.values()) if tells_held else None,
        )
        self._effects.append(
            SendHeartbeat(
                number=self._sent,
                address=address,
                timeout_ms=self._timeout_ms(),
                heartbeat=heartbeat,
            )
        )

    def _timeout_ms(self) -> int:
        """A silent coordinator is asked several times within a session."""
        third_ms = max(HEARTBEAT_TIMEOUT_MS_MIN, self._settings.session_timeout_ms // 3)
        return min(self._settings.request_timeout_ms, third_ms)

    def _take_target(self, assignment: tuple[AssignedPartition, ...]) -> None:
        self.target = {each.key: each for each in assignment}
        self.held.update(self.target)
        for key, each in self.target.items():
            if key in self.reading:
                self.reading[key] = each

    def _reconcile(self, now_ns: int) -> None:
        """Compare what is held with what should be, and tell the next step of the way."""
        if self.stage is not Stage.JOINED:
            return
        begun = set(self.reading)
        if isinstance(self.pending, Assign):
            begun.update(each.key for each in self.pending.partitions)
        # What the user's side never heard of is given up without it.
        for key in [found for found in self.held if found not in self.target | self.reading]:
            if key not in begun:
                del self.held[key]
                self._held_version += 1
                self._due_at_ns = now_ns
        if self.pending is not None:
            return
        revoked = tuple(each for key, each in self.reading.items() if key not in self.target)
        added = tuple(each for key, each in self.target.items() if key not in self.reading)
        if revoked:
            self._tell(Revoke(number=self._next_news(), partitions=revoked))
        elif added or (self._is_fresh and self.is_idle):
            self._is_fresh = False
            self._tell(Assign(number=self._next_news(), partitions=added))

    def _tell(self, news: Revoke | Assign | Lost) -> None:
        assert self.pending is None, f"{self.pending} is not done yet"
        self.pending = news
        self.rebalances += 1
        self._effects.append(Tell(news=news))

    def _next_news(self) -> int:
        self._news += 1
        return self._news

    def _stop(self, error: TidelogError, *, is_refused: bool = False) -> None:
        """Not a member any more: the user's side lets go of everything before it joins again."""
        self._end_life(Stage.STOPPED)
        self.loss = error
        self.pending = None
        self._tell(Lost(number=self._next_news(), error=error, is_refused=is_refused))

    def _end_life(self, stage: Stage) -> None:
        self._life += 1
        self.stage = stage
        self.member_epoch = 0
        self.held, self.target, self.reading = {}, {}, {}
        self.lease_until_ns = None
        self.is_idle = self._is_fresh = False
        self._known_subscription = self._known_held = -1
        self._failures = 0

    def _leave_if_known(self, now_ns: int, until_ns: int) -> None:
        """The coordinator need not wait for the session's end."""
        if self._may_be_known:
            self.departure = LEAVE_FOR_A_WHILE if self._settings.is_static else LEAVE
            self._departs_until_ns = until_ns
            self._due_at_ns = now_ns

    def _departed(self) -> None:
        if self.departure is None:
            return
        self.departure = None
        self._may_be_known = False
        if self._is_closing:
            self._tell_left()

    def _tell_left(self) -> None:
        self._effects.append(Tell(news=HasLeft()))

    def _note_idle(self, is_idle: bool) -> None:
        if is_idle and not self.is_idle:
            text = (
                f"group {self._settings.group!r}: this member is idle, there are more members "
                "than partitions; it gets some when another member leaves"
            )
            self._effects.append(Note(severity=Severity.INFO, text=text))
        self.is_idle = is_idle

    def _removed(self, error: TidelogError) -> TidelogError:
        """Why the coordinator does not know this member any more."""
        told = TidelogError(
            error.code,
            tried=f"stay a member of group {self._settings.group!r}",
            happened=f"{error.happened}; its partitions go to others, and it joins again",
            hint="raise session_timeout_ms if the process or its network stood still for that long",
        )
        self._effects.append(Note(severity=Severity.WARNING, text=str(told)))
        return told


def _plain(partitions: Iterable[AssignedPartition]) -> tuple[GroupPartition, ...]:
    return tuple(
        GroupPartition(topic_partition=each.topic_partition, topic_id=each.topic_id)
        for each in partitions
    )
