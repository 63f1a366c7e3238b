"""Deleting records by the admin client: who is asked, what is asked again, whose error is told."""

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from tests.client.support.contract_errors import error
from tests.support.waiting import HANG_SECONDS, with_more_time
from tidelog.client import AdminClient, TopicPartition
from tidelog.client.wire import calls as wire
from tidelog.v1 import metadata_pb2, topic_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

TOPIC_ID = bytes([5]) * 16
ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))
Judge = Callable[[int, int], ErrorCode | int]
"""Partition and offset to an error or the offset that is kept."""


class Leaders(grpc.GenericRpcHandler):
    """One broker of several: each leads what `leads` says, and judges what it is asked."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[list[tuple[int, int]]] = []
        self.address = ""
        self.brokers: list[Leaders] = []
        self.leads: list[int] = []
        """Partition → place in `brokers` of its leader."""
        self._lock = threading.Lock()

    def service(self, handler_call_details: Any) -> Any:
        is_metadata = handler_call_details.method == wire.GET_METADATA
        return grpc.unary_unary_rpc_method_handler(self._metadata if is_metadata else self._trim)

    def _metadata(self, data: bytes, context: Any) -> bytes:
        del context
        asked = metadata_pb2.GetMetadataRequest.FromString(data)
        partitions = [
            metadata_pb2.PartitionMetadata(partition=number, leader_id=leader, leader_epoch=1)
            for number, leader in enumerate(self.leads)
        ]
        known = metadata_pb2.TopicMetadata(name="orders", topic_id=TOPIC_ID, partitions=partitions)
        unknown = [
            metadata_pb2.TopicMetadata(name=name, error=error(ErrorCode.UNKNOWN_TOPIC))
            for name in asked.topic_names
            if name != "orders"
        ]
        return metadata_pb2.GetMetadataResponse(
            cluster_id="test",
            controller_id=0,
            brokers=[
                metadata_pb2.BrokerMetadata(broker_id=number, address=each.address)
                for number, each in enumerate(self.brokers)
            ],
            topics=[known, *unknown],
            metadata_version=1,
        ).SerializeToString()

    def _trim(self, data: bytes, context: Any) -> bytes:
        del context
        request = topic_admin_pb2.DeleteRecordsRequest.FromString(data)
        response = topic_admin_pb2.DeleteRecordsResponse()
        with self._lock:
            points = [(each.partition.partition, each.before_offset) for each in request.points]
            self.asked.append(points)
            for point, (number, offset) in zip(request.points, points, strict=True):
                assert point.partition.topic_id == TOPIC_ID
                judged = self.judge(number, offset)
                result = response.results.add(partition=point.partition)
                if isinstance(judged, ErrorCode):
                    result.error.CopyFrom(error(judged))
                    result.log_start_offset = -1
                else:
                    result.log_start_offset = judged
        return response.SerializeToString()


def _stop(server: grpc.Server) -> None:
    server.stop(0).wait(HANG_SECONDS)


@contextmanager
def cluster(leads: list[int], *judges: Judge) -> Iterator[tuple[AdminClient, list[Leaders]]]:
    """A broker for each judge."""
    brokers = [Leaders(judge) for judge in judges]
    with ExitStack() as stack:
        for broker in brokers:
            broker.brokers, broker.leads = brokers, leads
            server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
            broker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.add_generic_rpc_handlers((broker,))
            server.start()
            stack.callback(partial(_stop, server))
        admin = stack.enter_context(
            AdminClient(
                bootstrap_servers=[brokers[0].address],
                retry_backoff_ms=1,
                retry_backoff_max_ms=1,
            )
        )
        yield admin, brokers


def kept(number: int, offset: int) -> int:
    """As asked."""
    del number
    return offset if offset >= 0 else 99


def code_of(outcome: int | TidelogError) -> ErrorCode:
    """It failed: how."""
    assert isinstance(outcome, TidelogError), outcome
    return outcome.code


def test_each_partitions_leader_is_asked_once_and_the_answers_come_in_order() -> None:
    with cluster([0, 1, 0], kept, kept) as (admin, brokers):
        found = admin.delete_records({TWO: 7, ONE: -1, ZERO: 3})
        assert list(found.items()) == [(TWO, 7), (ONE, 99), (ZERO, 3)]
        assert brokers[0].asked == [[(2, 7), (0, 3)]]
        assert brokers[1].asked == [[(1, -1)]]


def test_what_was_refused_for_good_is_told_and_the_others_are_done() -> None:
    def judge(number: int, offset: int) -> ErrorCode | int:
        return ErrorCode.OFFSET_OUT_OF_RANGE if number == 1 else offset

    with cluster([0, 0, 0], judge) as (admin, brokers):
        found = admin.try_delete_records({ZERO: 3, ONE: 500, TWO: 4})
        assert (found[ZERO], found[TWO]) == (3, 4)
        assert code_of(found[ONE]) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(brokers[0].asked) == 1, "what is final is not asked again"
        with pytest.raises(TidelogError) as caught:
            admin.delete_records({ZERO: 3, ONE: 500})
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_only_what_may_yet_work_is_asked_again() -> None:
    refusals = [ErrorCode.NOT_LEADER, ErrorCode.STORAGE_FULL]

    def judge(number: int, offset: int) -> ErrorCode | int:
        return refusals.pop() if number == 1 and refusals else offset

    with cluster([0, 0, 0], judge) as (admin, brokers):
        assert admin.delete_records({ZERO: 3, ONE: 5}) == {ZERO: 3, ONE: 5}
        assert brokers[0].asked == [[(0, 3), (1, 5)], [(1, 5)], [(1, 5)]]


def test_a_final_refusal_keeps_nothing_else_from_being_asked_again() -> None:
    refusals = [ErrorCode.NOT_LEADER]

    def judge(number: int, offset: int) -> ErrorCode | int:
        if number == 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return refusals.pop() if refusals else offset

    with cluster([0, 0], judge) as (admin, brokers):
        found = admin.try_delete_records({ZERO: 500, ONE: 5})
        assert (code_of(found[ZERO]), found[ONE]) == (ErrorCode.OFFSET_OUT_OF_RANGE, 5)
        assert brokers[0].asked == [[(0, 500), (1, 5)], [(1, 5)]]


def test_what_never_works_is_told_with_its_own_error_when_the_time_is_over() -> None:
    def judge(number: int, offset: int) -> ErrorCode | int:
        return ErrorCode.NOT_LEADER if number == 1 else offset

    with cluster([0, 0, 0], judge) as (admin, _):
        assert admin.delete_records({ZERO: 2}) == {ZERO: 2}, "the cluster is known"

        def asked(limit_ms: int) -> None:
            found = admin.try_delete_records({ZERO: 3, ONE: 5}, timeout_ms=limit_ms)
            assert found[ZERO] == 3
            assert code_of(found[ONE]) is ErrorCode.NOT_LEADER

        with_more_time(asked, 100)


def test_a_topic_or_partition_that_is_not_there_is_the_callers_mistake() -> None:
    with cluster([0], kept) as (admin, brokers):
        with pytest.raises(TidelogError) as caught:
            admin.delete_records({TopicPartition("order", 0): 3})
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
        found = admin.try_delete_records({TopicPartition("orders", 9): 3})
        (outcome,) = found.values()
        assert code_of(outcome) is ErrorCode.INVALID_ARGUMENT
        assert brokers[0].asked == []
