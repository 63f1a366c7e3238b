"""Replicas moved and leaders elected, on the active controller; moves listed and planned."""

from tidelog.contract.errors import fill_error
from tidelog.metadata.image.image import Image
from tidelog.metadata.refusals.common import refuse_too_many
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.active.elections import elect
from tidelog.metadata_quorum.admin.execution import Execute, write
from tidelog.metadata_quorum.controller.partitions.reassignment import (
    REASSIGNMENTS_MAX,
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from tidelog.metadata_quorum.controller.partitions.reassignment_plan import plan_reassignments
from tidelog.metadata_quorum.port import Executed
from tidelog.ports import RequestContext
from tidelog.v1 import common_pb2, partition_admin_pb2
from tidelog.wire.ids import BrokerId, PartitionId, TopicId
from tidelog.wire.refusals import invalid

NOT_KNOWN = -1
_KINDS = {
    partition_admin_pb2.ELECTION_KIND_PREFERRED: False,
    partition_admin_pb2.ELECTION_KIND_UNCLEAN: True,
}


class PartitionExecution:
    """The calls that change partitions."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    def table(self) -> dict[str, Execute]:
        """By full method name."""
        return {
            "/tidelog.v1.PartitionAdminService/AlterReassignments": self.alter_reassignments,
            "/tidelog.v1.PartitionAdminService/ElectLeaders": self.elect_leaders,
        }

    async def alter_reassignments(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`AlterReassignments`."""
        del context
        asked = partition_admin_pb2.AlterReassignmentsRequest.FromString(message)
        wanted = [
            Reassignment(
                topic_id=TopicId(each.partition.topic_id),
                partition=PartitionId(each.partition.partition),
                replicas=tuple(BrokerId(replica) for replica in each.replicas),
            )
            for each in asked.reassignments
        ]
        written = await write(
            self._controller,
            lambda image: alter_reassignments(
                image, wanted, throttle_bytes_per_second=asked.throttle_bytes_per_second
            ),
            validate_only=asked.validate_only,
            tried="move replicas",
            timeout_ms=timeout_ms,
        )
        response = partition_admin_pb2.AlterReassignmentsResponse()
        for each, error in zip(wanted, written.answer, strict=True):
            result = response.results.add(partition=_partition(each.topic_id, each.partition))
            if error is not None:
                fill_error(result.error, error)
        return Executed(response=response.SerializeToString(), applied_index=written.index)

    async def elect_leaders(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`ElectLeaders`."""
        del context
        asked = partition_admin_pb2.ElectLeadersRequest.FromString(message)
        is_unclean = _KINDS.get(asked.kind)
        if is_unclean is None:
            raise invalid(
                "elect leaders",
                f"the kind of election is number {asked.kind}",
                "Set `kind` to PREFERRED or UNCLEAN.",
            )
        keys = [
            (TopicId(topic.topic_id), number)
            for topic in asked.topics
            for number in topic.partitions
        ]
        written = await write(
            self._controller,
            lambda image: elect(
                image, keys, is_unclean=is_unclean, broker_id=BrokerId(asked.broker_id)
            ),
            validate_only=asked.validate_only,
            tried="elect leaders",
            timeout_ms=timeout_ms,
        )
        response = partition_admin_pb2.ElectLeadersResponse()
        for election in written.answer:
            result = response.results.add(
                partition=_partition(election.topic_id, election.partition),
                leader_id=election.leader_id,
            )
            if election.error is not None:
                fill_error(result.error, election.error)
        return Executed(response=response.SerializeToString(), applied_index=written.index)


def list_moves(image: Image, message: bytes) -> bytes:
    """`ListReassignments`, from an image; how much is left only the replicas know."""
    asked = partition_admin_pb2.ListReassignmentsRequest.FromString(message)
    # Each move is looked for among them.
    count = sum(max(1, len(each.partitions)) for each in asked.topics)
    what = "topics and partitions"
    refuse_too_many(count, REASSIGNMENTS_MAX, tried="list moves of replicas", what=what)
    wanted = {TopicId(each.topic_id): frozenset(each.partitions) for each in asked.topics}
    response = partition_admin_pb2.ListReassignmentsResponse()
    for topic_id, partition in list_reassignments(image, wanted):
        numbers = wanted.get(topic_id, frozenset())
        if numbers and partition.partition not in numbers:
            continue
        response.reassignments.add(
            partition=_partition(topic_id, partition.partition),
            topic_name=image.topics[topic_id].name,
            replicas=partition.replicas,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
            remaining_bytes=NOT_KNOWN,
        )
    return response.SerializeToString()


def plan_moves(image: Image, message: bytes) -> bytes:
    """`PlanReassignments`, from an image."""
    asked = partition_admin_pb2.PlanReassignmentsRequest.FromString(message)
    # Each broker and each topic there is is looked for among them.
    tried = "plan moves of replicas"
    refuse_too_many(len(asked.drained_brokers), REASSIGNMENTS_MAX, tried=tried, what="brokers")
    refuse_too_many(len(asked.topic_ids), REASSIGNMENTS_MAX, tried=tried, what="topics")
    plan = plan_reassignments(
        image,
        drained=[BrokerId(each) for each in asked.drained_brokers],
        topic_ids=frozenset(TopicId(each) for each in asked.topic_ids),
        moves_max=asked.max_moves,
    )
    response = partition_admin_pb2.PlanReassignmentsResponse(
        copied_bytes=NOT_KNOWN, warnings=plan.warnings
    )
    for each in plan.reassignments:
        response.reassignments.add(
            partition=_partition(each.topic_id, each.partition), replicas=each.replicas
        )
    return response.SerializeToString()


def _partition(topic_id: TopicId, partition: int) -> common_pb2.TopicPartition:
    return common_pb2.TopicPartition(topic_id=topic_id, partition=partition)
