"""Makes sure that this broker leads before it gives an answer that a client acts on for good.

A broker that was stopped, or that hears nothing, leads by its own metadata while another broker has
taken over and acknowledges records. What it serves is right all the same: it is committed. But that
an offset lies beyond the log's end, or below its start, only the present leader may say: a client
that hears it begins elsewhere, and skips records or reads them again. Nor may it refuse for good
what a producer sends (`produce.verdicts`). So the active
controller is asked what is committed by now, this broker waits for metadata that show it, and
judges the position once more:

    for good ─▶ index of the quorum ─▶ metadata of that index ─┬─ led still ─▶ said for good
                        └─ no answer in time ─▶ UNAVAILABLE    └─ not ─▶ NOT_LEADER

Owns the one question that is under way at a time: all who come meanwhile share the next. It must
never take an answer to an earlier question for one that came later, nor go by how long ago a
controller was heard: a process that was stopped does not know that it was.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.wire.errors import ErrorCode, TidelogError

CONFIRM_MS: Final = 1_000
"""Longest wait for the controller's word and for the metadata: then the client is to ask again."""


class Leadership:
    """Of all partitions of one broker."""

    def __init__(
        self,
        read_index: Callable[[int], Awaitable[int]],
        wait_applied: Callable[[int], Awaitable[None]],
        *,
        is_in_contact: Callable[[], bool],
    ) -> None:
        self._read_index: Final = read_index
        """Asks for the index of all metadata committed by now, within so many milliseconds."""
        self._wait_applied: Final = wait_applied
        """Waits until this broker acts on the metadata of an index."""
        self._is_in_contact: Final = is_in_contact
        self._turn: Final = asyncio.Lock()
        self._begun = 0
        self._answered = 0
        """The number of the last question that was answered."""

    async def confirm(self, tried: str) -> None:
        """Returns once this broker acts on all metadata that were committed before the call.

        UNAVAILABLE, which a client tries again, if that does not come about in time.
        """
        begun_before = self._begun
        try:
            async with asyncio.timeout(CONFIRM_MS / 1000), self._turn:
                if self._answered > begun_before:
                    return
                self._begun += 1
                number = self._begun
                await self._wait_applied(await self._read_index(CONFIRM_MS))
                self._answered = number
        except TimeoutError:
            raise _uncertain(tried, f"the controller's word took over {CONFIRM_MS} ms") from None
        except TidelogError as error:
            raise _uncertain(tried, f"{error.tried}: {error.happened}") from None

    async def catch_up(self) -> TidelogError | None:
        """Before an answer that may be old, but is not for good: where no controller was heard of
        lately this broker tries to learn whether it still leads. A cluster without a controller
        goes on serving, so that it answers what it knows where none is in reach.

        Returns what kept it from learning that, for answers that must not be old.
        """
        if self._is_in_contact():
            return None
        try:
            await self.confirm("learn who leads by now")
        except TidelogError as error:
            return error
        return None


class Confirmation:
    """Asks at most once for all the positions of one request."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._is_confirmed = False
        self._failure: TidelogError | None = None

    async def wait(self, tried: str) -> None:
        """See `Leadership.confirm`."""
        if self._failure is not None:
            raise self._failure
        if self._is_confirmed:
            return
        try:
            await self._leadership.confirm(tried)
        except TidelogError as error:
            self._failure = error
            raise
        self._is_confirmed = True


def _uncertain(tried: str, happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=tried,
        happened=f"another broker may lead by now, and the quorum cannot say: {happened}",
        hint="Ask again, or look for the leader at another broker. See `tidelog quorum describe`: "
        "a majority of the voters has to be alive.",
    )
