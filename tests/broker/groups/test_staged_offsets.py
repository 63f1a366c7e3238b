"""Offsets in a transaction: the coordinator's promises one by one. Each named trap is one that
another log fell into; storms are in `test_staged_model`."""

import msgspec
import pytest

from tests.broker.groups.support.house import House, key, persistent, topic
from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.answers import (
    AlterOffsetsAnswer,
    DeleteGroupAnswer,
    DeleteOffsetsAnswer,
    DescribeGroupAnswer,
    EndStagedAnswer,
)
from tidelog.broker.groups.state.messages import (
    AlterOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    EndStaged,
    GroupSettings,
)
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import (
    LEAVING_EPOCH,
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
    SendOffsets,
    SendOffsetsAnswer,
    StoredOffset,
    Subscription,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey, ProducerEpoch, ProducerId

A0, A1 = key("a", 0), key("a", 1)
DAY_MS = 24 * 60 * 60 * 1000


def identity(epoch: int, producer: int = 7) -> Identity:
    return Identity(ProducerId(producer), ProducerEpoch(epoch))


def told(*offsets: tuple[PartitionKey, int], text: str = "") -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(
            key=each, committed_offset=Offset(offset), leader_epoch=LeaderEpoch(3), metadata=text
        )
        for each, offset in offsets
    )


def send(
    *offsets: tuple[PartitionKey, int],
    epoch: int = 0,
    producer: int = 7,
    member: str = "",
    member_epoch: int = -1,
    group: str = "g",
    text: str = "",
) -> SendOffsets:
    return SendOffsets(
        transactional_id=f"t{producer}",
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        group=group,
        member_id=member,
        member_epoch=member_epoch,
        offsets=told(*offsets, text=text),
    )


def commit(*offsets: tuple[PartitionKey, int], group: str = "g") -> CommitOffsets:
    return CommitOffsets(group=group, offsets=told(*offsets))


def end(epoch: int, producer: int = 7, decision: Decision = Decision.COMMIT) -> EndStaged:
    return EndStaged(end=identity(epoch, producer), decision=decision)


def fetched(house: House, *, stable: bool = False) -> dict[PartitionKey, int | ErrorCode | None]:
    answer = house.ask(FetchOffsets(group="g", require_stable=stable), FetchOffsetsAnswer)
    return {
        at: found.code
        if isinstance(found, TidelogError)
        else None
        if found is None
        else found.committed_offset
        for at, found in answer.offsets
    }


def joined(house: House, member: str = "m1") -> HeartbeatAnswer:
    subscription = Subscription(topics=("a",))
    beat = Heartbeat(
        group="g", member_id=member, member_epoch=0, subscription=subscription, owned=()
    )
    return house.ask(beat, HeartbeatAnswer)


@pytest.fixture
def house() -> House:
    return House(topic("a", 4), topic("b", 2))


# -- what a commit and an abort do --------------------------------------------------------------


def test_offsets_of_a_transaction_count_once_it_is_committed(house: House) -> None:
    house.ask(send((A0, 5), (A1, 6)), SendOffsetsAnswer)
    assert fetched(house) == {}
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house, stable=True) == {A0: 5, A1: 6}


def test_offsets_of_an_aborted_transaction_never_count(house: House) -> None:
    house.ask(commit((A0, 3)), CommitAnswer)
    house.ask(send((A0, 5), (A1, 6)), SendOffsetsAnswer)
    house.end(identity(1), Decision.ABORT)
    assert fetched(house, stable=True) == {A0: 3}


def test_a_later_offset_replaces_an_earlier_one_of_the_same_transaction(house: House) -> None:
    house.ask(send((A0, 5), (A1, 6)), SendOffsetsAnswer)
    house.ask(send((A0, 4)), SendOffsetsAnswer)
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house) == {A0: 4, A1: 6}


def test_a_transaction_may_send_offsets_of_several_groups(house: House) -> None:
    for group in ("g", "h"):
        house.ask(send((A0, 5), group=group), SendOffsetsAnswer)
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house) == {A0: 5}
    assert house.core.groups["h"].offsets[A0].committed_offset == 5


def test_only_its_own_transaction_is_ended_by_a_marker(house: House) -> None:
    house.ask(send((A0, 5), producer=7), SendOffsetsAnswer)
    house.ask(send((A1, 6), producer=8), SendOffsetsAnswer)
    house.end(identity(1, 8), Decision.COMMIT)
    assert fetched(house, stable=True) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS, A1: 6}


