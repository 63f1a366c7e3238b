"""Who waits for what: proposals, other requests, applied indexes, changes.

Owns the futures of this node's callers. Each gets exactly one outcome, also when the node stops;
an outcome that comes after its caller has gone is dropped. It decides nothing.
"""

import asyncio
import heapq
from collections import deque
from typing import TypeVar

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import NO_PROPOSER
from tidelog.metadata_quorum.raft.effects import Accepted, Done, ReadAt
from tidelog.metadata_quorum.raft.types import Entry
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

_T = TypeVar("_T")

Success = Accepted | ReadAt | Done

_SWEEP_EVERY = 256
"""Waiters begun, after which those whose callers have gone are forgotten."""

_PROPOSE = "propose to the metadata quorum"


def again(error: TidelogError) -> TidelogError:
    """An equal error: one that is raised again and again would grow its traceback."""
    return TidelogError(error.code, tried=error.tried, happened=error.happened, hint=error.hint)


class Requests:
    """Requests to the core other than proposals, by request id."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Success]] = {}
        self._changes: dict[int, None] = {}
        """Of those that wait: what may take effect although its answer is lost."""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request_id: int, *, is_change: bool) -> "asyncio.Future[Success]":
        """What the caller awaits; it says `forget` at the end."""
        assert request_id not in self._waiting, f"request {request_id} is under way"
        future: asyncio.Future[Success] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        if is_change:
            self._changes[request_id] = None
        return future

    def forget(self, request_id: int) -> None:
        """The caller has gone."""
        self._waiting.pop(request_id, None)
        self._changes.pop(request_id, None)

    def answer(self, request_id: int, outcome: Success | TidelogError) -> None:
        """Wake the caller, if it is still there."""
        future = self._waiting.pop(request_id, None)
        if future is not None:
            settle(future, outcome)

    def fail_all(self, error: TidelogError) -> None:
        """Nobody will answer any more: a change may stand in the log, here or elsewhere."""
        waiting, self._waiting = self._waiting, {}
        for request_id, future in waiting.items():
            is_change = request_id in self._changes
            settle(future, _unknown_outcome(error) if is_change else again(error))


class Proposals:
    """Proposals from submission to the moment at which their entry is applied.

    begin ──► Accepted(index, term) ──► the entry at `index` is applied: its term tells
      │                  └──► leadership lost, snapshot installed: INDETERMINATE
      └──► Refused: nothing was changed, and the proposer's later ones are refused as well
    """

    def __init__(self, limits: QuorumLimits) -> None:
        self._timeout_ms = limits.propose_timeout_ms
        self._submitted: dict[int, tuple[int, asyncio.Future[LogIndex]]] = {}
        """With the number of the proposer."""
        self._refused_proposer = NO_PROPOSER
        """The highest of which a proposal was refused, and why it was."""
        self._refusal: TidelogError | None = None
        self._accepted: dict[LogIndex, tuple[Term, asyncio.Future[LogIndex]]] = {}
        self._deadlines: deque[tuple[int, asyncio.Future[LogIndex]]] = deque()

    def __len__(self) -> int:
        return len(self._submitted) + len(self._accepted)

    def begin(
        self, request_id: int, now_ms: int, proposer: int = NO_PROPOSER
    ) -> "asyncio.Future[LogIndex]":
        """What the proposer awaits."""
        future: asyncio.Future[LogIndex] = asyncio.get_running_loop().create_future()
        self._submitted[request_id] = (proposer, future)
        self._deadlines.append((now_ms + self._timeout_ms, future))
        return future

    def accept(self, request_id: int, accepted: Accepted) -> bool:
        """It stands in the log; False: this request is no proposal of a caller."""
        found = self._submitted.pop(request_id, None)
        if found is None:
            return False
        _, future = found
        if not future.done():
            assert accepted.index not in self._accepted, "an index is given to one proposal"
            self._accepted[accepted.index] = (accepted.term, future)
        return True

    def refuse(self, request_id: int, error: TidelogError) -> bool:
        """Nothing was changed; False: this request is no proposal of a caller."""
        found = self._submitted.pop(request_id, None)
        if found is None:
            return False
        proposer, future = found
        self.end_proposer(proposer, error)
        settle(future, error)
        return True

    def end_proposer(self, proposer: int, refusal: TidelogError) -> None:
        """One of its proposals was refused: those after it may have been built upon it."""
        if proposer > self._refused_proposer:
            self._refused_proposer, self._refusal = proposer, refusal

    def refusal_before(self, request_id: int) -> TidelogError | None:
        """Why it is refused because one before it, of the same proposer, was; None: it is not."""
        proposer, _ = self._submitted.get(request_id, (NO_PROPOSER, None))
        if not NO_PROPOSER < proposer <= self._refused_proposer:
            return None
        assert self._refusal is not None, "a proposer is cut off by a refusal"
        is_lost = self._refusal.code is ErrorCode.NOT_CONTROLLER
        return TidelogError(
            ErrorCode.NOT_CONTROLLER if is_lost else ErrorCode.UNAVAILABLE,
            tried=_PROPOSE,
            happened=f"one before it was refused: {self._refusal.happened}",
            hint=self._refusal.hint if is_lost else "",
        )

    def on_applied(self, entries: tuple[Entry, ...]) -> None:
        """Entries were applied: those who proposed them are done."""
        if not self._accepted:
            return
        for entry in entries:
            found = self._accepted.pop(entry.index, None)
            if found is None:
                continue
            term, future = found
            if term == entry.term:
                settle(future, entry.index)
            else:
                settle(future, _displaced(entry.index))

    def expire(self, now_ms: int) -> None:
        """Answer those who waited for too long; their entries may still be committed."""
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or deadlines[0][1].done()):
            _, future = deadlines.popleft()
            happened = f"not committed within {self._timeout_ms} ms"
            settle(
                future,
                TidelogError(ErrorCode.DEADLINE_EXCEEDED, tried=_PROPOSE, happened=happened),
            )

    def lose(self, happened: str, hint: str = "") -> None:
        """What becomes of accepted proposals will not be known here."""
        accepted, self._accepted = self._accepted, {}
        hint = hint or "Look whether the change is there before asking for it again."
        for _, future in accepted.values():
            settle(
                future,
                TidelogError(ErrorCode.INDETERMINATE, tried=_PROPOSE, happened=happened, hint=hint),
            )

    def fail_all(self, error: TidelogError) -> None:
        """The node stops: what was only submitted was not done."""
        self.lose(error.happened)
        submitted, self._submitted = self._submitted, {}
        for _, future in submitted.values():
            settle(future, again(error))
        self._deadlines.clear()


class AppliedWaiters:
    """Callers that wait until an index is applied."""

    def __init__(self) -> None:
        self._heap: list[tuple[LogIndex, int, asyncio.Future[None]]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._heap)

    def begin(self, index: LogIndex) -> "asyncio.Future[None]":
        """What the caller awaits."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._made += 1
        if self._made % _SWEEP_EVERY == 0:
            self._heap = [each for each in self._heap if not each[2].done()]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (index, self._made, future))
        return future

    def on_applied(self, index: LogIndex) -> None:
        """All up to here is applied."""
        while self._heap and (self._heap[0][0] <= index or self._heap[0][2].done()):
            settle(heapq.heappop(self._heap)[2], None)

    def fail_all(self, error: TidelogError) -> None:
        """Nothing more will be applied."""
        heap, self._heap = self._heap, []
        for _, _, future in heap:
            settle(future, again(error))


