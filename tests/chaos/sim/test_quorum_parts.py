"""Parts of the simulated quorum: wires that lose and double, disks that tear and rot, states."""

import pytest

from tidelog.chaos.checkers.raft.content import Content
from tidelog.chaos.sim import FaultKind, Faults, SeededRandom, Trace
from tidelog.chaos.sim.quorum.agenda import MS, Agenda
from tidelog.chaos.sim.quorum.key_value import Command, KeyValue, encode_command
from tidelog.chaos.sim.quorum.node_disk import NodeDisk
from tidelog.chaos.sim.quorum.shared_troubles import draw_partition
from tidelog.chaos.sim.quorum.wires import Wires
from tidelog.metadata_quorum.raft.effects import Persist
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    MemberId,
    Members,
    NodeId,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term

ID = MemberId(NodeId(1), bytes(16))
SENT = 50


def entry(index: int, data: bytes = b"") -> Entry:
    return Entry(index=LogIndex(index), term=Term(1), kind=EntryKind.COMMAND, data=data)


def faults(*kinds: FaultKind) -> Faults:
    return Faults(
        SeededRandom(1, "faults"),
        Trace(),
        enabled=kinds,
        probabilities=dict.fromkeys(kinds, 0.5),
    )


def arrivals(*kinds: FaultKind, cut: bool = False) -> tuple[list[tuple[int, int]], int]:
    """When which datagram arrived, and how often a fault was felt."""
    agenda, switches, arrived = Agenda(), faults(*kinds), []

    def deliver(source: int, target: int, datagram: object) -> None:
        assert isinstance(datagram, int)
        arrived.append((agenda.now_ns, datagram))

    wires = Wires(agenda, SeededRandom(1, "network"), switches, deliver)
    if cut:
        wires.cut(1, 2, FaultKind.PARTITION)
    for number in range(SENT):
        agenda.after(number * 2 * MS, wires.send, 1, 2, number)
    agenda.run_until(agenda.now_ns + 10_000 * MS, lambda: False)
    return arrived, sum(count.felt for count in switches.counts.values())


def test_without_faults_everything_arrives_once_and_in_order() -> None:
    arrived, felt = arrivals()
    assert [number for _, number in arrived] == list(range(SENT))
    assert felt == 0


def test_each_fault_of_datagrams_is_felt_where_it_is_enabled() -> None:
    lost, felt = arrivals(FaultKind.DATAGRAM_LOSS)
    assert len(lost) + felt == SENT > len(lost)
    doubled, felt = arrivals(FaultKind.DATAGRAM_DUPLICATE)
    assert len(doubled) == SENT + felt > SENT
    reordered = [number for _, number in arrivals(FaultKind.DATAGRAM_REORDER)[0]]
    assert sorted(reordered) == list(range(SENT)) != reordered
    late = arrivals(FaultKind.NETWORK_DELAY)[0]
    assert late[-1][0] > arrivals()[0][-1][0]
    assert arrivals(cut=True) == ([], SENT)


def crashed(*kinds: FaultKind, is_machine: bool = True) -> list[tuple[int, int]]:
    """Last index and term that were left, over many crashes while three entries are not flushed."""
    flushed = Content()
    flushed.append((entry(1),))
    write = Persist(
        sequence=1,
        hard_state=HardState(term=Term(1)),
        entries=(entry(2), entry(3), entry(4)),
    )
    random, switches = SeededRandom(1, "crash"), faults(*kinds)
    left = []
    for _ in range(60):
        disk = NodeDisk(ID, Members())
        disk.pending.append(write)
        content = disk.crash(flushed, random, switches, is_machine=is_machine)
        left.append((content.last_index, int(content.hard_state.term)))
    return left


def test_a_crash_loses_and_tears_only_what_was_not_flushed_and_only_if_it_may() -> None:
    assert set(crashed()) == {(4, 1)}
    assert set(crashed(FaultKind.LOST_WRITE)) == {(4, 1), (1, 0)}
    assert set(crashed(FaultKind.TORN_WRITE)) == {(4, 1), (1, 0), (2, 0), (3, 0), (4, 0)}


def test_damage_is_found_at_a_start_and_noted_as_a_repair() -> None:
    disk, left = NodeDisk(ID, Members()), Content()
    left.append((entry(1), entry(2), entry(3)))
    disk.damaged[2] = None
    recovered = disk.recover(left)
    assert [each.index for each in recovered.entries] == [1]
    repair = recovered.hard_state.repair
    assert repair is not None
    assert (repair.from_index, repair.last_index, repair.last_term) == (2, 3, 1)


def test_callbacks_run_at_their_time_and_in_the_order_of_making() -> None:
    agenda = Agenda()
    seen: list[object] = []
    for delay_ns, name in ((5, "late"), (1, "first"), (1, "second")):
        agenda.after(delay_ns, seen.append, name)
    agenda.run_until(agenda.now_ns + 3, lambda: False)
    assert seen == ["first", "second"]


def command(*fields: str) -> bytes:
    return encode_command(Command(*fields))


def test_the_state_machine_does_what_its_commands_say_and_comes_back_from_a_snapshot() -> None:
    results: list[object] = []
    store = KeyValue(lambda _, result: results.append(result))
    commands = [
        command("write", "a", "1"),
        command("compare_and_set", "a", "2", "1"),
        command("compare_and_set", "a", "3", "1"),
        command("append", "l", "x"),
        command("append", "l", "y"),
        command("create", "a", "4"),
    ]
    store.apply([entry(place + 1, data) for place, data in enumerate(commands)])
    assert results == [None, "1", "2", ("x",), ("x", "y"), 0]
    other = KeyValue()
    identity = SnapshotId(end_index=LogIndex(7), term=Term(1))
    other.restore(Snapshot(id=identity, members=Members(), size_bytes=1), store.capture()())
    assert (other.values, other.digest, other.applied_index) == (store.values, store.digest, 6)


def test_an_unknown_command_is_a_bug_of_the_suite() -> None:
    with pytest.raises(AssertionError, match="knows no swap"):
        KeyValue().apply([entry(1, command("swap", "a", "b"))])


def test_a_partition_is_one_node_halves_a_bridge_or_a_ring() -> None:
    nodes, random = list("abcde"), SeededRandom(1, "nemesis")
    drawn = [set(draw_partition(random, nodes, "c")) for _ in range(200)]
    everybody = {(a, b) for a in nodes for b in nodes if a != b}
    alone = {(a, b) for a, b in everybody if "c" in (a, b)}
    ring = {(nodes[a], nodes[b]) for a in range(5) for b in range(5) if (a - b) % 5 in (2, 3)}
    assert all(cuts <= everybody for cuts in drawn)
    assert all((b, a) in cuts for cuts in drawn for a, b in cuts), "in both directions"
    assert alone in drawn
    assert ring in drawn
    assert any(cuts and not cuts & alone for cuts in drawn), "the victim is the bridge"
