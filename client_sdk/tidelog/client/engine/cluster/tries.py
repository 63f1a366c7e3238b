"""One call, tried until it works or its time is over: when once more, and what it ends with.

Owns the deadline of such a call, for both drivers, and the rule for silence: it tells nothing, so
it does not replace a reason that an earlier try has found; nor does what a refresh of metadata
meets replace what came of asking leaders. It must never apply that rule to a call that changes
something: what was not answered may have been done, and no refusal, earlier or later, may hide
that.
"""

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS
from tidelog.client.errors import NoAnswerError, PeerError, is_lost
from tidelog.wire.errors import ErrorCode, TidelogError


def saying(reason: TidelogError, *, tried: str, happened: str) -> TidelogError:
    """The same reason in other words: its code, its hint and what a broker said of trying again."""
    if isinstance(reason, PeerError):
        return PeerError(
            reason.code,
            tried=tried,
            happened=happened,
            hint=reason.hint,
            retriable=reason.retriable,
            retry_after_ms=reason.retry_after_ms,
        )
    return TidelogError(reason.code, tried=tried, happened=happened, hint=reason.hint)


def told(reason: TidelogError | None, error: TidelogError) -> TidelogError:
    """What a call that only reads ends with, when its last try failed with `error`."""
    if reason is None or not isinstance(error, NoAnswerError):
        return error
    happened = f"{reason.happened}; then {error.happened}"
    return saying(reason, tried=reason.tried, happened=happened)


class Reason:
    """Why something that only reads has failed so far: the last answer, and silence behind it."""

    def __init__(self) -> None:
        self._answer: TidelogError | None = None
        self._silence: NoAnswerError | None = None

    def note(self, error: TidelogError) -> None:
        """A try has failed like this."""
        if isinstance(error, NoAnswerError):
            self._silence = error
        else:
            self._answer, self._silence = error, None

    @property
    def told(self) -> TidelogError | None:
        """As it is told; None: nothing has failed."""
        return self._answer if self._silence is None else told(self._answer, self._silence)


class Doubt:
    """Whether a call that changes something may have been done although it failed; one per call.

    A try that was sent and not answered leaves that open, whatever later tries are told.
    """

    def __init__(self, tried: str, *, may_repeat: bool) -> None:
        self._tried = tried
        self._may_repeat = may_repeat
        self._lost: TidelogError | None = None

    def note(self, error: TidelogError) -> None:
        """A try has failed like this."""
        if is_lost(error):
            self._lost = error

    def told(self, error: TidelogError) -> TidelogError:
        """What the call ends with, when its last try failed with `error`."""
        lost = self._lost
        if lost is None:
            return error
        happened = f"{error.happened}; it may have been done"
        if lost.happened not in error.happened:
            happened = f"{happened}: {lost.happened}"
        if not error.retriable:
            return saying(error, tried=error.tried, happened=happened)
        hint = "look whether it was done, and ask again if it was not"
        if self._may_repeat:
            hint = "ask again: done twice it comes to the same"
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED, tried=self._tried, happened=happened, hint=hint
        )


class Tries:
    """One per call."""

    def __init__(
        self, backoff: Backoff, timeout_ms: int, now_ns: int, *, doubt: Doubt | None
    ) -> None:
        """`doubt`: of a call that changes something; None: it only reads."""
        self._backoff = backoff
        self._began_ns = now_ns
        self._deadline_ns = now_ns + timeout_ms * NS_PER_MS
        self._tell_at_ns = now_ns + FIRST_NS
        self._doubt = doubt
        self._failures = 0
        self._reason = Reason()

    def left_ms(self, now_ns: int) -> int:
        """How long the next try may take."""
        return max(1, (self._deadline_ns - now_ns) // NS_PER_MS)

    def fail(self, error: TidelogError, now_ns: int) -> int | TidelogError:
        """How many milliseconds to wait before the next try, or what the call ends with."""
        self._failures += 1
        self._reason.note(error)
        if self._doubt is not None:
            self._doubt.note(error)
        delay_ms = self._backoff.delay_ms(self._failures)
        if error.retriable and now_ns + delay_ms * NS_PER_MS < self._deadline_ns:
            return delay_ms
        if self._doubt is not None:
            return self._doubt.told(error)
        return self._reason.told or error

    def waiting_text(self, error: TidelogError, now_ns: int) -> str | None:
        """A line for the log, behind a try that failed and is to be repeated; None: not now."""
        if now_ns < self._tell_at_ns:
            return None
        self._tell_at_ns = now_ns + AGAIN_NS
        waited_s, left_s = (now_ns - self._began_ns) / 1e9, self.left_ms(now_ns) / 1e3
        tries = f"{self._failures} {'try' if self._failures == 1 else 'tries'}"
        return (
            f"waiting: {error.happened} [{error.code.name}], for {waited_s:.0f} s, {tries}; "
            f"it is tried on for {left_s:.0f} s at most"
        )


class LeadersWord:
    """Whether more than silence has come of asking leaders, during a call that only reads.

    Behind each failure metadata is refreshed, for as long as there is time: what stood in the way
    of that tells why no other leader was found, not why those that were asked have refused.
    """

    def __init__(self) -> None:
        self._is_there = False

    def note(self, error: TidelogError) -> None:
        """A try has failed like this."""
        self._is_there = self._is_there or not isinstance(error, NoAnswerError)

    def outweighs(self, failure: TidelogError) -> bool:
        """Whether the call says nothing of the refresh that has failed; what no further try would
        mend is always said."""
        is_silence = isinstance(failure, NoAnswerError)
        return is_silence or (self._is_there and failure.retriable)
