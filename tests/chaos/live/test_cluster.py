"""A replicated cluster under real faults: the parts of the harness, and one bounded slice of it.

`make chaos CASE=broker-kill` and the other cases run more.
"""

import itertools
from pathlib import Path

import pytest

from tidelog.chaos.checkers import Anomaly, check_clients
from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.faults.cases import exit_code, run_cluster_case
from tidelog.chaos.live.cluster.faults.damage import Hit, named_byte
from tidelog.chaos.live.cluster.faults.full_disk import Looked
from tidelog.chaos.live.cluster.gaps import acknowledged_at, longest_gap_ms
from tidelog.chaos.live.cluster.journal import Entry, Journal, name_of, read_journal, value_of
from tidelog.chaos.live.cluster.pace import run_length
from tidelog.chaos.live.cluster.paths import BACK, CLIENTS, TO, silence
from tidelog.chaos.live.cluster.rounds import Budget, RoundDone
from tidelog.chaos.live.cluster.run import RunDone, Unavailable, figures_of, stages_of
from tidelog.chaos.live.cluster.seats import Seat
from tidelog.chaos.live.cluster.verdict import (
    LiveVerdict,
    history_of,
    is_double_found,
    is_loss_found,
    judge,
    records_in,
    together,
)
from tidelog.chaos.live.processes.planted import SUITE
from tidelog.chaos.live.processes.server import Place, Reach, server_command, settings_text
from tidelog.chaos.live.shared.case import Orders
from tidelog.chaos.sim.planted import load_planted

MS = 1_000_000
KEY = "chaos-0"


def entry(number: int, offset: int, outcome: Outcome = Outcome.ACKNOWLEDGED) -> Entry:
    """A record of partition 0, one millisecond behind the one before."""
    return Entry(
        partition=0,
        number=number,
        began_ns=number * MS,
        ended_ns=number * MS + MS // 2,
        offset=offset,
        outcome=outcome,
    )


ENTRIES = [("w0", entry(number, number)) for number in range(4)]
RECORDS = [(number, f"w0:{number}") for number in range(4)]


def verdict(*anomalies: Anomaly, is_loss_seen: bool = True) -> LiveVerdict:
    """Of a run."""
    return LiveVerdict(
        acknowledged=4,
        indeterminate=0,
        refused=0,
        records_read=4,
        partitions=1,
        anomalies=anomalies,
        is_planted_loss_found=is_loss_seen,
        is_planted_double_found=True,
    )


def round_done(
    felt: str | None = "moved",
    *,
    is_stuck: bool = False,
    healthy: int = 9,
    moved_ns: int | None = None,
) -> RoundDone:
    """One round."""
    return RoundDone(
        victim=1,
        words="kill -9",
        was_controller=False,
        controller_ns=None,
        moved_ns=moved_ns,
        led=(0,),
        healthy_acknowledged=healthy,
        began_ns=0,
        struck_ns=1,
        returned_ns=None if is_stuck else 2,
        healed_ns=3,
        whole_ns=4,
        felt=felt,
        is_stuck=is_stuck,
    )


def run_done(found: LiveVerdict, *rounds: RoundDone) -> RunDone:
    """A run."""
    return RunDone(
        rounds=rounds,
        unavailable=Unavailable(led_ms=(1.0,), all_ms=(1.0,)),
        verdict=found,
    )


# -- what is written down ------------------------------------------------------------------------


def test_a_journal_tells_what_became_of_each_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w0.journal", partition_count=2)
    journal.begin(0, 7)
    journal.begin(1, 8)
    journal.begin(1, 9)
    journal.end(1, 8, Outcome.ACKNOWLEDGED, 41)
    journal.end(0, 7, Outcome.FAILED)
    assert (journal.progress().acknowledged, journal.progress().unanswered) == (1, 1)
    journal.close()
    found = [(e.partition, e.number, e.offset, e.outcome) for e in _read(tmp_path)]
    assert found == [
        (1, 8, 41, Outcome.ACKNOWLEDGED),
        (0, 7, -1, Outcome.FAILED),
        (1, 9, -1, Outcome.INDETERMINATE),
    ]


