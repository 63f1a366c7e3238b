"""How a node sees the cluster's metadata: through its own voter, or over the metadata stream.

Owns the choice. Whatever is asked of the active controller goes over the network in both cases,
also to this very process: there is no second way.
"""

from collections.abc import Callable, Coroutine

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
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.settings.configuration import NodeConfiguration
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
    configuration: NodeConfiguration,
    ports: NodePorts,
    *,
    cluster_address: str,
) -> MetadataSide:
    """Of a node that is a member of the quorum, or becomes one."""
    own = {str(configuration.node_id): cluster_address}
    addresses = Addresses(peer_addresses={**own, **configuration.peer_addresses})
    view = MemberView(role.quorum, addresses)
    return _side(
        role.image,
        view,
        configuration,
        ports,
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
    identity: NodeIdentity,
    configuration: NodeConfiguration,
    ports: NodePorts,
) -> MetadataSide:
    """Of a broker without a vote."""
    addresses = Addresses(
        bootstrap_servers=configuration.quorum.bootstrap_servers,
        peer_addresses=configuration.peer_addresses,
    )
    observer = MetadataObserver(
        ports.network,
        ports.clock,
        MetadataStateMachine(image.show),
        addresses,
        cluster_id=identity.cluster_id,
        node_id=NodeId(identity.node_id),
        decode_snapshot=decode_stream_snapshot,
    )
    return _side(
        image,
        observer,
        configuration,
        ports,
        cluster_id=identity.cluster_id,
        applied_index=lambda: observer.applied_index,
        trouble=lambda: observer.trouble,
        run=observer.run,
    )


def _side(
    source: ImageSource,
    view: QuorumView,
    configuration: NodeConfiguration,
    ports: NodePorts,
    *,
    cluster_id: str,
    applied_index: Callable[[], LogIndex],
    trouble: Callable[[], TidelogError | None],
    run: Callable[[], Coroutine[object, object, None]] | None = None,
) -> MetadataSide:
    controller = ControllerClient(ports.network, ports.clock, view, trouble)
    metadata = ClusterMetadata(
        source,
        controller,
        ports.network,
        ports.clock,
        cluster_id=cluster_id,
        node_id=BrokerId(configuration.node_id),
    )
    return MetadataSide(
        metadata=metadata,
        source=source,
        controller=controller,
        applied_index=applied_index,
        trouble=trouble,
        run=run,
    )
