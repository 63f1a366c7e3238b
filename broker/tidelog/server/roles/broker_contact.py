"""A broker that hears nothing from a controller: what it knows of its partitions may be over.

Owns the moment from which that is said, and from which it is taken back: not with the first answer
to a heartbeat. A process that was stopped may have been the controller too, which answers itself
before it hears that it is none any more; and one that is heard by the present controller is given
its session back before it has the metadata of the time when it had none. So after each silence in
which the session may have ended the quorum is asked what is committed, and that has to be here:

    silence ─▶ heartbeat answered ─▶ index of the quorum ─▶ metadata of that index ─▶ in contact

It must never stop what is safe: acks=all is, since the set that a leader waits for holds whoever
may lead next (`replication.in_sync_set`), and a cluster without a controller goes on serving. What
is not is a reader that waits here for news of a partition that another broker leads by now: it is
told to look again, once in the time of a session. Nor are answers from memory: coordinators ask
`Contact` first.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.broker.replicas.watchers import ReplicaWatchers
from tidelog.metadata_quorum.stream.session_client import BrokerSession, contact_ms
from tidelog.ports import Clock
from tidelog.server.events import log as log_events
from tidelog.wire.errors import ErrorCode, TidelogError

LOOK_MS: Final = 500
SHOW_MS: Final = 50
"""While there is no contact: until it is shown again everybody who asks waits for an append."""
ELECTED_MS: Final = 500
"""What a controller needs to end a session that is over and to elect others: a reader that is sent
away before that finds this very broker in the metadata, and waits here for another session."""


class Contact:
    """Whether a controller was heard so lately that nobody else can lead in this broker's place."""

    def __init__(self, session: BrokerSession) -> None:
        self._session = session
        self._shown_breaks = -1
        """Of the session, those before this broker had all metadata that were committed."""

    def holds(self) -> bool:
        """Whether the session cannot be over, and was not since this broker last knew for sure who
        leads.
        """
        return self._is_heard() and self._session.breaks == self._shown_breaks

    @property
    def is_to_be_shown(self) -> bool:
        """Whether a controller is heard again, and what happened meanwhile may not be here yet."""
        return self._is_heard() and self._session.breaks != self._shown_breaks

    async def show(self, confirm: Callable[[], Awaitable[None]]) -> None:
        """`confirm` returns once this broker acts on all metadata that were committed when it was
        called, by the word of a majority; what it raises is raised here.
        """
        breaks = self._session.breaks
        await confirm()
        self._shown_breaks = breaks

    def _is_heard(self) -> bool:
        """So lately that the session cannot be over, and not with the word that it is."""
        session = self._session
        if session.is_fenced:
            return False
        return session.silent_ms < contact_ms(session.session_timeout_ms)


class ContactWatch:
    """`run` for the broker's life, once it has registered."""

    def __init__(
        self,
        session: BrokerSession,
        replicas: ReplicaWatchers,
        clock: Clock,
        contact: Contact,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        self._session = session
        self._contact = contact
        self._confirm = confirm
        self._replicas = replicas
        self._clock = clock
        self._told = 0
        """Sessions' times that have passed without a word, and were told of."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK_MS if self._contact.holds() else SHOW_MS)
            self.look(self._session.silent_ms, self._session.session_timeout_ms)
            if self._contact.is_to_be_shown:
                # Where no majority is in reach the next look tries again.
                with contextlib.suppress(TidelogError):
                    await self._contact.show(self._confirm)

    def look(self, silent_ms: int, session_timeout_ms: int) -> None:
        """No controller has answered for so long; a session ends after the other time."""
        passed = max(0, silent_ms - ELECTED_MS) // session_timeout_ms
        if passed > self._told:
            if not self._told:
                log_events.warning("controller_not_heard", silent_ms=silent_ms)
            self._replicas.doubt(_doubt(silent_ms))
        elif self._told and not passed:
            log_events.info("controller_heard_again")
        self._told = passed


def _doubt(silent_ms: int) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried="wait for records",
        happened=f"this broker has heard from no controller for {silent_ms} ms: "
        "another one may lead the partition by now",
        hint="Look for the leader at another broker, then read there.",
    )
