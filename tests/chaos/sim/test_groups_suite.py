"""The suite of groups: a slice of its seeds is clean, and it finds the planted bugs."""

import re
from collections.abc import Callable

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.group import Member
from tidelog.broker.groups.state.messages import AppendRecords
from tidelog.broker.groups.state.records import (
    AnyValue,
    GroupKey,
    GroupValue,
    Key,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    OwnedKey,
    TargetKey,
    encode_record,
)
from tidelog.broker.groups.state.replay import owned_value, target_value
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.chaos.checkers import groups as checker
from tidelog.chaos.checkers.groups import GroupsWatch, committer
from tidelog.chaos.sim import FaultKind
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.groups.cores import run_cores
from tidelog.chaos.sim.groups.node_log import CommittedGroups
from tidelog.chaos.sim.groups.nodes import run_nodes
from tidelog.chaos.sim.groups.plan import KINDS
from tidelog.chaos.sim.groups.suite import GROUPS
from tidelog.chaos.sim.planted.of_groups import PLANTED
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium
from tidelog.chaos.sim.runner import Totals
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.wire.batch import encode_batch
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

PLANTED_MIN = 8
AT = PartitionKey(TopicId(b"a" * 16), PartitionId(0))
WORDS = MemberValue(
    group_instance_id="",
    rack="",
    client_id="",
    address="",
    session_timeout_ms=1,
    rebalance_timeout_ms=1,
    topics=("a",),
    topic_pattern="",
    assignor=0,
)


class TestGroupsSuite(SuiteContract):
    """The contract of every suite."""

    suite = GROUPS
    planted = PLANTED

    @pytest.mark.slow
    def test_seeds_move_partitions_and_lose_coordinators(self, totals: Totals) -> None:
        assert sum(result.figures["moves"] for result in totals.results) > 0
        assert sum(result.figures["failovers"] for result in totals.results) > len(totals.results)


@pytest.mark.slow
@pytest.mark.parametrize("run", [run_cores, run_nodes])
def test_one_seed_gives_one_history(run: Callable[[int, Watch | None], RunResult]) -> None:
    first = run(3, None)
    assert first.events > 0
    assert run(3, None) == first


@pytest.mark.slow
def test_both_modes_have_figures_of_the_same_names() -> None:
    assert sorted(run_cores(0, None).figures) == sorted(run_nodes(0, None).figures)


@pytest.mark.slow
def test_every_kind_of_fault_is_drawn_and_felt_by_some_seed() -> None:
    felt: dict[str, int] = {}
    for seed in range(60):
        for kind, times in run_cores(seed, None).felt.items():
            felt[kind] = felt.get(kind, 0) + times
        if all(felt.get(kind.value) for kind in KINDS):
            return
    assert all(felt.get(kind.value) for kind in KINDS), felt


def test_every_plant_expects_what_the_watch_checks() -> None:
    known = re.findall(r"^    ([a-z_]+)  ", checker.__doc__ or "", re.MULTILINE)
    assert len(PLANTED) >= PLANTED_MIN
    assert "commit_what_was_returned" in PLANTED
    for name, plant in PLANTED.items():
        assert plant.expected <= {*known, "not_alive"}, f"{name} expects what nobody checks"


def test_the_faults_of_a_plan_are_known_kinds() -> None:
    assert all(isinstance(kind, FaultKind) for kind in KINDS)


def owned(
    *, epoch: int, assigned: dict[PartitionKey, int], revoking: dict[PartitionKey, int]
) -> AnyValue:
    member = Member(member_id="", words=WORDS)
    return owned_value(
        member,
        assigned=assigned,
        revoking=revoking,
        epoch=epoch,
        previous_epoch=epoch,
        sequence=0,
    )


def has(member: str, epoch: int, since: int | None = None) -> tuple[Key, AnyValue]:
    """A record: the member owns the partition."""
    assigned = {AT: epoch if since is None else since}
    return OwnedKey("g", member), owned(epoch=epoch, assigned=assigned, revoking={})


