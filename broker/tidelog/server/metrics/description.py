"""A node's own figures: one value that operators, metrics and tests look at."""

import msgspec

from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.server.settings.configuration import NodeConfiguration


class QuorumFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of a member of the quorum."""

    role: str
    term: int
    leader_id: int
    """-1: none is known."""
    last_index: int
    commit_index: int
    applied_index: int
    log_start_index: int
    lag: int
    """Entries known to be committed and not applied here."""
    voters: int
    learners: int
    observers: int
    is_repairing: bool
    is_active_controller: bool
    """Whether this node decides about metadata now."""


class BrokerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of a broker."""

    epoch: int
    is_fenced: bool
    partitions: int
    queued_bytes: int


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Of any node."""

    node_id: int
    roles: tuple[str, ...]
    metadata_version: int
    """The log's index of the last entry that this node shows."""
    quorum: QuorumFigures | None
    broker: BrokerFigures | None


def describe_node(
    configuration: NodeConfiguration,
    controller: ControllerRole | None,
    broker: BrokerRole | None,
    side: MetadataSide | None,
) -> NodeDescription:
    """As of now."""
    return NodeDescription(
        node_id=configuration.node_id,
        roles=configuration.roles,
        metadata_version=0 if side is None else side.source.image().version,
        quorum=None if controller is None else _quorum_figures(controller),
        broker=None if broker is None or side is None else _broker_figures(broker, side),
    )


def _quorum_figures(controller: ControllerRole) -> QuorumFigures:
    described = controller.quorum.describe()
    applied_index = controller.quorum.applied_index
    voters = len(described.members.voters)
    return QuorumFigures(
        role=described.role.value,
        term=described.term,
        leader_id=-1 if described.leader is None else described.leader.node_id,
        last_index=described.last_index,
        commit_index=described.commit_index,
        applied_index=applied_index,
        log_start_index=described.log_start_index,
        lag=max(0, described.commit_index - applied_index),
        voters=voters,
        learners=len(described.members.members) - voters,
        observers=len(controller.stream.observers()),
        is_repairing=described.is_repairing,
        is_active_controller=controller.parts.controller.active_term is not None,
    )


def _broker_figures(broker: BrokerRole, side: MetadataSide) -> BrokerFigures:
    session = broker.session
    image = side.source.image()
    known = image.brokers.get(session.broker_id)
    return BrokerFigures(
        epoch=session.epoch,
        is_fenced=known is None or known.epoch != session.epoch or known.is_fenced,
        partitions=image.held_by(session.broker_id).count,
        queued_bytes=broker.queued_bytes,
    )
