"""A group that reads under live faults: the parts of its judge, and members that come and go.

`make chaos CASE=rolling-restart` and `CASE=group-scaling` run clusters.
"""

from pathlib import Path

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.chaos.live.cluster.faults.cases import worst
from tidelog.chaos.live.cluster.journal import value_of
from tidelog.chaos.live.groups.journal import Delivered, MemberJournal, Moved, read_member_journal
from tidelog.chaos.live.groups.members import GroupMembers
from tidelog.chaos.live.groups.run import committed_by, report_group
from tidelog.chaos.live.groups.scaling import stall_ms, tell_gaps
from tidelog.chaos.live.groups.seen import Seen, Stint, least_moves, read_members
from tidelog.chaos.live.groups.verdict import check_partition, judge_group
from tidelog.client import ConfigResource, ConfigResourceType, Producer
from tidelog.testing import TestCluster

MS = 1_000_000
PROMISED = {number: f"w0:{number}" for number in range(6)}


def given(at_ms: int, *offsets: int, names: tuple[str, ...] | None = None) -> Delivered:
    """Records of partition 0; the member needs a millisecond for them."""
    return Delivered(
        partition=0,
        returned_ns=at_ms * MS,
        done_ns=(at_ms + 1) * MS,
        offsets=offsets,
        names=names or tuple(f"w0:{offset}" for offset in offsets),
    )


def stint(member: str, from_ms: int, to_ms: float) -> Stint:
    """From and to, in milliseconds."""
    return Stint(member=member, from_ns=from_ms * MS, to_ns=to_ms * MS)


STINTS = (stint("m0", 0, 30), stint("m1", 40, 90))
DELIVERIES = (("m0", given(10, 0, 1)), ("m0", given(20, 2)), ("m1", given(50, 3, 4, 5)))
SOUND = Seen(stints=STINTS, deliveries=DELIVERIES)


def found_in(*deliveries: tuple[str, Delivered], stints: tuple[Stint, ...] = STINTS) -> set[str]:
    """Names of the checks that it fails."""
    seen = Seen(stints=stints, deliveries=deliveries)
    return {each.check for each in check_partition("chaos-0", PROMISED, seen)}


# -- the judge -----------------------------------------------------------------------------------


def test_a_partition_that_moved_once_and_was_read_once_is_sound() -> None:
    assert found_in(*DELIVERIES) == set()


def test_a_record_that_nobody_got_is_lost() -> None:
    assert found_in(DELIVERIES[0], DELIVERIES[2]) == {"lost"}


def test_a_record_that_two_members_got_is_repeated() -> None:
    assert found_in(*DELIVERIES[:2], ("m1", given(50, 2, 3, 4, 5))) == {"repeated"}


def test_a_record_behind_one_that_follows_it_is_reordered() -> None:
    assert found_in(*DELIVERIES[:2], ("m1", given(50, 4, 3, 5))) == {"reordered"}


def test_another_value_than_the_producer_was_told_of_is_misplaced() -> None:
    strange = given(20, 2, names=("w1:7",))
    assert found_in(DELIVERIES[0], ("m0", strange), DELIVERIES[2]) == {"misplaced"}


def test_a_second_owner_is_found_by_what_members_were_told() -> None:
    assert found_in(*DELIVERIES, stints=(stint("m0", 0, 41), STINTS[1])) == {"two_owners"}


def test_a_second_reader_is_found_by_what_members_read() -> None:
    late = Delivered(
        partition=0, returned_ns=20 * MS, done_ns=51 * MS, offsets=(2,), names=("w0:2",)
    )
    assert "two_owners" in found_in(DELIVERIES[0], ("m0", late), DELIVERIES[2])


def test_records_that_come_without_the_partition_are_not_owned() -> None:
    assert found_in(*DELIVERIES, stints=(stint("m0", 0, 20), STINTS[1])) == {"not_owned"}


def test_what_is_committed_has_to_be_what_was_delivered() -> None:
    sound = judge_group("chaos", [PROMISED], [SOUND], {0: 6})
    assert (sound.delivered, sound.lost, sound.repeated, sound.reordered) == (6, 0, 0, 0)
    assert sound.anomalies == ()
    assert sound.are_plants_found
    (anomaly,) = judge_group("chaos", [PROMISED], [SOUND], {0: 5}).anomalies
    assert (anomaly.check, anomaly.detail) == ("committed", "5 where 6 is behind the last delivery")


def test_a_run_in_which_nothing_was_delivered_proves_nothing() -> None:
    nothing = judge_group("chaos", [{}], [Seen(stints=(), deliveries=())], {})
    assert report_group(nothing) == 3


