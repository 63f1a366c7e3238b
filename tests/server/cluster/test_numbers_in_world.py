"""Every number of every request, at the ends of what it can hold: a typed answer, and the node goes
on. Made from descriptors: a field that is added to the contract is tried without a word here.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from tests.broker.support.node_in_world import PlainClient, partition_batch, sealed
from tests.server.cluster.test_bounds_in_world import NOT_SERVED, all_methods
from tests.server.support.cluster_in_world import CLUSTER_ID, Cluster
from tidelog.metadata.features import SUPPORTED
from tidelog.metadata_quorum.admin.access import method_name, read_access
from tidelog.ports.request_context import CLIENT_LISTENER
from tidelog.v1 import (
    broker_session_pb2,
    coordinator_pb2,
    errors_pb2,
    groups_pb2,
    metadata_pb2,
    producer_id_pb2,
    quorum_pb2,
)
from tidelog.wire.errors import ErrorCode, TidelogError

CALL_MS: Final = 1_000
STRANGER: Final = 9
"""A broker that is registered and does nothing else, in whose name the calls are made."""
TYPES: Final = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_FIXED32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_FIXED64: (0, (1 << 64) - 1),
}
NUMBERS: Final = (
    *(0, -1, 1, -(1 << 31), (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    *(1 << 53, 1 << 62, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
)
Path = tuple[FieldDescriptor, ...]
METHODS = [each for each in all_methods() if each.containing_service.name not in NOT_SERVED]


def numbers_of(message: Descriptor, outer: Path = ()) -> Iterator[Path]:
    """Where a request holds numbers."""
    for field in message.fields:
        path = (*outer, field)
        if field.type in TYPES:
            yield path
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from numbers_of(field.message_type, path)


def asked(method: MethodDescriptor, path: Path, number: int, known: dict[str, Any]) -> bytes:
    """A request that makes sense but for the number."""
    message: Any = message_factory.GetMessageClass(method.input_type)()
    _fill(message, path, number, known)
    if isinstance(message, broker_session_pb2.RegisterBrokerRequest):
        for name, speaks in SUPPORTED.items():
            message.features.add(name=name, level_min=speaks.level_min, level_max=speaks.level_max)
        if not path or path[0].name != "features":
            del message.features[0]
    if isinstance(message, quorum_pb2.AppendEntriesRequest):
        # Heartbeats, unless the number stands in an entry or in the offer of a snapshot.
        if not path or path[0].name != "entries":
            message.ClearField("entries")
        if not path or path[0].name != "snapshot":
            message.ClearField("snapshot")
    data: bytes = message.SerializeToString()
    return data


def _fill(message: Any, path: Path, number: int, known: dict[str, Any]) -> None:
    wanted = path[0] if path else None
    for field in message.DESCRIPTOR.fields:
        is_wanted = field is wanted
        one = field.containing_oneof
        is_beside = one is not None and wanted is not None and wanted.containing_oneof is one
        if not is_wanted and (is_beside or (one is not None and len(one.fields) > 1)):
            continue
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            part = getattr(message, field.name)
            inner = part.add() if field.is_repeated else part
            inner.SetInParent()
            _fill(inner, path[1:] if is_wanted else (), number, known)
            continue
        value = number if is_wanted else known.get(field.name)
        if value is None:
            continue
        # A name may stand for a text here and for a number there.
        with suppress(TypeError):
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


def before(method: MethodDescriptor, path: Path, known: dict[str, Any]) -> list[bytes]:
    """What a stream begins with, where the number stands in what comes later."""
    one = path[0].containing_oneof
    if one is None or path[0] is one.fields[0]:
        return []
    message: Any = message_factory.GetMessageClass(method.input_type)()
    begin = getattr(message, one.fields[0].name)
    begin.SetInParent()
    _fill(begin, (), 0, known)
    return [message.SerializeToString()]


async def ends_of(cluster: Cluster, method: MethodDescriptor, messages: list[bytes]) -> list[str]:
    """The codes of all errors in which the call ended, or that stand in its answers; OK for each
    answer without one."""
    is_client = read_access(method).listener == CLIENT_LISTENER
    address, name = f"n1:{1 if is_client else 2}", method_name(method)
    answers: list[bytes] = []
    codes: list[str] = []
    try:
        if not method.client_streaming:
            answers = [await cluster.network.call(address, name, messages[-1], timeout_ms=CALL_MS)]
        else:
            stream = cluster.network.stream(address, name)
            try:
                for each in messages:
                    await stream.send(each)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CALL_MS / 1_000):
                        while (answer := await stream.receive()) is not None:
                            answers.append(answer)
            finally:
                stream.cancel()
    except TidelogError as error:
        codes.append(error.code.name)
    answered = message_factory.GetMessageClass(method.output_type)
    for answer in answers:
        codes += list(_codes_in(answered.FromString(answer))) or ["OK"]
    return codes


def _codes_in(message: Message) -> Iterator[str]:
    if isinstance(message, errors_pb2.Error):
        yield ErrorCode(message.code).name
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                yield from _codes_in(each)


class Client(PlainClient):
    """Of the cluster's only node."""

    async def call(self, method: str, message: bytes) -> bytes:
        return await self.network.call(
            "n1:1", f"/tidelog.v1.{method}", message, timeout_ms=30 * CALL_MS
        )


