"""A quorum directory looked at without a change, and made a quorum of one as the last resort."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from tests.metadata_quorum.storage.storage_steps import entry, persist
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX
from tidelog.metadata_quorum.raft.effects import ResetLog
from tidelog.metadata_quorum.raft.membership import decode_members, encode_members
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
    SnapshotId,
)
from tidelog.metadata_quorum.recovery.survey import Survey, survey
from tidelog.metadata_quorum.recovery.unsafe import copy_recovered, decide_recovery
from tidelog.metadata_quorum.storage.identity import format_storage
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.ports import Disk
from tidelog.ports.real.disk.disk import open_disk
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

_Result = TypeVar("_Result")
NEW_UUID = bytes([9]) * 16


def member(node_id: int, *, is_learner: bool = False) -> Member:
    member_id = MemberId(NodeId(node_id), bytes([node_id]) * 16)
    return Member(id=member_id, address=f"127.0.0.1:{node_id}", is_learner=is_learner)


THREE = Members((member(1), member(2), member(3)))


def on(directory: Path, ask: Callable[[Disk], Awaitable[_Result]]) -> _Result:
    """Open the directory, ask, let it go."""

    async def opened() -> _Result:
        disk = await open_disk(directory)
        try:
            return await ask(disk)
        finally:
            await disk.shutdown()

    return asyncio.run(opened())


async def fill(disk: Disk, *, bootstrap: Members = THREE, with_snapshot: bool = False) -> None:
    """Member 1 with entries 1 to 6 of term 2, voted for member 2 in term 4."""
    await format_storage(
        disk,
        cluster_id="c",
        node_id=1,
        directory_uuid=bytes([1]) * 16,
        bootstrap=bootstrap,
        bootstrap_command=b"first",
    )
    storage = await open_storage(disk)
    await storage.perform([persist(*(entry(index, 2) for index in range(1, 5)), term=2)])
    if with_snapshot:
        await storage.save_snapshot(SnapshotId(LogIndex(4), Term(2)), bootstrap, (b"state",))
    await storage.perform([persist(entry(5, 2), entry(6, 2))])
    state = HardState(term=Term(4), voted_for=member(2).id)
    effect = persist()
    await storage.perform([type(effect)(sequence=0, hard_state=state)])
    await storage.close()


def contents(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir() if each.name != ".lock"}


def flip(directory: Path, wanted: bytes) -> None:
    """One bit of the first file that holds the bytes."""
    for file in sorted(directory.glob("journal-*.log")):
        data = bytearray(file.read_bytes())
        place = data.find(wanted)
        if place >= 0:
            data[place] ^= 1
            file.write_bytes(data)
            return
    raise AssertionError(f"nothing holds {wanted!r}")


def test_a_survey_tells_what_is_there_and_changes_nothing(tmp_path: Path) -> None:
    on(tmp_path, lambda disk: fill(disk, with_snapshot=True))
    before = contents(tmp_path)
    found = on(tmp_path, survey)
    assert contents(tmp_path) == before
    assert found.damage == ()
    assert (found.first_index, found.last_index, found.last_term) == (1, 6, 2)
    assert found.hard_state == HardState(term=Term(4), voted_for=member(2).id)
    assert found.snapshot is not None
    assert found.snapshot.last_index == 3
    assert found.members == THREE
    assert found.identity.cluster_id == "c"
    assert found.size_bytes > 0


def test_a_survey_names_what_a_flipped_bit_takes_away(tmp_path: Path) -> None:
    on(tmp_path, fill)
    flip(tmp_path, b"2@2")
    before = contents(tmp_path)
    found = on(tmp_path, survey)
    assert contents(tmp_path) == before
    assert found.last_index == 1
    assert found.hard_state.repair is not None
    assert "journal-" in found.damage[0]
    assert "entries 2 to 6 were acknowledged and are lost here" in found.damage[-1]


def test_a_survey_names_a_damaged_snapshot_and_leaves_it(tmp_path: Path) -> None:
    on(tmp_path, lambda disk: fill(disk, with_snapshot=True))
    (file,) = tmp_path.glob("snapshot-*")
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    file.write_bytes(data)
    found = on(tmp_path, survey)
    assert file.read_bytes() == data
    assert found.snapshot is None
    assert found.last_index == 6
    assert file.name in found.damage[0]
    assert "damage at byte" in found.damage[0]
    assert found.damage[1:] == ("no entry is lost by it",)


def test_a_survey_without_marks_says_that_a_node_does_not_start(tmp_path: Path) -> None:
    on(tmp_path, fill)
    (tmp_path / "marks").write_bytes(b"")
    assert "a node does not start without one" in on(tmp_path, survey).damage[0]
    (tmp_path / "marks").unlink()
    assert "a node does not start without it" in on(tmp_path, survey).damage[0]


def test_a_directory_without_a_quorum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TidelogError) as caught:
        on(tmp_path, survey)
    assert caught.value.code is ErrorCode.STORAGE_NOT_FORMATTED


def recovered(old: Path, new: Path) -> Survey:
    """Recover from one directory into another; what lies in the new one."""
    recovery = decide_recovery(on(old, survey), NEW_UUID)

    async def copy(disk: Disk) -> None:
        new_disk = await open_disk(new)
        try:
            await copy_recovered(await open_storage(disk), recovery, new_disk)
        finally:
            await new_disk.shutdown()

    on(old, copy)
    return on(new, survey)


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_the_survivor_keeps_everything_and_is_the_only_voter(
    tmp_path: Path, with_snapshot: bool
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    on(old, lambda disk: fill(disk, with_snapshot=with_snapshot))
    found = recovered(old, new)
    survivor = MemberId(NodeId(1), NEW_UUID)
    assert found.damage == ()
    assert found.last_index == 7
    assert [each.id for each in found.members] == [survivor]
    assert found.hard_state == HardState(term=Term(5), voted_for=survivor)
    assert found.identity.directory_uuid == NEW_UUID
    assert found.identity.cluster_id == "c"

    async def entries(disk: Disk) -> tuple[Entry, ...]:
        storage = await open_storage(disk)
        state = storage.recovered
        if with_snapshot:
            assert state.snapshot is not None
            assert await storage.load_state(state.snapshot) == (b"state",)
        return state.entries

    kept = on(new, entries)
    first = 4 if with_snapshot else 1
    assert [each.index for each in kept] == list(range(first, 8))
    assert [each.data for each in kept[:-1]] == [b"%d@2" % index for index in range(first, 7)]
    assert kept[-1].kind is EntryKind.MEMBERS
    assert kept[-1].term == 5
    assert decode_members(kept[-1].data).voters == (survivor,)


def test_the_term_is_above_every_term_that_was_voted_in(tmp_path: Path) -> None:
    on(tmp_path, fill)
    recovery = decide_recovery(on(tmp_path, survey), NEW_UUID, address="10.0.0.1:9193")
    assert recovery.new_term == 5
    assert recovery.survivor.address == "10.0.0.1:9193"
    assert [each.id.node_id for each in recovery.others] == [2, 3]
    assert recovery.lost_here == ""


def test_after_the_last_term_there_is_nothing_to_recover_into(tmp_path: Path) -> None:
    on(tmp_path, fill)
    found = on(tmp_path, survey)
    spent = msgspec.structs.replace(found.hard_state, term=Term(NUMBER_MAX))
    found = msgspec.structs.replace(found, hard_state=spent)
    with pytest.raises(TidelogError, match="there is none after") as caught:
        decide_recovery(found, NEW_UUID)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_what_the_survivor_itself_has_lost_is_told_and_left_out(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    on(old, fill)
    flip(old, b"4@2")
    assert decide_recovery(on(old, survey), NEW_UUID).lost_here == "4 to 6"
    found = recovered(old, new)
    assert found.damage == ()
    assert found.last_index == 4
    assert found.hard_state.repair is None


def test_a_log_that_gave_way_to_a_snapshot_is_recovered_from_it(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"

    async def reset(disk: Disk) -> None:
        await fill(disk)
        storage = await open_storage(disk)
        identity = SnapshotId(LogIndex(101), Term(4))
        snapshot = await storage.save_snapshot(identity, THREE, (b"far",))
        state = HardState(term=Term(4))
        await storage.perform([ResetLog(sequence=0, snapshot=snapshot, hard_state=state)])
        await storage.close()

    on(old, reset)
    found = recovered(old, new)
    assert found.snapshot is not None
    assert found.snapshot.last_index == 100
    assert (found.first_index, found.last_index) == (101, 101)


def test_members_are_those_of_the_last_entry_that_names_them(tmp_path: Path) -> None:
    async def shrink(disk: Disk) -> None:
        await fill(disk)
        storage = await open_storage(disk)
        data = encode_members(Members((member(1), member(2, is_learner=True))))
        last = Entry(index=LogIndex(7), term=Term(4), kind=EntryKind.MEMBERS, data=data)
        await storage.perform([persist(last)])
        await storage.close()

    on(tmp_path, shrink)
    found = on(tmp_path, survey)
    assert found.members.voters == (member(1).id,)
    with pytest.raises(TidelogError, match="the only voter already") as caught:
        decide_recovery(found, NEW_UUID)
    assert "Start the node" in caught.value.hint


@pytest.mark.parametrize(
    ("bootstrap", "why"),
    [
        (Members(), "never got anything"),
        (Members((member(2), member(3))), "no member of the quorum"),
    ],
)
def test_a_node_that_cannot_survive_its_quorum_is_refused(
    tmp_path: Path, bootstrap: Members, why: str
) -> None:
    on(tmp_path, lambda disk: fill(disk, bootstrap=bootstrap))
    with pytest.raises(TidelogError, match=why) as caught:
        decide_recovery(on(tmp_path, survey), NEW_UUID)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "storage info" in caught.value.hint