def gave(member: str, epoch: int) -> tuple[Key, AnyValue]:
    """A record: the member owns nothing."""
    return OwnedKey("g", member), owned(epoch=epoch, assigned={}, revoking={})


def offset(number: int, by: str) -> tuple[Key, AnyValue]:
    """A record: a committed offset."""
    return OffsetKey("g", AT.topic_id, AT.partition), OffsetValue(
        committed_offset=Offset(number),
        leader_epoch=LeaderEpoch(-1),
        metadata=by,
        commit_time_ms=0,
    )


def epochs(group: int) -> tuple[Key, AnyValue]:
    """A record: a group's epochs."""
    return GroupKey("g"), GroupValue(
        group_type=1,
        group_epoch=group,
        assignment_epoch=group,
        assignor=1,
        topics_digest=b"",
        empty_since_ms=-1,
    )


def watched(*appends: list[tuple[Key, AnyValue]]) -> GroupsWatch:
    """A watch that has seen the appends."""
    watch = GroupsWatch(Trace())
    for token, records in enumerate(appends, start=1):
        encoded = tuple(encode_record(key, value) for key, value in records)
        watch.on_committed(AppendRecords(token=token, records=encoded))
    return watch


KEEPS: list[tuple[Key, AnyValue]] = [(TargetKey("g", "m1"), target_value([AT]))]
M1 = committer("m1", 1)


@pytest.mark.parametrize(
    ("kind", "appends"),
    [
        ("", [[has("m1", 1), *KEEPS], [offset(5, M1)], [offset(4, M1)]]),
        ("", [[has("m1", 1)], [gave("m1", 2)], [has("m2", 2)], [offset(5, committer("m2", 2))]]),
        ("two_owners", [[has("m1", 1)], [has("m2", 2)]]),
        ("reused_epoch", [[has("m1", 1)], [gave("m1", 2)], [has("m2", 2, since=1)]]),
        ("epoch_fell", [[epochs(2)], [epochs(1)]]),
        ("epoch_fell", [[has("m1", 2)], [has("m1", 1)]]),
        ("stopped_untouched", [[has("m1", 1), *KEEPS], [gave("m1", 2)]]),
        ("stale_commit", [[offset(5, M1)]]),
        ("stale_commit", [[has("m1", 1)], [gave("m1", 2)], [has("m1", 3)], [offset(5, M1)]]),
        (
            "fallen_offset",
            [
                [has("m1", 1)],
                [offset(5, M1)],
                [gave("m1", 2)],
                [has("m2", 2)],
                [offset(4, committer("m2", 2))],
            ],
        ),
    ],
)
def test_the_watch_names_what_is_wrong_with_a_log(
    kind: str, appends: list[list[tuple[Key, AnyValue]]]
) -> None:
    found = [each.partition(":")[0] for each in watched(*appends).violations]
    assert found == ([kind] if kind else [])


def test_the_watch_names_what_is_wrong_with_answers() -> None:
    watch = watched([(MemberKey("g", "m1"), WORDS), has("m1", 1)], [offset(5, M1)])
    watch.on_assignment("g", "m1", {AT: 1})
    watch.on_commit_acknowledged("g", AT, 5, M1)
    watch.on_fetched("g", AT, 5, 0)
    watch.on_reading("g", "m1", [AT])
    assert watch.violations == []
    watch.on_assignment("g", "m1", {AT: 2})
    watch.on_commit_acknowledged("g", AT, 6, M1)
    watch.on_fetched("g", AT, 7, 0)
    watch.on_reading("g", "m2", [AT])
    found = [each.partition(":")[0] for each in watch.violations]
    assert found == ["not_committed", "not_committed", "wrong_fetch", "read_twice"]


def test_who_was_evicted_may_begin_to_read_until_it_hears_of_that_and_hides_nobody() -> None:
    """An answer from before it was evicted may reach it behind the next owner's."""
    watch = watched()
    watch.excuse("m1")
    watch.on_reading("g", "m2", [AT])
    watch.on_reading("g", "m1", [AT])
    assert watch.violations == []
    watch.on_stopped("g", "m1", [AT])
    watch.excuse_no_more("m1")
    watch.on_reading("g", "m3", [AT])
    assert watch.violations == [f"read_twice: {AT} in g: m2 and m3"]


