"""The core's messages on their way to other members, and the signs of a member's death.

Owns who is reached at which address, one link to each member, and the unary calls under way. It
must never keep the runner waiting: what cannot be sent is lost, and Raft does without.

    AppendRequest ──► PeerLink ──► stream     VoteRequest, TimeoutNow, ReadIndexRequest ──► call
    AppendResponse, VoteResponse, ReadIndexResponse ──► Incoming ──► the call that waits here
    a leader's stream into this node ends ──► probe its address ──► refused: PeerDied
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from tidelog.metadata_quorum.quorum.incoming import Incoming, IncomingStream
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.peer_link import LinkPorts, PeerLink
from tidelog.metadata_quorum.quorum.wire import messages as quorum_convert
from tidelog.metadata_quorum.quorum.wire.joining import (
    Piece,
    PieceRequest,
    decode_piece,
    encode_piece_request,
)
from tidelog.metadata_quorum.quorum.wire.route import Identity
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import NO_INDEX, NO_TERM, MemberId, Members, SnapshotId
from tidelog.ports import (
    Clock,
    DeathHint,
    Network,
    PeerUnreachable,
    Random,
    TaskScope,
)
from tidelog.wire.errors import ErrorCode, TidelogError

SERVICE: Final = "/tidelog.v1.QuorumService"
NO_SNAPSHOT: Final = SnapshotId(end_index=NO_INDEX, term=NO_TERM)
"""Asked for as a sign of life: the answer is that it is gone."""


class QuorumTransport:
    """Made and started by the runner; `send` from its task, the rest from handlers."""

    def __init__(
        self,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        limits: QuorumLimits,
        here: Identity,
        peer_addresses: Mapping[int, str],
        deliver: Callable[[Message, int], bool],
        on_dead: Callable[[int], None],
    ) -> None:
        self._ports = LinkPorts(
            network=network,
            clock=clock,
            random=random,
            limits=limits,
            here=here,
            deliver=deliver,
            on_dead=on_dead,
            own_address=lambda: self._addresses.get(here.member_id, ""),
        )
        self._peer_addresses = dict(peer_addresses)
        self._addresses: dict[MemberId, str] = {}
        self._learned: dict[MemberId, str] = {}
        """Of nodes that answered before the members were known here, and of those that left."""
        self._links: dict[MemberId, PeerLink] = {}
        self._calls: dict[MemberId, int] = {}
        self._unanswered: dict[MemberId, TidelogError] = {}
        """Why the last call to a member failed, until one works."""
        self._refusals: dict[MemberId, int] = {}
        """Who refused this node its vote when asked last: the leader that it named, or -1."""
        self._probes: dict[MemberId, None] = {}
        self._scope: TaskScope | None = None
        self.incoming = Incoming(limits)
        self.messages_lost = 0

    def start(self, scope: TaskScope) -> None:
        """From now on tasks may be started."""
        self._scope = scope

    def stop(self, error: TidelogError) -> None:
        """Send nothing more, and leave nobody without an answer."""
        self._scope = None
        self.incoming.fail_all(error)

    def update_members(self, members: Members) -> None:
        """Whom to reach, and where; who left is still to hear that this is committed."""
        before = self._addresses
        self._addresses = {member.id: member.address for member in members}
        for member_id, address in before.items():
            if member_id not in self._addresses:
                self.learn_address(member_id, address)

    def learn_address(self, member_id: MemberId, address: str) -> None:
        """A node that answered there."""
        if len(self._learned) >= self._ports.limits.learned_addresses_max:
            self._learned.clear()
        self._learned[member_id] = address

    def address_of(self, member_id: MemberId) -> str:
        """Where it is reached from here; UNAVAILABLE if that is not known."""
        address = (
            self._peer_addresses.get(member_id.node_id)
            or self._addresses.get(member_id)
            or self._learned.get(member_id)
        )
        if address is None:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=f"reach node {member_id.node_id}",
                happened="its address is not known here yet",
            )
        return address

    def last_error(self, member_id: MemberId) -> TidelogError | None:
        """Why the stream to a member broke last, for operators."""
        link = self._links.get(member_id)
        return None if link is None else link.last_error

    def why_unanswered(self) -> dict[MemberId, TidelogError]:
        """Of the present members that did not answer when they were asked last, for operators."""
        return {key: error for key, error in self._unanswered.items() if key in self._addresses}

    def refusals(self) -> dict[MemberId, int]:
        """Of the present members that refused their vote when they were asked last: which node they
        say leads, -1: none. For operators."""
        return {key: leader for key, leader in self._refusals.items() if key in self._addresses}

    # -- out -------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send and forget."""
        match message:
            case AppendRequest():
                self._link(message.receiver).push(message)
            case AppendResponse() | VoteResponse() | ReadIndexResponse():
                self.incoming.answer(message)
            case VoteRequest():
                self._begin_call(message.receiver, self._ask_vote(message), "RequestVote")
            case TimeoutNow():
                self._begin_call(message.receiver, self._hand_over(message), "TimeoutNow")
            case ReadIndexRequest():
                self._begin_call(message.receiver, self._ask_index(message), "ReadIndex")

    async def fetch_piece(self, source: MemberId, request: PieceRequest) -> Piece:
        """A piece of a snapshot of another member."""
        limits = self._ports.limits
        data = await self._ports.network.call(
            self.address_of(source),
            f"{SERVICE}/FetchSnapshot",
            encode_piece_request(
                self._ports.here, source, request.id, request.position, request.bytes_max
            ),
            timeout_ms=limits.snapshot_piece_timeout_ms,
        )
        return decode_piece(self._ports.here, data, request)

    def _link(self, member_id: MemberId) -> PeerLink:
        link = self._links.get(member_id)
        if link is None:
            link = PeerLink(member_id, lambda: self.address_of(member_id), self._ports)
            self._links[member_id] = link
            if self._scope is not None:
                self._scope.start(link.run(), name=f"link to node {member_id.node_id}")
        return link

    def _begin_call(
        self, receiver: MemberId, work: Coroutine[object, object, None], name: str
    ) -> None:
        under_way = self._calls.get(receiver, 0)
        if self._scope is None or under_way >= self._ports.limits.calls_per_peer_max:
            self.messages_lost += 1
            work.close()
            return
        self._calls[receiver] = under_way + 1
        self._scope.start(self._call(receiver, work), name=f"{name} to {receiver.node_id}")

    async def _call(self, receiver: MemberId, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except TidelogError as error:
            self.messages_lost += 1
            self._unanswered[receiver] = error
        else:
            self._unanswered.pop(receiver, None)
        finally:
            self._calls[receiver] -= 1

    async def _ask_vote(self, request: VoteRequest) -> None:
        here = self._ports.here
        data = await self._unary(
            request.receiver, "RequestVote", quorum_convert.encode_vote_request(here, request)
        )
        response = quorum_convert.decode_vote_response(here, data)
        if response.is_granted:
            self._refusals.pop(request.receiver, None)
        else:
            self._refusals[request.receiver] = quorum_convert.read_vote_leader(data)
        self._ports.deliver(response, len(data))

    async def _hand_over(self, request: TimeoutNow) -> None:
        here = self._ports.here
        await self._unary(
            request.receiver, "TimeoutNow", quorum_convert.encode_timeout_now(here, request)
        )

    async def _ask_index(self, request: ReadIndexRequest) -> None:
        """Without an answer the core hears of a refusal, so that its readers need not wait."""
        here = self._ports.here
        try:
            data = await self._unary(
                request.receiver,
                "ReadIndex",
                quorum_convert.encode_read_index_request(here, request),
            )
            response = quorum_convert.decode_read_index_response(here, data, request)
        except TidelogError:
            response = ReadIndexResponse(
                sender=request.receiver,
                receiver=request.sender,
                term=request.term,
                read_id=request.read_id,
                index=NO_INDEX,
            )
        self._ports.deliver(response, 0)

    async def _unary(self, receiver: MemberId, method: str, message: bytes) -> bytes:
        return await self._ports.network.call(
            self.address_of(receiver),
            f"{SERVICE}/{method}",
            message,
            timeout_ms=self._ports.limits.call_timeout_ms,
        )

    # -- in --------------------------------------------------------------------------------------

    def deliver(self, message: Message, size_bytes: int) -> bool:
        """A message of a member for the core."""
        return self._ports.deliver(message, size_bytes)

    def on_stream_end(self, stream: IncomingStream) -> None:
        """A leader's stream into this node has ended: ask at its address whether it lives."""
        member_id = stream.sender
        is_last = self.incoming.close(stream)
        if is_last and self._scope is not None and member_id not in self._probes:
            self._probes[member_id] = None
            self._scope.start(self._probe(member_id), name=f"probe of node {member_id.node_id}")

    async def _probe(self, member_id: MemberId) -> None:
        try:
            if await self._is_refused(member_id):
                self._ports.on_dead(member_id.node_id)
        finally:
            del self._probes[member_id]

    async def _is_refused(self, member_id: MemberId) -> bool:
        """A connection that has just broken may say nothing the first time."""
        limits, here = self._ports.limits, self._ports.here
        message = encode_piece_request(here, member_id, NO_SNAPSHOT, 0, 1)
        for _ in range(limits.probes_max):
            try:
                await self._ports.network.call(
                    self.address_of(member_id),
                    f"{SERVICE}/FetchSnapshot",
                    message,
                    timeout_ms=limits.probe_timeout_ms,
                )
            except PeerUnreachable as error:
                if error.death_hint is not DeathHint.NONE:
                    return True
            except TidelogError:
                return False
            else:
                return False
            await self._ports.clock.sleep(limits.probe_wait_ms)
        return False
