"""What callers on this node ask of the quorum, and how each of them gets one outcome.

Owns the calls of `port.Quorum`. It must never touch the core but through the inbox; `describe` and
reads of what is committed change nothing. Every wait has an end: the caller's timeout, the
proposals' limit, the end of the quorum here.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from tidelog.metadata_quorum.quorum.applying import Applying
from tidelog.metadata_quorum.quorum.inbox import Inbox
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import NO_PROPOSER, QuorumStorage
from tidelog.metadata_quorum.quorum.storage_task import StorageTask
from tidelog.metadata_quorum.quorum.waiting import (
    AppliedWaiters,
    Changes,
    Proposals,
    Requests,
    Success,
    again,
)
from tidelog.metadata_quorum.raft.core_port import Core, Description
from tidelog.metadata_quorum.raft.effects import (
    Accepted,
    Answer,
    Done,
    ReadAt,
    Refused,
    Uncertain,
)
from tidelog.metadata_quorum.raft.inputs import (
    AddLearner,
    Promote,
    Propose,
    Read,
    RemoveMember,
    Request,
    Transfer,
)
from tidelog.metadata_quorum.raft.types import (
    Entry,
    Member,
    MemberId,
    Members,
    Snapshot,
    SnapshotId,
)
from tidelog.ports import Clock
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

_T = TypeVar("_T")

NS_PER_MS = 1_000_000


class RequestDesk:
    """The half of the runner that its callers see."""

    def __init__(
        self,
        core: Core,
        storage: QuorumStorage,
        clock: Clock,
        limits: QuorumLimits,
        inbox: Inbox,
        applying: Applying,
        writer: StorageTask,
    ) -> None:
        self._core = core
        self._storage = storage
        self._clock = clock
        self._limits = limits
        self._inbox = inbox
        self._applying = applying
        self._writer = writer
        self._requests = Requests()
        self._proposals = Proposals(limits)
        self._applied_waiters = AppliedWaiters()
        self._changes = Changes()
        self._requests_made = 0
        self._is_running = False
        self._snapshot = storage.recovered.snapshot
        self.failure: TidelogError | None = None
        """Why the quorum has ended here for good, if it has."""
        self._ending: TidelogError | None = None
        """What everybody is told once it has ended, however it did."""

    # -- port.Quorum -----------------------------------------------------------------------------

    @property
    def member_id(self) -> MemberId:
        """This node with its directory."""
        return self._storage.member_id

    @property
    def is_running(self) -> bool:
        """Whether requests and messages are taken."""
        return self._is_running

    @property
    def applied_index(self) -> LogIndex:
        """What the state machine holds."""
        return self._applying.applied_index

    def describe(self) -> Description:
        """As of now; `applied_index` may be ahead of the state machine's."""
        return self._core.describe()

    async def propose(self, data: bytes, *, term: Term, proposer: int = NO_PROPOSER) -> LogIndex:
        """See `Quorum`."""
        try:
            self._check_may_propose()
        except TidelogError as error:
            self._proposals.end_proposer(proposer, again(error))
            raise
        request_id = self._next_request_id()
        future = self._proposals.begin(request_id, self._now_ms(), proposer)
        self._inbox.put(Propose(request_id=request_id, data=data, term=term))
        return await future

    def _check_may_propose(self) -> None:
        tried = "propose to the metadata quorum"
        self._check_open(tried)
        if self._writer.full_error is not None:
            raise TidelogError(
                ErrorCode.STORAGE_FULL,
                tried=tried,
                happened=f"its disk on this node is full: {self._writer.full_error.happened}",
                hint="Free space in the data directory; the node goes on by itself.",
            )

    async def read_index(self, *, timeout_ms: int) -> LogIndex:
        """See `Quorum`."""
        tried = "read the metadata quorum"
        deadline_ms = self._now_ms() + timeout_ms
        index = await self.ask_index(timeout_ms=timeout_ms)
        if index > self.applied_index:
            left_ms = max(1, deadline_ms - self._now_ms())
            await self._within(left_ms, self._applied_waiters.begin(index), tried)
        return index

    async def ask_index(self, *, timeout_ms: int) -> LogIndex:
        """The index that `read_index` waits for, without the wait."""
        request = Read(request_id=self._next_request_id())
        outcome = await self._ask(request, "read the metadata quorum", timeout_ms)
        assert isinstance(outcome, ReadAt), "a read is answered with an index"
        return outcome.index

    async def wait_applied(self, index: LogIndex) -> None:
        """See `Quorum`."""
        if index <= self.applied_index:
            return
        self._check_open("wait for an entry of the metadata quorum")
        await self._applied_waiters.begin(index)

    async def wait_change(self, seen: int) -> int:
        """See `Quorum`."""
        if self._changes.number <= seen:
            self._check_open("wait for a change of the metadata quorum", may_be_starting=True)
        return await self._changes.wait(seen)

    async def add_learner(self, member: Member, *, timeout_ms: int) -> Members:
        """See `Quorum`."""
        request = AddLearner(request_id=self._next_request_id(), member=member)
        return await self._change(request, f"add node {member.id.node_id}", timeout_ms)

    async def promote(self, member_id: MemberId, *, timeout_ms: int) -> Members:
        """See `Quorum`."""
        request = Promote(request_id=self._next_request_id(), member_id=member_id)
        return await self._change(request, f"promote node {member_id.node_id}", timeout_ms)

    async def remove_member(self, member_id: MemberId, *, timeout_ms: int) -> Members:
        """See `Quorum`."""
        request = RemoveMember(request_id=self._next_request_id(), member_id=member_id)
        return await self._change(request, f"remove node {member_id.node_id}", timeout_ms)

    async def transfer(self, to: MemberId | None, *, timeout_ms: int) -> None:
        """See `Quorum`."""
        request = Transfer(request_id=self._next_request_id(), to=to)
        await self._change(request, "hand the quorum's leadership over", timeout_ms)

    def committed_entries(self, first_index: LogIndex, bytes_max: int) -> Sequence[Entry] | None:
        """See `Quorum`."""
        return self._applying.committed_entries(first_index, bytes_max)

    def newest_snapshot(self) -> Snapshot | None:
        """See `Quorum`."""
        return self._snapshot

    async def snapshot_pieces(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """See `Quorum`."""
        position = 0
        while position < snapshot.size_bytes:
            piece = await self._storage.read_snapshot(
                snapshot.id, position, self._limits.snapshot_piece_bytes
            )
            if piece is None or not piece[0]:
                self.renew_snapshot(snapshot.id)
                raise TidelogError(
                    ErrorCode.UNAVAILABLE,
                    tried=f"read the snapshot up to {snapshot.id.end_index}",
                    happened="it has given way to a newer one, or is damaged",
                )
            position += len(piece[0])
            yield piece[0]

    def renew_snapshot(self, lost: SnapshotId) -> None:
        """It cannot be given away. If it is the newest, which is what is offered, whoever is behind
        the log would wait for the next one, and without writes there is none.
        """
        if self._snapshot is not None and self._snapshot.id == lost:
            self._applying.owe_snapshot()

    # -- answers ---------------------------------------------------------------------------------

    def _on_answer(self, answer: Answer) -> None:
        outcome = answer.outcome
        match outcome:
            case Accepted():
                self._proposals.accept(answer.request_id, outcome)
            case ReadAt() | Done():
                self._requests.answer(answer.request_id, outcome)
            case Refused():
                error = self._refusal(outcome)
                if not self._proposals.refuse(answer.request_id, error):
                    self._requests.answer(answer.request_id, error)
            case Uncertain():
                error = TidelogError(
                    ErrorCode.INDETERMINATE,
                    tried="ask the metadata quorum",
                    happened=outcome.happened,
                    hint="Look with `tidelog quorum describe` before asking again.",
                )
                self._requests.answer(answer.request_id, error)

    def _refusal(self, refused: Refused) -> TidelogError:
        hint = refused.hint
        if refused.code is ErrorCode.NOT_CONTROLLER and refused.leader is not None:
            hint = f"Ask node {refused.leader.node_id}{self._address_text(refused.leader)}."
        return TidelogError(
            refused.code, tried="ask the metadata quorum", happened=refused.happened, hint=hint
        )

    def _address_text(self, member_id: MemberId) -> str:
        member = self._core.describe().members.find(member_id)
        return "" if member is None else f" at {member.address}"

    def _fail_all(self, error: TidelogError) -> None:
        """The quorum ends here: nobody is left without an outcome."""
        self._ending = error
        self._proposals.fail_all(error)
        self._requests.fail_all(error)
        self._applied_waiters.fail_all(error)
        self._changes.fail_all(error)

    # -- asking ----------------------------------------------------------------------------------

    async def _change(self, request: Request, tried: str, timeout_ms: int) -> Members:
        outcome = await self._ask(request, tried, timeout_ms)
        assert isinstance(outcome, Done), "a change is answered when it is done"
        return outcome.members

    async def _ask(self, request: Request, tried: str, timeout_ms: int) -> Success:
        self._check_open(tried)
        future = self._requests.begin(request.request_id, is_change=not isinstance(request, Read))
        self._inbox.put(request)
        try:
            return await self._within(timeout_ms, future, tried)
        finally:
            self._requests.forget(request.request_id)

    async def _within(self, timeout_ms: int, future: "asyncio.Future[_T]", tried: str) -> _T:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await future
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED, tried=tried, happened=f"not done in {timeout_ms} ms"
            ) from None

    def _check_open(self, tried: str, *, may_be_starting: bool = False) -> None:
        if self._ending is not None:
            raise again(self._ending)
        if not self._is_running and not may_be_starting:
            raise self._unavailable("the quorum of this node is starting or stopping", tried)
        waiting = len(self._proposals) + len(self._requests) + len(self._applied_waiters)
        if waiting >= self._limits.requests_waiting_max:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=tried,
                happened=f"{waiting} callers wait for the quorum (requests_waiting_max)",
            )

    def _unavailable(self, happened: str, tried: str = "ask the metadata quorum") -> TidelogError:
        return TidelogError(ErrorCode.UNAVAILABLE, tried=tried, happened=happened)

    def _next_request_id(self) -> int:
        self._requests_made += 1
        return self._requests_made

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS
