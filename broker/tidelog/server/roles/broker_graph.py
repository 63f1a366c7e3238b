"""Builds a broker: every part in the order of its dependencies, each given what it needs when it is
made.

    session ─▶ contact ─▶ replicas ─▶ leadership ─▶ handlers of reads and writes ─▶ groups ─▶
    … ─▶ methods by listener ─▶ the broker's life

Owns who knows whom. Nothing runs yet, and nothing is told of a part that is made later: what two
parts need of each other is a third part, made before both.
"""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.fetch.handler import FetchHandler
from tidelog.broker.services.fetch.places import ReadPlaces
from tidelog.broker.services.log_dirs.handler import LogDirsHandler
from tidelog.broker.services.log_dirs.wire import LogDirsRpc
from tidelog.broker.services.markers.handler import MarkerHandler
from tidelog.broker.services.markers.producers import LedProducers
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.middleware.metering import Metering
from tidelog.broker.services.offsets.handler import OffsetsHandler
from tidelog.broker.services.offsets.trim import TrimHandler
from tidelog.broker.services.produce.handler import ProduceHandler
from tidelog.broker.services.produce.peers import ProducePeers
from tidelog.broker.services.producer_ids.handler import ProducerIds
from tidelog.broker.services.producer_ids.wire import ControllerBlocks
from tidelog.broker.services.records.handler import RecordsHandler
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.services.table import Handlers, build_broker_methods
from tidelog.broker.services.topics.handler import AdminHandler
from tidelog.broker.transactions.asking import TransactionAsking
from tidelog.metadata_quorum.stream.session_client import BrokerSession
from tidelog.ports import Method
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.broker import RELEASE, BrokerRole
from tidelog.server.roles.broker_addresses import BrokerAddresses
from tidelog.server.roles.broker_admission import BrokerAdmission
from tidelog.server.roles.broker_contact import Contact, ContactWatch
from tidelog.server.roles.broker_groups import BrokerGroups
from tidelog.server.roles.broker_replication import BrokerReplication
from tidelog.server.roles.broker_transactions import BrokerTransactions
from tidelog.server.roles.clock_keeper import ClockKeeper
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.server.roles.own_directories import OwnDirectories
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.wire.ids import BrokerId


class _Foundation(msgspec.Struct, frozen=True, kw_only=True):
    """What nearly every part of a broker stands on."""

    configuration: NodeConfiguration
    ports: NodePorts
    metadata: MetadataSide
    clock_keeper: ClockKeeper
    metering: Metering
    cluster_id: str
    broker_id: BrokerId
    directories: OwnDirectories
    session: BrokerSession
    contact: Contact
    replicas: Replicas
    leadership: Leadership
    address_of: Callable[[BrokerId], str | None]


def build_broker(
    configuration: NodeConfiguration,
    ports: NodePorts,
    metadata: MetadataSide,
    directories: tuple[LogDirectory, ...],
    clock_keeper: ClockKeeper,
    metering: Metering,
    *,
    cluster_id: str,
) -> BrokerRole:
    """A broker that waits to be brought up."""
    on = _foundation(
        configuration, ports, metadata, directories, clock_keeper, metering, cluster_id
    )
    producer_ids = _producer_ids(on)
    replication = _replication(on)
    log_dirs = _log_dirs(on)
    limits = configuration.broker_limits()
    places = ReadPlaces(metadata.metadata, on.broker_id)
    fetch = FetchHandler(on.replicas, limits, on.leadership, places)
    produce = _produce(on)
    produce_peers = _produce_peers(on)
    groups = _groups(on, fetch)
    markers = _markers(on, groups)
    transactions = _transactions(on, markers)
    admission = _admission(on, transactions.asking, markers)
    handlers = _handlers(
        on, replication, producer_ids, log_dirs, fetch, produce, produce_peers, groups, transactions
    )
    confirm = partial(on.leadership.confirm, "learn who leads by now")
    return BrokerRole(
        disk=ports.disk,
        host=ports.host,
        random=ports.random,
        source=metadata.source,
        controller=metadata.controller,
        clock_keeper=clock_keeper,
        directories=on.directories,
        session=on.session,
        contact_watch=ContactWatch(on.session, on.replicas, ports.clock, on.contact, confirm),
        replicas=on.replicas,
        replication=replication,
        groups=groups,
        transactions=transactions,
        admission=admission,
        producer_ids=producer_ids,
        client_methods=_client_methods(on, handlers),
        cluster_methods={
            **replication.methods(),
            **log_dirs.peer_methods(),
            **groups.methods(),
            **transactions.methods(),
            **admission.methods(),
            **produce_peers.methods(produce),
        },
        rack=configuration.rack,
        handover_ms=configuration.handover_ms,
    )


def _foundation(
    configuration: NodeConfiguration,
    ports: NodePorts,
    metadata: MetadataSide,
    directories: tuple[LogDirectory, ...],
    clock_keeper: ClockKeeper,
    metering: Metering,
    cluster_id: str,
) -> _Foundation:
    broker_id, own = BrokerId(configuration.node_id), OwnDirectories(directories)
    session = BrokerSession(
        ports.network,
        ports.clock,
        metadata.controller,
        metadata.source,
        broker_id=broker_id,
        cluster_id=cluster_id,
        applied_index=metadata.applied_index,
        store_epoch=own.store_epoch,
        node_clock=clock_keeper.time,
    )
    contact = Contact(session)
    replicas = Replicas(directories, metadata.metadata, broker_id)

    async def read_index(timeout_ms: int) -> int:
        return await metadata.metadata.read_index(timeout_ms=timeout_ms)

    return _Foundation(
        configuration=configuration,
        ports=ports,
        metadata=metadata,
        clock_keeper=clock_keeper,
        metering=metering,
        cluster_id=cluster_id,
        broker_id=broker_id,
        directories=own,
        session=session,
        contact=contact,
        replicas=replicas,
        leadership=Leadership(read_index, replicas.wait_applied, is_in_contact=contact.holds),
        address_of=BrokerAddresses(metadata.source, configuration.peer_addresses).of,
    )


