"""Quotas by client id, and plans of moves, in protobuf. As `wire.admin`.

Owns method names, requests and answers. It must never decide anything.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.client.types.admin import ClientQuota
from tidelog.v1 import config_admin_pb2, partition_admin_pb2

DESCRIBE_QUOTAS: Final = "/tidelog.v1.ConfigService/DescribeQuotas"
ALTER_QUOTAS: Final = "/tidelog.v1.ConfigService/AlterQuotas"
PLAN_REASSIGNMENTS: Final = "/tidelog.v1.PartitionAdminService/PlanReassignments"

Planned = tuple[bytes, int, tuple[int, ...]]
"""Topic id, partition, replicas in order of preference."""


def describe_quotas_request(client_ids: Iterable[str]) -> bytes:
    """No client ids: all that have a quota."""
    return config_admin_pb2.DescribeQuotasRequest(client_ids=client_ids).SerializeToString()


def read_quotas(data: bytes) -> dict[str, ClientQuota]:
    """By client id, in ascending order."""
    answer = config_admin_pb2.DescribeQuotasResponse.FromString(data)
    return {each.client_id: _quota(each) for each in answer.quotas}


def _quota(message: config_admin_pb2.Quota) -> ClientQuota:
    return ClientQuota(
        produce_bytes_per_second=message.produce_bytes_per_second
        if message.HasField("produce_bytes_per_second")
        else None,
        fetch_bytes_per_second=message.fetch_bytes_per_second
        if message.HasField("fetch_bytes_per_second")
        else None,
        requests_per_second=message.requests_per_second
        if message.HasField("requests_per_second")
        else None,
    )


def alter_quotas_request(quotas: Mapping[str, ClientQuota | None], *, validate_only: bool) -> bytes:
    """Each is the whole quota of its client id; None: it has none any more."""
    none = ClientQuota()
    return config_admin_pb2.AlterQuotasRequest(
        quotas=[
            config_admin_pb2.Quota(
                client_id=client_id,
                produce_bytes_per_second=(quota or none).produce_bytes_per_second,
                fetch_bytes_per_second=(quota or none).fetch_bytes_per_second,
                requests_per_second=(quota or none).requests_per_second,
            )
            for client_id, quota in quotas.items()
        ],
        validate_only=validate_only,
    ).SerializeToString()


def plan_request(
    *, drained_brokers: Iterable[int], topic_ids: Iterable[bytes], moves_max: int
) -> bytes:
    """No topics: all; 0 moves: the controller's own limit."""
    return partition_admin_pb2.PlanReassignmentsRequest(
        drained_brokers=drained_brokers, topic_ids=topic_ids, max_moves=moves_max
    ).SerializeToString()


def read_plan(data: bytes) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
    """Moves, the most useful first, and warnings."""
    answer = partition_admin_pb2.PlanReassignmentsResponse.FromString(data)
    planned = tuple(
        (each.partition.topic_id, each.partition.partition, tuple(each.replicas))
        for each in answer.reassignments
    )
    return planned, tuple(answer.warnings)
