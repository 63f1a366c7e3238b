"""SubscribeService: conversions, and the loop that takes what a client says."""

from typing import Final

from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import (
    Begin,
    Position,
    SendAcknowledged,
    SendAssignment,
    SendRecords,
    StartAt,
)
from tidelog.broker.groups.subscription.host import Subscriptions
from tidelog.broker.groups.subscription.runner import ForClient, SubscriptionRunner
from tidelog.contract.groups import fill_group_error
from tidelog.contract.isolation import read_isolation
from tidelog.metadata.topic_names import TOPIC_NAME_LENGTH_MAX, validate_topic_name
from tidelog.ports import RequestContext, Stream, TaskScope
from tidelog.v1 import subscribe_pb2
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import Offset, PartitionId
from tidelog.wire.refusals import invalid

TRIED: Final = "subscribe"
_STARTS: Final[dict[int, StartAt]] = {
    subscribe_pb2.START_AT_UNSPECIFIED: StartAt.LATEST,
    subscribe_pb2.START_AT_EARLIEST: StartAt.EARLIEST,
    subscribe_pb2.START_AT_LATEST: StartAt.LATEST,
    subscribe_pb2.START_AT_NONE: StartAt.NONE,
}


class SubscribeRpc:
    """The service's one method."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    async def subscribe(self, context: RequestContext, stream: Stream) -> None:
        """`Subscribe`: until the client ends, or an error ends the stream."""
        first = await stream.receive()
        if first is None:
            return
        begin = read_begin(subscribe_pb2.SubscribeRequest.FromString(first), context)

        async def send(told: ForClient) -> None:
            message = response_of(told).SerializeToString()
            if isinstance(told, SendRecords):
                await context.answer_room.take(len(message))
            await stream.send(message)

        await self._subscriptions.wait_topics(begin)
        with self._subscriptions.stream(begin, send) as runner:
            async with TaskScope() as scope:
                scope.start(runner.run(), name="subscription")
                while (message := await stream.receive()) is not None:
                    _take(runner, subscribe_pb2.SubscribeRequest.FromString(message))
                await runner.finish()
                scope.cancel()


def _take(runner: SubscriptionRunner, message: subscribe_pb2.SubscribeRequest) -> None:
    match message.WhichOneof("request"):
        case "acknowledge":
            asked = message.acknowledge
            if len(asked.positions) > limits.POSITIONS_MAX:
                raise invalid(
                    "acknowledge records",
                    f"{len(asked.positions)} positions, the limit is {limits.POSITIONS_MAX}",
                )
            # A refusal tells it back, and is kept until the client reads it.
            longest = max((len(each.topic) for each in asked.positions), default=0)
            if longest > TOPIC_NAME_LENGTH_MAX:
                raise invalid(
                    "acknowledge records",
                    f"a topic name has {longest} characters, the limit is {TOPIC_NAME_LENGTH_MAX}",
                )
            positions = [
                Position(each.topic, PartitionId(each.partition), Offset(each.next_offset))
                for each in asked.positions
            ]
            places = dict.fromkeys((each.topic, each.partition) for each in positions)
            if len(places) < len(positions):
                raise invalid("acknowledge records", "a partition is named twice")
            runner.acknowledge(positions, asked.correlation_id)
        case "credit":
            runner.grant(message.credit.records)
        case "begin":
            raise invalid(TRIED, "`begin` comes once, as the first request of the stream")
        case _:
            raise invalid(TRIED, "the request is of no kind")


def read_begin(message: subscribe_pb2.SubscribeRequest, context: RequestContext) -> Begin:
    """What the client wants; INVALID_ARGUMENT if that cannot be."""
    if message.WhichOneof("request") != "begin":
        raise invalid(TRIED, "the first request of the stream is not `begin`")
    asked = message.begin
    if asked.group:
        validate_group_name(asked.group, tried=TRIED)
    elif asked.group_instance_id:
        raise invalid(TRIED, "a static member needs a group")
    if not asked.topics and not asked.topic_pattern:
        raise invalid(TRIED, "neither topics nor a pattern are named")
    if len(asked.topics) > limits.TOPICS_MAX:
        raise invalid(TRIED, f"{len(asked.topics)} topics, the limit is {limits.TOPICS_MAX}")
    if len(dict.fromkeys(asked.topics)) < len(asked.topics):
        raise invalid(TRIED, "a topic is named twice")
    for name in asked.topics:
        validate_topic_name(name)
    if asked.start_at not in _STARTS:
        raise invalid(TRIED, f"`start_at` is number {asked.start_at}")
    if asked.credit_records > limits.CREDIT_MAX:
        raise invalid(
            TRIED, f"a credit of {asked.credit_records} records, the limit is {limits.CREDIT_MAX}"
        )
    timeout_ms = asked.acknowledge_timeout_ms or limits.ACKNOWLEDGE_MS_DEFAULT
    if not limits.ACKNOWLEDGE_MS_MIN <= timeout_ms <= limits.ACKNOWLEDGE_MS_MAX:
        raise invalid(
            TRIED,
            f"`acknowledge_timeout_ms` is {timeout_ms}, not {limits.ACKNOWLEDGE_MS_MIN} to "
            f"{limits.ACKNOWLEDGE_MS_MAX}",
        )
    return Begin(
        group=asked.group,
        topics=tuple(asked.topics),
        topic_pattern=asked.topic_pattern,
        start_at=_STARTS[asked.start_at],
        credit_records=asked.credit_records,
        acknowledge_timeout_ms=timeout_ms,
        group_instance_id=asked.group_instance_id,
        rack=asked.client_rack,
        principal=context.principal,
        client_id=context.client_id,
        address=context.address,
        isolation=read_isolation(asked.isolation_level, tried=TRIED),
    )


def response_of(told: ForClient) -> subscribe_pb2.SubscribeResponse:
    """What the client is told."""
    response = subscribe_pb2.SubscribeResponse()
    match told:
        case SendRecords():
            _fill_records(response.records, told)
        case SendAssignment():
            message = response.assignment
            message.is_idle = told.is_idle
            message.assigned.extend(_position(each) for each in told.assigned)
            message.revoked.extend(_position(each) for each in told.revoked)
            message.SetInParent()
        case SendAcknowledged():
            response.acknowledged.correlation_id = told.correlation_id
            response.acknowledged.SetInParent()
            for topic, partition, error in told.failures:
                failure = response.acknowledged.failures.add(topic=topic, partition=partition)
                fill_group_error(failure.error, error)
    return response


def _fill_records(message: subscribe_pb2.SubscribeRecords, told: SendRecords) -> None:
    message.topic, message.partition = told.topic, told.partition
    message.high_watermark = told.high_watermark
    message.last_stable_offset = told.last_stable_offset
    for offset, timestamp_ms, _, key, value, headers in told.records:
        each = message.records.add(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)
        for name, content in headers:
            each.headers.add(key=name, value=content)


def _position(position: Position) -> subscribe_pb2.SubscribePosition:
    return subscribe_pb2.SubscribePosition(
        topic=position.topic, partition=position.partition, next_offset=position.next_offset
    )
