"""Who leads the quorum and where its members are, as one node knows it.

A member asks its own core; an observer goes by what the stream tells. It may be out of date: what
is asked of the wrong node is refused with NOT_CONTROLLER there.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.raft.types import Members, NodeId
from tidelog.wire.ids import Term


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The active controller, as far as is known."""

    node_id: NodeId
    term: Term
    address: str
    """`host:port` of its cluster listener."""


class QuorumView(Protocol):
    """What the controller's callers ask."""

    def leader(self) -> Leader | None:
        """None: none is known, or its address is not."""
        ...


class Addresses:
    """Where nodes are reached from here: what this node was told overrides what they say."""

    def __init__(
        self, *, bootstrap_servers: Sequence[str] = (), peer_addresses: Mapping[str, str] = {}
    ) -> None:
        self._bootstrap_servers = tuple(bootstrap_servers)
        self._peer_addresses = dict(peer_addresses)
        self._members = Members()

    def learn(self, members: Members) -> None:
        """The members in force."""
        self._members = members

    def of(self, node_id: NodeId, advertised: str | None = None) -> str | None:
        """Of one node; None: not known."""
        override = self._peer_addresses.get(str(node_id))
        if override is not None:
            return override
        if advertised is not None:
            return advertised
        for member in self._members:
            if member.id.node_id == node_id:
                return member.address
        return None

    def all(self) -> tuple[str, ...]:
        """Members first, voters before learners, then where the configuration says to begin."""
        members = sorted(self._members, key=lambda each: (each.is_learner, each.id))
        found = [self.of(each.id.node_id, each.address) for each in members]
        return tuple(
            dict.fromkeys([each for each in found if each] + list(self._bootstrap_servers))
        )


class MemberView:
    """Of a node that is a member itself."""

    def __init__(self, quorum: Quorum, addresses: Addresses) -> None:
        self._quorum = quorum
        self._addresses = addresses

    def leader(self) -> Leader | None:
        """See `QuorumView`."""
        described = self._quorum.describe()
        if described.leader is None:
            return None
        member = described.members.find(described.leader)
        address = self._addresses.of(
            described.leader.node_id, None if member is None else member.address
        )
        if address is None:
            return None
        return Leader(node_id=described.leader.node_id, term=described.term, address=address)
