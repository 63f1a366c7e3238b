"""What only the present leader may say: asked first, said for good only then."""

import asyncio
from typing import Any, cast

import pytest

from tests.broker.services.test_fetch_roles import CONTEXT, EPOCH, Node, position, written
from tests.broker.services.test_offset_roles import offset_of
from tests.broker.support.log_shelf import TOPIC, batch_at
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.fetch.handler import FetchRequest, PartitionBatches
from tidelog.broker.services.fetch.stream import FetchSession, FetchStreamRequest
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.offsets.trim import HIGH_WATERMARK, TrimHandler, TrimPoint
from tidelog.broker.services.records.handler import FetchRecordsRequest, RecordsHandler
from tidelog.broker.services.shared.leadership import CONFIRM_MS, Confirmation, Leadership
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId

BEYOND = 9
NO_CONTROLLER = TidelogError(ErrorCode.UNAVAILABLE, tried="ask", happened="no controller is known")


class Topics:
    """As much of the metadata handler as plain records need."""

    topic_id = TOPIC

    async def topic(self, *_: object, **__: object) -> "Topics":
        return self


def by_fetch(node: Node, offset: int) -> TidelogError | None:
    answer = node.fetch(offset)
    return None if answer is None else answer.error


def by_stream(node: Node, offset: int) -> TidelogError | None:
    """Without credit: an error costs none."""

    async def work() -> TidelogError | None:
        session = FetchSession(node.handler(), lambda: None)
        session.take(FetchStreamRequest([position(offset)], [], 0, 1, 0))
        answer = await session.next_answer(0)
        session.close()
        return None if answer is None else answer.partitions[0].error

    return asyncio.run(work())


def by_records(node: Node, offset: int) -> TidelogError | None:
    unused: Any = None
    handler = RecordsHandler(
        cast(MetadataHandler, Topics()),
        unused,
        node.handler(),
        unused,
        broker_id=unused,
        time=unused,
        random=unused,
        limits=BrokerLimits(),
    )
    try:
        asyncio.run(
            handler.fetch_records(
                CONTEXT, FetchRecordsRequest("t", PartitionId(0), Offset(offset), 10, 0)
            )
        )
    except TidelogError as error:
        return error
    return None


def by_trim(node: Node, offset: int) -> TidelogError | None:
    handler = TrimHandler(cast(Replicas, node), node.leadership())
    point = TrimPoint(TOPIC, PartitionId(0), offset)
    (outcome,) = asyncio.run(handler.delete_records(CONTEXT, [point]))
    return outcome.error


WAYS = {
    "Fetch": by_fetch,
    "FetchStream": by_stream,
    "FetchRecords": by_records,
    "DeleteRecords": by_trim,
}


