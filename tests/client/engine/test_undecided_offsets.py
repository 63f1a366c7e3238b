"""A member that begins while a transaction holds where: it waits, and says for what it waits.

Trap 16 (KIP-447, redpanda 6423): to go on from the offset before would process records twice, and
to wait for ever without a word would look like a consumer that has nothing to read.
"""

import msgspec
import pytest

from tidelog.client import TopicPartition
from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.messages import (
    CommittedOffset,
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
    GroupPartition,
    LookupAnswered,
    LookupWanted,
    Note,
    OffsetsFound,
    SendLookup,
    Tell,
)
from tidelog.client.engine.group.settings import GroupSettings
from tidelog.client.errors import PeerError
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import Offset, TopicId

T_0, T_1 = (
    GroupPartition(topic_partition=TopicPartition("t", number), topic_id=TopicId(b"t" * 16))
    for number in (0, 1)
)
HELD = PeerError(
    ErrorCode.CONCURRENT_TRANSACTIONS,
    tried="read the offsets of group `g`",
    happened="t-0 has an offset that is not decided: transaction `pay` of producer 7@3 has sent it",
    hint="`tidelog txn describe pay` shows it.",
    retriable=True,
    retry_after_ms=0,
)
SETTINGS = GroupSettings(group="g", member_id="m", default_api_timeout_ms=1_000)


class Reader:
    """A reader's core, and a coordinator at which a transaction holds partition 0."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.core = GroupCore(settings, Backoff(initial_ms=100, max_ms=100))
        self.now_ms = 0
        self.is_held = True
        self.asked = 0
        self.told: list[OffsetsFound] = []
        self.lines: list[str] = []

    def look_up(self, number: int, *, deadline_ms: int | None) -> None:
        wanted = LookupWanted(
            number=number,
            partitions=(T_0, T_1),
            deadline_ns=None if deadline_ms is None else deadline_ms * NS_PER_MS,
            is_start=deadline_ms is None,
        )
        self._perform(self.core.step(wanted, self.now_ms * NS_PER_MS))

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.now_ms += 50
            self._perform(self.core.tick(self.now_ms * NS_PER_MS))

    def _perform(self, effects: list[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case FindCoordinator():
                    found = CoordinatorFound(address="b1:1")
                    self._perform(self.core.step(found, self.now_ms * NS_PER_MS))
                case SendLookup():
                    self._perform(self.core.step(self._answer(effect), self.now_ms * NS_PER_MS))
                case Tell(news=OffsetsFound() as news):
                    self.told.append(news)
                case Note():
                    self.lines.append(effect.text)
                case _:
                    pass

    def _answer(self, effect: SendLookup) -> LookupAnswered:
        assert effect.require_stable, "a consumer asks for stable offsets, whatever it asks for"
        self.asked += 1
        return LookupAnswered(
            number=effect.number,
            offsets=tuple(
                CommittedOffset(
                    topic_partition=each.topic_partition,
                    topic_id=each.topic_id,
                    committed_offset=Offset(5),
                    error=HELD if self.is_held and each == T_0 else None,
                )
                for each in effect.partitions
            ),
        )


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_a_member_waits_for_the_transaction_and_reads_the_rest_meanwhile(reader: Reader) -> None:
    reader.look_up(1, deadline_ms=None)
    reader.pass_time(500)
    (first,) = reader.told
    assert [each.topic_partition.partition for each in first.offsets] == [1]
    assert not first.is_last
    assert 3 <= reader.asked <= 7, "it asks again with a pause in between"
    reader.is_held = False
    reader.pass_time(200)
    (_, last) = reader.told
    assert [each.topic_partition.partition for each in last.offsets] == [0]
    assert last.is_last
    assert last.offsets[0].error is None


def test_a_member_does_not_wait_for_ever_and_names_the_transaction(reader: Reader) -> None:
    reader.look_up(1, deadline_ms=None)
    reader.pass_time(1_300)
    (_, last) = reader.told
    assert last.is_last
    error = last.offsets[0].error
    assert error is not None
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    assert "transaction `pay` of producer 7@3" in error.happened
    assert "poll() again" in error.hint
    asked = reader.asked
    reader.pass_time(500)
    assert reader.asked == asked, "nobody waits any more"
    reader.is_held = False
    reader.look_up(2, deadline_ms=None)
    reader.pass_time(100)
    assert reader.told[-1].offsets[0].error is None, "and the next poll begins anew"


def test_the_log_is_told_for_which_transaction_a_member_waits() -> None:
    reader = Reader(msgspec.structs.replace(SETTINGS, default_api_timeout_ms=60_000))
    reader.look_up(1, deadline_ms=None)
    reader.pass_time(4_500)
    assert reader.lines == []
    reader.pass_time(1_500)
    (line,) = reader.lines
    assert line.startswith("waiting: t-0 is not begun by group 'g' for 5 s: t-0 has an offset")
    assert "transaction `pay` of producer 7@3" in line


def test_committed_ends_at_its_own_deadline_and_names_the_transaction(reader: Reader) -> None:
    reader.look_up(1, deadline_ms=400)
    reader.pass_time(500)
    error = reader.told[-1].error
    assert error is not None
    assert "transaction `pay` of producer 7@3" in error.happened
