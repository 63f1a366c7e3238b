"""The life of a coordinator's core: begun, thrown away, begun anew."""

import asyncio

from tests.broker.support.hand_log import HandLog, turns
from tidelog.broker.coordination.task import Surroundings
from tidelog.broker.groups.coordinator.coordinator import GroupCoordinator
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.messages import GroupTopic
from tidelog.broker.shared.meter import Meter
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.ports import TaskScope
from tidelog.ports.real.clock import RealClock
from tidelog.server.events import log as log_events
from tidelog.wire.calls.groups import CommitOffsets, OffsetToCommit
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

TOPIC = TopicId(bytes(16))
AT = PartitionKey(TOPIC, PartitionId(0))


class Coordinator:
    """One, with a log for each leader epoch."""

    def __init__(self) -> None:
        self.logs: dict[int, HandLog] = {}
        clock = RealClock()
        self.it = GroupCoordinator(
            PartitionKey(TopicId(b"g" * 16), PartitionId(0)),
            Surroundings(
                clock=clock,
                time=SteadyTime(clock),
                open_log=self._open,
                is_in_contact=lambda: True,
                on_resigned=lambda key, error: None,
                events=log_events,
                meter=Meter(()),
            ),
            make_core=GroupCoordinatorCore,
        )
        self.it.show((GroupTopic(TOPIC, "t", 1),))

    def _open(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> HandLog:
        del key
        return self.logs.setdefault(leader_epoch, HandLog(leader_epoch))

    async def commit(self, offset: int) -> ErrorCode | None:
        """The code of the refusal."""
        stored = OffsetToCommit(
            key=AT, committed_offset=Offset(offset), leader_epoch=LeaderEpoch(-1)
        )
        try:
            await self.it.ask(CommitOffsets(group="g", offsets=(stored,)))
        except TidelogError as error:
            return error.code
        return None


def test_the_next_core_loads_only_when_no_append_of_the_one_before_can_reach_the_log() -> None:
    async def work() -> None:
        coordinator = Coordinator()
        async with TaskScope() as scope:
            scope.start(coordinator.it.run(), name="coordinator")
            coordinator.it.lead(LeaderEpoch(1))
            await turns()
            asked = [asyncio.ensure_future(coordinator.commit(number)) for number in (1, 2)]
            await turns()
            first = coordinator.logs[1]
            assert len(first.under_way) == 2
            coordinator.it.lead(LeaderEpoch(2))
            await turns()
            assert [each.result() for each in asked] == [ErrorCode.NOT_COORDINATOR] * 2
            assert 2 not in coordinator.logs, "what is under way would be missing in what it loads"
            await first.end(1, leader_epoch=2)
            assert 2 not in coordinator.logs
            await first.end(0, leader_epoch=2)
            assert coordinator.logs[2].loads == 1
            scope.cancel()

    asyncio.run(work())
