"""The coordinator's promises one by one; scenarios are in `scripts`, storms in the model."""

import pytest

from tests.broker.groups.support.house import LOST, House, key, persistent, topic
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.answers import (
    DeleteGroupAnswer,
    DescribeGroupAnswer,
    ListGroupsAnswer,
    RemoveMembersAnswer,
)
from tidelog.broker.groups.state.messages import (
    AlterOffsets,
    Answer,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    Asked,
    Caller,
    DeleteGroup,
    DescribeGroup,
    GroupSettings,
    ListGroups,
    LoadEnded,
    ReloadNeeded,
    RemoveMembers,
    SettingsChanged,
    Tick,
    TopicsChanged,
)
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
    StoredOffset,
    Subscription,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

DAY_MS = 24 * 60 * 60 * 1000


def beat(member: str = "m1", epoch: int = 0, **fields: object) -> Heartbeat:
    """A heartbeat; a joining one subscribes to topic a."""
    if epoch == 0:
        fields.setdefault("subscription", Subscription(topics=("a",)))
    fields.setdefault("group", "g")
    return Heartbeat(member_id=member, member_epoch=epoch, **fields)  # type: ignore[arg-type]


def commit(
    *offsets: tuple[PartitionKey, int],
    member: str = "",
    epoch: int = -1,
    group: str = "g",
    metadata: str = "",
) -> CommitOffsets:
    """Offsets of a member, or of a reader that is none."""
    return CommitOffsets(
        group=group,
        member_id=member,
        member_epoch=epoch,
        offsets=told(*offsets, text=metadata),
    )


def told(*offsets: tuple[PartitionKey, int], text: str = "") -> tuple[OffsetToCommit, ...]:
    """As requests have them."""
    return tuple(
        OffsetToCommit(
            key=each, committed_offset=Offset(offset), leader_epoch=LeaderEpoch(3), metadata=text
        )
        for each, offset in offsets
    )


def fetched(house: House, group: str = "g") -> dict[PartitionKey, int]:
    """Committed offsets by partition."""
    answer = house.ask(FetchOffsets(group=group), FetchOffsetsAnswer)
    return {
        at: stored.committed_offset
        for at, stored in answer.offsets
        if isinstance(stored, StoredOffset)
    }


def test_nothing_is_answered_before_everything_is_loaded() -> None:
    core = GroupCoordinatorCore()
    request = Asked(request=beat(), request_id=7, now_ms=0, wall_ms=0)
    for message in (
        SettingsChanged(defaults=GroupSettings()),
        LoadEnded(now_ms=0, wall_ms=0),
    ):
        [refused] = core.step(request)
        assert isinstance(refused, Answer)
        assert isinstance(refused.result, TidelogError)
        assert refused.result.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert core.step(message) == []
    core.step(TopicsChanged(topics=(topic("a", 1),), now_ms=0, wall_ms=0))
    [append] = core.step(request)
    assert isinstance(append, AppendRecords)
    [answer] = core.completed(AppendCommitted(token=append.token))
    assert isinstance(answer, Answer)
    assert isinstance(answer.result, HeartbeatAnswer)


def test_a_heartbeat_with_nothing_new_appends_nothing() -> None:
    house = House(topic("a", 4))
    house.is_rebuilt_checked = False
    joined = house.ask(beat(), HeartbeatAnswer)
    appends = house.append_count
    for sequence in range(1, 100):
        answer = house.ask(beat(epoch=1, heartbeat_sequence=sequence), HeartbeatAnswer)
        assert answer.assignment is None
        assert answer.member_epoch == joined.member_epoch
        house.pass_time(3_000)
    assert house.append_count == appends


def test_answers_wait_for_the_append_and_reads_for_the_last_one_of_their_group() -> None:
    house = House(topic("a", 1))
    house.is_auto = False
    committing = house.send(commit((key("a", 0), 5)))
    other = house.send(commit((key("a", 0), 1), group="other"))
    reading = house.send(FetchOffsets(group="g"))
    assert house.answers == {}
    house.commit(1)
    assert list(house.answers) == [committing, reading]
    house.commit(1)
    assert other in house.answers
    assert fetched(house) == {key("a", 0): 5}


def test_a_deleted_group_is_not_seen_as_gone_before_that_is_committed() -> None:
    house = House(topic("a", 1))
    house.ask(commit((key("a", 0), 5)), CommitAnswer)
    house.is_auto = False
    house.send(DeleteGroup(group="g"))
    reading = house.send(FetchOffsets(group="g"))
    listing = house.send(ListGroups())
    assert house.answers == {}
    house.fail_over()
    assert all(isinstance(house.answers[each], TidelogError) for each in (reading, listing))
    assert fetched(house) == {key("a", 0): 5}


