"""What members of groups ask: handed to the coordinator of their group, if that is on this broker.

Owns nothing but the way there. It must never answer for a coordinator that is elsewhere.
"""

from typing import TypeVar

from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.state.answers import CommitAnswer, FetchOffsetsAnswer, HeartbeatAnswer
from tidelog.broker.groups.state.messages import AnyRequest, CommitOffsets, FetchOffsets, Heartbeat
from tidelog.broker.groups.state.places import validate_group
from tidelog.broker.shared.meter import Meter, count

AnswerT = TypeVar("AnswerT")


class GroupsHandler:
    """The three calls of GroupService."""

    def __init__(self, coordinators: GroupCoordinators, meter: Meter) -> None:
        self._coordinators = coordinators
        self._meter = meter

    async def heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """Join, stay, report, leave."""
        self._meter.group_heartbeats += 1
        return await self._ask(request.group, request, HeartbeatAnswer)

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """Store how far a group has read."""
        answer = await self._ask(request.group, request, CommitAnswer)
        for error in answer.errors:
            if error is None:
                self._meter.committed_offsets += 1
            else:
                count(self._meter.commit_refusals, error.code.name)
        return answer

    async def fetch(self, request: FetchOffsets) -> FetchOffsetsAnswer:
        """Tell how far it has read."""
        return await self._ask(request.group, request, FetchOffsetsAnswer)

    async def _ask(self, group: str, request: AnyRequest, kind: type[AnswerT]) -> AnswerT:
        validate_group(group, tried="ask for the coordinator of a group")
        answer = await self._coordinators.of(group).ask(request)
        assert isinstance(answer, kind), f"{type(request).__name__} is answered by {kind.__name__}"
        return answer
