"""Calls of the active controller: finds it, tries again where that is safe, tells what is certain.

Owns the rule of what may be tried again. An attempt that certainly changed nothing (the answer says
so, or the connection was refused) is followed by another one; one of unknown outcome only if the
call may be repeated. It must never turn an unknown outcome into a known one.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidelog.metadata_quorum.stream.quorum_view import Leader, QuorumView
from tidelog.ports import Clock, DeathHint, Network, PeerUnreachable, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

ATTEMPT_MS: Final = 1_000
"""Of a call that may be repeated; also how long one that may not goes on after the leader moved."""
RETRY_FIRST_MS: Final = 5
"""A quorum of one elects itself within milliseconds."""
RETRY_MS: Final = 50
LEADERLESS_MS_MAX: Final = 5_000
"""Longer than two elections: then the caller is told, who may ask again and say why it waits."""
_CHANGED_NOTHING: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNAVAILABLE)
MAJORITY_HINT: Final = (
    "Start the voters of the metadata quorum that are missing: a majority of them has to be alive. "
    "If they are gone for good, see `tidelog quorum recover --help`."
)
_UNKNOWN: Final = (ErrorCode.DEADLINE_EXCEEDED, ErrorCode.INDETERMINATE)
_NS_PER_MS: Final = 1_000_000

_T = TypeVar("_T")
Attempt = Callable[[Leader, int], Awaitable[_T]]
"""One try at a leader, within so many milliseconds."""


class ControllerClient:
    """Of one node."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        view: QuorumView,
        trouble: Callable[[], TidelogError | None] = lambda: None,
    ) -> None:
        """`trouble`: why this node knows no leader, as far as it can tell."""
        self._network = network
        self._clock = clock
        self._view = view
        self._trouble = trouble
        self._led_ns = clock.monotonic_ns()
        """When a leader was known last; a node looks every second."""

    def leader(self) -> Leader | None:
        """The active controller, as far as this node knows."""
        leader = self._view.leader()
        if leader is not None:
            self._led_ns = self._clock.monotonic_ns()
        return leader

    def without_leader_ms(self) -> int:
        """For how long none has been known, to the second or so; 0: one is."""
        return 0 if self.leader() is not None else max(1, self._ms_since(self._led_ns))

    async def call(
        self, method: str, message: bytes, *, tried: str, timeout_ms: int, may_repeat: bool = True
    ) -> bytes:
        """One message there and one back."""

        async def attempt(leader: Leader, attempt_ms: int) -> bytes:
            return await self._network.call(leader.address, method, message, timeout_ms=attempt_ms)

        return await self.run(attempt, tried=tried, timeout_ms=timeout_ms, may_repeat=may_repeat)

    async def run(
        self, attempt: Attempt[_T], *, tried: str, timeout_ms: int, may_repeat: bool
    ) -> _T:
        """Attempts until one has an outcome.

        UNAVAILABLE at the end, or after LEADERLESS_MS_MAX without a controller: nothing was
        changed. DEADLINE_EXCEEDED, or INDETERMINATE where trying again would not be safe: it may
        still take effect.
        """
        started_ns = led_ns = self._clock.monotonic_ns()
        end_ns = started_ns + timeout_ms * _NS_PER_MS
        last: TidelogError | None = None
        is_unknown = False
        pause_ms = RETRY_FIRST_MS
        while (left_ms := (end_ns - self._clock.monotonic_ns()) // _NS_PER_MS) > 0:
            leader = self._view.leader()
            if leader is None and self._ms_since(led_ns) >= LEADERLESS_MS_MAX:
                break
            if leader is not None:
                led_ns = self._clock.monotonic_ns()
                try:
                    if may_repeat:
                        return await attempt(leader, min(ATTEMPT_MS, left_ms))
                    return await self._once(attempt, leader, left_ms)
                except TidelogError as error:
                    last = error
                    if not _has_changed_nothing(error):
                        if not _is_unknown(error):
                            raise
                        if not may_repeat:
                            raise _indeterminate(tried, error) from None
                        is_unknown = True
            await self._clock.sleep(min(pause_ms, left_ms))
            pause_ms = min(RETRY_MS, 2 * pause_ms)
        happened = self._no_controller() if last is None else _text(last)
        raise TidelogError(
            ErrorCode.DEADLINE_EXCEEDED if is_unknown else ErrorCode.UNAVAILABLE,
            tried=tried,
            happened=f"within {self._ms_since(started_ns)} ms: {happened}",
            hint=MAJORITY_HINT,
        )

    def _no_controller(self) -> str:
        trouble = self._trouble()
        known = "no active controller is known"
        return known if trouble is None else f"{known}: {trouble.happened}"

    def _ms_since(self, then_ns: int) -> int:
        return (self._clock.monotonic_ns() - then_ns) // _NS_PER_MS

    async def _once(self, attempt: Attempt[_T], leader: Leader, timeout_ms: int) -> _T:
        """The only try: given up early if the leader moves, since no answer is to be expected."""
        found: list[_T] = []
        async with TaskScope() as scope:

            async def work() -> None:
                found.append(await attempt(leader, timeout_ms))
                scope.cancel()

            async def watch() -> None:
                while self._is_still(leader):
                    await self._clock.sleep(RETRY_MS)
                await self._clock.sleep(ATTEMPT_MS)
                scope.cancel()

            scope.start(work(), name="call the controller")
            scope.start(watch(), name="watch the controller")
        if not found:
            raise TidelogError(
                ErrorCode.INDETERMINATE,
                tried=f"wait for node {leader.node_id}",
                happened="another node became the active controller meanwhile",
            )
        return found[0]

    def _is_still(self, leader: Leader) -> bool:
        now = self._view.leader()
        return now is None or (now.node_id, now.term) == (leader.node_id, leader.term)


def _has_changed_nothing(error: TidelogError) -> bool:
    if isinstance(error, PeerUnreachable):
        return error.death_hint is not DeathHint.NONE
    return error.code in _CHANGED_NOTHING


def _is_unknown(error: TidelogError) -> bool:
    return isinstance(error, PeerUnreachable) or error.code in _UNKNOWN


def _indeterminate(tried: str, error: TidelogError) -> TidelogError:
    return TidelogError(
        ErrorCode.INDETERMINATE,
        tried=tried,
        happened=_text(error),
        hint="It may have taken effect: look, and ask again if it has not.",
    )


def _text(error: TidelogError) -> str:
    return f"{error.tried}: {error.happened}"
