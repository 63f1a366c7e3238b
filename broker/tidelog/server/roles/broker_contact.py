"""A broker that hears nothing from a controller: what it knows of its partitions may be over.

Owns the moment from which that is said. It must never stop what is safe: acks=all is, since the
set that a leader waits for holds whoever may lead next (`replication.in_sync_set`), and a cluster
without a controller goes on serving. What is not is a reader that waits here for news of a
partition that another broker leads by now: it is told to look again, once in the time of a session.
Nor are answers from memory: coordinators ask `is_in_contact` first.
"""

from typing import Final

from tidelog.broker.replicas.watchers import ReplicaWatchers
from tidelog.metadata_quorum.stream.session_client import BrokerSession
from tidelog.ports import Clock
from tidelog.server.events import log as log_events
from tidelog.wire.errors import ErrorCode, TidelogError

LOOK_MS: Final = 500
ELECTED_MS: Final = 500
"""What a controller needs to end a session that is over and to elect others: a reader that is sent
away before that finds this very broker in the metadata, and waits here for another session."""
MARGIN_MS: Final = 2_000
MARGIN_PART: Final = 3
"""Of the session's time, where that is short."""


def contact_ms(session_timeout_ms: int) -> int:
    """Within this silence nobody has ended the session for it.

    The controller counts from the moment when a heartbeat comes, this broker from when it left. The
    margin is for a controller that was just elected: it holds the silence of the one before it
    against that one's broker, which heard itself until the end.
    """
    return session_timeout_ms - min(MARGIN_MS, session_timeout_ms // MARGIN_PART)


def is_in_contact(session: BrokerSession) -> bool:
    """Whether a controller was heard so lately that the session cannot be over, and did not say
    that it is: the metadata that show it may not be here yet.
    """
    return not session.is_fenced and session.silent_ms < contact_ms(session.session_timeout_ms)


class ContactWatch:
    """`run` for the broker's life, once it has registered."""

    def __init__(self, session: BrokerSession, replicas: ReplicaWatchers, clock: Clock) -> None:
        self._session = session
        self._replicas = replicas
        self._clock = clock
        self._told = 0
        """Sessions' times that have passed without a word, and were told of."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK_MS)
            self.look(self._session.silent_ms, self._session.session_timeout_ms)

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
