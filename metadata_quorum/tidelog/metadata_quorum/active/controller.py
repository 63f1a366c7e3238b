"""The active controller: one task that follows the quorum and turns decisions into commits.

Owns who may write metadata on this node, and when. It must never decide while another node may
lead: it begins when this node leads and an entry of its own term is applied here, and throws away
what it decided ahead as soon as it does not lead any more. It is a stop of no record's walk; the
walk "a broker dies" passes here.

    follower ──leads──→ preparing ──own entry applied, open group aborted──→ active
       ↑                    │                                                  │
       └────────────────────┴────────────── lost the leadership ───────────────┘
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import AbortRecord, encode_entry
from tidelog.metadata_quorum.active.limits import ActiveLimits
from tidelog.metadata_quorum.active.term import ActiveTerm, AppliedState, Inbox
from tidelog.metadata_quorum.active.writes import AnswerT, Decide, Write, Written
from tidelog.metadata_quorum.quorum.port import NO_PROPOSER, Quorum
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Term

RETRY_MS: Final = 100
"""Between two tries to begin a term that this node still leads."""


class ActiveController:
    """`run()` is the owning task. Whoever wants to change metadata calls `write`."""

    def __init__(
        self,
        *,
        quorum: Quorum,
        state_machine: AppliedState,
        clock: Clock,
        limits: ActiveLimits | None = None,
    ) -> None:
        self.quorum = quorum
        self._state = state_machine
        self._clock = clock
        self._limits = limits or ActiveLimits()
        self._inbox = Inbox()
        self._is_stopped = False
        self._term: Term | None = None
        """Led by this node, active or being prepared."""
        self._active: ActiveTerm | None = None
        self._proposers = NO_PROPOSER
        """Begun so far: one for each image ahead."""
        self._terms: list[ActiveTerm] = []
        """With proposals that may have no outcome yet."""

    @property
    def active_term(self) -> Term | None:
        """The term in which this node decides; None: it does not."""
        return None if self._active is None else self._active.term

    def image(self) -> Image:
        """Applied and visible here."""
        return self._state.image()

    def image_ahead(self) -> Image:
        """What the next write is decided against; as applied where this node does not decide."""
        active = self._active
        return self._state.image() if active is None or active.is_broken else active.image_ahead

    def leader_id(self) -> int | None:
        """The quorum's leader as far as this node knows."""
        leader = self.quorum.describe().leader
        return None if leader is None else leader.node_id

    async def run(self) -> None:
        """Follow the quorum until cancelled, or until it ends here: it says itself why."""
        try:
            async with TaskScope() as scope:
                await self._follow(scope)
                scope.cancel()
        finally:
            self._stop()

    async def write(
        self, decide: Decide[AnswerT], *, tried: str, timeout_ms: int
    ) -> Written[AnswerT]:
        """Decide at its turn, commit, answer. A caller that gives up does not stop the write.

        NOT_CONTROLLER and RESOURCE_EXHAUSTED changed nothing; INDETERMINATE and DEADLINE_EXCEEDED
        may still take effect.
        """
        if self._is_stopped:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried=tried, happened="the node is stopping")
        if self.quorum.describe().role is not Role.LEADER:
            raise self.not_controller(tried)
        if len(self._inbox.waiting) >= self._limits.queued_writes_max:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=tried,
                happened=f"{self._limits.queued_writes_max} metadata writes are waiting",
            )
        write = Write(decide, tried=tried)
        self._inbox.put(write)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await write.done
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=tried,
                happened=f"not committed within {timeout_ms} ms",
            ) from None

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Nothing is proposed inside, and nothing is in flight: for a transfer of the leadership.

        A quorum that hands over refuses proposals for a while: here they wait instead.
        """
        self._inbox.hold()
        try:
            if self._active is not None:
                await self._active.wait_settled()
            yield
        finally:
            self._inbox.release()

    def not_controller(self, tried: str) -> TidelogError:
        """The error that names whom to ask instead."""
        description = self.quorum.describe()
        if description.leader is None or description.leader == description.id:
            return TidelogError(
                ErrorCode.NOT_CONTROLLER,
                tried=tried,
                happened="this node does not lead the quorum, and no leader is known",
                hint="Wait for an election to end, then try again.",
            )
        leader = description.members.find(description.leader)
        where = "" if leader is None else f" at {leader.address}"
        return TidelogError(
            ErrorCode.NOT_CONTROLLER,
            tried=tried,
            happened="this node does not lead the quorum",
            hint=f"Ask node {description.leader.node_id}{where}.",
        )

    async def _follow(self, scope: TaskScope) -> None:
        leading: asyncio.Task[None] | None = None
        seen = 0
        while True:
            description = self.quorum.describe()
            leads = description.role is Role.LEADER
            if leading is not None and (not leads or description.term != self._term):
                leading.cancel()
                leading = None
                self._lose()
            if leads and leading is None:
                self._term = description.term
                leading = scope.start(self._lead(scope, description.term), name="lead the cluster")
            elif not leads:
                self._refuse_waiting()
            try:
                seen = await self.quorum.wait_change(seen)
            except TidelogError:
                return

    async def _lead(self, scope: TaskScope, term: Term) -> None:
        """One term; more than one pass only if a proposal failed while this node still leads."""
        while self._is_leader_of(term):
            try:
                await self._prepare(term)
            except TidelogError:
                # Not the leader any more, which `_follow` is about to see; or a quorum that is
                # busy, which may be asked again.
                await self._clock.sleep(RETRY_MS)
                continue
            active = ActiveTerm(
                quorum=self.quorum,
                state=self._state,
                term=term,
                inbox=self._inbox,
                scope=scope,
                limits=self._limits,
                proposer=self._next_proposer(),
            )
            self._terms = [each for each in self._terms if each.in_flight_count]
            self._terms.append(active)
            self._active = active
            await active.run()
            self._active = None
            await active.wait_settled()

    async def _prepare(self, term: Term) -> None:
        """Everything before this term is applied, and nothing stands half done."""
        await self.quorum.wait_applied(self.quorum.describe().last_index)
        if self._state.has_open_group():
            abort = AbortRecord(reason=f"the leader of an earlier term than {term} left it open")
            await self.quorum.propose(encode_entry((abort,)), term=term)
        seen = 0
        while not self._state.image().cluster_id and self._is_leader_of(term):
            # The quorum itself proposes what it was formatted with, as the first command.
            seen = await self.quorum.wait_change(seen)

    def _next_proposer(self) -> int:
        self._proposers += 1
        return self._proposers

    def _is_leader_of(self, term: Term) -> bool:
        description = self.quorum.describe()
        return description.role is Role.LEADER and description.term == term

    def _lose(self) -> None:
        """Another may lead: what was decided ahead is worth nothing."""
        self._term = None
        self._active = None

    def _refuse_waiting(self) -> None:
        while self._inbox.waiting:
            error = self.not_controller("write metadata")
            self._inbox.waiting.popleft().fail(error.code, error.happened, error.hint)

    def _stop(self) -> None:
        self._is_stopped = True
        self._lose()
        self._refuse_waiting()
        for each in self._terms:
            each.abandon("the node stops")
