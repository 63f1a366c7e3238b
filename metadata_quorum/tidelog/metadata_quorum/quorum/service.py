"""QuorumService: what other members may ask of this node, as methods of the Network port.

Owns the check of every message's route before it has an effect. Handlers change nothing: messages
go to the runner's inbox, and what the core answers comes back through `Incoming`.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

from tidelog.metadata_quorum.quorum.incoming import IncomingStream
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import QuorumStorage
from tidelog.metadata_quorum.quorum.transport import SERVICE, QuorumTransport
from tidelog.metadata_quorum.quorum.waiting import again
from tidelog.metadata_quorum.quorum.wire import joining as quorum_joining
from tidelog.metadata_quorum.quorum.wire import messages as quorum_convert
from tidelog.metadata_quorum.quorum.wire.joining import Piece
from tidelog.metadata_quorum.quorum.wire.route import NO_LEADER, Identity, Sender
from tidelog.metadata_quorum.raft.bounds import is_step_sane
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.messages import ReadIndexRequest
from tidelog.metadata_quorum.raft.types import Member, MemberId, Members, SnapshotId
from tidelog.ports import Method, RequestContext, Stream, StreamMethod, TaskScope, UnaryMethod
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

_T = TypeVar("_T")


class ServedQuorum(Protocol):
    """What the service needs of the runner."""

    failure: TidelogError | None

    @property
    def is_running(self) -> bool: ...

    def describe(self) -> Description: ...

    def renew_snapshot(self, lost: SnapshotId) -> None: ...

    async def ask_index(self, *, timeout_ms: int) -> LogIndex: ...

    async def add_learner(self, member: Member, *, timeout_ms: int) -> Members: ...


class QuorumRpc:
    """The service's methods."""

    def __init__(
        self,
        quorum: ServedQuorum,
        transport: QuorumTransport,
        storage: QuorumStorage,
        here: Identity,
        limits: QuorumLimits,
    ) -> None:
        self._quorum = quorum
        self._transport = transport
        self._storage = storage
        self._here = here
        self._limits = limits

    def methods(self) -> Mapping[str, Method]:
        """By full name."""
        return {
            f"{SERVICE}/RequestVote": UnaryMethod(self.request_vote),
            f"{SERVICE}/AppendEntries": StreamMethod(self.append_entries),
            f"{SERVICE}/FetchSnapshot": UnaryMethod(self.fetch_snapshot),
            f"{SERVICE}/TimeoutNow": UnaryMethod(self.timeout_now),
            f"{SERVICE}/ReadIndex": UnaryMethod(self.read_index),
            f"{SERVICE}/JoinQuorum": UnaryMethod(self.join_quorum),
        }

    async def request_vote(self, context: RequestContext, message: bytes) -> bytes:
        """`RequestVote`: the core answers when the vote is flushed, or not at all."""
        del context
        self._check_running("vote")
        request = quorum_convert.decode_vote_request(self._here, message)
        self._check_step(request.term, "RequestVoteRequest")
        incoming, sender = self._transport.incoming, request.sender
        future = incoming.expect_vote(sender, is_pre_vote=request.is_pre_vote)
        try:
            self._transport.deliver(request, len(message))
            response = await self._answer(future, "vote")
        finally:
            incoming.forget_vote(sender, future, is_pre_vote=request.is_pre_vote)
        return quorum_convert.encode_vote_response(self._here, response, self._leader_id())

    async def append_entries(self, context: RequestContext, stream: Stream) -> None:
        """`AppendEntries`: one task receives, one sends what the core answers."""
        del context
        self._check_running("append entries")
        incoming: IncomingStream | None = None
        try:
            async with TaskScope() as scope:
                while (data := await stream.receive()) is not None:
                    request = quorum_convert.decode_append_request(self._here, data)
                    self._check_step(request.term, "AppendEntriesRequest")
                    if incoming is None:
                        incoming = self._transport.incoming.open(request.sender)
                        scope.start(self._send_answers(incoming, stream), name="append answers")
                    elif request.sender != incoming.sender:
                        raise _changed_sender()
                    if request.snapshot is not None:
                        self._learn_leader(request.sender, data)
                    self._transport.deliver(request, len(data))
                scope.cancel()
        finally:
            if incoming is not None:
                self._transport.on_stream_end(incoming)

    def _learn_leader(self, sender: MemberId, data: bytes) -> None:
        """A node far behind may know no members that name its leader."""
        address = quorum_convert.read_leader_address(data)
        if address:
            self._transport.learn_address(sender, address)

    async def fetch_snapshot(self, context: RequestContext, message: bytes) -> bytes:
        """`FetchSnapshot`: also the question whether this node lives."""
        del context
        sender, request = quorum_joining.decode_piece_request(self._here, message)
        bytes_max = min(
            request.bytes_max or self._limits.snapshot_piece_bytes,
            self._limits.snapshot_piece_bytes,
        )
        found = None
        if request.id.end_index > 0:
            self._check_running("read a snapshot")
            found = await self._storage.read_snapshot(request.id, request.position, bytes_max)
            if found is None:
                self._quorum.renew_snapshot(request.id)
        data, total_bytes = (b"", 0) if found is None else found
        piece = Piece(
            id=request.id,
            position=request.position,
            data=data,
            total_bytes=total_bytes,
            is_gone=found is None,
        )
        return quorum_joining.encode_piece(self._here, sender, piece)

    async def timeout_now(self, context: RequestContext, message: bytes) -> bytes:
        """`TimeoutNow`."""
        del context
        self._check_running("take over")
        request = quorum_convert.decode_timeout_now(self._here, message)
        self._transport.deliver(request, len(message))
        term = self._quorum.describe().term
        return quorum_convert.encode_timeout_now_response(self._here, request.sender, term)

    async def read_index(self, context: RequestContext, message: bytes) -> bytes:
        """`ReadIndex`: of members through the core's messages, of observers as this node's own."""
        del context
        self._check_running("read")
        sender, term = quorum_convert.decode_read_index_request(self._here, message)
        outcome: LogIndex | TidelogError
        try:
            if sender.is_observer:
                outcome = await self._read_for_observer()
            else:
                outcome = await self._read_for_member(sender, term, len(message))
        except TidelogError as error:
            outcome = error
        description = self._quorum.describe()
        return quorum_joining.encode_read_index_answer(
            self._here, sender, outcome, leader_id=self._leader_id(), term=description.term
        )

    async def join_quorum(self, context: RequestContext, message: bytes) -> bytes:
        """`JoinQuorum`."""
        del context
        self._check_running("join")
        sender, member = quorum_joining.decode_join_request(self._here, message)
        error: TidelogError | None = None
        try:
            await self._quorum.add_learner(member, timeout_ms=self._limits.join_timeout_ms)
        except TidelogError as refused:
            error = refused
        return quorum_joining.encode_join_response(self._here, sender, error, self._leader())

    # -- parts -----------------------------------------------------------------------------------

    async def _send_answers(self, incoming: IncomingStream, stream: Stream) -> None:
        while True:
            response = await incoming.wait_answer()
            await stream.send(quorum_convert.encode_append_response(self._here, response))

    async def _read_for_observer(self) -> LogIndex:
        """Only the leader serves it: a voter in between would add a hop and nothing else."""
        if self._quorum.describe().role is not Role.LEADER:
            raise TidelogError(
                ErrorCode.NOT_CONTROLLER,
                tried="read the metadata quorum",
                happened="this node does not lead the quorum",
            )
        return await self._quorum.ask_index(timeout_ms=self._limits.call_timeout_ms)

    async def _read_for_member(self, sender: Sender, term: Term, size_bytes: int) -> LogIndex:
        incoming = self._transport.incoming
        read_id, future = incoming.expect_read()
        request = ReadIndexRequest(
            sender=sender.member_id, receiver=self._here.member_id, term=term, read_id=read_id
        )
        try:
            self._transport.deliver(request, size_bytes)
            response = await self._answer(future, "read")
        finally:
            incoming.forget_read(read_id)
        if response.index == 0:
            raise TidelogError(
                ErrorCode.NOT_CONTROLLER,
                tried="read the metadata quorum",
                happened="this node does not lead the quorum",
            )
        return response.index

    async def _answer(self, future: Awaitable[_T], what: str) -> _T:
        """What the core says within the limit; it need not answer what is old."""
        try:
            async with asyncio.timeout(self._limits.call_timeout_ms / 1_000):
                return await future
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"ask a member of the quorum to {what}",
                happened="it has nothing to say to that",
            ) from None

    def _leader(self) -> Member | None:
        description = self._quorum.describe()
        if description.leader is None:
            return None
        return description.members.find(description.leader)

    def _leader_id(self) -> int:
        leader = self._quorum.describe().leader
        return NO_LEADER if leader is None else leader.node_id

    def _check_step(self, term: Term, name: str) -> None:
        """The core passes such a term over; here its sender hears of it."""
        own = self._quorum.describe().term
        if not is_step_sane(own, term):
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=f"take a {name}",
                happened=f"its term is {term}, this node's is {own}: no elections lie in between",
                hint="The sender is faulty or forged; if it is this node that was left behind, "
                "remove it from the quorum, format an empty directory, and add it again.",
            )

    def _check_running(self, what: str) -> None:
        if self._quorum.failure is not None:
            raise again(self._quorum.failure)
        if not self._quorum.is_running:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=f"ask node {self._here.member_id.node_id} to {what}",
                happened="its quorum is starting or stopping",
            )


def _changed_sender() -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried="append entries",
        happened="a stream carries messages of two senders",
    )
