"""Whom the admin client asks, how often, and which error the caller sees."""

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest

from tests.client.support.contract_errors import error
from tests.support.waiting import with_more_time
from tidelog.client import AdminClient, ConfigResource, ConfigResourceType
from tidelog.client.wire import calls as wire
from tidelog.v1 import (
    admin_pb2,
    config_admin_pb2,
    metadata_admin_pb2,
    metadata_pb2,
    quorum_admin_pb2,
    topic_admin_pb2,
)
from tidelog.wire.errors import ErrorCode, TidelogError

Reply = bytes | ErrorCode
DESCRIBED = quorum_admin_pb2.DescribeQuorumResponse(leader_id=2, term=5).SerializeToString()


class Broker(grpc.GenericRpcHandler):
    """Answers every unary call with the next reply, the last one again and again."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, bytes]] = []
        self.pieces: list[bytes] = []
        self.address = ""
        self.others: list[str] = []
        self._lock = threading.Lock()

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        if method == wire.GET_METADATA:
            return grpc.unary_unary_rpc_method_handler(self._metadata)
        if method.endswith("/ExportMetadata"):
            return grpc.unary_stream_rpc_method_handler(lambda data, context: iter(self.pieces))
        return grpc.unary_unary_rpc_method_handler(self._handler(method))

    def _metadata(self, data: bytes, context: Any) -> bytes:
        del data, context
        brokers = [
            metadata_pb2.BrokerMetadata(broker_id=number, address=address)
            for number, address in enumerate([self.address, *self.others], start=1)
        ]
        return metadata_pb2.GetMetadataResponse(
            cluster_id="test", controller_id=1, brokers=brokers, metadata_version=1
        ).SerializeToString()

    def _handler(self, method: str) -> Callable[[bytes, Any], bytes]:
        def reply(data: bytes, context: Any) -> bytes:
            with self._lock:
                self.asked.append((method.rpartition("/")[2], data))
                chosen = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            if isinstance(chosen, bytes):
                return chosen
            context.set_trailing_metadata(
                ((wire.ERROR_TRAILER, error(chosen).SerializeToString()),)
            )
            context.abort(grpc.StatusCode.UNAVAILABLE, "as the test wants")
            raise AssertionError("abort raises")

        return reply


@contextmanager
def cluster(*brokers: Broker) -> Iterator[AdminClient]:
    """The brokers serve; a client that began with the first of them."""
    with ExitStack() as stack:
        for broker in brokers:
            server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
            broker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.add_generic_rpc_handlers((broker,))
            server.start()
            stack.callback(server.stop, 0)
        brokers[0].others = [broker.address for broker in brokers[1:]]
        yield stack.enter_context(
            AdminClient(
                bootstrap_servers=brokers[0].address, request_timeout_ms=5_000, retry_backoff_ms=1
            )
        )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS,
        ErrorCode.VOTER_NOT_CAUGHT_UP,
        ErrorCode.UNKNOWN_VOTER,
        ErrorCode.INDETERMINATE,
    ],
)
def test_what_a_broker_answers_is_raised_at_once_and_nobody_else_is_asked(code: ErrorCode) -> None:
    first, second = Broker(code), Broker(DESCRIBED)
    with cluster(first, second) as admin:
        with pytest.raises(TidelogError) as caught:
            admin.add_voter(4, bytes(16))
        assert caught.value.code is code
        assert len(first.asked) == 1
        assert second.asked == []


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.NOT_CONTROLLER])
def test_a_broker_that_knows_no_controller_is_passed_over(code: ErrorCode) -> None:
    first, second = Broker(code), Broker(DESCRIBED)
    with cluster(first, second) as admin:
        assert admin.describe_metadata_quorum().leader_id == 2
        assert [len(broker.asked) for broker in (first, second)] == [1, 1]


def test_handing_the_lead_over_is_asked_once_though_no_answer_came() -> None:
    first, second = Broker(ErrorCode.DEADLINE_EXCEEDED), Broker(DESCRIBED)
    with cluster(first, second) as admin:
        with pytest.raises(TidelogError):
            admin.transfer_leadership()
        assert [len(broker.asked) for broker in (first, second)] == [1, 0]


def test_a_round_in_which_nobody_could_help_is_followed_by_another() -> None:
    first = Broker(ErrorCode.UNAVAILABLE, ErrorCode.NOT_CONTROLLER, DESCRIBED)
    with cluster(first) as admin:
        assert admin.describe_metadata_quorum().term == 5
        assert len(first.asked) == 3


def test_an_error_of_everybody_names_each_address() -> None:
    first, second = Broker(ErrorCode.UNAVAILABLE), Broker(ErrorCode.NOT_CONTROLLER)
    with cluster(first, second) as admin:

        def asked(limit_ms: int) -> None:
            with pytest.raises(TidelogError) as caught:
                admin.describe_metadata_quorum(timeout_ms=limit_ms)
            assert caught.value.code is ErrorCode.UNAVAILABLE
            assert first.address in caught.value.happened
            assert second.address in caught.value.happened

        with_more_time(asked, 200)


def test_topics_are_deleted_by_name_or_by_id() -> None:
    answer = topic_admin_pb2.DeleteTopicsResponse(
        results=[
            topic_admin_pb2.DeleteTopicResult(name="a", topic_id=bytes(16)),
            topic_admin_pb2.DeleteTopicResult(name="b", error=error(ErrorCode.UNKNOWN_TOPIC)),
        ]
    )
    broker = Broker(answer.SerializeToString())
    with cluster(broker) as admin:
        found = admin.try_delete_topics(["a", bytes([7]) * 16], validate_only=True)
        assert isinstance(found[1], TidelogError)
        assert found[1].code is ErrorCode.UNKNOWN_TOPIC
        with pytest.raises(TidelogError):
            admin.delete_topics(["a"])
        asked = topic_admin_pb2.DeleteTopicsRequest.FromString(broker.asked[0][1])
        assert asked.validate_only
        assert [each.WhichOneof("selector") for each in asked.topics] == ["name", "topic_id"]


def test_settings_are_set_with_a_value_and_unset_with_none() -> None:
    answer = config_admin_pb2.AlterConfigsResponse(
        results=[config_admin_pb2.ConfigAlterationResult()]
    ).SerializeToString()
    broker = Broker(answer)
    topic = ConfigResource(ConfigResourceType.TOPIC, "orders", {"a": "1", "b": None})
    with cluster(broker) as admin:
        admin.alter_configs([topic])
        admin.reset_configs([topic])
        altered, reset = (
            config_admin_pb2.AlterConfigsRequest.FromString(data) for _, data in broker.asked
        )
        changes = altered.alterations[0].changes
        assert [(each.name, each.HasField("value")) for each in changes] == [
            ("a", True),
            ("b", False),
        ]
        assert not any(each.HasField("value") for each in reset.alterations[0].changes)


def piece(position: int, data: bytes, total: int) -> bytes:
    return metadata_admin_pb2.ExportMetadataResponse(
        position=position, data=data, total_bytes=total
    ).SerializeToString()


def test_an_export_is_whole_or_an_error() -> None:
    broker = Broker(DESCRIBED)
    with cluster(broker) as admin:
        broker.pieces = [piece(0, b"abc", 5), piece(3, b"de", 5)]
        assert b"".join(admin.export_metadata()) == b"abcde"
        for pieces in ([piece(0, b"abc", 5)], [piece(0, b"abc", 5), piece(4, b"e", 5)], []):
            broker.pieces = pieces
            with pytest.raises(TidelogError, match="broke off behind byte"):
                list(admin.export_metadata())


def described(*leaders: int, known: int = 0, topic_id: int = 7) -> bytes:
    """A topic with these leaders; offsets only of what broker `known` leads."""
    answer = admin_pb2.DescribeTopicsResponse()
    topic = answer.topics.add(name="t", topic_id=bytes([topic_id]) * 16)
    for number, leader in enumerate(leaders):
        is_known = leader == known
        topic.partitions.add(
            partition=number,
            leader_id=leader,
            log_start_offset=number if is_known else -1,
            high_watermark=10 + number if is_known else -1,
            size_bytes=100 + number if is_known else -1,
        )
    return answer.SerializeToString()


def ends(admin: AdminClient) -> list[tuple[int, int, int]]:
    (topic,) = admin.describe_topics(["t"])
    return [
        (each.log_start_offset, each.high_watermark, each.size_bytes) for each in topic.partitions
    ]


def test_each_partitions_leader_is_asked_for_its_offsets() -> None:
    leaders = (1, 2, 3, 2)
    brokers = [Broker(described(*leaders, known=number)) for number in (1, 2, 3)]
    with cluster(*brokers) as admin:
        assert ends(admin) == [(0, 10, 100), (1, 11, 101), (2, 12, 102), (3, 13, 103)]
        assert sum(len(broker.asked) for broker in brokers) == 3, "each leader once"
        assert admin.list_topics() == ["t"]
        assert sum(len(broker.asked) for broker in brokers) == 4, "names need no leader"


def test_offsets_of_a_leader_that_is_away_or_of_another_topic_stay_unknown() -> None:
    unknown = (-1, -1, -1)
    leaders = (1, 2, 3, -1, 9)
    brokers = [
        Broker(described(*leaders, known=1)),
        Broker(ErrorCode.UNAVAILABLE),
        Broker(described(*leaders, known=3, topic_id=8)),
    ]
    with cluster(*brokers) as admin:
        assert ends(admin) == [(0, 10, 100), unknown, unknown, unknown, unknown]
