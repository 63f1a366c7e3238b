"""Turns the engine's values into protobuf and back: the only place of the client that knows it.

Owns method names, requests and answers. It must never decide anything. Stop 4 of a record's walk.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.client.engine.cluster.metadata import BrokerView, ClusterView, PartitionView, TopicView
from tidelog.client.engine.fetch.messages import PartitionBatches
from tidelog.client.engine.produce.batch import Acknowledgement, Outcome
from tidelog.client.engine.produce.messages import Answered, LeaderHint
from tidelog.client.engine.produce.producer_ids import ProducerIdentity
from tidelog.client.errors import PeerError
from tidelog.client.types.records import (
    BrokerDescription,
    ClusterDescription,
    CreatedTopic,
    IneligibleReplica,
    NewTopic,
    PartitionDescription,
    PartitionSummary,
    ReplicaDescription,
    TopicDescription,
)
from tidelog.client.wire.cut import cut_answer
from tidelog.contract.errors import error_in, read_place
from tidelog.contract.fetch import position_message, read_stretches
from tidelog.contract.isolation import isolation_message
from tidelog.contract.offsets import query_message, read_answer
from tidelog.v1 import (
    admin_pb2,
    errors_pb2,
    fetch_pb2,
    metadata_pb2,
    produce_pb2,
    producer_id_pb2,
)
from tidelog.wire.calls.fetch import Divergence, FetchPosition
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

GET_METADATA: Final = "/tidelog.v1.MetadataService/GetMetadata"
LIST_OFFSETS: Final = "/tidelog.v1.MetadataService/ListOffsets"
PRODUCE_STREAM: Final = "/tidelog.v1.ProduceService/ProduceStream"
ALLOCATE_PRODUCER_ID: Final = "/tidelog.v1.ProducerIdService/AllocateProducerId"
FETCH: Final = "/tidelog.v1.FetchService/Fetch"
FETCH_STREAM: Final = "/tidelog.v1.FetchService/FetchStream"
CREATE_TOPICS: Final = "/tidelog.v1.AdminService/CreateTopics"
DESCRIBE_TOPICS: Final = "/tidelog.v1.AdminService/DescribeTopics"
DESCRIBE_CLUSTER: Final = "/tidelog.v1.AdminService/DescribeCluster"

ERROR_TRAILER: Final = "tidelog-error-bin"

_ACKS: Final = {
    -1: produce_pb2.ACKS_ALL,
    1: produce_pb2.ACKS_LEADER,
    0: produce_pb2.ACKS_NONE,
}
_CODES: Final = frozenset(code.value for code in ErrorCode)


def read_error(error: errors_pb2.Error) -> TidelogError:
    """An error of the contract as an exception; an unknown number counts as UNKNOWN."""
    code = ErrorCode(error.code) if error.code in _CODES and error.code else ErrorCode.UNKNOWN
    return PeerError(
        code,
        tried=error.tried or "call",
        happened=error.happened or f"the broker answered error {error.code}",
        hint=error.hint,
        retriable=error.retriable,
        retry_after_ms=error.retry_after_ms,
        go_on_at=read_place(error),
    )


def error_of(error: errors_pb2.Error) -> TidelogError | None:
    """The error of a part of an answer; None: it has none."""
    return error_in(error, read_error)


def read_error_bytes(data: bytes) -> TidelogError:
    """The same from the trailer of a failed call."""
    return read_error(errors_pb2.Error.FromString(data))


def metadata_request(
    topics: Iterable[str], *, all_topics: bool = False, allow_auto_create: bool = False
) -> bytes:
    """Asks for brokers and the named topics."""
    request = metadata_pb2.GetMetadataRequest(
        topic_names=topics, all_topics=all_topics, allow_auto_create_topics=allow_auto_create
    )
    return request.SerializeToString()


def read_metadata(data: bytes, *, is_complete: bool = False) -> ClusterView:
    """What a broker says of the cluster."""
    answer = metadata_pb2.GetMetadataResponse.FromString(data)
    return ClusterView(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers=tuple(
            BrokerView(
                broker_id=broker.broker_id,
                address=broker.address,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker in answer.brokers
        ),
        topics=tuple(_read_topic(topic) for topic in answer.topics),
        version=answer.metadata_version,
        is_complete=is_complete,
    )


def _read_topic(topic: metadata_pb2.TopicMetadata) -> TopicView:
    return TopicView(
        name=topic.name,
        topic_id=TopicId(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionView(
                partition=PartitionId(partition.partition),
                leader_id=partition.leader_id,
                leader_epoch=LeaderEpoch(partition.leader_epoch),
            )
            for partition in topic.partitions
        ),
        error=error_of(topic.error),
    )


def produce_request(
    correlation_id: int,
    batches: Sequence[PartitionBatch],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str = "",
) -> bytes:
    """A request of a produce stream; `transactional_id`: whose transaction the batches belong to.

    Protobuf would copy each batch two to four times: here it makes all but the batches, and one
    join puts them in. A field may stand anywhere in its message.
    """
    pieces: list[bytes] = []
    for each in batches:
        fields = produce_pb2.PartitionBatch(
            topic_id=each.topic_id,
            partition=each.partition,
            leader_epoch=each.leader_epoch,
            route_sum=each.route_sum,
        ).SerializeToString()
        lead = _lead(produce_pb2.PartitionBatch.BATCH_FIELD_NUMBER, len(each.batch))
        size_bytes = len(fields) + len(lead) + len(each.batch)
        part = _lead(produce_pb2.ProduceRequest.BATCHES_FIELD_NUMBER, size_bytes)
        pieces += (part, fields, lead, each.batch)
    settings = produce_pb2.ProduceRequest(
        acks=_ACKS[acks], timeout_ms=timeout_ms, transactional_id=transactional_id
    )
    pieces.append(settings.SerializeToString())
    numbered = produce_pb2.ProduceStreamRequest(correlation_id=correlation_id)
    field = produce_pb2.ProduceStreamRequest.REQUEST_FIELD_NUMBER
    request = _lead(field, sum(map(len, pieces)))
    return b"".join((numbered.SerializeToString(), request, *pieces))


def _lead(field: int, size_bytes: int) -> bytes:
    """What stands before bytes or a message in its parent: field and wire type, then the length."""
    assert field < 16, f"field {field} takes more than one byte"
    encoded = bytearray((field << 3 | 2,))
    while size_bytes > 0x7F:
        encoded.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    encoded.append(size_bytes)
    return bytes(encoded)


def read_produce_answer(broker_id: int, stream: int, data: bytes, wall_ms: int) -> Answered:
    """What a broker said on a produce stream, and when by this client's clock."""
    answer = produce_pb2.ProduceStreamResponse.FromString(data)
    outcomes: list[Outcome] = []
    hints: list[LeaderHint | None] = []
    for part in answer.response.acknowledgements:
        refused = error_of(part.error)
        hint = None
        if refused is not None and part.HasField("leader_id"):
            hint = LeaderHint(leader_id=part.leader_id, leader_epoch=LeaderEpoch(part.leader_epoch))
        hints.append(hint)
        outcomes.append(
            refused
            or Acknowledgement(
                base_offset=Offset(part.base_offset),
                append_time_ms=part.append_time_ms,
                leader_epoch=LeaderEpoch(part.leader_epoch),
            )
        )
    return Answered(
        broker_id=broker_id,
        stream=stream,
        correlation_id=answer.correlation_id,
        error=error_of(answer.error),
        outcomes=tuple(outcomes),
        hints=tuple(hints),
        throttle_ms=answer.response.throttle_ms,
        wall_ms=wall_ms,
    )