def test_a_failed_append_refuses_all_that_waits_and_the_core_is_of_no_more_use() -> None:
    house = House(topic("a", 1))
    house.is_auto = False
    first = house.send(commit((key("a", 0), 5)))
    second = house.send(FetchOffsets(group="g"))
    effects = house.core.completed(AppendFailed(error=LOST))
    assert [each.request_id for each in effects if isinstance(each, Answer)] == [first, second]
    assert isinstance(effects[-1], ReloadNeeded)
    late = Asked(request=beat(), request_id=9, now_ms=house.now_ms, wall_ms=house.wall_ms)
    [refused] = house.core.step(late)
    assert isinstance(refused, Answer)
    assert refused.result is LOST
    assert house.core.tick(Tick(now_ms=10**9, wall_ms=10**9)) == []
    assert house.core.completed(AppendCommitted(token=1)) == []
    assert house.core.describe().is_failed


def test_offsets_survive_a_wall_clock_that_says_less_than_before() -> None:
    house = House(topic("a", 1), settings=GroupSettings(offsets_retention_ms=1_000))
    house.ask(commit((key("a", 0), 5)), CommitAnswer)
    house.wall_ms -= DAY_MS
    house.pass_time(500)
    assert fetched(house) == {key("a", 0): 5}


def test_nothing_expires_by_a_clock_that_is_not_trusted_nor_by_the_stamps_of_one() -> None:
    house = House(topic("a", 1), settings=GroupSettings(offsets_retention_ms=DAY_MS))
    house.may_expire = False
    house.ask(commit((key("a", 0), 5)), CommitAnswer)
    house.pass_time(3 * DAY_MS)
    assert fetched(house) == {key("a", 0): 5}
    house.wall_ms -= 20_000 * DAY_MS
    house.ask(commit((key("a", 0), 6)), CommitAnswer)
    house.wall_ms += 20_000 * DAY_MS
    house.may_expire = True
    house.pass_time(DAY_MS // 2)
    assert fetched(house) == {key("a", 0): 6}, "its stamp says when it was, not 1970"
    house.pass_time(DAY_MS)
    assert fetched(house) == {}


def test_what_a_clock_ahead_has_shown_is_not_held_against_offsets_once_it_is_right() -> None:
    house = House(topic("a", 1), settings=GroupSettings(offsets_retention_ms=DAY_MS))
    house.ask(commit((key("a", 0), 5)), CommitAnswer)
    house.may_expire = False
    house.wall_ms += 100 * DAY_MS
    house.pass_time(DAY_MS // 4)
    house.wall_ms -= 100 * DAY_MS
    house.may_expire = True
    house.pass_time(DAY_MS // 4)
    assert fetched(house) == {key("a", 0): 5}


def test_offsets_of_a_group_at_work_stay_and_those_it_left_behind_expire() -> None:
    settings = GroupSettings(offsets_retention_ms=DAY_MS, session_timeout_ms_max=1 << 40)
    house = House(topic("a", 1), topic("b", 1), settings=settings)
    house.is_rebuilt_checked = False
    house.ask(commit((key("b", 0), 9)), CommitAnswer)
    house.ask(beat(session_timeout_ms=1 << 39), HeartbeatAnswer)
    house.ask(commit((key("a", 0), 5), member="m1", epoch=1), CommitAnswer)
    house.pass_time(2 * DAY_MS)
    assert fetched(house) == {key("a", 0): 5}


def test_offsets_of_a_group_that_never_had_members_expire_each_by_itself() -> None:
    house = House(topic("a", 2), settings=GroupSettings(offsets_retention_ms=DAY_MS))
    house.ask(commit((key("a", 0), 5)), CommitAnswer)
    house.pass_time(DAY_MS // 2)
    house.ask(commit((key("a", 1), 5)), CommitAnswer)
    house.pass_time(DAY_MS * 3 // 4)
    assert fetched(house) == {key("a", 1): 5}
    house.pass_time(DAY_MS)
    assert house.ask(ListGroups(), ListGroupsAnswer).groups == ()


def test_offsets_of_topics_deleted_during_a_failover_are_forgotten() -> None:
    house = House(topic("a", 1), topic("b", 1))
    house.ask(commit((key("a", 0), 5), (key("b", 0), 6)), CommitAnswer)
    del house.topics["b"]
    house.fail_over()
    assert fetched(house) == {key("a", 0): 5}
    assert persistent(house.rebuilt().groups) == persistent(house.core.groups)


def test_partitions_that_came_during_a_failover_are_given_out() -> None:
    house = House(topic("a", 1))
    house.ask(beat(), HeartbeatAnswer)
    house.topics["a"] = topic("a", 3)
    house.fail_over()
    answer = house.ask(beat(epoch=1), HeartbeatAnswer)
    assert answer.assignment is not None
    assert [each.partition_assignment_epoch for each in answer.assignment] == [1, 2, 2]


def test_a_computation_that_a_failover_interrupts_is_done_by_the_next_coordinator() -> None:
    house = House(topic("a", 2))
    house.ask(beat("m1"), HeartbeatAnswer)
    house.ask(beat("m2"), HeartbeatAnswer)
    group = house.core.groups["g"]
    assert group.assignment_epoch < group.epoch
    house.fail_over()
    group = house.core.groups["g"]
    assert group.assignment_epoch == group.epoch


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    house = House(topic("a", 2))
    times = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 8_000}
    house.ask(beat("m1", **times), HeartbeatAnswer)
    house.pass_time(200)
    house.ask(beat("m2"), HeartbeatAnswer)
    for _ in range(7):
        house.send(beat("m1", 1))
        house.pass_time(1_000)
    assert "m1" in house.core.groups["g"].members
    for _ in range(3):
        house.send(beat("m1", 1))
        house.send(beat("m2", house.core.groups["g"].members["m2"].epoch))
        house.pass_time(1_000)
    assert house.refusal(beat("m1", 1)) is ErrorCode.UNKNOWN_MEMBER
    owned = house.core.groups["g"].members["m2"].assigned
    assert list(owned) or house.ask(beat("m2", 2), HeartbeatAnswer).assignment


def test_who_may_not_have_heard_that_it_should_give_up_has_a_whole_session_for_it() -> None:
    house = House(topic("a", 2))
    house.ask(beat("m1", session_timeout_ms=9_000, rebalance_timeout_ms=1_000), HeartbeatAnswer)
    house.pass_time(200)
    house.ask(beat("m2"), HeartbeatAnswer)
    house.ask(beat("m1", 1), HeartbeatAnswer)
    assert house.core.groups["g"].members["m1"].revoke_due_ms == house.now_ms + 9_000


def test_a_member_that_gives_up_in_parts_is_given_more_time_for_none() -> None:
    house = House(topic("a", 3))
    house.ask(beat("m1", rebalance_timeout_ms=5_000), HeartbeatAnswer)
    house.send(RemoveMembers(group="g", member_ids=("nobody",)))
    member = house.core.groups["g"].members["m1"]
    house.pass_time(200)
    house.ask(beat("m2"), HeartbeatAnswer)
    house.pass_time(200)
    house.ask(beat("m3"), HeartbeatAnswer)
    house.ask(beat("m1", 1), HeartbeatAnswer)
    assert len(member.revoking) == 2
    due_ms = member.revoke_due_ms
    house.pass_time(100)
    kept = (*member.assigned, next(iter(member.revoking)))
    house.ask(beat("m1", 1, owned=kept), HeartbeatAnswer)
    assert len(member.revoking) == 1
    assert member.revoke_due_ms == due_ms
    assert member.epoch == 1


def test_a_member_that_claims_what_it_was_not_given_is_fenced() -> None:
    house = House(topic("a", 2))
    house.ask(beat("m1"), HeartbeatAnswer)
    claim = beat("m1", 1, owned=(key("a", 0), key("a", 1), key("b", 0)))
    assert house.refusal(claim) is ErrorCode.FENCED_MEMBER_EPOCH
    assert house.refusal(beat("m1", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert house.refusal(beat("m2", 1)) is ErrorCode.UNKNOWN_MEMBER


def test_a_member_that_joins_again_gets_its_partitions_at_a_new_epoch() -> None:
    house = House(topic("a", 2))
    house.ask(beat("m1"), HeartbeatAnswer)
    house.pass_time(200)
    house.set_topic("a", 3)
    house.ask(beat("m1", 1), HeartbeatAnswer)
    again = house.ask(beat("m1", 0), HeartbeatAnswer)
    assert again.assignment is not None
    assert {each.partition_assignment_epoch for each in again.assignment} == {3}
    stale = house.ask(commit((key("a", 0), 5), member="m1", epoch=2), CommitAnswer)
    assert [each and each.code for each in stale.errors] == [ErrorCode.STALE_ASSIGNMENT]


@pytest.mark.parametrize(
    ("heartbeat", "code"),
    [
        (beat(group=""), ErrorCode.INVALID_ARGUMENT),
        (beat(group="g" * 250), ErrorCode.INVALID_ARGUMENT),
        (beat("m" * 65), ErrorCode.INVALID_ARGUMENT),
        (beat(group_instance_id="i" * 250), ErrorCode.INVALID_ARGUMENT),
        (beat(rack="r" * 250), ErrorCode.INVALID_ARGUMENT),
        (beat(epoch=-3), ErrorCode.INVALID_ARGUMENT),
        (beat(session_timeout_ms=1), ErrorCode.INVALID_ARGUMENT),
        (beat(rebalance_timeout_ms=1 << 40), ErrorCode.INVALID_ARGUMENT),
        (beat(subscription=None), ErrorCode.INVALID_ARGUMENT),
        (beat(subscription=Subscription(topics=("a", "a"))), ErrorCode.INVALID_ARGUMENT),
        (beat(subscription=Subscription(topics=("",))), ErrorCode.INVALID_TOPIC_NAME),
        (beat(subscription=Subscription(topics=("a", "b!"))), ErrorCode.INVALID_TOPIC_NAME),
        (beat(subscription=Subscription(topic_pattern="(")), ErrorCode.INVALID_ARGUMENT),
        (beat(subscription=Subscription(topic_pattern="a" * 1_001)), ErrorCode.INVALID_ARGUMENT),
        (
            beat(subscription=Subscription(topics=tuple(map(str, range(10_001))))),
            ErrorCode.RESOURCE_EXHAUSTED,
        ),
        (
            beat(subscription=Subscription(topics=tuple(f"{at:0200}" for at in range(2_000)))),
            ErrorCode.RESOURCE_EXHAUSTED,
        ),
    ],
)
def test_a_heartbeat_that_is_not_allowed_changes_nothing(
    heartbeat: Heartbeat, code: ErrorCode
) -> None:
    house = House(topic("a", 1))
    assert house.refusal(heartbeat) is code
    assert house.core.groups == {}
    assert house.append_count == 0


def test_limits_of_groups_members_and_offsets_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    monkeypatch.setattr(limits, "MEMBERS_PER_GROUP_MAX", 1)
    monkeypatch.setattr(limits, "OFFSETS_PER_GROUP_MAX", 1)
    house = House(topic("a", 2))
    house.ask(beat("m1"), HeartbeatAnswer)
    answer = house.answers[house.send(beat("m2"))]
    assert isinstance(answer, TidelogError)
    assert "MEMBERS_PER_GROUP_MAX" in str(answer)
    both = commit((key("a", 0), 1), (key("a", 1), 1), group="h")
    errors = house.ask(both, CommitAnswer).errors
    assert [each and each.code for each in errors] == [None, ErrorCode.RESOURCE_EXHAUSTED]
    assert house.refusal(beat("m1", group="i")) is ErrorCode.RESOURCE_EXHAUSTED
    assert house.refusal(commit((key("a", 0), 1), group="i")) is ErrorCode.RESOURCE_EXHAUSTED


def test_a_subscription_that_covers_too_many_partitions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_PER_GROUP_MAX", 3)
    house = House(topic("a", 2), topic("b", 2))
    both = Subscription(topics=("a", "b"))
    assert house.refusal(beat("m1", subscription=both)) is ErrorCode.RESOURCE_EXHAUSTED
    house.ask(beat("m1", subscription=Subscription(topic_pattern="a|c")), HeartbeatAnswer)
    house.pass_time(200)
    house.set_topic("c", 2)
    assert house.ask(beat("m1", 1), HeartbeatAnswer).assignment is None


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (commit((key("a", 0), 1), (key("a", 0), 2)), ErrorCode.INVALID_ARGUMENT),
        (commit((key("a", 0), 1), group=""), ErrorCode.INVALID_ARGUMENT),
        (commit((key("a", 0), 1), member="m1", epoch=1), ErrorCode.UNKNOWN_MEMBER),
        (
            commit(*[(key("a", at), 1) for at in range(10_001)]),
            ErrorCode.RESOURCE_EXHAUSTED,
        ),
        (
            commit(*[(key("a", at), 1) for at in range(1_000)], metadata="x" * 4_000),
            ErrorCode.BATCH_TOO_LARGE,
        ),
    ],
)
def test_a_commit_that_is_not_allowed_stores_nothing(
    request_: CommitOffsets, code: ErrorCode
) -> None:
    house = House(topic("a", 1))
    assert house.refusal(request_) is code
    assert house.core.groups == {}


def test_each_partition_of_a_commit_is_judged_by_itself() -> None:
    house = House(topic("a", 2))
    request = commit((key("a", 0), 1), (key("a", 2), 1), (key("b", 0), 1), (key("a", 1), -1))
    errors = house.ask(request, CommitAnswer).errors
    assert [each and each.code for each in errors] == [
        None,
        ErrorCode.UNKNOWN_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_ARGUMENT,
    ]
    long = house.ask(commit((key("a", 0), 1), metadata="x" * 4_097), CommitAnswer)
    assert [each and each.code for each in long.errors] == [ErrorCode.INVALID_ARGUMENT]


def test_a_commit_at_an_epoch_that_was_never_told_is_fenced() -> None:
    house = House(topic("a", 1))
    house.ask(beat("m1"), HeartbeatAnswer)
    ahead = commit((key("a", 0), 1), member="m1", epoch=2)
    assert house.refusal(ahead) is ErrorCode.FENCED_MEMBER_EPOCH
    fetch = FetchOffsets(group="g", member_id="m1", member_epoch=2)
    assert house.refusal(fetch) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_with_more_offsets_than_one_append_holds_is_deleted_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House(topic("a", 100))
    house.ask(commit(*[(key("a", at), 1) for at in range(100)]), CommitAnswer)
    monkeypatch.setattr(limits, "APPEND_BYTES_MAX", 1_000)
    appends = house.append_count
    house.ask(DeleteGroup(group="g"), DeleteGroupAnswer)
    assert house.append_count > appends + 2
    assert house.core.groups == {}


def test_static_members_are_removed_by_their_instance() -> None:
    house = House(topic("a", 1))
    house.ask(beat("m1", group_instance_id="i"), HeartbeatAnswer)
    request = RemoveMembers(group="g", group_instance_ids=("i", "j"))
    assert house.ask(request, RemoveMembersAnswer).removed_member_ids == ("m1",)
    assert house.ask(RemoveMembers(group="g"), RemoveMembersAnswer).removed_member_ids == ()


def test_only_a_static_member_leaves_for_a_while_and_none_changes_its_instance() -> None:
    house = House(topic("a", 1))
    house.ask(beat("m1"), HeartbeatAnswer)
    assert house.refusal(beat("m1", -2)) is ErrorCode.INVALID_ARGUMENT
    assert house.refusal(beat("m1", 1, group_instance_id="i")) is ErrorCode.INVALID_ARGUMENT
    assert house.ask(beat("m9", -1), HeartbeatAnswer).member_epoch == -1


def test_a_group_with_settings_of_its_own_has_them() -> None:
    house = House(topic("a", 1))
    own = GroupSettings(session_timeout_ms=7_000, heartbeat_interval_ms=5_000)
    house.step(SettingsChanged(defaults=GroupSettings(), by_group={"g": own}))
    answer = house.ask(beat("m1"), HeartbeatAnswer)
    assert (answer.session_timeout_ms, answer.heartbeat_interval_ms) == (7_000, 7_000 // 3)
    assert house.ask(beat("m1", group="h"), HeartbeatAnswer).session_timeout_ms == 45_000


def test_a_description_tells_members_and_partitions() -> None:
    house = House(topic("a", 2))
    house.ask(commit((key("a", 1), 7)), CommitAnswer)
    house.ask(beat("m1"), HeartbeatAnswer, Caller(client_id="c", address="h:1"))
    house.pass_time(500)
    answer = house.ask(DescribeGroup(group="g"), DescribeGroupAnswer)
    [member] = answer.members
    assert (member.client_id, member.address, member.silence_ms) == ("c", "h:1", 500)
    assert [each.member_id for each in answer.partitions] == ["m1", "m1"]
    assert [each.stored and each.stored.committed_offset for each in answer.partitions] == [None, 7]
    assert house.refusal(DescribeGroup(group="x")) is ErrorCode.GROUP_NOT_FOUND
    found = [stored.committed_offset for _, _, stored in house.core.committed_offsets()]
    assert found == [7]
    described = house.core.describe()
    assert (described.groups, described.members, described.offsets) == (1, 1, 1)


def test_offsets_are_set_all_or_none() -> None:
    house = House(topic("a", 2))
    house.send(AlterOffsets(group="g", offsets=told((key("a", 0), 1), (key("a", 5), 1))))
    assert fetched(house) == {}
    house.send(AlterOffsets(group="g", offsets=told((key("a", 0), 1), (key("a", 1), 1))))
    assert len(fetched(house)) == 2
