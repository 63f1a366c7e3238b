"""Who sends a message of the quorum and who is meant: filled in here, checked here.

Owns the refusal of what is meant for another cluster, node or directory. It must never let such a
message have an effect.
"""

from typing import Final

import msgspec

from tidelog.contract.errors import raise_malformed
from tidelog.metadata_quorum.raft.types import MemberId, NodeId
from tidelog.v1 import quorum_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

UUID_BYTES: Final = 16
ANY_NODE: Final = -1
NO_LEADER: Final = -1
CLUSTER_ID_CHARACTERS_MAX: Final = 200


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this node is to the other members."""

    cluster_id: str
    member_id: MemberId


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a message that was meant for this node."""

    node_id: int
    directory_uuid: bytes
    """Empty: an observer, which has none."""

    @property
    def is_observer(self) -> bool:
        """Whether it has no directory of the quorum."""
        return not self.directory_uuid

    @property
    def member_id(self) -> MemberId:
        """Of a sender that has a directory."""
        assert self.directory_uuid, "an observer is no member"
        return MemberId(NodeId(self.node_id), self.directory_uuid)


def fill_route(route: quorum_pb2.QuorumRoute, sender: Identity, receiver: MemberId | None) -> None:
    """Of a message that is sent; None: to whoever listens at the address."""
    route.cluster_id = sender.cluster_id
    route.from_node_id = sender.member_id.node_id
    route.from_directory_uuid = sender.member_id.directory_uuid
    route.to_node_id = ANY_NODE if receiver is None else receiver.node_id
    if receiver is not None:
        route.to_directory_uuid = receiver.directory_uuid


def read_route(route: quorum_pb2.QuorumRoute, here: Identity, name: str) -> Sender:
    """Of a message that was received: WRONG_CLUSTER unless it is meant for this node."""
    check_route(
        here, route.cluster_id, route.to_node_id, route.to_directory_uuid, tried=f"take a {name}"
    )
    if len(route.from_directory_uuid) not in (0, UUID_BYTES):
        raise_malformed(name, "a directory uuid has 16 bytes")
    if route.from_node_id < 0:
        raise_malformed(name, f"{route.from_node_id} is no node id")
    return Sender(node_id=route.from_node_id, directory_uuid=route.from_directory_uuid)


def check_route(
    here: Identity, cluster_id: str, node_id: int, directory_uuid: bytes, *, tried: str
) -> None:
    """Whether cluster, node and directory meant are this node's."""
    me = here.member_id
    if cluster_id != here.cluster_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it is meant for cluster {cluster_id[:CLUSTER_ID_CHARACTERS_MAX]!r}, "
            f"this node belongs to {here.cluster_id!r}",
            hint="Check the sender's quorum.bootstrap_servers and peer_addresses, and with which "
            "cluster id its directory was formatted.",
        )
    if node_id not in (ANY_NODE, me.node_id):
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it is meant for node {node_id}, this is node {me.node_id}",
            hint="Check the address of that node in `tidelog quorum describe` and in the sender's "
            "peer_addresses.",
        )
    if directory_uuid not in (b"", me.directory_uuid):
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it is meant for the directory {directory_uuid.hex()} of node {me.node_id}, "
            f"which has {me.directory_uuid.hex()} now",
            hint="The directory was formatted anew: remove the old member with `tidelog quorum "
            "remove-voter`, then add the new one.",
        )
