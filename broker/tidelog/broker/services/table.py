"""The `client` listener of a broker: every method that it serves.

Owns the list of what a broker answers itself. What concerns the metadata as a whole is
`metadata.table`'s, which nodes without partitions serve as well.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.coordination.finding import CoordinatorFinder
from tidelog.broker.groups.subscription.host import Subscriptions
from tidelog.broker.services.coordinators.wire import CoordinatorRpc
from tidelog.broker.services.fetch.handler import FetchHandler
from tidelog.broker.services.fetch.wire import FetchRpc
from tidelog.broker.services.groups.admin import GroupAdminRpc
from tidelog.broker.services.groups.wire import GroupRpc
from tidelog.broker.services.log_dirs.wire import LogDirsRpc
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.metadata.table import DELETE_RECORDS
from tidelog.broker.services.metadata.wire import MetadataRpc
from tidelog.broker.services.middleware.metering import Metering
from tidelog.broker.services.offsets.handler import OffsetsHandler
from tidelog.broker.services.offsets.trim import TrimHandler
from tidelog.broker.services.offsets.trim_wire import TrimRpc
from tidelog.broker.services.produce.handler import ProduceHandler
from tidelog.broker.services.produce.wire import ProduceRpc
from tidelog.broker.services.producer_ids.handler import ProducerIds
from tidelog.broker.services.producer_ids.wire import ProducerIdRpc
from tidelog.broker.services.records.handler import RecordsHandler
from tidelog.broker.services.records.wire import RecordsRpc
from tidelog.broker.services.subscribe.wire import SubscribeRpc
from tidelog.broker.services.topics.handler import AdminHandler
from tidelog.broker.services.topics.wire import AdminRpc
from tidelog.broker.services.transactions.admin.rpc import TransactionAdminRpc
from tidelog.broker.services.transactions.wire import TransactionRpc
from tidelog.ports import Method, StreamHandler, StreamMethod, UnaryHandler, UnaryMethod
from tidelog.v1 import (
    admin_pb2,
    coordinator_pb2,
    fetch_pb2,
    group_admin_pb2,
    groups_pb2,
    log_dirs_pb2,
    metadata_pb2,
    produce_pb2,
    producer_id_pb2,
    records_pb2,
    subscribe_pb2,
    topic_admin_pb2,
    transaction_admin_pb2,
    transactions_pb2,
)

BROKER_FILES = (
    produce_pb2.DESCRIPTOR,
    producer_id_pb2.DESCRIPTOR,
    fetch_pb2.DESCRIPTOR,
    records_pb2.DESCRIPTOR,
    metadata_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
    log_dirs_pb2.DESCRIPTOR,
    topic_admin_pb2.DESCRIPTOR,
    coordinator_pb2.DESCRIPTOR,
    groups_pb2.DESCRIPTOR,
    group_admin_pb2.DESCRIPTOR,
    transaction_admin_pb2.DESCRIPTOR,
    subscribe_pb2.DESCRIPTOR,
    transactions_pb2.DESCRIPTOR,
)
"""Every service in these files is served whole: what is not here is `metadata.table`'s."""


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """What the table's rows call."""

    produce: ProduceHandler
    producer_ids: ProducerIds
    fetch: FetchHandler
    records: RecordsHandler
    metadata: MetadataHandler
    offsets: OffsetsHandler
    admin: AdminHandler
    trim: TrimHandler
    group_finder: CoordinatorFinder
    transaction_finder: CoordinatorFinder
    members: GroupRpc
    """Answers for other brokers as well, as the next one."""
    group_admin: GroupAdminRpc
    transaction_admin: TransactionAdminRpc
    subscriptions: Subscriptions
    transactions: TransactionRpc
    log_dirs: LogDirsRpc
    """Made by whoever knows the other brokers: it answers for them as well."""


def build_broker_methods(
    handlers: Handlers,
    *,
    release: str,
    stream_requests_max: int,
    metering: Metering | None = None,
) -> Mapping[str, Method]:
    """The methods by full name, with nothing around them yet."""
    produce = ProduceRpc(
        handlers.produce, stream_requests_max=stream_requests_max, metering=metering
    )
    fetch = FetchRpc(handlers.fetch, None if metering is None else metering.meter)
    records = RecordsRpc(handlers.records)
    metadata = MetadataRpc(handlers.metadata, handlers.offsets)
    admin = AdminRpc(handlers.admin, release=release)
    coordinators = CoordinatorRpc(
        {
            coordinator_pb2.COORDINATOR_KIND_GROUP: handlers.group_finder,
            coordinator_pb2.COORDINATOR_KIND_TRANSACTION: handlers.transaction_finder,
        }
    )
    unary: dict[str, UnaryHandler] = {
        "/tidelog.v1.ProduceService/Produce": produce.produce,
        "/tidelog.v1.ProducerIdService/AllocateProducerId": ProducerIdRpc(
            handlers.producer_ids
        ).allocate_producer_id,
        "/tidelog.v1.FetchService/Fetch": fetch.fetch,
        "/tidelog.v1.RecordsService/ProduceRecords": records.produce_records,
        "/tidelog.v1.RecordsService/FetchRecords": records.fetch_records,
        "/tidelog.v1.MetadataService/GetMetadata": metadata.get_metadata,
        "/tidelog.v1.MetadataService/ListOffsets": metadata.list_offsets,
        "/tidelog.v1.AdminService/DescribeTopics": admin.describe_topics,
        "/tidelog.v1.AdminService/DescribeCluster": admin.describe_cluster,
        "/tidelog.v1.LogDirService/DescribeLogDirs": handlers.log_dirs.describe_log_dirs,
        "/tidelog.v1.CoordinatorService/FindCoordinators": coordinators.find_coordinators,
        "/tidelog.v1.GroupService/GroupHeartbeat": handlers.members.heartbeat,
        "/tidelog.v1.GroupService/CommitOffsets": handlers.members.commit_offsets,
        "/tidelog.v1.GroupService/FetchOffsets": handlers.members.fetch_offsets,
        **handlers.group_admin.table(),
        **handlers.transaction_admin.table(),
        **handlers.transactions.table(),
        "/tidelog.v1.TransactionService/SendOffsets": handlers.members.send_offsets,
        DELETE_RECORDS: TrimRpc(handlers.trim).delete_records,
    }
    streams: dict[str, StreamHandler] = {
        "/tidelog.v1.ProduceService/ProduceStream": produce.produce_stream,
        "/tidelog.v1.FetchService/FetchStream": fetch.fetch_stream,
        "/tidelog.v1.SubscribeService/Subscribe": SubscribeRpc(handlers.subscriptions).subscribe,
    }
    return {
        **{name: UnaryMethod(handler) for name, handler in unary.items()},
        **{name: StreamMethod(handler) for name, handler in streams.items()},
    }
