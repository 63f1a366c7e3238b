"""Offsets that are asked for on leaders and followers: what is told, and what is not told yet."""

import asyncio
from typing import cast

from tests.broker.services.test_fetch_roles import CONTEXT, EPOCH, Node, written
from tests.broker.support.log_shelf import TOPIC, batch_at
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.offsets.handler import OffsetsHandler
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetQuery, OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId


def offset_of(
    node: Node,
    spec: OffsetSpec,
    time_ms: int = -1,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[int, int, str]:
    handler = OffsetsHandler(cast(Replicas, node), node.leadership())
    query = OffsetQuery(topic_id=TOPIC, partition=PartitionId(0), spec=spec, timestamp_ms=time_ms)
    (answer,) = asyncio.run(handler.list_offsets(CONTEXT, [query], isolation))
    return answer.offset, answer.leader_epoch, answer.error.code.name if answer.error else ""


def test_the_end_is_the_watermark_and_each_answer_has_its_records_epoch() -> None:
    node = written(Node(), 3, 4, 6, committed=6)
    node.shelf.append(batch_at(1, 2), epoch=6)
    assert offset_of(node, OffsetSpec.LATEST) == (6, 6, "")
    assert offset_of(node, OffsetSpec.EARLIEST) == (0, 3, "")
    assert offset_of(node, OffsetSpec.AT_TIME, 2) == (1, 3, "")
    assert offset_of(node, OffsetSpec.AT_TIME, 9) == (-1, -1, "")
    assert offset_of(Node(), OffsetSpec.LATEST) == (0, -1, "")


def test_a_new_leader_tells_no_end_before_its_watermark_has_come_to_its_own_epoch() -> None:
    node = written(Node(), 3, 4, 4, committed=2)
    for spec in (OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP):
        assert offset_of(node, spec) == (-1, -1, "UNAVAILABLE")
    assert offset_of(node, OffsetSpec.AT_TIME, 9) == (-1, -1, "UNAVAILABLE")
    assert offset_of(node, OffsetSpec.AT_TIME, 1) == (0, 3, ""), "what is found is committed"
    assert offset_of(node, OffsetSpec.EARLIEST) == (0, 3, "")
    node.shelf.append(batch_at(1, 2), epoch=EPOCH)
    assert offset_of(node, OffsetSpec.LATEST) == (-1, -1, "UNAVAILABLE")
    node.shelf.commit(6)
    assert offset_of(node, OffsetSpec.LATEST) == (6, 4, "")


def test_a_follower_is_not_asked_for_offsets() -> None:
    node = written(Node(leader=2), 3)
    assert offset_of(node, OffsetSpec.EARLIEST) == (-1, -1, "NOT_LEADER")


def test_a_leader_that_may_be_deposed_tells_readers_of_committed_records_no_end() -> None:
    """Another one may have shown more: a read to the end must not go back (G-single)."""
    node = written(Node(), 3, 4, 6, committed=6)
    node.is_heard = False
    node.quorum_failure = TidelogError(
        ErrorCode.UNAVAILABLE, tried="ask", happened="nobody is there"
    )
    committed = IsolationLevel.READ_COMMITTED
    assert offset_of(node, OffsetSpec.LATEST)[0] == 6, "what it knows, as long as nobody is there"
    for spec in (OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP):
        assert offset_of(node, spec, isolation=committed) == (-1, -1, "UNAVAILABLE")
    assert offset_of(node, OffsetSpec.EARLIEST, isolation=committed)[0] == 0
    assert offset_of(node, OffsetSpec.AT_TIME, 1, isolation=committed)[0] == 0
    node.quorum_failure = None
    assert offset_of(node, OffsetSpec.LATEST, isolation=committed)[0] == 6