def _read(directory: Path) -> list[Entry]:
    return list(read_journal(directory / "w0.journal"))


def test_progress_is_that_of_the_partition_that_is_furthest_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w0.journal", partition_count=2)
    for partition in (0, 1):
        journal.begin(partition, partition)
    journal.end(0, 0, Outcome.ACKNOWLEDGED, 0)
    assert journal.progress().oldest_ns == 0
    journal.end(1, 1, Outcome.ACKNOWLEDGED, 0)
    journal.close()
    assert journal.progress().oldest_ns == min(each.began_ns for each in _read(tmp_path))


def test_a_value_names_its_send_and_all_are_as_long() -> None:
    values = [value_of("w3", number) for number in (0, 123_456)]
    assert [len(value) for value in values] == [100, 100]
    assert [name_of(value) for value in values] == ["w3:0", "w3:123456"]


# -- how long partitions stood still -------------------------------------------------------------


def test_the_longest_gap_reaches_from_before_the_span_to_behind_it() -> None:
    ends = [number * MS for number in (10, 20, 1_500, 1_510, 5_000)]
    assert longest_gap_ms(ends, 30 * MS, 1_400 * MS) == 1_480
    assert longest_gap_ms(ends, 1_500 * MS, 1_505 * MS) == 1_480
    assert longest_gap_ms(ends, 1_511 * MS, 1_600 * MS) == 3_490


def test_a_partition_that_never_came_back_stood_still_for_the_whole_span() -> None:
    assert longest_gap_ms([10 * MS], 20 * MS, 900 * MS) == 890
    assert longest_gap_ms([], 20 * MS, 900 * MS) == 880


