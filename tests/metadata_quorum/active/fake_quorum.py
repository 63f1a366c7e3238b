"""A quorum without a network: this node's part of it, with elections and commits by command.

Faithful in what the controller depends upon: entries are taken in the order of the calls, before a
call waits for the first time; a call returns after its entry was applied; a term is led by one
node; what was not committed when the leadership ends is either committed by the next leader or
thrown away, and its caller is told INDETERMINATE.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from tidelog.metadata_quorum.quorum.port import NO_PROPOSER, StateMachine
from tidelog.metadata_quorum.raft.core_port import Description, MemberProgress
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
    Snapshot,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term


def member_id(node_id: int) -> MemberId:
    """The member of this node in every test."""
    return MemberId(NodeId(node_id), bytes([node_id]) * 16)


class FakeQuorum:
    """See `Quorum`. `commit_ms` None: entries are committed by `commit_to` only."""

    def __init__(
        self,
        machine: StateMachine,
        *,
        commit_ms: int | None = 1,
        nodes: int = 3,
        bootstrap_command: bytes = b"",
    ) -> None:
        self.machine = machine
        self._bootstrap_command = bootstrap_command
        """What the first leader of all writes behind its empty entry."""
        self.commit_ms = commit_ms
        self.entries: list[Entry] = []
        self.applied_index = LogIndex(0)
        self.term = Term(0)
        self.role = Role.FOLLOWER
        self.leader: MemberId | None = None
        self.refusal: TidelogError | None = None
        """Of the next proposal, in a term that goes on."""
        self.steps_down_after = 0
        """So many proposals more the leadership is lost; 0: it is not."""
        self.uncommitted_bytes_max: int | None = None
        """Of commands; beyond it they are refused. None: nothing is."""
        self.refusal_takes_ms = 0
        """Until its proposer hears of it; later proposals come in between."""
        self._refused_proposer = NO_PROPOSER
        self.has_ended = False
        self.is_cut_off = False
        """It believes that it leads, and nobody hears it."""
        self.members = Members(
            tuple(Member(id=member_id(each), address=f"n{each}:1") for each in range(1, nodes + 1))
        )
        self.committed_members: Members | None = None
        """If they are others than `members`: a change is not committed yet."""
        self.calls: list[str] = []
        self._waiting: dict[LogIndex, asyncio.Future[LogIndex]] = {}
        self._changes = 1
        self._changed = asyncio.Event()

    @property
    def member_id(self) -> MemberId:
        """Node 1."""
        return member_id(1)

    def lead(self, *, before: Sequence[bytes] = ()) -> None:
        """An election is won; `before`: commands of other leaders that are committed with it."""
        for data in before:
            self._append(EntryKind.COMMAND, data)
        self.term = Term(self.term + 1)
        self.role = Role.LEADER
        self.leader = self.member_id
        index = self._append(EntryKind.EMPTY, b"")
        if self._bootstrap_command:
            index = self._append(EntryKind.COMMAND, self._bootstrap_command)
            self._bootstrap_command = b""
        self._schedule(index)
        self._change()

    def step_down(self, leader: int | None, *, keeps: bool) -> None:
        """Another leads, or nobody; `keeps`: what is not committed will be, or never."""
        self.term = Term(self.term + 1)
        self.role = Role.FOLLOWER
        self.leader = None if leader is None else member_id(leader)
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.set_exception(
                TidelogError(
                    ErrorCode.INDETERMINATE, tried="propose", happened="the leadership was lost"
                )
            )
        if keeps:
            self.commit_to(LogIndex(len(self.entries)))
        else:
            del self.entries[self.applied_index :]
        self._change()

    def end(self) -> None:
        """The node stops, or its disk failed."""
        self.has_ended = True
        self._change()

    def commit_to(self, index: LogIndex) -> None:
        """Everything up to here is committed and applied."""
        if index <= self.applied_index or index > len(self.entries):
            return
        self.machine.apply(self.entries[self.applied_index : index])
        first, self.applied_index = self.applied_index, index
        for each in range(first + 1, index + 1):
            future = self._waiting.pop(LogIndex(each), None)
            if future is not None and not future.done():
                future.set_result(LogIndex(each))
        self._change()

    def describe(self) -> Description:
        """See `Quorum`."""
        last = LogIndex(len(self.entries))
        state = HardState(term=self.term)
        return Description(
            id=self.member_id,
            role=self.role,
            term=self.term,
            leader=self.leader,
            hard_state=state,
            persisted_state=state,
            last_index=last,
            last_term=self.entries[-1].term if self.entries else Term(0),
            persisted_index=last,
            commit_index=self.applied_index,
            applied_index=self.applied_index,
            log_start_index=LogIndex(1),
            snapshot=None,
            members=self.members,
            members_index=LogIndex(0),
            committed_members=self.committed_members or self.members,
            is_repairing=False,
            transfer_to=None,
            progress=tuple(
                MemberProgress(
                    id=each.id,
                    match_index=self.applied_index,
                    next_index=LogIndex(last + 1),
                    state="replicate",
                    in_flight=0,
                    last_contact_ms=7,
                )
                for each in self.members
                if each.id != self.member_id and self.role is Role.LEADER
            ),
        )

    async def propose(self, data: bytes, *, term: Term, proposer: int = NO_PROPOSER) -> LogIndex:
        """See `Quorum`."""
        self.calls.append("propose")
        refusal, self.refusal = self.refusal or self._excess(data), None
        if refusal is None and NO_PROPOSER < proposer <= self._refused_proposer:
            refusal = TidelogError(
                ErrorCode.UNAVAILABLE, tried="propose", happened="one before it was refused"
            )
        if refusal is not None:
            self._refused_proposer = max(self._refused_proposer, proposer)
            if self.refusal_takes_ms:
                await asyncio.sleep(self.refusal_takes_ms / 1000)
            raise refusal
        self._validate_leads(term)
        index = self._append(EntryKind.COMMAND, data)
        future: asyncio.Future[LogIndex] = asyncio.get_running_loop().create_future()
        self._waiting[index] = future
        self._schedule(index)
        if self.steps_down_after:
            self.steps_down_after -= 1
            if not self.steps_down_after:
                asyncio.get_running_loop().call_soon(lambda: self.step_down(2, keeps=True))
        return await future

    async def read_index(self, *, timeout_ms: int) -> LogIndex:
        """See `Quorum`."""
        self.calls.append("read_index")
        await asyncio.sleep(timeout_ms / 1000 if self.is_cut_off else 0.001)
        if self.is_cut_off:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED, tried="read", happened="no majority answers"
            )
        return self.applied_index

    async def wait_applied(self, index: LogIndex) -> None:
        """See `Quorum`."""
        seen = 0
        while self.applied_index < index:
            seen = await self.wait_change(seen)

    async def wait_change(self, seen: int) -> int:
        """See `Quorum`."""
        while self._changes <= seen and not self.has_ended:
            await self._changed.wait()
        if self.has_ended:
            raise TidelogError(
                ErrorCode.UNAVAILABLE, tried="wait for the quorum", happened="it has ended here"
            )
        return self._changes

    async def add_learner(self, member: Member, *, timeout_ms: int) -> Members:
        """See `Quorum`."""
        del timeout_ms
        self.members = Members((*self.members, member))
        return self.members

    async def promote(self, member_id: MemberId, *, timeout_ms: int) -> Members:
        """See `Quorum`."""
        del timeout_ms
        self.calls.append("promote")
        self.members = Members(
            tuple(
                Member(id=each.id, address=each.address, is_learner=False)
                if each.id == member_id
                else each
                for each in self.members
            )
        )
        return self.members

    async def remove_member(self, member_id: MemberId, *, timeout_ms: int) -> Members:
        """See `Quorum`."""
        del timeout_ms
        self.calls.append("remove_member")
        self.members = Members(tuple(each for each in self.members if each.id != member_id))
        return self.members

    async def transfer(self, to: MemberId | None, *, timeout_ms: int) -> None:
        """See `Quorum`."""
        del timeout_ms
        assert not self._waiting, "nothing is in flight while the leadership is handed over"
        target = to or next(each.id for each in self.members if each.id != self.member_id)
        self.step_down(target.node_id, keeps=True)

    def committed_entries(self, first_index: LogIndex, bytes_max: int) -> Sequence[Entry] | None:
        """See `Quorum`."""
        del bytes_max
        return self.entries[first_index - 1 : self.applied_index]

    def newest_snapshot(self) -> Snapshot | None:
        """See `Quorum`."""
        return None

    async def snapshot_pieces(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """See `Quorum`."""
        del snapshot
        yield b"whole"

    def _validate_leads(self, term: Term) -> None:
        if self.role is not Role.LEADER or term != self.term:
            raise TidelogError(
                ErrorCode.NOT_CONTROLLER, tried="propose", happened="this node does not lead"
            )

    def _excess(self, data: bytes) -> TidelogError | None:
        """As the real one: a single command may be of any size."""
        bytes_max, before = self.uncommitted_bytes_max, self.uncommitted_bytes
        if bytes_max is None or not before or before + len(data) <= bytes_max:
            return None
        return TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED, tried="propose", happened="too much is not committed yet"
        )

    @property
    def uncommitted_bytes(self) -> int:
        """Of entries that are taken and not committed."""
        return sum(len(entry.data) for entry in self.entries[self.applied_index :])

    def _append(self, kind: EntryKind, data: bytes) -> LogIndex:
        index = LogIndex(len(self.entries) + 1)
        self.entries.append(Entry(index=index, term=self.term, kind=kind, data=data))
        return index

    def _schedule(self, index: LogIndex) -> None:
        if self.commit_ms is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(self.commit_ms / 1000, self._commit_later, index, self.term)

    def _commit_later(self, index: LogIndex, term: Term) -> None:
        if term == self.term:
            self.commit_to(index)

    def _change(self) -> None:
        self._changes += 1
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()