def code_of(error: TidelogError | None) -> ErrorCode | None:
    return None if error is None else error.code


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_leader_that_another_one_has_replaced_calls_no_offset_out_of_range(way: str) -> None:
    node = written(Node(), EPOCH)
    node.led_next = 2
    error = WAYS[way](node, BEYOND)
    assert code_of(error) is ErrorCode.NOT_LEADER
    assert error is not None
    assert error.retriable


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_leader_that_reaches_no_controller_calls_no_offset_out_of_range(way: str) -> None:
    node = written(Node(), EPOCH)
    node.quorum_failure = NO_CONTROLLER
    error = WAYS[way](node, BEYOND)
    assert code_of(error) is ErrorCode.UNAVAILABLE
    assert error is not None
    assert error.retriable
    assert "another broker may lead by now" in error.happened


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_leader_that_is_sure_of_it_says_what_is_out_of_range(way: str) -> None:
    node = written(Node(), EPOCH)
    assert code_of(WAYS[way](node, BEYOND)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert node.questions == 1


@pytest.mark.parametrize("way", ["Fetch", "FetchStream", "FetchRecords"])
def test_an_offset_below_the_start_is_out_of_range_where_the_leader_says_so(way: str) -> None:
    node = written(Node(), EPOCH, EPOCH)
    node.log.log_start_offset = node.log.high_watermark
    assert code_of(WAYS[way](node, 0)) is ErrorCode.OFFSET_OUT_OF_RANGE
    node.quorum_failure = NO_CONTROLLER
    assert code_of(WAYS[way](node, 0)) is ErrorCode.UNAVAILABLE


def test_a_follower_sends_to_the_leader_whoever_asks_below_its_start() -> None:
    node = written(Node(leader=2), EPOCH, EPOCH)
    node.log.log_start_offset = node.log.high_watermark
    answer = node.fetch(0, rack="a")
    assert answer is not None
    assert code_of(answer.error) is ErrorCode.NOT_LEADER


def test_nothing_is_asked_for_what_can_be_read() -> None:
    node = written(Node(), EPOCH)
    for way in ("Fetch", "FetchStream", "FetchRecords"):
        assert WAYS[way](node, 0) is None
    assert node.questions == 0


def test_a_request_asks_once_for_all_of_its_positions() -> None:
    node = written(Node(), EPOCH)
    confirmation = Confirmation(node.leadership())
    judged = [node.handler().judge(position(at), "", may_redirect=False) for at in (8, 9)]

    async def settle() -> list[Replica | PartitionBatches]:
        handler = node.handler()
        return [await handler.settle(position(9), "", each, confirmation) for each in judged]

    for each in asyncio.run(settle()):
        assert isinstance(each, PartitionBatches)
        assert code_of(each.error) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert node.questions == 1


def test_beside_an_offset_out_of_range_stands_what_is_in_range() -> None:
    node = written(Node(), EPOCH, EPOCH)
    answer = node.fetch(BEYOND)
    assert answer is not None
    assert code_of(answer.error) is ErrorCode.OFFSET_OUT_OF_RANGE
    log = node.log
    found = answer.log_start_offset, answer.high_watermark, answer.leader_epoch
    assert found == (log.log_start_offset, log.high_watermark, EPOCH)
    asked = node.fetch(0, epoch=EPOCH + 1)
    assert asked is not None
    assert asked.error is not None, "an epoch that nobody has heard of here"
    assert (asked.log_start_offset, asked.high_watermark) == (-1, -1)


def test_a_request_that_names_a_partition_twice_is_refused() -> None:
    node = written(Node(), EPOCH)
    asked = FetchRequest([position(0), position(1)], 0, 1, 0)
    with pytest.raises(TidelogError) as caught:
        asyncio.run(node.handler().fetch(CONTEXT, asked))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "t-0 twice" in caught.value.happened


def test_a_new_leader_shows_plain_readers_no_watermark_before_it_has_come_to_its_epoch() -> None:
    node = written(Node(), 3, 4, 4, committed=2)
    assert code_of(by_records(node, 0)) is ErrorCode.UNAVAILABLE
    node.shelf.append(batch_at(1, 2), epoch=EPOCH)
    node.shelf.commit(6)
    assert by_records(node, 0) is None


def test_a_new_leader_trims_nothing_up_to_a_watermark_that_it_does_not_know_yet() -> None:
    node = written(Node(), 3, 4, 4, committed=2)
    assert code_of(by_trim(node, HIGH_WATERMARK)) is ErrorCode.UNAVAILABLE
    assert code_of(by_trim(node, 4)) is ErrorCode.UNAVAILABLE
    assert node.questions == 0


def test_a_leader_without_contact_looks_who_leads_before_it_tells_the_end() -> None:
    node = written(Node(), EPOCH)
    node.is_heard, node.led_next = False, 2
    assert offset_of(node, OffsetSpec.LATEST) == (-1, -1, "NOT_LEADER")
    node = written(Node(), EPOCH)
    node.is_heard, node.quorum_failure = False, NO_CONTROLLER
    assert offset_of(node, OffsetSpec.LATEST) == (2, EPOCH, ""), "a cluster serves without one"


class Quorum:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[int]] = []
        self.leadership = Leadership(self.read_index, self.applied, is_in_contact=lambda: True)

    async def read_index(self, timeout_ms: int) -> int:
        assert timeout_ms == CONFIRM_MS
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def applied(self, index: int) -> None:
        assert index == len(self.asked)


def test_those_who_come_meanwhile_share_the_next_question_and_never_the_one_under_way() -> None:
    async def work() -> None:
        quorum = Quorum()
        first = asyncio.ensure_future(quorum.leadership.confirm("read"))
        await asyncio.sleep(0)
        later = [asyncio.ensure_future(quorum.leadership.confirm("read")) for _ in range(5)]
        await asyncio.sleep(0)
        quorum.asked[0].set_result(1)
        await first
        await asyncio.sleep(0)
        assert not any(each.done() for each in later), "that question began before they came"
        quorum.asked[1].set_result(2)
        await asyncio.gather(*later)
        assert len(quorum.asked) == 2

    asyncio.run(work())


def test_who_goes_away_leaves_the_question_to_the_others() -> None:
    async def work() -> None:
        quorum = Quorum()
        gone = asyncio.ensure_future(quorum.leadership.confirm("read"))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(quorum.leadership.confirm("read"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(quorum.asked) == 2
        quorum.asked[1].set_result(2)
        await waiting

    asyncio.run(work())
