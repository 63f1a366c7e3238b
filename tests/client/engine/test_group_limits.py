"""What a group member's core refuses or cuts into parts, because a limit says so."""

from tests.client.support.engine_world import MS
from tests.client.support.group_world import GroupScript
from tidelog.client.engine.group.messages import (
    CommitAnswered,
    CommitDone,
    CommitWanted,
    CoordinatorFound,
    GroupEffect,
    GroupPartition,
    LookupWanted,
    OffsetsFound,
    OffsetToCommit,
    SendCommit,
    Tell,
)
from tidelog.client.engine.group.settings import (
    COMMITS_WAITING_MAX,
    LOOKUPS_WAITING_MAX,
    OFFSETS_PER_REQUEST_MAX,
)
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import Offset, TopicId

TOPIC = b"t" * 16


def commit(script: GroupScript, number: int, partitions: int) -> list[GroupEffect]:
    wanted = CommitWanted(
        number=number,
        offsets=tuple(
            OffsetToCommit(
                topic_partition=TopicPartition("t", each),
                topic_id=TopicId(TOPIC),
                committed_offset=Offset(number),
            )
            for each in range(partitions)
        ),
        deadline_ns=script.now_ns + 60_000 * MS,
    )
    return script.core.step(wanted, script.now_ns)


def test_a_commit_too_many_is_refused_at_once() -> None:
    script = GroupScript()
    for number in range(COMMITS_WAITING_MAX):
        commit(script, number, 1)
    [effect] = commit(script, COMMITS_WAITING_MAX, 1)
    assert isinstance(effect, Tell)
    assert isinstance(effect.news, CommitDone)
    [(_, error)] = effect.news.failures
    assert error.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "commit()" in error.hint


def test_commits_that_wait_travel_together() -> None:
    script = GroupScript()
    for number in range(50):
        commit(script, number, 2)
    [effect] = script.core.step(CoordinatorFound(address="b1"), script.now_ns)
    assert isinstance(effect, SendCommit)
    assert [each.committed_offset for each in effect.offsets] == [49, 49]
    done = script.core.step(
        CommitAnswered(number=effect.number, results=(None, None)), script.now_ns
    )
    told = [each.news for each in done if isinstance(each, Tell)]
    assert [news.number for news in told if isinstance(news, CommitDone)] == list(range(50))


def test_a_commit_of_more_partitions_than_a_request_holds_goes_in_parts() -> None:
    script = GroupScript()
    commit(script, 1, OFFSETS_PER_REQUEST_MAX + 5)
    sent: list[int] = []
    effects = script.core.step(CoordinatorFound(address="b1"), script.now_ns)
    while True:
        [effect] = effects
        if isinstance(effect, Tell):
            assert effect.news == CommitDone(number=1)
            break
        assert isinstance(effect, SendCommit)
        sent.append(len(effect.offsets))
        results = (None,) * len(effect.offsets)
        answer = CommitAnswered(number=effect.number, results=results)
        effects = script.core.step(answer, script.now_ns)
    assert sent == [OFFSETS_PER_REQUEST_MAX, 5]


def test_a_lookup_too_many_is_refused_at_once() -> None:
    script = GroupScript()
    asked = (GroupPartition(topic_partition=TopicPartition("t", 0), topic_id=TopicId(TOPIC)),)
    effects: list[GroupEffect] = []
    for number in range(LOOKUPS_WAITING_MAX + 1):
        wanted = LookupWanted(number=number, partitions=asked, deadline_ns=None, is_start=False)
        effects = script.core.step(wanted, script.now_ns)
    [effect] = effects
    assert isinstance(effect, Tell)
    assert isinstance(effect.news, OffsetsFound)
    assert effect.news.error is not None
    assert effect.news.error.code is ErrorCode.RESOURCE_EXHAUSTED