def test_an_anomaly_counts_more_than_a_run_that_proves_nothing() -> None:
    assert [worst(0, 0), worst(3, 0), worst(3, 1), worst(1, 0)] == [0, 3, 1, 1]


# -- gaps and moves ------------------------------------------------------------------------------


def test_a_gap_is_within_one_owner_or_over_a_move(capsys: pytest.CaptureFixture[str]) -> None:
    assert SOUND.moves == 1
    assert (SOUND.gaps().within_ms, SOUND.gaps().over_move_ms) == (10, 30)
    tell_gaps([SOUND], [{0: 2 * MS, 2: 13 * MS, 3: 8 * MS, 5: 45 * MS}], from_ns=0, least=1)
    printed = capsys.readouterr().out
    assert "untouched: 0 partitions" in printed
    assert "moved once: 1 partitions" in printed
    assert "0 m0>m1        10 /   30 /   42" in printed
    assert "moves: 1, the least possible 1" in printed


def test_what_began_before_the_first_change_does_not_count() -> None:
    assert SOUND.gaps(from_ns=11 * MS).within_ms == 0
    assert SOUND.delay_ms({0: 2 * MS, 5: 45 * MS}, from_ns=3 * MS) == 5
    assert stall_ms([1 * MS, 9 * MS, 10 * MS, 12 * MS], from_ns=5 * MS) == 2


def test_a_partition_that_comes_back_to_its_owner_did_not_move() -> None:
    again = (stint("m0", 0, 15), stint("m0", 16, 30))
    assert Seen(stints=again, deliveries=DELIVERIES[:2]).moves == 0


@pytest.mark.parametrize(
    ("owned", "after", "least"),
    [
        ({"m0": 64}, ["m0", *(f"m{n}" for n in range(1, 8))], 56),
        ({f"m{n}": 8 for n in range(8)}, ["m0", "m1", "m2"], 40),
        ({"m0": 3, "m1": 2}, ["m0", "m1"], 0),
        ({"m0": 3, "m1": 2}, ["m1"], 3),
        ({"m0": 4}, ["m1"], 4),
    ],
)
def test_the_least_moves_leave_with_each_member_what_it_may_keep(
    owned: dict[str, int], after: list[str], least: int
) -> None:
    assert least_moves(owned, after, sum(owned.values())) == least


# -- the journal ---------------------------------------------------------------------------------


def test_journals_of_all_members_stand_on_one_axis(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.member" for name in ("m0", "m1")}
    moved = Moved(at_ns=5 * MS, partitions=(0, 1), is_given=True)
    taken = Moved(at_ns=30 * MS, partitions=(0,), is_given=False)
    with MemberJournal(files["m0"]) as journal:
        journal.write([moved, given(10, 0, 1), taken])
    with MemberJournal(files["m1"]) as journal:
        journal.write([Moved(at_ns=40 * MS, partitions=(0,), is_given=True), given(50, 2)])
    assert list(read_member_journal(files["m0"])) == [moved, given(10, 0, 1), taken]
    first, second = read_members(files, partition_count=2)
    assert first.stints == (stint("m0", 5, 30), stint("m1", 40, float("inf")))
    assert [member for member, _ in first.deliveries] == ["m0", "m1"]
    assert second.stints == (stint("m0", 5, float("inf")),)
    assert second.deliveries == ()


# -- real members --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.live
def test_members_that_come_and_go_read_everything_once(tmp_path: Path) -> None:
    told: list[dict[int, str]] = [{} for _ in range(4)]
    with TestCluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        cluster.create_topic("chaos", partitions=4)
        quick = {"group.consumer.heartbeat.interval.ms": "100"}
        cluster.admin().alter_configs([ConfigResource(ConfigResourceType.CLUSTER, "", quick)])
        members = GroupMembers(cluster.bootstrap, "chaos", 4, tmp_path)

        def write(first: int) -> None:
            for number in range(first, first + 40):
                sent = producer.send("chaos", value_of("w0", number), partition=number % 4)
                told[number % 4][sent.get(HANG_SECONDS).offset] = f"w0:{number}"

        try:
            members.start(2)
            members.wait_settled()
            write(0)
            members.wait_delivered(40)
            members.stop(members.names[1:])
            members.wait_settled()
            write(40)
            members.wait_delivered(80)
            seen = read_members(members.end(), 4)
        finally:
            members.kill()
        verdict = judge_group("chaos", told, seen, committed_by(cluster.bootstrap, "chaos"))
    assert verdict.anomalies == ()
    assert verdict.are_plants_found
    assert verdict.delivered == 80
    assert [each.owners[-1] for each in seen] == ["m0"] * 4
    assert sum(each.moves > 0 for each in seen) >= 2