class Changes:
    """A number that grows with each change of role, term, leader, members or applied index."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: list[asyncio.Future[int]] = []

    def bump(self) -> None:
        """Something changed."""
        self.number += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                settle(future, self.number)

    async def wait(self, seen: int) -> int:
        """The number, once it is above `seen`."""
        if self.number > seen:
            return self.number
        self._waiting = [future for future in self._waiting if not future.done()]
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return await future

    def fail_all(self, error: TidelogError) -> None:
        """Nothing changes any more."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            settle(future, again(error))


def settle(future: "asyncio.Future[_T]", outcome: _T | TidelogError) -> None:
    """Give a caller its outcome, unless it has gone or has one."""
    if future.done():
        return
    if isinstance(outcome, TidelogError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _unknown_outcome(error: TidelogError) -> TidelogError:
    return TidelogError(
        ErrorCode.INDETERMINATE,
        tried="ask the metadata quorum",
        happened=f"no answer came: {error.happened}",
        hint="Look with `tidelog quorum describe` before asking again.",
    )


def terms_are_spent(term: Term) -> TidelogError:
    """Why nobody is elected any more; only forged messages lead here."""
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried="stand for election in the metadata quorum",
        happened=f"the term is {term}, the last one there is, and no election led to it",
        hint="Something that may call the cluster listener sends forged terms: close the listener "
        'to it, then see "The terms are spent" in docs/operations.md.',
    )


def _displaced(index: LogIndex) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_CONTROLLER,
        tried=_PROPOSE,
        happened=f"another leader's entry was committed at index {index} in its place",
    )
