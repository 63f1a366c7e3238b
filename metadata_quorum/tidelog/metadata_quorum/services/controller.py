"""ControllerService: what brokers ask of the active controller, and clients' calls handed on.

Owns the gate of forwarded calls: the method must be one that the controller executes, and the
client's principal must be allowed, whatever the broker thought of it.
"""

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from tidelog.contract.errors import fill_error
from tidelog.metadata.broker_reports import (
    DamagedReplica,
    InSyncChange,
    InSyncMember,
    InSyncResult,
    ReplicaEnd,
)
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.active.turns import AdminTurns
from tidelog.metadata_quorum.admin.access import Access, check_allowed, malformed, read_accesses
from tidelog.metadata_quorum.admin.execution import Execute
from tidelog.metadata_quorum.controller.brokers.producer_ids import allocate_block
from tidelog.metadata_quorum.controller.partitions.damage import report_damaged
from tidelog.metadata_quorum.controller.partitions.in_sync import alter_partitions
from tidelog.metadata_quorum.controller.partitions.log_ends import ToldEnds
from tidelog.metadata_quorum.port import Executed
from tidelog.metadata_quorum.shared.forwarding import ADMIN_TIMEOUT_MS, SERVED_FILES, left_ms
from tidelog.ports import Authorizer, Clock, RequestContext
from tidelog.ports.bounds import count_message
from tidelog.ports.request_context import CLIENT_LISTENER
from tidelog.v1 import controller_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    TopicId,
)
from tidelog.wire.refusals import invalid, validate_cluster

_NS_PER_MS = 1_000_000
_METHOD_CHARACTERS_MAX = 200


