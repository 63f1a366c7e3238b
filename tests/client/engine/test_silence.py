"""Both drivers, until their time is over: what a node has answered last, not its silence then."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest

from tests.client.support.contract_errors import error
from tidelog.client import AdminClient, NewTopic, TopicPartition
from tidelog.client.aio import AsyncAdminClient
from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.errors import LostAnswerError, NoAnswerError
from tidelog.client.shared.asking import OnFailure, all_failed, nobody_is_told
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.tls.security import Security
from tidelog.client.wire.calls import read_error
from tidelog.v1 import admin_pb2, coordinator_pb2, errors_pb2, group_admin_pb2, metadata_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

ADDRESS: Final = "a:1"
TOPIC_ID: Final = b"t" * 16
T_0: Final = TopicPartition("t", 0)
LOADING: Final = error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is loading")
STARTING: Final = read_error(error(ErrorCode.UNAVAILABLE, "it starts"))
DENIED: Final = read_error(error(ErrorCode.PERMISSION_DENIED, "not for you"))
SHORT: Final = Backoff(initial_ms=1, max_ms=1)
PATIENCE_MS: Final = 30
"""Of calls on which no time passes: whatever the machine does, the first try is answered."""
TWO_TRIES_MS: Final = 150
"""Of calls whose second try is answered too, and that are silent from then on."""
LONG_MS: Final = 600_000
"""Of a call that its second try ends."""

METADATA: Final = metadata_pb2.GetMetadataResponse(
    cluster_id="c",
    controller_id=1,
    brokers=[metadata_pb2.BrokerMetadata(broker_id=1, address=ADDRESS)],
    topics=[
        metadata_pb2.TopicMetadata(
            topic_id=TOPIC_ID,
            name="t",
            partitions=[metadata_pb2.PartitionMetadata(leader_id=1, leader_epoch=1)],
        )
    ],
    metadata_version=1,
).SerializeToString()

WITHOUT_TOPIC: Final = metadata_pb2.GetMetadataResponse(
    cluster_id="c",
    controller_id=1,
    topics=[
        metadata_pb2.TopicMetadata(name="t", error=error(ErrorCode.UNKNOWN_TOPIC, "there is none"))
    ],
    metadata_version=1,
).SerializeToString()


class Node:
    """Answers each method as often as it was told to (None: not at all), then says nothing."""

    def __init__(self, **answers: Iterable[bytes | TidelogError | None]) -> None:
        self._answers = {name: iter(each) for name, each in answers.items()}
        self._answers.setdefault("GetMetadata", itertools.repeat(METADATA))

    def answer(self, method: str) -> bytes:
        found = next(self._answers.get(method.rpartition("/")[2], iter(())), None)
        if found is None:
            raise NoAnswerError(
                ErrorCode.DEADLINE_EXCEEDED, tried="call", happened=f"{ADDRESS}: no answer"
            )
        if isinstance(found, TidelogError):
            raise found
        return found


class ScriptedConnections(Connections):
    def __init__(self, node: Node) -> None:
        super().__init__("till")
        self._node = node

    def call(self, address: str, method: str, data: bytes, timeout_ms: int) -> bytes:
        return self._node.answer(method)

    def call_any(
        self,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_failure: OnFailure = nobody_is_told,
    ) -> bytes:
        try:
            return self._node.answer(method)
        except TidelogError as failure:
            on_failure(failure)
            raise all_failed([(ADDRESS, failure)]) from None


class AsyncScriptedConnections(AsyncConnections):
    def __init__(self, node: Node) -> None:
        super().__init__("till", Security())
        self._scripted = ScriptedConnections(node)

    async def call(self, address: str, method: str, data: bytes, timeout_ms: int) -> bytes:
        return self._scripted.call(address, method, data, timeout_ms)

    async def call_any(
        self,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_failure: OnFailure = nobody_is_told,
    ) -> bytes:
        return self._scripted.call_any(addresses, method, data, timeout_ms, on_failure)


class ScriptedAdmin(AdminClient):
    def __init__(self, node: Node) -> None:
        super().__init__(bootstrap_servers=ADDRESS)
        self._connections = ScriptedConnections(node)
        self._calls = ClusterCalls(
            self._connections, (ADDRESS,), MetadataCache(), SHORT, PATIENCE_MS, PATIENCE_MS
        )


class AsyncScriptedAdmin(AsyncAdminClient):
    def __init__(self, node: Node) -> None:
        super().__init__(bootstrap_servers=ADDRESS)
        self._connections = AsyncScriptedConnections(node)
        self._calls = AsyncClusterCalls(
            self._connections, (ADDRESS,), MetadataCache(), SHORT, PATIENCE_MS, PATIENCE_MS
        )


def on_threads(
    node: Node, name: str, *arguments: Any, timeout_ms: int = PATIENCE_MS, **named: Any
) -> Any:
    with ScriptedAdmin(node) as admin:
        return getattr(admin, name)(*arguments, timeout_ms=timeout_ms, **named)


def on_asyncio(
    node: Node, name: str, *arguments: Any, timeout_ms: int = PATIENCE_MS, **named: Any
) -> Any:
    async def run() -> Any:
        async with AsyncScriptedAdmin(node) as admin:
            return await getattr(admin, name)(*arguments, timeout_ms=timeout_ms, **named)

    return asyncio.run(run())


both = pytest.mark.parametrize("call", [on_threads, on_asyncio])


def described() -> bytes:
    billing = group_admin_pb2.GroupDescription(group="billing", error=LOADING)
    return group_admin_pb2.DescribeGroupsResponse(groups=[billing]).SerializeToString()


def found_coordinator(failure: errors_pb2.Error | None = None) -> bytes:
    place = coordinator_pb2.CoordinatorPlace(
        key="billing", broker_id=1, address=ADDRESS, error=failure
    )
    return coordinator_pb2.FindCoordinatorsResponse(coordinators=[place]).SerializeToString()


def without_leader() -> bytes:
    failure = error(ErrorCode.NOT_LEADER, "nobody leads")
    answer = metadata_pb2.OffsetAnswer(topic_id=TOPIC_ID, error=failure)
    return metadata_pb2.ListOffsetsResponse(answers=[answer]).SerializeToString()


@both
def test_time_that_is_over_leaves_what_was_answered_last(call: Any) -> None:
    outcomes = call(Node(DescribeGroups=[described()]), "try_describe_groups", ["billing"])
    assert outcomes["billing"].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert outcomes["billing"].happened.startswith("it is loading")


@both
@pytest.mark.parametrize(
    ("name", "arguments", "answers", "code", "reason"),
    [
        (
            "list_groups",
            (),
            {"ListGroups": [STARTING]},
            ErrorCode.UNAVAILABLE,
            "a:1: it starts",
        ),
        (
            "list_topics",
            (),
            {"DescribeTopics": [STARTING]},
            ErrorCode.UNAVAILABLE,
            "a:1: it starts",
        ),
        (
            "list_group_offsets",
            ("billing",),
            {"FindCoordinators": [found_coordinator(LOADING)]},
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "it is loading",
        ),
        (
            "list_group_offsets",
            ("billing",),
            {
                "FindCoordinators": [found_coordinator(), found_coordinator()],
                "FetchOffsets": [read_error(LOADING)],
            },
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "it is loading",
        ),
        (
            "list_partition_offsets",
            ({T_0: "latest"},),
            {"GetMetadata": [METADATA], "ListOffsets": [without_leader()]},
            ErrorCode.NOT_LEADER,
            "nobody leads",
        ),
    ],
    ids=["groups", "topics", "the coordinator", "committed offsets", "a leader"],
)
def test_a_call_that_reads_ends_with_the_reason_and_not_with_silence(
    call: Any,
    name: str,
    arguments: tuple[Any, ...],
    answers: dict[str, list[bytes | TidelogError]],
    code: ErrorCode,
    reason: str,
) -> None:
    with pytest.raises(TidelogError) as caught:
        call(Node(**answers), name, *arguments)
    assert caught.value.code is code
    assert caught.value.happened.startswith(reason)


@both
@pytest.mark.parametrize(
    ("leaders", "metadata", "code", "reason"),
    [
        ([without_leader()], [STARTING], ErrorCode.NOT_LEADER, "nobody leads"),
        ([without_leader()], [METADATA, STARTING], ErrorCode.NOT_LEADER, "nobody leads"),
        ([], [STARTING], ErrorCode.UNAVAILABLE, "a:1: it starts"),
        ([], [], ErrorCode.DEADLINE_EXCEEDED, "a:1: no answer"),
        ([without_leader()], [DENIED], ErrorCode.PERMISSION_DENIED, "not for you"),
    ],
    ids=["at once", "a try before", "leaders are silent", "all are silent", "for good"],
)
def test_a_refresh_that_is_refused_does_not_hide_what_a_leader_has_answered(
    call: Any,
    leaders: list[bytes],
    metadata: list[bytes | TidelogError],
    code: ErrorCode,
    reason: str,
) -> None:
    node = Node(GetMetadata=[METADATA, *metadata], ListOffsets=leaders)
    with pytest.raises(TidelogError) as caught:
        call(node, "list_partition_offsets", {T_0: "latest"})
    assert caught.value.code is code
    assert caught.value.happened.startswith(reason)


@both
def test_a_topic_that_is_gone_meanwhile_is_told_and_not_a_refresh_that_is_refused(
    call: Any,
) -> None:
    node = Node(GetMetadata=[METADATA, WITHOUT_TOPIC, STARTING], ListOffsets=[without_leader()])
    with pytest.raises(TidelogError) as caught:
        call(node, "list_partition_offsets", {T_0: "latest"}, timeout_ms=TWO_TRIES_MS)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


# Calls that change something.

AGAIN: Final = "ask again: done twice it comes to the same"
LOOK_FIRST: Final = "look whether it was done, and ask again if it was not"
BROKEN: Final = LostAnswerError(
    ErrorCode.UNAVAILABLE, tried="call", happened="a:1: the connection broke"
)
OFFSETS: Final = ("billing", {T_0: 5})


def not_altered() -> bytes:
    return group_admin_pb2.AlterGroupOffsetsResponse(error=LOADING).SerializeToString()


@both
@pytest.mark.parametrize(
    ("name", "arguments", "hint"),
    [
        ("alter_group_offsets", OFFSETS, AGAIN),
        ("delete_group_offsets", ("billing", [T_0]), AGAIN),
        ("create_partitions", ({"t": 3},), AGAIN),
        ("create_topics", ([NewTopic("u", 1, 1)],), LOOK_FIRST),
        ("delete_topics", (["t"],), LOOK_FIRST),
        ("remove_group_members", ("billing",), LOOK_FIRST),
    ],
)
def test_a_change_that_nobody_has_answered_may_have_been_done(
    call: Any, name: str, arguments: tuple[Any, ...], hint: str
) -> None:
    with pytest.raises(TidelogError) as caught:
        call(Node(), name, *arguments)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert caught.value.happened == "a:1: no answer; it may have been done"
    assert caught.value.hint == hint


@both
def test_a_change_whose_connection_broke_is_asked_again_only_if_that_does_no_harm(
    call: Any,
) -> None:
    altered = group_admin_pb2.AlterGroupOffsetsResponse(
        results=[group_admin_pb2.AlteredOffset(previous_offset=3)]
    ).SerializeToString()
    node = Node(AlterGroupOffsets=[BROKEN, altered], DeleteTopics=[BROKEN, b""])
    assert call(node, "alter_group_offsets", *OFFSETS, timeout_ms=LONG_MS) == {T_0: 3}
    with pytest.raises(TidelogError) as caught:
        call(node, "delete_topics", ["t"], timeout_ms=LONG_MS)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert caught.value.happened == "a:1: the connection broke; it may have been done"
    assert caught.value.hint == LOOK_FIRST


@both
def test_a_topic_that_is_there_behind_a_try_that_nobody_has_answered_may_be_its_own(
    call: Any,
) -> None:
    there = error(ErrorCode.TOPIC_ALREADY_EXISTS, "there is one")
    answer = admin_pb2.CreateTopicsResponse(
        results=[admin_pb2.CreateTopicResult(name="u", error=there)]
    ).SerializeToString()
    for first, happened in (
        ([None], "there is one; it may have been done: a:1: no answer"),
        ([], "there is one"),
    ):
        node = Node(CreateTopics=[*first, answer])
        (found,) = call(node, "try_create_topics", [NewTopic("u", 1, 1)], timeout_ms=LONG_MS)
        assert (found.code, found.happened) == (ErrorCode.TOPIC_ALREADY_EXISTS, happened)


@both
def test_refusals_behind_a_try_that_nobody_has_answered_do_not_deny_it(call: Any) -> None:
    answers = itertools.chain([None], itertools.repeat(not_altered()))
    with pytest.raises(TidelogError) as caught:
        call(Node(AlterGroupOffsets=answers), "alter_group_offsets", *OFFSETS)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert "it may have been done" in caught.value.happened
    assert caught.value.hint == AGAIN


@both
def test_a_change_that_was_only_refused_says_nothing_else(call: Any) -> None:
    node = Node(AlterGroupOffsets=itertools.repeat(not_altered()))
    with pytest.raises(TidelogError) as caught:
        call(node, "alter_group_offsets", *OFFSETS)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert caught.value.happened == "it is loading"


@both
def test_a_change_that_is_only_tried_out_ends_as_a_call_that_reads(call: Any) -> None:
    node = Node(AlterGroupOffsets=[not_altered()])
    with pytest.raises(TidelogError) as caught:
        call(node, "alter_group_offsets", *OFFSETS, validate_only=True)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert caught.value.happened.startswith("it is loading")


@pytest.mark.parametrize(("offset", "hint"), [(5, AGAIN), (-1, LOOK_FIRST)])
@pytest.mark.parametrize("first", [[], [None, STARTING]], ids=["silence", "refused behind it"])
def test_records_that_may_have_been_deleted_are_not_told_as_kept(
    offset: int, hint: str, first: list[TidelogError | None]
) -> None:
    found = on_threads(Node(DeleteRecords=first), "try_delete_records", {T_0: offset})[T_0]
    assert found.code is ErrorCode.DEADLINE_EXCEEDED
    assert found.tried == "delete records of t-0"
    assert "it may have been done" in found.happened
    assert found.hint == hint


@both
def test_a_deletion_that_may_have_been_done_is_not_told_as_refused(call: Any) -> None:
    refused = group_admin_pb2.DeleteGroupResult(group="billing", error=LOADING)
    answer = group_admin_pb2.DeleteGroupsResponse(results=[refused]).SerializeToString()
    node = Node(DeleteGroups=[answer])
    found = call(node, "try_delete_groups", ["billing"], timeout_ms=LONG_MS)
    assert found["billing"].code is ErrorCode.DEADLINE_EXCEEDED
    assert found["billing"].happened == "a:1: no answer; it may have been done"
    assert found["billing"].hint == LOOK_FIRST


@both
def test_a_deletion_that_a_coordinator_has_not_answered_may_have_been_done(call: Any) -> None:
    late = error(ErrorCode.DEADLINE_EXCEEDED, "no answer within the deadline")
    result = group_admin_pb2.DeleteGroupResult(group="billing", error=late)
    answer = group_admin_pb2.DeleteGroupsResponse(results=[result]).SerializeToString()
    found = call(Node(DeleteGroups=[answer]), "try_delete_groups", ["billing"])
    assert found["billing"].code is ErrorCode.DEADLINE_EXCEEDED
    assert found["billing"].happened == "no answer within the deadline; it may have been done"