async def known_values(cluster: Cluster) -> dict[str, Any]:
    """By the names of fields: what the cluster takes for its own."""
    client = Client(cluster.network)
    topic_id = await client.create_topic("t")
    batch = sealed([b"x"])
    await client.produce(partition_batch(topic_id, 0, batch))
    request = metadata_pb2.GetMetadataRequest(topic_names=["t"])
    answer = await client.call("MetadataService/GetMetadata", request.SerializeToString())
    partition = metadata_pb2.GetMetadataResponse.FromString(answer).topics[0].partitions[0]
    producer = producer_id_pb2.AllocateProducerIdResponse.FromString(
        await client.call("ProducerIdService/AllocateProducerId", b"")
    )
    return {
        **dict.fromkeys(("topic", "name", "topics", "topic_names"), "t"),
        **dict.fromkeys(("topic_id", "topic_ids"), topic_id),
        **dict.fromkeys(("partition", "partitions", "position", "sequence", "applied_index"), 0),
        **dict.fromkeys(("group", "groups", "member_id", "client_id", "sink_id", "keys"), "g"),
        **dict.fromkeys(("broker_id", "node_id", "from_node_id"), STRANGER),
        **dict.fromkeys(("directory_uuid", "from_directory_uuid", "incarnation"), b"9" * 16),
        **dict.fromkeys(("acks", "kind", "spec", "start_at", "decision", "lane"), 1),
        "term": 1,
        **dict.fromkeys(("credit_bytes", "credit_records", "max_bytes", "timeout_ms"), 1_000),
        **dict.fromkeys(("session_timeout_ms", "rebalance_timeout_ms"), 10_000),
        "to_node_id": 1,
        "to_directory_uuid": bytes([1]) * 16,
        "cluster_id": CLUSTER_ID,
        "listener": "cluster",
        "address": "n9:2",
        "leader_address": "n9:2",
        "batch": batch,
        "route_sum": partition_batch(topic_id, 0, batch).route_sum,
        "leader_epoch": partition.leader_epoch,
        "partition_count": 2,
        "method": "/tidelog.v1.AdminService/CreateTopics",
        "session_epoch": 1,
        "session_id": 1,
        "session_sequence": 1,
        "value": b"v",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


async def join(client: Client) -> int:
    """A member of a group owns the topic's partition; its epoch."""
    find = coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=["g"]
    )
    heartbeat = groups_pb2.GroupHeartbeatRequest(group="g", member_id="g")
    heartbeat.subscription.topics.append("t")
    heartbeat.owned.SetInParent()
    answer = groups_pb2.GroupHeartbeatResponse()
    for _ in range(100):
        await client.call("CoordinatorService/FindCoordinators", find.SerializeToString())
        with suppress(TidelogError):
            answer = groups_pb2.GroupHeartbeatResponse.FromString(
                await client.call("GroupService/GroupHeartbeat", heartbeat.SerializeToString())
            )
            if answer.member_epoch:
                return answer.member_epoch
        await asyncio.sleep(0.1)
    raise AssertionError(f"the member is not let in: {answer}")


async def register(cluster: Cluster, known: dict[str, Any]) -> None:
    """The stranger becomes a broker, whose epoch the calls may use."""
    (method,) = (each for each in METHODS if each.name == "RegisterBroker")
    request = broker_session_pb2.RegisterBrokerRequest.FromString(asked(method, (), 0, known))
    del request.stored_epochs[:]
    for _ in range(100):
        # A message with a later term than the leader's ends its leadership for a moment.
        with suppress(TidelogError):
            answer = await cluster.network.call(
                "n1:2", method_name(method), request.SerializeToString(), timeout_ms=CALL_MS
            )
            registered = broker_session_pb2.RegisterBrokerResponse.FromString(answer)
            known["broker_epoch"] = registered.broker_epoch
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the stranger is not registered")


@pytest.mark.slow
def test_no_number_of_any_request_ends_in_anything_but_a_typed_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    untyped: list[str] = []
    ends: dict[str, Counter[str]] = {}

    async def work(cluster: Cluster) -> None:
        known = await known_values(cluster)
        for method in METHODS:
            ended = ends.setdefault(method.full_name, Counter())
            for path in numbers_of(method.input_type):
                # The epochs may have been spent by the calls before.
                await register(cluster, known)
                known["member_epoch"] = await join(Client(cluster.network))
                lowest, highest = TYPES[path[-1].type]
                for number in NUMBERS:
                    if not lowest <= number <= highest:
                        continue
                    name = ".".join(field.name for field in path)
                    what = f"{method.full_name}, {name} = {number}"
                    caplog.clear()
                    messages = before(method, path, known)
                    messages.append(asked(method, path, number, known))
                    codes = await ends_of(cluster, method, messages)
                    ended.update(codes)
                    if ErrorCode.UNKNOWN.name in codes:
                        untyped.append(f"{what}: {codes}")
                    untyped.extend(
                        f"{what}: {record.getMessage()} {record.exc_info}"
                        for record in caplog.records
                        if record.exc_info or "Traceback" in record.getMessage()
                    )
                    node = cluster.nodes[1]
                    assert (node.ended, node.error) == (0, None), what
                    process = node.process
                    assert process is not None
                    assert process.exit_error is None, what
        # The node goes on, and so does the next one on what this one has stored.
        for name in ("after", "again"):
            client = Client(cluster.network)
            topic_id = await client.create_topic(name)
            (acknowledged,) = await client.produce(partition_batch(topic_id, 0, sealed([b"x"])))
            assert not acknowledged.HasField("error"), acknowledged
            assert await client.read_all(topic_id) == [(0, b"x")]
            cluster.nodes[1].kill()
            await cluster.nodes[1].restart()

    Cluster(controllers=1, roles="controller,broker").run(work)
    assert untyped == []
    tried = {name: ended for name, ended in ends.items() if ended}
    assert sum(ended.total() for ended in tried.values()) > 1_200, tried