def test_only_acknowledgements_end_a_gap() -> None:
    entries = [entry(5, 0), entry(9, -1, Outcome.INDETERMINATE), entry(1, 1)]
    assert acknowledged_at(entries, 2) == [[1 * MS + MS // 2, 5 * MS + MS // 2], []]


def test_figures_are_values_that_were_measured() -> None:
    assert figures_of([3.0, 1.0, 2.0]) == "p50 2 ms, p99 3 ms, max 3 ms"
    assert figures_of([]) == "nothing"


def test_the_stages_of_a_takeover_count_from_the_strike() -> None:
    rounds = [round_done(moved_ns=1 + 700 * MS), round_done(moved_ns=1 + 900 * MS)]
    assert "led by others p50 700 ms, max 900 ms (of 2)" in stages_of(rounds)
    assert "controller" not in stages_of(rounds)
    assert stages_of([round_done(is_stuck=True)]) == "nothing"


def test_a_partition_is_given_what_is_due_in_a_turn_at_once() -> None:
    assert run_length(2_500, 64) == 8
    assert run_length(1, 64) == 1


# -- what a broker says of its own trouble -------------------------------------------------------


def test_damage_is_named_by_its_file_and_a_byte_that_is_not_behind_it() -> None:
    hit = Hit(Path("data/ab-3/0.log"), 700)
    said = "replica_damaged partition=ab-3 error=recover ab-3/0.log: damage at byte {}: checksum"
    assert named_byte(f"started\n{said.format(640)}\n", hit) == 640
    assert named_byte(said.format(701), hit) is None
    assert named_byte(said.format(640).replace("ab-3/", "ab-4/"), hit) is None


@pytest.mark.parametrize(
    ("read", "refused", "is_right"),
    [(3, "STORAGE_FULL", True), (3, "", True), (2, "STORAGE_FULL", False), (3, "stored", False)],
)
def test_a_full_broker_is_read_and_refuses_by_name(
    read: int, refused: str, *, is_right: bool
) -> None:
    assert Looked(led=3, read=read, refused=refused).is_right is is_right


def test_a_planted_bug_is_a_program_around_the_node() -> None:
    name = "acknowledge_before_the_commit"
    assert name in load_planted(SUITE)
    plain, planted = (server_command(Path("n.toml"), bug)[1:] for bug in ("", name))
    assert plain == ["-m", "tidelog", "server", "--config", "n.toml"]
    assert planted == ["-m", "tidelog.chaos.live.processes.planted", name, *plain[2:]]


# -- the verdict ---------------------------------------------------------------------------------


def found_in(records: list[tuple[int, str]]) -> set[str]:
    """Names of the checks that a reading fails."""
    return {each.check for each in check_clients(history_of(KEY, ENTRIES, records))}


def test_a_whole_reading_is_sound() -> None:
    assert found_in(RECORDS) == set()


def test_an_acknowledged_record_that_is_not_read_is_a_loss() -> None:
    assert {"lost_write", "unseen"} <= found_in(RECORDS[:1] + RECORDS[2:])
    assert "unseen" in found_in(RECORDS[:3])


def test_a_record_that_is_read_twice_or_in_another_order_is_an_anomaly() -> None:
    assert "duplicate" in found_in([*RECORDS, (4, "w0:1")])
    swapped = [(0, "w0:1"), (1, "w0:0"), *RECORDS[2:]]
    assert {"reordered", "misplaced"} <= found_in(swapped)


def test_a_record_that_nobody_sent_is_an_anomaly() -> None:
    assert "from_nowhere" in found_in([*RECORDS, (4, "w9:1")])


def test_a_loss_and_a_double_put_into_a_sound_reading_are_found() -> None:
    history = history_of(KEY, ENTRIES, RECORDS)
    assert is_loss_found(history)
    assert is_double_found(history)
    assert not is_loss_found(history_of(KEY, [], RECORDS))


def test_journals_and_readings_are_compared_partition_by_partition(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w0.journal", partition_count=2)
    offsets = itertools.count()
    for number in range(6):
        journal.begin(number % 2, number)
        journal.end(number % 2, number, Outcome.ACKNOWLEDGED, next(offsets) // 2)
    journal.close()
    read = {p: [(n, f"w0:{2 * n + p}") for n in range(3)] for p in (0, 1)}
    journals = {"w0": tmp_path / "w0.journal"}
    sound = judge(journals, read, topic="chaos", partitions=range(2))
    assert (sound.acknowledged, sound.records_read, sound.anomalies) == (6, 6, ())
    assert sound.is_planted_loss_found
    assert sound.is_planted_double_found
    del read[1][1]
    lossy = judge(journals, read, topic="chaos", partitions=range(2))
    shares = [
        judge(journals, {each: read[each]}, topic="chaos", partitions=range(each, each + 1))
        for each in (0, 1)
    ]
    assert together(shares) == lossy
    assert {each.partition for each in lossy.anomalies} == {"chaos-1"}
    assert "lost_write" in {each.check for each in lossy.anomalies}


def test_a_reader_of_a_share_leaves_other_partitions_alone(tmp_path: Path) -> None:
    file = tmp_path / "read.jsonl"
    file.write_text('[0, 0, "w0:0 "]\n[12, 0, "w0:1 "]\n[2, 7, "w1:9"]\n', encoding="utf-8")
    assert records_in(file, range(0, 64, 2)) == {
        0: [(0, "w0:0")],
        12: [(0, "w0:1")],
        2: [(7, "w1:9")],
    }
    assert records_in(file, range(1, 64, 2)) == {}


# -- the gate ------------------------------------------------------------------------------------


def test_a_sound_run_that_was_felt_ends_with_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(run_done(verdict(), round_done())) == 0
    assert "once, in order" in capsys.readouterr().out


def test_an_anomaly_fails_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    lost = Anomaly("unseen", KEY, "w0:1, acknowledged at 1, is not in the final drain")
    assert exit_code(run_done(verdict(lost), round_done())) == 1
    printed = capsys.readouterr().out
    assert "ANOMALY unseen in chaos-0: w0:1" in printed
    assert "1 anomalies, at most five of a kind in a partition: 1 unseen" in printed


def test_what_stands_still_until_the_heal_fails_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(run_done(verdict(), round_done(), round_done(is_stuck=True))) == 1
    assert "STUCK: in round 2" in capsys.readouterr().out


@pytest.mark.parametrize("each", [round_done(None), round_done(healthy=0)])
def test_a_fault_that_nobody_felt_or_a_cluster_at_rest_makes_a_run_invalid(
    each: RoundDone, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(run_done(verdict(), round_done(), each)) == 3
    assert "INVALID" in capsys.readouterr().out


def test_blind_checkers_make_a_run_invalid() -> None:
    assert exit_code(run_done(verdict(is_loss_seen=False), round_done())) == 3


def test_a_budget_is_a_number_of_rounds_or_a_time_in_which_they_begin() -> None:
    assert Budget(rounds=2).allows(1, began=0.0)
    assert not Budget(rounds=2).allows(2, began=0.0)
    long_ago = -1e9
    assert Budget(rounds=2, seconds=5.0).allows(0, began=long_ago)
    assert not Budget(rounds=2, seconds=5.0).allows(1, began=long_ago)


def test_a_seat_is_whole_with_a_leader_and_every_replica_in_sync() -> None:
    whole = Seat(leader=1, leader_epoch=3, replicas=(1, 2, 3), in_sync=(2, 1, 3))
    assert whole.is_whole
    assert not Seat(leader=-1, leader_epoch=3, replicas=(1,), in_sync=(1,)).is_whole
    assert not Seat(leader=1, leader_epoch=3, replicas=(1, 2), in_sync=(1,)).is_whole


# -- the paths -----------------------------------------------------------------------------------


def test_silence_drops_what_one_says_on_the_connections_of_both() -> None:
    found = {(each.path, each.direction) for each in silence(1, 2)}
    assert found == {((1, 2), TO), ((2, 1), BACK)}


def test_nobody_opens_connections_to_clients() -> None:
    assert {(t.path, t.direction) for t in silence(CLIENTS, 2)} == {((CLIENTS, 2), TO)}
    assert {(t.path, t.direction) for t in silence(2, CLIENTS)} == {((CLIENTS, 2), BACK)}


def test_a_node_is_told_to_reach_its_peers_through_proxies_and_what_clients_are_told() -> None:
    place = Place(node_id=2, client_address="127.0.0.1:1", cluster_address="127.0.0.1:2")
    reach = Reach(
        advertised_client="127.0.0.1:11",
        bootstrap_servers=("127.0.0.1:21",),
        peer_addresses={1: "127.0.0.1:21", 3: "127.0.0.1:23"},
    )
    lines = settings_text(place, Path("data"), ("broker",), reach).splitlines()
    peers = lines.index("[peer_addresses]")
    assert lines[peers + 1 : peers + 3] == ['1 = "127.0.0.1:21"', '3 = "127.0.0.1:23"']
    assert 'advertised = "127.0.0.1:11"' in lines
    assert 'bind = "127.0.0.1:1"' in lines


# -- real nodes ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.usefixtures("toxiproxy_address")
def test_a_killed_broker_of_three_loses_nothing_that_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders(directory=tmp_path, rounds=1, seed=7, rate=1_000)
    code = run_cluster_case("broker-kill", orders, partitions=6, healthy_seconds=0.5)
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "every acknowledged record is there, once, in order" in printed


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.usefixtures("toxiproxy_address")
def test_brokers_that_acknowledge_too_early_fail_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader that is cut off from its followers, not from its clients, goes on saying yes: what
    it says until others lead is lost for certain. A kill would have to meet a batch on its way."""
    orders = Orders(
        directory=tmp_path,
        rounds=1,
        seed=7,
        rate=1_000,
        planted="acknowledge_before_the_commit",
    )
    code = run_cluster_case("broker-partition-full", orders, partitions=6, healthy_seconds=0.5)
    printed = capsys.readouterr().out
    assert code == 1, printed
    assert "ANOMALY" in printed