def producer_id_request() -> bytes:
    """Asks for an identity."""
    return producer_id_pb2.AllocateProducerIdRequest().SerializeToString()


def read_producer_identity(data: bytes) -> ProducerIdentity:
    """The identity."""
    answer = producer_id_pb2.AllocateProducerIdResponse.FromString(data)
    return ProducerIdentity(
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        batches_in_flight_max=answer.max_in_flight_batches,
    )


def list_offsets_request(
    queries: Iterable[OffsetQuery],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> bytes:
    """Asks a leader for offsets by place or time."""
    request = metadata_pb2.ListOffsetsRequest(
        queries=[query_message(query) for query in queries],
        isolation_level=isolation_message(isolation),
    )
    return request.SerializeToString()


def read_offsets(data: bytes) -> tuple[OffsetAnswer, ...]:
    """One answer for each query, in its order."""
    answer = metadata_pb2.ListOffsetsResponse.FromString(data)
    return tuple(read_answer(part, read_error) for part in answer.answers)


def fetch_stream_request(
    positions: Iterable[FetchPosition],
    removed: Iterable[tuple[bytes, int]],
    *,
    credit_bytes: int,
    session_epoch: int,
    max_bytes: int,
    client_rack: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> bytes:
    """Positions to read from, partitions to stop, credit to add."""
    request = fetch_pb2.FetchStreamRequest(
        positions=[position_message(position) for position in positions],
        removed=[
            fetch_pb2.FetchedPartition(topic_id=topic_id, partition=partition)
            for topic_id, partition in removed
        ],
        credit_bytes=credit_bytes,
        session_epoch=session_epoch,
        max_bytes=max_bytes,
        client_rack=client_rack,
        isolation_level=isolation_message(isolation),
    )
    return request.SerializeToString()


def fetch_request(positions: Iterable[FetchPosition]) -> bytes:
    """One look at positions, without waiting and with as few batches as there can be."""
    request = fetch_pb2.FetchRequest(
        positions=[position_message(position) for position in positions], max_bytes=1
    )
    return request.SerializeToString()


def read_fetch(data: bytes) -> tuple[PartitionBatches, ...]:
    """What there is to say of the positions; those without news are left out."""
    answer = fetch_pb2.FetchResponse.FromString(data)
    return tuple(_partition_batches(part, part.batches) for part in answer.partitions)


def read_fetch_answer(data: bytes) -> tuple[int, tuple[PartitionBatches, ...]]:
    """Session epoch, and what came for each partition; batches of large answers are not copied."""
    cut = cut_answer(data)
    answer = fetch_pb2.FetchStreamResponse.FromString(cut.rest)
    found = [_partition_batches(part, part.batches) for part in answer.partitions]
    for envelope, batches in cut.parts:
        found.append(_partition_batches(fetch_pb2.PartitionBatches.FromString(envelope), batches))
    return answer.session_epoch, tuple(found)


def _partition_batches(
    part: fetch_pb2.PartitionBatches, batches: bytes | memoryview
) -> PartitionBatches:
    return PartitionBatches(
        topic_id=TopicId(part.topic_id),
        partition=PartitionId(part.partition),
        error=error_of(part.error),
        batches=batches,
        fetch_sum=part.fetch_sum,
        high_watermark=Offset(part.high_watermark),
        last_stable_offset=Offset(part.last_stable_offset),
        log_start_offset=Offset(part.log_start_offset),
        leader_epoch=LeaderEpoch(part.leader_epoch),
        divergence=Divergence(
            leader_epoch=LeaderEpoch(part.divergence.leader_epoch),
            end_offset=Offset(part.divergence.end_offset),
        )
        if part.HasField("divergence")
        else None,
        preferred_replica=part.preferred_replica if part.preferred_replica > 0 else -1,
        leader_id=part.leader_id if part.HasField("leader_id") else None,
        aborted=read_stretches(part.aborted_transactions) if part.aborted_transactions else (),
    )


def create_topics_request(
    topics: Iterable[NewTopic], *, validate_only: bool, timeout_ms: int
) -> bytes:
    """Topics to create."""
    request = admin_pb2.CreateTopicsRequest(
        topics=[
            admin_pb2.NewTopic(
                name=topic.name,
                partition_count=max(0, topic.num_partitions),
                replication_factor=max(0, topic.replication_factor),
                configuration=topic.topic_configs,
            )
            for topic in topics
        ],
        validate_only=validate_only,
        timeout_ms=timeout_ms,
    )
    return request.SerializeToString()


def read_created_topics(data: bytes) -> list[CreatedTopic | TidelogError]:
    """One for each topic, in order."""
    answer = admin_pb2.CreateTopicsResponse.FromString(data)
    return [
        error_of(result.error)
        or CreatedTopic(
            name=result.name,
            topic_id=result.topic_id,
            num_partitions=result.partition_count,
            replication_factor=result.replication_factor,
        )
        for result in answer.results
    ]


def describe_topics_request(names: Iterable[str], *, with_replicas: bool = False) -> bytes:
    """No names: all topics."""
    return admin_pb2.DescribeTopicsRequest(
        topic_names=names, with_replica_states=with_replicas
    ).SerializeToString()


def read_topic_descriptions(data: bytes) -> list[TopicDescription | TidelogError]:
    """One for each topic."""
    answer = admin_pb2.DescribeTopicsResponse.FromString(data)
    return [error_of(topic.error) or _read_description(topic) for topic in answer.topics]


def _read_description(topic: admin_pb2.TopicDescription) -> TopicDescription:
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        replication_factor=topic.replication_factor,
        configs=dict(topic.configuration),
        partitions=tuple(
            PartitionDescription(
                partition=part.partition,
                leader=part.leader_id,
                leader_epoch=part.leader_epoch,
                replicas=tuple(part.replicas),
                isr=tuple(part.in_sync_replicas),
                log_start_offset=part.log_start_offset,
                high_watermark=part.high_watermark,
                size_bytes=part.size_bytes,
                eligible=tuple(part.eligible_replicas),
                replica_states=tuple(_read_replica(each) for each in part.replica_states),
                ineligible=tuple(
                    IneligibleReplica(broker_id=each.broker_id, reason=each.reason, hint=each.hint)
                    for each in part.ineligible_replicas
                ),
            )
            for part in topic.partitions
        ),
    )


def _read_replica(state: admin_pb2.ReplicaDescription) -> ReplicaDescription:
    return ReplicaDescription(
        broker_id=state.broker_id,
        log_end_offset=state.log_end_offset,
        flushed_offset=state.flushed_offset,
        lag=state.lag,
        caught_up_ago_ms=state.caught_up_ago_ms,
        size_bytes=state.size_bytes if state.is_own else -1,
        is_known=state.is_own,
        failure=error_of(state.failure),
    )


def describe_cluster_request() -> bytes:
    """Asks for the cluster's description."""
    return admin_pb2.DescribeClusterRequest().SerializeToString()


def read_cluster_description(data: bytes) -> ClusterDescription:
    """The cluster as the answering broker sees it."""
    answer = admin_pb2.DescribeClusterResponse.FromString(data)
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers=tuple(
            BrokerDescription(
                broker_id=broker.broker_id,
                address=broker.address,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
                leader_count=broker.leader_count,
                replica_count=broker.replica_count,
            )
            for broker in answer.brokers
        ),
        release=answer.release,
        without_controller_ms=answer.without_controller_ms,
        partitions=PartitionSummary(
            topic_count=answer.partitions.topic_count,
            partition_count=answer.partitions.partition_count,
            offline_count=answer.partitions.offline_count,
            under_replicated_count=answer.partitions.under_replicated_count,
            under_min_isr_count=answer.partitions.under_min_in_sync_count,
            not_preferred_count=answer.partitions.not_preferred_count,
            reassigning_count=answer.partitions.reassigning_count,
        ),
    )
