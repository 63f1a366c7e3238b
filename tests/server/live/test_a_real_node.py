"""A real process: starts, serves, dies, comes back with what it acknowledged."""

import grpc
import pytest

from tests.support.node import NodeProcess, node
from tests.support.waiting import HANG_SECONDS
from tidelog.v1 import records_pb2, records_pb2_grpc
from tidelog.wire.errors import TidelogError

__all__ = ["node"]

pytestmark = [pytest.mark.slow, pytest.mark.live]


def produce(address: str, values: list[bytes]) -> list[int]:
    """Offsets of the values in partition 0 of `letters`."""
    with grpc.insecure_channel(address) as channel:
        stub = records_pb2_grpc.RecordsServiceStub(channel)
        request = records_pb2.ProduceRecordsRequest(
            topic="letters",
            partition=0,
            records=[records_pb2.Record(value=value) for value in values],
        )
        answer = stub.ProduceRecords(request, timeout=HANG_SECONDS, wait_for_ready=True)
        assert not any(place.HasField("error") for place in answer.places), answer
        return [place.offset for place in answer.places]


def read_all(address: str) -> list[bytes]:
    """The values of partition 0 of `letters`."""
    with grpc.insecure_channel(address) as channel:
        stub = records_pb2_grpc.RecordsServiceStub(channel)
        request = records_pb2.FetchRecordsRequest(topic="letters", partition=0)
        answer = stub.FetchRecords(request, timeout=HANG_SECONDS, wait_for_ready=True)
        return [record.value for record in answer.records]


def create_topic(address: str) -> None:
    """`letters`, with one partition."""
    from tidelog.v1 import admin_pb2, admin_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="letters")])
        answer = stub.CreateTopics(request, timeout=HANG_SECONDS, wait_for_ready=True)
        assert not answer.results[0].HasField("error"), answer


def test_what_was_acknowledged_is_there_after_kill_9(node: NodeProcess) -> None:
    create_topic(node.bootstrap)
    expected: list[bytes] = []
    for number in range(3):
        values = [b"%d-%d" % (number, place) for place in range(10)]
        assert produce(node.bootstrap, values) == list(range(len(expected), len(expected) + 10))
        expected += values
        node.restart()
        assert read_all(node.bootstrap) == expected


def test_a_node_that_is_told_to_stop_stops_in_order(node: NodeProcess) -> None:
    create_topic(node.bootstrap)
    assert node.stop() == 0
    assert (node.data_dir / "clean_shutdown.json").exists()


def test_a_second_node_on_the_same_directory_is_refused_in_three_lines(node: NodeProcess) -> None:
    second = NodeProcess(node.data_dir.parent)
    with pytest.raises(TidelogError, match="hint: Use that node"):
        second.start()
