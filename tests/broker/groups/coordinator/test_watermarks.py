"""What a leader tells coordinators of its log, and what it does not know yet."""

from typing import cast

from tests.broker.services.test_fetch_roles import EPOCH, Node, written
from tests.broker.support.log_shelf import TOPIC, batch_at
from tidelog.broker.groups.coordinator.watermarks import OwnOffsets, OwnWatermarks
from tidelog.broker.replicas.replicas import Replicas
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId, PartitionKey


def told(node: Node) -> OwnOffsets | ErrorCode:
    key = PartitionKey(TOPIC, PartitionId(0))
    found = OwnWatermarks(cast(Replicas, node)).describe([key])[key]
    return found.code if isinstance(found, TidelogError) else found


def test_a_new_leader_tells_no_end_below_what_was_committed_before_it() -> None:
    node = written(Node(), 3, 4, 4, committed=2)
    assert told(node) is ErrorCode.UNAVAILABLE
    node.shelf.append(batch_at(1, 2), epoch=EPOCH)
    assert told(node) is ErrorCode.UNAVAILABLE
    node.shelf.commit(6)
    assert told(node) == OwnOffsets(Offset(0), Offset(6), Offset(6))
