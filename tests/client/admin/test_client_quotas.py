"""Quotas and plans of moves as the admin client asks for them."""

import pytest

from tests.client.admin.test_admin import Broker, cluster
from tidelog.client import ClientQuota, TopicPartition
from tidelog.v1 import config_admin_pb2, metadata_pb2, partition_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

TOPIC_ID = bytes([7]) * 16


def test_a_limit_that_is_not_set_is_absent_and_none_takes_the_quota_away() -> None:
    broker = Broker(config_admin_pb2.AlterQuotasResponse().SerializeToString())
    with cluster(broker) as admin:
        admin.alter_client_quotas({"a": ClientQuota(produce_bytes_per_second=5), "": None})
    ((method, data),) = broker.asked
    assert method == "AlterQuotas"
    asked = config_admin_pb2.AlterQuotasRequest.FromString(data)
    assert [each.client_id for each in asked.quotas] == ["a", ""]
    assert asked.quotas[0].produce_bytes_per_second == 5
    fields = [[field.name for field, _ in each.ListFields()] for each in asked.quotas]
    assert fields == [["client_id", "produce_bytes_per_second"], []]
    assert not asked.validate_only


@pytest.mark.parametrize("limit", [0, -1, 1 << 63])
def test_a_limit_out_of_bounds_is_refused_before_anybody_is_asked(limit: int) -> None:
    broker = Broker(b"")
    with cluster(broker) as admin:
        with pytest.raises(TidelogError) as caught:
            admin.alter_client_quotas({"a": ClientQuota(requests_per_second=limit)})
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert broker.asked == []


def test_quotas_are_read_by_client_id_and_no_names_ask_for_nothing() -> None:
    answer = config_admin_pb2.DescribeQuotasResponse(
        quotas=[
            config_admin_pb2.Quota(client_id="", requests_per_second=9),
            config_admin_pb2.Quota(client_id="a", fetch_bytes_per_second=3),
        ]
    )
    broker = Broker(answer.SerializeToString())
    with cluster(broker) as admin:
        assert admin.describe_client_quotas() == {
            "": ClientQuota(requests_per_second=9),
            "a": ClientQuota(fetch_bytes_per_second=3),
        }
        assert admin.describe_client_quotas([]) == {}
        assert len(broker.asked) == 1


class WithTopic(Broker):
    """Knows one topic."""

    def _metadata(self, data: bytes, context: object) -> bytes:
        answer = metadata_pb2.GetMetadataResponse.FromString(super()._metadata(data, context))
        answer.topics.add(name="orders", topic_id=TOPIC_ID)
        return answer.SerializeToString()


def test_a_plan_names_its_topics() -> None:
    answer = partition_admin_pb2.PlanReassignmentsResponse(copied_bytes=-1, warnings=["Little."])
    move = answer.reassignments.add(replicas=[3, 1])
    move.partition.topic_id = TOPIC_ID
    move.partition.partition = 4
    broker = WithTopic(answer.SerializeToString())
    with cluster(broker) as admin:
        plan = admin.plan_partition_reassignments(drained_brokers=[2], moves_max=8)
    assert plan.moves == {TopicPartition("orders", 4): (3, 1)}
    assert plan.warnings == ("Little.",)
    asked = partition_admin_pb2.PlanReassignmentsRequest.FromString(broker.asked[0][1])
    assert (list(asked.drained_brokers), asked.max_moves, list(asked.topic_ids)) == ([2], 8, [])
