"""What members of groups ask: handed to the coordinator of their group, if that is on this broker.

Owns nothing but the way there. It must never answer for a coordinator that is elsewhere.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.state.messages import NOBODY, AnyRequest, Caller
from tidelog.broker.shared.errors import reworded
from tidelog.broker.shared.meter import Meter, count
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    SendOffsets,
    SendOffsetsAnswer,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import PartitionKey, TopicId

AnswerT = TypeVar("AnswerT")


class GroupsHandler:
    """The three calls of GroupService, and the one of TransactionService that a group's
    coordinator answers."""

    def __init__(
        self, coordinators: GroupCoordinators, meter: Meter, name_of: Callable[[TopicId, int], str]
    ) -> None:
        """`name_of`: a partition in the words of people."""
        self._name_of = name_of
        self._coordinators = coordinators
        self._meter = meter

    async def heartbeat(self, request: Heartbeat, caller: Caller) -> HeartbeatAnswer:
        """Join, stay, report, leave."""
        self._meter.group_heartbeats += 1
        return await self._ask(request.group, request, HeartbeatAnswer, caller)

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """Store how far a group has read."""
        answer = await self._ask(request.group, request, CommitAnswer)
        errors: list[TidelogError | None] = []
        for offset, error in zip(request.offsets, answer.errors, strict=True):
            if error is None:
                self._meter.committed_offsets += 1
                errors.append(None)
            else:
                count(self._meter.commit_refusals, error.code.name)
                errors.append(self._named(error, offset.key))
        return msgspec.structs.replace(answer, errors=tuple(errors))

    async def send_offsets(self, request: SendOffsets) -> SendOffsetsAnswer:
        """Make offsets part of a transaction: all of them, or none."""
        tried = f"send offsets to transaction `{request.transactional_id}`"
        self._coordinators.check_transactions_on(tried=tried)
        try:
            answer = await self._ask(request.group, request, SendOffsetsAnswer)
        except TidelogError as error:
            count(self._meter.commit_refusals, error.code.name)
            text = error.tried + error.happened
            for offset in request.offsets:
                if str(offset.key) in text:
                    raise self._named(error, offset.key) from None
            raise
        self._meter.sent_offsets += len(request.offsets)
        return answer

    def _named(self, error: TidelogError, key: PartitionKey) -> TidelogError:
        """The coordinator knows topics by their ids."""
        name = self._name_of(key.topic_id, key.partition)
        happened = error.happened.replace(str(key), name)
        return reworded(error, tried=error.tried.replace(str(key), name), happened=happened)

    async def fetch(self, request: FetchOffsets) -> FetchOffsetsAnswer:
        """Tell how far it has read."""
        answer = await self._ask(request.group, request, FetchOffsetsAnswer)
        if not request.require_stable:
            return answer
        return FetchOffsetsAnswer(
            offsets=tuple(
                (key, self._named(found, key) if isinstance(found, TidelogError) else found)
                for key, found in answer.offsets
            )
        )

    async def _ask(
        self, group: str, request: AnyRequest, kind: type[AnswerT], caller: Caller = NOBODY
    ) -> AnswerT:
        validate_group_name(group, tried="ask for the coordinator of a group")
        answer = await self._coordinators.of(group).ask(request, caller)
        assert isinstance(answer, kind), f"{type(request).__name__} is answered by {kind.__name__}"
        return answer
