"""ControllerService, the calling end: what brokers ask of the active controller, to protobuf."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from tidelog.contract.errors import raise_malformed, read_error
from tidelog.metadata.broker_reports import DamagedReplica, InSyncChange, InSyncResult, ReplicaEnd
from tidelog.v1 import controller_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionEpoch, TopicId

ALTER_PARTITIONS = "/tidelog.v1.ControllerService/AlterPartitions"
REPORT_DAMAGED = "/tidelog.v1.ControllerService/ReportDamagedReplicas"
REPORT_LOG_ENDS = "/tidelog.v1.ControllerService/ReportLogEnds"


def encode_changes(
    cluster_id: str,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    changes: Sequence[InSyncChange],
) -> bytes:
    """`AlterPartitionsRequest`."""
    message = controller_pb2.AlterPartitionsRequest(
        cluster_id=cluster_id, broker_id=broker_id, broker_epoch=broker_epoch
    )
    for change in changes:
        added = message.changes.add(
            topic_id=change.topic_id,
            partition=change.partition,
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
            is_recovered_unclean=change.is_recovered_unclean,
            is_withdrawal=change.is_withdrawal,
            is_flushed=change.is_flushed,
        )
        for member in change.members:
            added.in_sync_replicas.add(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
    return message.SerializeToString()


def decode_results(data: bytes, *, count: int) -> tuple[InSyncResult, ...]:
    """`AlterPartitionsResponse`: one result for each change, in their order."""
    try:
        message = controller_pb2.AlterPartitionsResponse.FromString(data)
    except DecodeError as error:
        raise_malformed("AlterPartitionsResponse", error)
    if len(message.results) != count:
        raise_malformed(
            "AlterPartitionsResponse", f"{len(message.results)} results of {count} changes"
        )
    return tuple(
        InSyncResult(
            topic_id=TopicId(each.topic_id),
            partition=each.partition,
            error=read_error(each.error) if each.HasField("error") else None,
            partition_epoch=PartitionEpoch(each.partition_epoch),
            in_sync_replicas=tuple(BrokerId(one) for one in each.in_sync_replicas),
        )
        for each in message.results
    )


def encode_damaged(
    cluster_id: str,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    damaged: Sequence[DamagedReplica],
) -> bytes:
    """`ReportDamagedReplicasRequest`."""
    message = controller_pb2.ReportDamagedReplicasRequest(
        cluster_id=cluster_id, broker_id=broker_id, broker_epoch=broker_epoch
    )
    for each in damaged:
        message.replicas.add(
            topic_id=each.topic_id,
            partition=each.partition,
            leader_epoch=each.leader_epoch,
            may_come_back=each.may_come_back,
        )
    return message.SerializeToString()


def encode_log_ends(
    cluster_id: str, broker_id: BrokerId, broker_epoch: BrokerEpoch, ends: Sequence[ReplicaEnd]
) -> bytes:
    """`ReportLogEndsRequest`."""
    message = controller_pb2.ReportLogEndsRequest(
        cluster_id=cluster_id, broker_id=broker_id, broker_epoch=broker_epoch
    )
    for each in ends:
        message.replicas.add(
            topic_id=each.topic_id,
            partition=each.partition,
            leader_epoch=each.leader_epoch,
            last_epoch=each.last_epoch,
            log_end_offset=each.log_end_offset,
        )
    return message.SerializeToString()


def decode_damaged(data: bytes, *, count: int) -> tuple[TidelogError | None, ...]:
    """`ReportDamagedReplicasResponse`: one result for each replica, in their order."""
    try:
        message = controller_pb2.ReportDamagedReplicasResponse.FromString(data)
    except DecodeError as error:
        raise_malformed("ReportDamagedReplicasResponse", error)
    if len(message.results) != count:
        raise_malformed(
            "ReportDamagedReplicasResponse", f"{len(message.results)} results of {count} replicas"
        )
    return tuple(
        read_error(each.error) if each.HasField("error") else None for each in message.results
    )
