"""How a node sees the cluster's metadata: through its own voter, or over the metadata stream.

Owns the choice. Whatever is asked of the active controller goes over the network in both cases,
also to this very process: there is no second way.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence

import msgspec

from tidelog.metadata_quorum.port import ImageSource
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.raft.types import NodeId
from tidelog.metadata_quorum.stream.cluster_metadata import ClusterMetadata
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.metadata_quorum.stream.local_image import LocalImage
from tidelog.metadata_quorum.stream.observer import MetadataObserver
from tidelog.metadata_quorum.stream.quorum_view import Addresses, MemberView, QuorumView
from tidelog.metadata_quorum.stream.snapshot_bytes import decode_stream_snapshot
from tidelog.ports import Clock, Network
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.storage.format import NodeIdentity
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, LogIndex


class MetadataSide(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of the node uses."""

    metadata: ClusterMetadata
    source: ImageSource
    controller: ControllerClient
    applied_index: Callable[[], LogIndex]
    trouble: Callable[[], TidelogError | None]
    """Why no news comes, if that is known."""
    run: Callable[[], Coroutine[object, object, None]] | None
    """A task of its own, where there is one."""


def of_member(
    role: ControllerRole,
    network: Network,
    clock: Clock,
    *,
    node_id: int,
    cluster_address: str,
    peer_addresses: Mapping[str, str],
) -> MetadataSide:
    """Of a node that is a member of the quorum, or becomes one."""
    own = {str(node_id): cluster_address}
    addresses = Addresses(peer_addresses={**own, **peer_addresses})
    view = MemberView(role.quorum, addresses)
    return _side(
        role.image,
        view,
        network,
        clock,
        node_id=node_id,
        cluster_id=role.storage.cluster_id,
        applied_index=lambda: role.quorum.applied_index,
        trouble=lambda: (
            role.quorum.failure
            or role.quorum.join_error
            or role.lone_damage
            or role.quorum.why_leaderless
        ),
    )


def of_observer(
    image: LocalImage,
    network: Network,
    clock: Clock,
    *,
    identity: NodeIdentity,
    bootstrap_servers: Sequence[str],
    peer_addresses: Mapping[str, str],
) -> MetadataSide:
    """Of a broker without a vote."""
    addresses = Addresses(
        bootstrap_servers=bootstrap_servers,
        peer_addresses=peer_addresses,
    )
    observer = MetadataObserver(
        network,
        clock,
        MetadataStateMachine(image.show),
        addresses,
        cluster_id=identity.cluster_id,
        node_id=NodeId(identity.node_id),
        decode_snapshot=decode_stream_snapshot,
    )
    return _side(
        image,
        observer,
        network,
        clock,
        node_id=identity.node_id,
        cluster_id=identity.cluster_id,
        applied_index=lambda: observer.applied_index,
        trouble=lambda: observer.trouble,
        run=observer.run,
    )


def _side(
    source: ImageSource,
    view: QuorumView,
    network: Network,
    clock: Clock,
    *,
    node_id: int,
    cluster_id: str,
    applied_index: Callable[[], LogIndex],
    trouble: Callable[[], TidelogError | None],
    run: Callable[[], Coroutine[object, object, None]] | None = None,
) -> MetadataSide:
    controller = ControllerClient(network, clock, view, trouble)
    metadata = ClusterMetadata(
        source,
        controller,
        network,
        clock,
        cluster_id=cluster_id,
        node_id=BrokerId(node_id),
    )
    return MetadataSide(
        metadata=metadata,
        source=source,
        controller=controller,
        applied_index=applied_index,
        trouble=trouble,
        run=run,
    )
