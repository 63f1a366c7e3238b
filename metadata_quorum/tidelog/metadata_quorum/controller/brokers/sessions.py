"""Who has been heard of, and when: the table of broker sessions on the active controller.

A pure core: time comes in with each call, monotonic, in milliseconds. It owns when a broker counts
as gone and must never decide what follows from it (`leaders` does). It is not replicated: a new
controller begins with `begin`, which gives every broker a fresh session, since nobody can have told
it anything before.

Two speeds: silence ends a session after `session_timeout_ms`; a death hint (the connection was
reset and a reconnect refused) after `hint_timeout_ms` unless the broker is heard of in between. A
hint may be wrong; broker epochs make early fencing safe.

    begin/open ─→ live ──hint──→ suspected ──heard──→ live
                   │                 │
                   └── silent ───────┴── tick ──→ expired (gone from the table)
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.wire.ids import BrokerEpoch, BrokerId

SESSION_TIMEOUT_MS: Final = 9_000
HINT_TIMEOUT_MS: Final = 500
HEARTBEATS_PER_TIMEOUT: Final = 6
"""A session survives the loss of several heartbeats in a row."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one broker's process."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    heard_ms: int
    """When it was last heard of; for a fresh or an excused session, when that began."""
    is_heard: bool = False
    """False: not since this controller began."""
    hinted_ms: int | None = None
    """When a hint said that it died; None: it was heard of since."""


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """A session that ended."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    silent_ms: int
    is_hinted: bool
    """The process seemed gone, not only silent."""


class Sessions:
    """The table. Each method is one input; only `tick` ends sessions."""

    def __init__(
        self,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        hint_timeout_ms: int = HINT_TIMEOUT_MS,
    ) -> None:
        assert 0 < hint_timeout_ms <= session_timeout_ms, "a hint is the faster way"
        self.session_timeout_ms = session_timeout_ms
        self.hint_timeout_ms = hint_timeout_ms
        self._sessions: dict[BrokerId, Session] = {}
        self._now_ms = 0

    @property
    def heartbeat_interval_ms(self) -> int:
        """What brokers are told."""
        return max(1, self.session_timeout_ms // HEARTBEATS_PER_TIMEOUT)

    def begin(
        self,
        brokers: Iterable[tuple[BrokerId, BrokerEpoch]],
        now_ms: int,
        *,
        silent_since_ms: Mapping[BrokerId, int] | None = None,
    ) -> None:
        """A new controller: every registered broker, fenced or not, has a fresh session, but for
        those of which it is known that they have been silent for longer.
        """
        self._advance(now_ms)
        self._sessions = {}
        for broker_id, epoch in brokers:
            heard_ms = min(now_ms, (silent_since_ms or {}).get(broker_id, now_ms))
            self._sessions[broker_id] = Session(broker_id=broker_id, epoch=epoch, heard_ms=heard_ms)

    def open(self, broker_id: BrokerId, epoch: BrokerEpoch, now_ms: int) -> None:
        """The broker registered: its process lives."""
        self._advance(now_ms)
        known = self._sessions.get(broker_id)
        assert known is None or known.epoch <= epoch, f"broker {broker_id}'s epoch fell"
        self._sessions[broker_id] = Session(
            broker_id=broker_id, epoch=epoch, heard_ms=now_ms, is_heard=True
        )

    def heard(self, broker_id: BrokerId, epoch: BrokerEpoch, now_ms: int) -> bool:
        """A heartbeat, of the epoch that the image has. False: an older process, nothing counts."""
        self._advance(now_ms)
        known = self._sessions.get(broker_id)
        if known is not None and known.epoch > epoch:
            return False
        self._sessions[broker_id] = Session(
            broker_id=broker_id, epoch=epoch, heard_ms=now_ms, is_heard=True
        )
        return True

    def hint(
        self,
        broker_id: BrokerId,
        epoch: BrokerEpoch,
        now_ms: int,
        *,
        since_ms: int | None = None,
    ) -> None:
        """The process seems to be gone, and has since that time; an earlier hint keeps its time."""
        self._advance(now_ms)
        hinted_ms = now_ms if since_ms is None else min(since_ms, now_ms)
        known = self._sessions.get(broker_id)
        if known is not None and known.epoch == epoch and known.hinted_ms is None:
            self._sessions[broker_id] = msgspec.structs.replace(known, hinted_ms=hinted_ms)

    def excuse(self, now_ms: int) -> None:
        """The controller itself was held up: what brokers said meanwhile may wait still, so that
        each session has its whole time again. What was seen to die has the hint's time.
        """
        self._advance(now_ms)
        for broker_id, known in self._sessions.items():
            hinted_ms = None if known.hinted_ms is None else now_ms
            self._sessions[broker_id] = msgspec.structs.replace(
                known, heard_ms=now_ms, hinted_ms=hinted_ms
            )

    def close(self, broker_id: BrokerId) -> None:
        """The broker was fenced on its own wish, or removed."""
        self._sessions.pop(broker_id, None)

    def tick(self, now_ms: int) -> list[Expired]:
        """Sessions that have ended by now, in ascending order of broker id; they are gone."""
        self._advance(now_ms)
        ended = [
            session
            for _, session in sorted(self._sessions.items())
            if self._deadline_ms(session) <= now_ms
        ]
        for session in ended:
            del self._sessions[session.broker_id]
        return [
            Expired(
                broker_id=session.broker_id,
                epoch=session.epoch,
                silent_ms=now_ms - session.heard_ms,
                is_hinted=session.hinted_ms is not None,
            )
            for session in ended
        ]

    def next_deadline_ms(self) -> int | None:
        """When `tick` may find something; None: there is no session."""
        return min((self._deadline_ms(each) for each in self._sessions.values()), default=None)

    def session(self, broker_id: BrokerId) -> Session | None:
        """What is known of the broker; None: it has no session."""
        return self._sessions.get(broker_id)

    def is_living(self, broker_id: BrokerId, now_ms: int) -> bool:
        """Whether the process of this id must be taken to live: it was heard of, and no hint since.

        A fresh session of a new controller counts as living too: nobody has said otherwise.
        """
        known = self._sessions.get(broker_id)
        return known is not None and known.hinted_ms is None and self._deadline_ms(known) > now_ms

    def last_contact_ms(self, broker_id: BrokerId, now_ms: int) -> int:
        """How long ago it was heard of; -1: not since this controller began."""
        known = self._sessions.get(broker_id)
        return -1 if known is None or not known.is_heard else max(0, now_ms - known.heard_ms)

    def _deadline_ms(self, session: Session) -> int:
        silence_ms = session.heard_ms + self.session_timeout_ms
        if session.hinted_ms is None:
            return silence_ms
        return min(silence_ms, session.hinted_ms + self.hint_timeout_ms)

    def _advance(self, now_ms: int) -> None:
        assert now_ms >= self._now_ms, f"monotonic time fell from {self._now_ms} to {now_ms}"
        self._now_ms = now_ms
