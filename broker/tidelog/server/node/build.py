"""Builds a node: what it has on its disks first, then its parts in the order of their dependencies.

    image ─▶ clock ─▶ data directories ─▶ quorum ─▶ (the cluster listener is bound) ─▶
    … ─▶ way to the metadata ─▶ broker ─▶ tables of the client listener

Owns this order. Every part is given what it needs when it is made; none is told of a later one. The
cluster listener comes in between because a node may learn its own address only by binding it.
"""

from collections.abc import Callable

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.services.metadata.table import (
    forwarding_methods,
    reading_methods,
    settled_at_once,
)
from tidelog.broker.services.middleware.metering import Metering
from tidelog.broker.services.middleware.middleware import Served
from tidelog.broker.services.middleware.quota import Quotas
from tidelog.metadata_quorum.stream.local_image import LocalImage
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.broker_directories import broker_directories
from tidelog.server.roles.broker_graph import build_broker
from tidelog.server.roles.clock_keeper import ClockKeeper
from tidelog.server.roles.controller import ControllerRole, open_controller
from tidelog.server.roles.metadata_side import MetadataSide, of_member, of_observer
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.storage.format import NodeIdentity
from tidelog.wire.ids import BrokerId


class Phase:
    """How far the node has come: what stands before its methods looks here."""

    def __init__(self) -> None:
        self._is_open = False
        self._is_ready = False

    @property
    def is_open(self) -> bool:
        """Whether the listeners answer."""
        return self._is_open

    @property
    def is_ready(self) -> bool:
        """Whether a broker serves its partitions; whether a controller is up."""
        return self._is_ready

    def open(self) -> None:
        """Both listeners are bound."""
        self._is_open = True

    def get_ready(self) -> None:
        """The roles do what they promise."""
        self._is_ready = True

    def end(self) -> None:
        """Nothing is answered any more."""
        self._is_open = self._is_ready = False


class NodeStorage(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has on its disks, opened and checked; nothing runs yet."""

    image: LocalImage
    """The node's copy of the metadata, which everybody reads; its voter or its observer writes."""
    clock_keeper: ClockKeeper | None = None
    """Of a broker, as the directories."""
    directories: tuple[LogDirectory, ...] = ()
    controller: ControllerRole | None = None


async def open_node_storage(
    identity: NodeIdentity, configuration: NodeConfiguration, ports: NodePorts
) -> NodeStorage:
    """Open what the roles of the node keep."""
    image = LocalImage()
    clock_keeper, controller = None, None
    directories: tuple[LogDirectory, ...] = ()
    if configuration.is_broker:
        # Before anything is written: a directory of another node is a mistake.
        clock_keeper = await ClockKeeper.open(
            ports.disk,
            ports.clock,
            boot_id=ports.host.boot_id(),
            is_own_judge=configuration.trust_own_clock,
            broker_id=BrokerId(configuration.node_id),
            image=image.image,
        )
        directories = await broker_directories(identity, configuration, ports, clock_keeper.time)
    if configuration.is_controller:
        assert ports.quorum_disk is not None, "a controller has a quorum directory"
        controller = await open_controller(ports.quorum_disk, image, identity, configuration, ports)
    return NodeStorage(
        image=image, clock_keeper=clock_keeper, directories=directories, controller=controller
    )


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is made of beside what it has on its disks."""

    side: MetadataSide
    broker: BrokerRole | None
    quotas: Quotas
    client_tables: tuple[Served, ...]
    """What programs and operators may ask."""
    replica_table: Served | None
    """What other brokers may ask of a broker."""


def build_node(
    identity: NodeIdentity,
    configuration: NodeConfiguration,
    ports: NodePorts,
    storage: NodeStorage,
    metering: Metering,
    phase: Phase,
    *,
    cluster_address: str,
) -> NodeParts:
    """The parts of a node whose cluster listener is bound at the address."""
    controller, broker = storage.controller, None
    if controller is not None:
        side = of_member(
            controller,
            ports.network,
            ports.clock,
            node_id=configuration.node_id,
            cluster_address=cluster_address,
            peer_addresses=configuration.peer_addresses,
        )
    else:
        side = of_observer(
            storage.image,
            ports.network,
            ports.clock,
            identity=identity,
            bootstrap_servers=configuration.quorum.bootstrap_servers,
            peer_addresses=configuration.peer_addresses,
        )
    if storage.clock_keeper is not None:
        broker = build_broker(
            configuration,
            ports,
            side,
            storage.directories,
            storage.clock_keeper,
            metering,
            cluster_id=identity.cluster_id,
        )
    return NodeParts(
        side=side,
        broker=broker,
        quotas=Quotas(side.metadata.image),
        client_tables=_client_tables(configuration, ports, side, controller, broker, phase),
        replica_table=None if broker is None else _replica_table(broker),
    )


def _client_tables(
    configuration: NodeConfiguration,
    ports: NodePorts,
    side: MetadataSide,
    controller: ControllerRole | None,
    broker: BrokerRole | None,
    phase: Phase,
) -> tuple[Served, ...]:
    is_current = _currency(controller, broker)
    forwarded = forwarding_methods(
        side.metadata,
        ports.clock,
        timeout_ms=configuration.broker_limits().admin_timeout_ms,
        settle=settled_at_once if broker is None else broker.settle,
    )
    reads = reading_methods(side.metadata)
    tables = (
        Served(methods=forwarded, is_ready=lambda: phase.is_open),
        Served(methods=reads, is_ready=lambda: phase.is_open and is_current()),
    )
    if broker is None:
        return tables
    served = Served(methods=broker.client_methods, is_ready=lambda: phase.is_ready, is_late=True)
    return (*tables, served)


def _replica_table(broker: BrokerRole) -> Served:
    return Served(
        methods=broker.cluster_methods, is_ready=lambda: broker.is_recovered, is_late=True
    )


def _currency(controller: ControllerRole | None, broker: BrokerRole | None) -> Callable[[], bool]:
    """Whether the image holds what was committed when this process started."""
    if broker is not None:
        return lambda: broker.is_current
    assert controller is not None, "a node is a broker, a controller, or both"
    return lambda: controller.is_current