def _producer_ids(on: _Foundation) -> ProducerIds:
    return ProducerIds(_blocks(on), on.ports.clock)


def _blocks(on: _Foundation) -> ControllerBlocks:
    return ControllerBlocks(
        on.metadata.controller,
        cluster_id=on.cluster_id,
        broker_id=on.broker_id,
        broker_epoch=on.session.own_epoch,
    )


def _replication(on: _Foundation) -> BrokerReplication:
    return BrokerReplication(
        on.replicas,
        on.metadata.source,
        on.metadata.controller,
        on.ports.network,
        on.ports.clock,
        on.ports.random,
        cluster_id=on.cluster_id,
        broker_id=on.broker_id,
        broker_epoch=on.session.own_epoch,
        address_of=on.address_of,
        limits=on.configuration.replication_limits(),
    )


def _log_dirs(on: _Foundation) -> LogDirsRpc:
    return LogDirsRpc(
        LogDirsHandler(on.replicas),
        on.metadata.source,
        on.ports.network,
        cluster_id=on.cluster_id,
        broker_id=on.broker_id,
        address_of=on.address_of,
    )


def _produce(on: _Foundation) -> ProduceHandler:
    return ProduceHandler(
        on.replicas,
        on.clock_keeper.time,
        on.configuration.broker_limits(),
        on.metadata.metadata,
        on.metering.meter,
        leadership=on.leadership,
    )


def _produce_peers(on: _Foundation) -> ProducePeers:
    return ProducePeers(
        on.ports.network,
        cluster_id=on.cluster_id,
        address_of=on.address_of,
        timeout_ms=on.configuration.broker_limits().produce_timeout_ms,
    )


def _groups(on: _Foundation, fetch: FetchHandler) -> BrokerGroups:
    return BrokerGroups(
        on.replicas,
        on.metadata.metadata,
        on.metadata.source,
        on.ports.network,
        on.ports.clock,
        on.ports.random,
        fetch,
        on.metering.meter,
        time=on.clock_keeper.time,
        cluster_id=on.cluster_id,
        broker_id=on.broker_id,
        broker_epoch=on.session.own_epoch,
        address_of=on.address_of,
        is_in_contact=on.contact.holds,
    )


def _markers(on: _Foundation, groups: BrokerGroups) -> MarkerHandler:
    return MarkerHandler(
        on.replicas,
        on.clock_keeper.time,
        on.metadata.metadata,
        on.metering.meter,
        observers=(groups.ends,),
    )


def _admission(
    on: _Foundation, asking: TransactionAsking, markers: MarkerHandler
) -> BrokerAdmission:
    return BrokerAdmission(
        on.replicas,
        asking,
        markers,
        on.ports.clock,
        on.metering.meter,
        cluster_id=on.cluster_id,
    )


def _transactions(on: _Foundation, markers: MarkerHandler) -> BrokerTransactions:
    return BrokerTransactions(
        on.replicas,
        on.metadata.metadata,
        on.ports.network,
        on.ports.clock,
        on.metering.meter,
        markers,
        LedProducers(on.replicas, markers),
        _blocks(on),
        on.metadata.source,
        time=on.clock_keeper.time,
        cluster_id=on.cluster_id,
        broker_id=on.broker_id,
        address_of=on.address_of,
        is_in_contact=on.contact.holds,
        confirm=on.leadership.confirm,
    )


def _handlers(
    on: _Foundation,
    replication: BrokerReplication,
    producer_ids: ProducerIds,
    log_dirs: LogDirsRpc,
    fetch: FetchHandler,
    produce: ProduceHandler,
    produce_peers: ProducePeers,
    groups: BrokerGroups,
    transactions: BrokerTransactions,
) -> Handlers:
    """What the methods for clients call."""
    metadata, limits = on.metadata.metadata, on.configuration.broker_limits()
    topics = MetadataHandler(
        metadata,
        on.replicas,
        limits,
        auto_create_topics=on.configuration.auto_create_topics,
    )
    return Handlers(
        produce=produce,
        producer_ids=producer_ids,
        fetch=fetch,
        records=RecordsHandler(
            topics,
            produce,
            fetch,
            produce_peers.produce,
            broker_id=on.broker_id,
            time=on.clock_keeper.time,
            random=on.ports.random,
            limits=limits,
        ),
        metadata=topics,
        offsets=OffsetsHandler(on.replicas, on.leadership),
        admin=AdminHandler(
            metadata,
            on.replicas,
            limits,
            broker_id=on.broker_id,
            followers=replication.in_sync.followers,
        ),
        trim=TrimHandler(on.replicas, on.leadership),
        log_dirs=log_dirs,
        group_finder=groups.finder,
        transaction_finder=transactions.finder,
        members=groups.members,
        group_admin=groups.admin,
        transaction_admin=transactions.admin,
        subscriptions=groups.subscriptions,
        transactions=transactions.members,
    )


def _client_methods(on: _Foundation, handlers: Handlers) -> Mapping[str, Method]:
    return build_broker_methods(
        handlers,
        release=RELEASE,
        stream_requests_max=on.configuration.broker_limits().stream_requests_max,
        metering=on.metering,
    )
