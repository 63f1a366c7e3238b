"""How a node with a new directory becomes a learner: it asks until it finds itself in the log.

Owns whom to ask next. It must never ask for a node that was a member before: whoever was removed
stays out until an operator formats its directory anew.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.transport import SERVICE, QuorumTransport
from tidelog.metadata_quorum.quorum.wire.joining import decode_join_response, encode_join_request
from tidelog.metadata_quorum.quorum.wire.route import Identity
from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.types import EntryKind, MemberId, Members, Recovered
from tidelog.ports import Clock, Network, Random
from tidelog.wire.errors import TidelogError

METHOD: Final = f"{SERVICE}/JoinQuorum"


def was_member(member_id: MemberId, recovered: Recovered) -> bool:
    """Whether what lies in storage ever named this member."""
    known = [recovered.bootstrap]
    if recovered.snapshot is not None:
        known.append(recovered.snapshot.members)
    known += [decode_members(e.data) for e in recovered.entries if e.kind is EntryKind.MEMBERS]
    return any(members.find(member_id) is not None for members in known)


class Joining:
    """`run` is a task of the runner."""

    def __init__(
        self,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        limits: QuorumLimits,
        here: Identity,
        address: str,
        bootstrap_servers: Sequence[str],
        transport: QuorumTransport,
        members: Callable[[], Members],
    ) -> None:
        self._network = network
        self._clock = clock
        self._random = random
        self._limits = limits
        self._here = here
        self._address = address
        self._bootstrap_servers = tuple(bootstrap_servers)
        self._transport = transport
        self._members = members
        self._leader_address = ""
        self._asked = 0
        self.last_error: TidelogError | None = None

    async def run(self) -> None:
        """Until this node is a member."""
        failures = 0
        while self._members().find(self._here.member_id) is None:
            peer = self._next_peer()
            if peer is not None and await self._ask(peer):
                failures = 0
            else:
                failures += 1
            limits = self._limits
            wait_ms = min(limits.join_max_ms, limits.join_first_ms << min(failures, 10))
            if self._leader_address:
                wait_ms = limits.join_first_ms
            await self._clock.sleep(wait_ms // 2 + self._random.below(wait_ms // 2 + 1))

    def _next_peer(self) -> str | None:
        """The leader that was named, else the next of those that may know it."""
        if self._leader_address:
            peer, self._leader_address = self._leader_address, ""
            return peer
        peers = list(self._bootstrap_servers)
        peers += [member.address for member in self._members() if member.address not in peers]
        peers = [peer for peer in peers if peer != self._address]
        if not peers:
            return None
        self._asked += 1
        return peers[self._asked % len(peers)]

    async def _ask(self, peer: str) -> bool:
        """True: the leader let this node in; its entries come over a stream of its own."""
        try:
            data = await self._network.call(
                peer,
                METHOD,
                encode_join_request(self._here, self._address),
                timeout_ms=self._limits.join_timeout_ms,
            )
            answer = decode_join_response(self._here, data)
        except TidelogError as error:
            self.last_error = error
            return False
        self._transport.learn_address(answer.answered_by, peer)
        self.last_error = answer.error
        if answer.error is not None:
            if answer.leader_id != answer.answered_by.node_id:
                self._leader_address = answer.leader_address
            return False
        return True