def test_a_marker_that_comes_again_late_does_not_end_the_next_transaction(house: House) -> None:
    house.ask(send((A0, 5), epoch=0), SendOffsetsAnswer)
    house.end(identity(1), Decision.COMMIT)
    house.ask(send((A0, 9), epoch=1), SendOffsetsAnswer)
    house.ask(end(1), EndStagedAnswer)
    assert fetched(house) == {A0: 5}
    assert fetched(house, stable=True) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_the_next_transaction_waits_until_the_end_of_this_one_is_here(house: House) -> None:
    house.ask(send((A0, 5), epoch=0), SendOffsetsAnswer)
    assert house.refusal(send((A0, 6), epoch=1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.refusal(send((A0, 6), epoch=0, group="")) is ErrorCode.INVALID_ARGUMENT
    house.end(identity(1), Decision.ABORT)
    house.ask(send((A0, 6), epoch=1), SendOffsetsAnswer)


def test_an_identity_has_one_transactional_id(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    other = msgspec.structs.replace(send((A0, 6)), transactional_id="somebody")
    assert house.refusal(other) is ErrorCode.INVALID_ARGUMENT


def test_offsets_that_are_staged_take_their_room_from_plain_commits(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OFFSETS_PER_GROUP_MAX", 2)
    house.ask(commit((A0, 1)), CommitAnswer)
    house.ask(send((A0, 5), (A1, 5)), SendOffsetsAnswer)
    answer = house.ask(commit((key("b", 0), 1), (A1, 1)), CommitAnswer)
    refused, stored = answer.errors
    assert isinstance(refused, TidelogError)
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert stored is None
    house.end(identity(1), Decision.COMMIT)
    assert len(house.core.groups["g"].offsets) == 2


def test_no_offsets_are_no_part_of_a_transaction(house: House) -> None:
    house.ask(send(), SendOffsetsAnswer)
    assert house.append_count == 0


def test_what_the_coordinator_of_the_transaction_refuses_is_not_staged(house: House) -> None:
    house.is_verified = False
    sent = house.send(send((A0, 5)))
    house.verify(TidelogError(ErrorCode.TRANSACTION_ABORTED, tried="add", happened="it timed out"))
    answer = house.answers[sent]
    assert isinstance(answer, TidelogError)
    assert answer.code is ErrorCode.TRANSACTION_ABORTED
    assert house.append_count == 0


def test_the_member_is_checked_again_after_the_transaction_was_verified(house: House) -> None:
    epoch = joined(house).member_epoch
    house.is_verified = False
    sent = house.send(send((A0, 5), member="m1", member_epoch=epoch))
    leave = Heartbeat(group="g", member_id="m1", member_epoch=LEAVING_EPOCH)
    house.ask(leave, HeartbeatAnswer)
    house.verify()
    answer = house.answers[sent]
    assert isinstance(answer, TidelogError)
    assert answer.code is ErrorCode.UNKNOWN_MEMBER
    assert not house.core.groups["g"].staged


# -- the traps ----------------------------------------------------------------------------------


def test_trap_12_a_marker_is_answered_only_when_the_offsets_show(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.is_auto = False
    house.end(identity(1), Decision.COMMIT)
    marker = house.request_id
    again = house.send(end(1))
    assert marker not in house.answers
    assert again not in house.answers, "a marker that comes again waits for the same"
    house.commit(1)
    assert isinstance(house.answers[marker], EndStagedAnswer)
    assert isinstance(house.answers[again], EndStagedAnswer)
    assert fetched(house, stable=True) == {A0: 5}


def test_trap_12_a_coordinator_that_loads_answers_for_no_marker(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.fail_over()
    core = house.load(house.log)
    house.core = core
    assert house.refusal(end(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    house.start()
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house, stable=True) == {A0: 5}


def test_trap_13_what_is_staged_is_known_in_the_step_of_its_record(house: House) -> None:
    """A marker right behind the record finds it, although its append is not answered yet."""
    house.is_auto = False
    sent = house.send(send((A0, 5)))
    house.end(identity(1), Decision.COMMIT)
    assert persistent(house.rebuilt().groups) == persistent(house.core.groups)
    house.is_auto = True
    house.commit(1)
    assert isinstance(house.answers[sent], SendOffsetsAnswer)
    assert fetched(house, stable=True) == {A0: 5}


def test_trap_13_a_record_that_was_refused_leaves_nothing_staged(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.is_verified = False
    late = house.send(send((A0, 9)))
    house.last_epoch[7] = 1  # The marker was written, and the core has not heard of it.
    house.verify()
    answer = house.answers[late]
    assert isinstance(answer, TidelogError)
    assert answer.code is ErrorCode.TRANSACTION_ABORTED
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house, stable=True) == {A0: 5}


def test_trap_14_an_offset_does_not_expire_while_a_transaction_holds_its_partition() -> None:
    settings = GroupSettings(offsets_retention_ms=DAY_MS)
    house = House(topic("a", 2), settings=settings)
    house.ask(commit((A0, 3), (A1, 4)), CommitAnswer)
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.pass_time(3 * DAY_MS)
    assert fetched(house) == {A0: 3}
    house.end(identity(1), Decision.ABORT)
    assert fetched(house) == {A0: 3}
    house.pass_time(DAY_MS)
    assert "g" not in house.core.groups


def test_trap_14_a_group_with_staged_offsets_is_not_forgotten() -> None:
    house = House(topic("a", 2))
    epoch = joined(house).member_epoch
    house.ask(send((A0, 5), member="m1", member_epoch=epoch), SendOffsetsAnswer)
    house.ask(Heartbeat(group="g", member_id="m1", member_epoch=LEAVING_EPOCH), HeartbeatAnswer)
    house.pass_time(limits.EMPTY_GROUP_MS * 3)
    assert house.core.groups["g"].epoch > 0, "its epochs go on"
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house) == {A0: 5}


def test_trap_15_the_place_of_the_marker_counts_beside_plain_commits(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.ask(commit((A0, 8)), CommitAnswer)
    assert fetched(house) == {A0: 8}
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house) == {A0: 5}, "the transaction came to its end behind the plain commit"
    house.ask(commit((A0, 7)), CommitAnswer)
    house.fail_over()
    assert fetched(house) == {A0: 7}


def test_trap_15_a_failover_before_the_fold_keeps_the_order(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.ask(commit((A0, 8)), CommitAnswer)
    house.is_auto = False
    house.end(identity(1), Decision.COMMIT)
    house.is_auto = True
    house.fail_over()  # The marker is in the log, the fold is not.
    assert fetched(house, stable=True) == {A0: 5}


@pytest.mark.parametrize("drops_tombstones", [False, True])
def test_trap_15_a_compacted_log_tells_the_same_order(house: House, drops_tombstones: bool) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.ask(commit((A0, 8)), CommitAnswer)
    house.compact(len(house.log), drops_tombstones=drops_tombstones)
    house.end(identity(1), Decision.COMMIT)
    house.compact(len(house.log), drops_tombstones=drops_tombstones)
    house.fail_over()
    assert fetched(house, stable=True) == {A0: 5}


def test_trap_16_a_reader_that_goes_on_is_told_to_wait_and_for_what(house: House) -> None:
    house.ask(commit((A0, 3), (A1, 4)), CommitAnswer)
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    answer = house.ask(FetchOffsets(group="g", require_stable=True), FetchOffsetsAnswer)
    found = dict(answer.offsets)
    held, free = found[A0], found[A1]
    assert isinstance(held, TidelogError)
    assert held.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert held.retriable
    assert "transaction `t7` of producer 7@0" in held.happened
    assert "is not decided" in held.happened
    assert isinstance(free, StoredOffset)
    assert fetched(house) == {A0: 3, A1: 4}, "whoever only looks is told what is committed"


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        ("m2", 1, ErrorCode.UNKNOWN_MEMBER),
        ("m1", 99, ErrorCode.FENCED_MEMBER_EPOCH),
        ("m1", 0, ErrorCode.STALE_ASSIGNMENT),
        ("", -1, ErrorCode.UNKNOWN_MEMBER),
    ],
)
def test_trap_17_a_stale_member_is_told_so_and_nothing_is_asked_or_staged(
    house: House, member: str, epoch: int, code: ErrorCode
) -> None:
    joined(house)
    house.is_verified = False
    assert house.refusal(send((A0, 5), member=member, member_epoch=epoch)) is code
    assert not house.verifying
    assert not house.core.groups["g"].staged


def test_trap_17_one_partition_that_the_member_lost_refuses_all(house: House) -> None:
    epoch = joined(house).member_epoch
    house.set_topic("c", 1)
    request = send((A0, 5), (key("c", 0), 1), member="m1", member_epoch=epoch)
    assert house.refusal(request) is ErrorCode.STALE_ASSIGNMENT
    assert not house.core.groups["g"].staged


@pytest.mark.parametrize("decision", list(Decision))
def test_trap_20_a_marker_for_nothing_staged_is_a_success(house: House, decision: Decision) -> None:
    house.ask(end(1, decision=decision), EndStagedAnswer)
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.end(identity(1), decision)
    house.ask(end(1, decision=decision), EndStagedAnswer)
    house.fail_over()
    house.ask(end(1, decision=decision), EndStagedAnswer)
    assert fetched(house) == ({A0: 5} if decision is Decision.COMMIT else {})


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("TRANSACTIONS_PER_GROUP_MAX", 1),
        ("TRANSACTIONS_PER_PARTITION_MAX", 1),
        ("STAGED_OFFSETS_PER_PARTITION_MAX", 1),
        ("OFFSETS_PER_GROUP_MAX", 1),
    ],
)
def test_trap_30_transactions_and_their_offsets_have_limits(
    house: House, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr(limits, name, limit)
    house.ask(send((A0, 5), producer=7), SendOffsetsAnswer)
    asked = house.send(send((A1, 5), producer=8))
    answer = house.answers[asked]
    assert isinstance(answer, TidelogError)
    assert answer.code is ErrorCode.RESOURCE_EXHAUSTED
    assert name in answer.happened
    house.end(identity(1), Decision.ABORT)
    house.ask(send((A1, 5), producer=8), SendOffsetsAnswer)


def test_trap_30_parts_and_bytes_of_one_transaction_have_limits(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGED_PARTS_MAX", 2)
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    house.ask(send((A0, 6)), SendOffsetsAnswer)
    assert house.refusal(send((A0, 7))) is ErrorCode.RESOURCE_EXHAUSTED
    monkeypatch.setattr(limits, "STAGED_PARTS_MAX", 9)
    monkeypatch.setattr(limits, "APPEND_BYTES_MAX", 500)
    assert house.refusal(send((A1, 7), text="x" * 200)) is ErrorCode.BATCH_TOO_LARGE
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house) == {A0: 6}


# -- operators ----------------------------------------------------------------------------------


def test_operators_are_told_what_a_partition_or_a_group_waits_for(house: House) -> None:
    house.ask(commit((A0, 3), (A1, 4)), CommitAnswer)
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    deleted = house.ask(DeleteOffsets(group="g", keys=(A0, A1)), DeleteOffsetsAnswer)
    held, free = deleted.errors
    assert isinstance(held, TidelogError)
    assert held.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert "`t7`" in held.happened
    assert free is None
    altered = house.ask(AlterOffsets(group="g", offsets=told((A0, 1))), AlterOffsetsAnswer)
    assert isinstance(altered.results[0], TidelogError)
    assert altered.results[0].code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.refusal(DeleteGroup(group="g")) is ErrorCode.CONCURRENT_TRANSACTIONS
    house.end(identity(1), Decision.COMMIT)
    house.ask(DeleteGroup(group="g"), DeleteGroupAnswer)
    assert not house.core.groups


def test_a_described_group_shows_who_holds_which_partition(house: House) -> None:
    house.ask(send((A0, 5)), SendOffsetsAnswer)
    described = house.ask(DescribeGroup(group="g"), DescribeGroupAnswer)
    (partition,) = described.partitions
    assert partition.stored is None
    assert partition.staged is not None
    assert partition.staged.transactional_id == "t7"
    assert partition.staged.since_ms == house.wall_ms
    assert partition.staged.offset.committed_offset == 5


def test_offsets_of_a_topic_that_was_deleted_meanwhile_are_not_kept(house: House) -> None:
    house.ask(send((A0, 5), (key("b", 0), 1)), SendOffsetsAnswer)
    house.delete_topic("b")
    house.end(identity(1), Decision.COMMIT)
    assert fetched(house) == {A0: 5}


def test_whoever_waits_for_a_verification_hears_of_the_failover(house: House) -> None:
    house.is_verified = False
    sent = house.send(send((A0, 5)))
    house.fail_over()
    answer = house.answers[sent]
    assert isinstance(answer, TidelogError)
    assert answer.code is ErrorCode.NOT_COORDINATOR
