"""That this broker still leads a coordinators' partition, shown when it may be so no more.

A coordinator's answers may not be older than what another one has answered already. What it stores
shows that by itself: an append comes to be committed only while everybody who could lead next
follows in this leader epoch. What it only looks up shows nothing. Ordinarily the image tells soon
who leads; a broker that has not heard from a controller for nearly a session's time may have been
replaced without knowing it, and one without any controller in the cluster has not. So such a broker
appends a record that means nothing, and answers what came before it once it is committed:

    asked ─┬─ in contact with a controller ─────────────────────────▶ the core
           └─ not ─▶ append ─┬─ committed in this leader epoch ─────▶ the core
                             └─ refused, or not committed in time ──▶ COORDINATOR_NOT_AVAILABLE

Nobody else led when the append began, so what the core says was true at that moment at least. What
is left is as in Kafka: a leader that moves while both are in contact answers lookups until it has
the image that says so. Where even that may not be, an answer waits for an append as well: what a
coordinator of transactions refuses for good, and from where a reader goes on that is no member. (A
member is told by its epoch: a coordinator of before does not know it.)

Owns the records that mean nothing, of which one is under way at a time. It must never let an append
that began earlier speak for a request that came later.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.broker.directory.core.messages import Appended
from tidelog.wire.errors import ErrorCode, TidelogError

PROOF_MS: Final = 1_000
"""Longest wait for it: then the caller had better look for the coordinator again."""


class LeadershipProof:
    """Of one coordinator's time in one leader epoch."""

    def __init__(
        self, log: CoordinatorLog, wall_ms: Callable[[], int], *, noun: str, meaningless: bytes
    ) -> None:
        """`noun`: what is coordinated there; `meaningless`: a key that every load skips."""
        self._noun: Final = noun
        self._meaningless: Final = meaningless
        self._log: Final = log
        self._wall_ms: Final = wall_ms
        self._begun = 0
        """Appends, the one under way included."""
        self._ended = 0
        """The number of the last one of which it is known what became."""
        self._failure: TidelogError | None = None
        """Of the one that ended last; None: it was committed in the leader epoch."""
        self._has_ended = asyncio.Event()

    async def wait(self, reason: str) -> None:
        """Until an append that began after this call is committed; `reason`: why it is asked."""
        own = self._begun + 1
        try:
            async with asyncio.timeout(PROOF_MS / 1000):
                while self._ended < own:
                    if self._ended == self._begun:
                        self._begin()
                    await self._has_ended.wait()
        except TimeoutError:
            raise self._not_shown(
                reason, f"an append was not committed within {PROOF_MS} ms"
            ) from None
        except TidelogError as error:
            raise self._not_shown(reason, f"{error.happened} ({error.code.name})") from None
        if self._failure is not None:
            raise self._not_shown(reason, f"{self._failure.happened} ({self._failure.code.name})")

    def _begin(self) -> None:
        appended = self._log.append([(self._meaningless, None)], self._wall_ms())
        self._begun += 1
        self._has_ended.clear()
        appended.add_done_callback(self._on_appended)

    def _on_appended(self, done: "asyncio.Future[Appended]") -> None:
        failure = done.exception()
        assert failure is None or isinstance(failure, TidelogError), "an owner refuses typed"
        try:
            if failure is None:
                self._log.check(done.result())
        except TidelogError as error:
            failure = error
        self._ended, self._failure = self._begun, failure
        self._has_ended.set()

    def _not_shown(self, reason: str, happened: str) -> TidelogError:
        return TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=f"show that this broker still leads the partition of the {self._noun}, {reason}",
            happened=happened,
            hint=f"Look the {self._noun}'s coordinator up at another broker.",
        )
