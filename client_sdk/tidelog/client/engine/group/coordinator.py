"""Where a group's coordinator is, as far as the member knows.

Owns the search: one question at a time, backoff while it fails, a new search when the coordinator
says that it is not the one any more or cannot be reached. It must never ask while nobody needs the
answer.
"""

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.tries import Reason
from tidelog.client.engine.group.messages import FindCoordinator
from tidelog.wire.errors import ErrorCode, TidelogError

_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNAVAILABLE,
        ErrorCode.DEADLINE_EXCEEDED,
    }
)


def is_elsewhere(error: TidelogError) -> bool:
    """Whether the error says that the coordinator is to be looked up again."""
    return error.code in _ELSEWHERE


class CoordinatorDesk:
    """Unknown, being looked up, or known."""

    def __init__(self, backoff: Backoff) -> None:
        self.address: str | None = None
        self.is_asking = False
        self.failures = 0
        """In a row; an answer to a real request ends the row."""
        self.reason = Reason()
        """Why it does not work, since it worked last."""
        self.retry_at_ns = 0
        self.failing_since_ns: int | None = None
        """Since when nobody who needs it was answered; None: it works, or nobody needs it."""
        self._backoff = backoff

    def tick(self, now_ns: int) -> FindCoordinator | None:
        """Somebody needs it: ask, if it is time."""
        if self.address is not None or self.is_asking or now_ns < self.retry_at_ns:
            return None
        self.is_asking = True
        return FindCoordinator()

    def next_deadline_ns(self) -> int | None:
        """When `tick` would ask; None: the address is known, or about to be."""
        if self.address is not None or self.is_asking:
            return None
        return self.retry_at_ns

    def on_found(self, address: str) -> None:
        """A broker told it."""
        assert address, "a coordinator that was found has an address"
        self.is_asking = False
        self.address = address

    def on_failed(self, error: TidelogError, now_ns: int) -> None:
        """There is none, or nobody answered."""
        self.is_asking = False
        self._wait(error, now_ns)

    def forget(self, address: str, error: TidelogError, now_ns: int) -> None:
        """Who is at this address is not the coordinator, or does not answer."""
        if self.address != address:
            return
        self.address = None
        self._wait(error, now_ns)

    def works(self) -> None:
        """It answered a real request."""
        self.failures = 0
        self.reason = Reason()
        self.failing_since_ns = None

    def _wait(self, error: TidelogError, now_ns: int) -> None:
        self.failures += 1
        self.reason.note(error)
        if self.failing_since_ns is None:
            self.failing_since_ns = now_ns
        self.retry_at_ns = now_ns + self._backoff.delay_ns(self.failures)