def test_who_was_evicted_may_read_until_it_hears_of_that() -> None:
    watch = watched()
    watch.on_reading("g", "m1", [AT])
    watch.excuse("m1")
    watch.on_reading("g", "m2", [AT])
    assert watch.violations == []
    watch.on_stopped("g", "m2", [AT])
    watch.on_reading("g", "m1", [AT])
    watch.excuse_no_more("m1")
    watch.on_reading("g", "m2", [AT])
    assert len(watch.violations) == 1


class GroupsReplica:
    """A copy of a partition of `__groups` on a disk of its own."""

    def __init__(self, name: str) -> None:
        self.medium = Medium(name)
        self.place = Directory()
        self.medium.root.seen[directory_name(AT)] = self.place
        self.log = PartitionLog(AT, LeaderEpoch(1))
        self.begin_segment(generation=0)

    def begin_segment(self, *, generation: int) -> None:
        """Whatever there is goes: as a compaction puts a segment in the place of others."""
        segment = Segment(SegmentKey(AT, Offset(0), generation))
        self.file = self.place.seen[segment.key.path.rpartition("/")[2]] = Inode()
        self.log.segments = [segment]

    def append(self, base_offset: int, *records: tuple[Key, AnyValue | None]) -> None:
        """A batch, committed at once."""
        encoded = [encode_record(key, value) for key, value in records]
        batch = encode_batch(
            [(0, each.key, each.value, ()) for each in encoded], base_offset=base_offset
        )
        end = Offset(base_offset + len(records))
        self.file.write(batch)
        self.log.segments[0].add(base_offset, end, len(batch), 0)
        self.log.log_end_offset = self.log.high_watermark = end


def test_a_log_that_is_compacted_behind_the_watch_has_been_read_before() -> None:
    """Of an owner's records the last one stays, so that it owns nothing when its offset comes."""
    watch = watched()
    reader = CommittedGroups(watch, lambda: 7)
    leader, next_leader = GroupsReplica("n1:data"), GroupsReplica("n2:data")
    leader.append(0, has("m1", 1))
    reader.see(leader.log, leader.medium)
    leader.append(1, offset(5, M1))
    leader.append(2, gave("m1", 2))
    reader.see(leader.log, leader.medium)
    next_leader.begin_segment(generation=1)
    next_leader.append(1, offset(5, M1))
    next_leader.append(2, gave("m1", 2))
    next_leader.append(3, has("m2", 3))
    reader.see(next_leader.log, next_leader.medium)
    assert watch.violations == []
    assert (watch.commits, watch.reassignments, reader.batches) == (1, 1, 4)
    assert reader.partitions() == [AT]
    late = CommittedGroups(watched(), lambda: 7)
    late.see(next_leader.log, next_leader.medium)
    assert late.watch.violations[0] == f"unread: {AT} goes on at 1, not 0"


def test_what_is_not_committed_is_not_read() -> None:
    reader = CommittedGroups(watched(), lambda: 7)
    leader = GroupsReplica("n1:data")
    leader.append(0, has("m1", 1))
    leader.append(1, has("m2", 2))
    leader.log.high_watermark = Offset(1)
    reader.see(leader.log, leader.medium)
    assert (reader.batches, reader.watch.violations) == (1, [])
    leader.log.high_watermark = Offset(2)
    reader.see(leader.log, leader.medium)
    assert reader.batches == 2
    assert reader.watch.violations[0].startswith("two_owners")


def test_a_load_that_lacks_an_offset_is_not_what_was_committed() -> None:
    watch = watched([has("m1", 1)], [offset(5, M1)])
    core = GroupCoordinatorCore()
    for each in ((MemberKey("g", "m1"), WORDS), epochs(1), has("m1", 1)):
        record = encode_record(*each)
        core.apply(record.key, record.value)
    watch.on_loaded(core)
    assert [each.partition(":")[0] for each in watch.violations] == ["rebuilt_differs"]