class ControllerService:
    """Served on the cluster listener by every voter."""

    def __init__(
        self,
        controller: ActiveController,
        executions: Mapping[str, Execute],
        *,
        authorizer: Authorizer,
        clock: Clock,
        cluster_id: str,
    ) -> None:
        self._controller = controller
        self._executions = executions
        self._authorizer = authorizer
        self._clock = clock
        self._cluster_id = cluster_id
        self._turns = AdminTurns(clock)
        self._ends = ToldEnds()
        self._accesses: Mapping[str, Access] = read_accesses(SERVED_FILES)

    async def alter_partitions(self, context: RequestContext, message: bytes) -> bytes:
        """`AlterPartitions`."""
        asked = controller_pb2.AlterPartitionsRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried="change in-sync sets")
        changes = [_read_change(each) for each in asked.changes]
        written = await self._controller.write(
            lambda image: alter_partitions(
                image, BrokerId(asked.broker_id), BrokerEpoch(asked.broker_epoch), changes
            ),
            tried=f"change in-sync sets for broker {asked.broker_id}",
            timeout_ms=left_ms(context, self._clock),
        )
        response = controller_pb2.AlterPartitionsResponse()
        for result in written.answer:
            _fill_result(response.results.add(), result)
        return response.SerializeToString()

    async def report_damaged_replicas(self, context: RequestContext, message: bytes) -> bytes:
        """`ReportDamagedReplicas`."""
        asked = controller_pb2.ReportDamagedReplicasRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried="report damaged replicas")
        damaged = [
            DamagedReplica(
                topic_id=TopicId(each.topic_id),
                partition=each.partition,
                leader_epoch=LeaderEpoch(each.leader_epoch),
                may_come_back=each.may_come_back,
            )
            for each in asked.replicas
        ]
        written = await self._controller.write(
            lambda image: report_damaged(
                image, BrokerId(asked.broker_id), BrokerEpoch(asked.broker_epoch), damaged
            ),
            tried=f"take damaged replicas of broker {asked.broker_id} out",
            timeout_ms=left_ms(context, self._clock),
        )
        response = controller_pb2.ReportDamagedReplicasResponse()
        for each, error in zip(damaged, written.answer, strict=True):
            result = response.results.add(topic_id=each.topic_id, partition=each.partition)
            if error is not None:
                fill_error(result.error, error)
        return response.SerializeToString()

    async def report_log_ends(self, context: RequestContext, message: bytes) -> bytes:
        """`ReportLogEnds`."""
        asked = controller_pb2.ReportLogEndsRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried="report log ends")
        ends = [
            ReplicaEnd(
                topic_id=TopicId(each.topic_id),
                partition=PartitionId(each.partition),
                leader_epoch=LeaderEpoch(each.leader_epoch),
                last_epoch=LeaderEpoch(each.last_epoch),
                log_end_offset=Offset(each.log_end_offset),
            )
            for each in asked.replicas
        ]
        await self._controller.write(
            lambda image: self._ends.elect(
                image, BrokerId(asked.broker_id), BrokerEpoch(asked.broker_epoch), ends
            ),
            tried=f"take the log ends of broker {asked.broker_id}",
            timeout_ms=left_ms(context, self._clock),
        )
        return controller_pb2.ReportLogEndsResponse().SerializeToString()

    async def allocate_producer_id_block(self, context: RequestContext, message: bytes) -> bytes:
        """`AllocateProducerIdBlock`."""
        asked = controller_pb2.AllocateProducerIdBlockRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried="allocate producer ids")
        written = await self._controller.write(
            lambda image: allocate_block(
                image, BrokerId(asked.broker_id), BrokerEpoch(asked.broker_epoch)
            ),
            tried=f"allocate producer ids for broker {asked.broker_id}",
            timeout_ms=left_ms(context, self._clock),
        )
        return controller_pb2.AllocateProducerIdBlockResponse(
            first_producer_id=written.answer.first_producer_id, count=written.answer.count
        ).SerializeToString()

    async def forward(self, context: RequestContext, message: bytes) -> bytes:
        """`Forward`: the failure of the client's call is part of the answer."""
        asked = controller_pb2.ForwardRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried="forward a call")
        response = controller_pb2.ForwardResponse()
        try:
            executed = await self._execute(context, asked)
        except TidelogError as error:
            fill_error(response.error, error)
        else:
            response.response = executed.response
            response.applied_index = executed.applied_index
        return response.SerializeToString()

    async def _execute(
        self, context: RequestContext, asked: controller_pb2.ForwardRequest
    ) -> Executed:
        execute = self._executions.get(asked.method)
        if execute is None:
            raise invalid(
                f"forward {asked.method[:_METHOD_CHARACTERS_MAX]}",
                "it is no method that the controller executes",
                "Ask a broker.",
            )
        timeout_ms = min(asked.timeout_ms or ADMIN_TIMEOUT_MS, left_ms(context, self._clock))
        client = RequestContext(
            principal=asked.principal,
            listener=CLIENT_LISTENER,
            client_id=asked.client_id,
            address=asked.client_address,
            deadline_ns=self._clock.monotonic_ns() + timeout_ms * _NS_PER_MS,
        )
        check_allowed(asked.method, client, self._accesses[asked.method], self._authorizer)
        # Counted by the broker as well, unless it is of an older release.
        held = count_message(asked.method, asked.request)
        tried = f"call {asked.method}"
        await self._turns.wait(client.caller, held.total, tried=tried, timeout_ms=timeout_ms)
        try:
            return await execute(client, asked.request, max(1, left_ms(client, self._clock)))
        except DecodeError as error:
            raise malformed(asked.method, error) from None


def _read_change(message: controller_pb2.PartitionChange) -> InSyncChange:
    return InSyncChange(
        topic_id=TopicId(message.topic_id),
        partition=message.partition,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        partition_epoch=PartitionEpoch(message.partition_epoch),
        members=tuple(
            InSyncMember(
                broker_id=BrokerId(each.broker_id), broker_epoch=BrokerEpoch(each.broker_epoch)
            )
            for each in message.in_sync_replicas
        ),
        is_recovered_unclean=message.is_recovered_unclean,
        is_withdrawal=message.is_withdrawal,
        is_flushed=message.is_flushed,
    )


def _fill_result(message: controller_pb2.PartitionChangeResult, result: InSyncResult) -> None:
    message.topic_id = result.topic_id
    message.partition = result.partition
    message.partition_epoch = result.partition_epoch
    message.in_sync_replicas.extend(result.in_sync_replicas)
    if result.error is not None:
        fill_error(message.error, result.error)
