"""Every change of the disk is once the last one before a crash, done or not done."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import pytest

from tests.metadata_quorum.storage.storage_steps import (
    MEMBER,
    MEMBERS,
    UUID,
    entry,
    format_,
    open_,
    persist,
)
from tests.metadata_quorum.storage.stores import (
    FETCHED,
    CrashedError,
    Files,
    StepDisk,
    Store,
    Truth,
    check,
    fill,
    repair,
)
from tidelog.metadata_quorum.raft.effects import ResetLog
from tidelog.metadata_quorum.raft.types import Entry, HardState, SnapshotId
from tidelog.metadata_quorum.storage.snapshot_format import SnapshotContent, encode_snapshot
from tidelog.wire.ids import LogIndex, Term

Work = Callable[[StepDisk, str], Coroutine[Any, Any, None]]
"""Told the disk and the boot id."""
Verify = Callable[[Store], Coroutine[Any, Any, None]]

STEPS_MAX: Final = 200

DEATHS: Final[dict[str, dict[str, float]]] = {
    "killed": {},
    "nothing kept": {"lost_write": 1.0, "lost_name": 1.0},
    "names lost": {"lost_name": 1.0},
    "bytes lost": {"lost_write": 1.0},
    "torn": {"torn_write": 1.0},
    "holes": {"hole": 1.0, "lost_name": 0.5},
    "all kept": {},
}


def crash_everywhere(
    store: Store, death: str, files: Files, work: Work, verify: Verify
) -> list[str]:
    """The steps, each of which was the last one, done and not done."""

    async def live(disk: StepDisk) -> None:
        await work(disk, store.boot_id)

    steps: list[str] = []
    for is_done in (False, True):
        for step in range(1, STEPS_MAX):
            store.put(files)
            disk = StepDisk(store.disk(), step, is_done=is_done)
            try:
                store.run(live(disk))
            except CrashedError:
                store.kill()
            else:
                steps = disk.steps
                assert len(steps) == step - 1, "every step was the last one once"
                break
            if death != "killed":
                store.crash()
            try:
                store.run(verify(store))
            except AssertionError as error:
                where = f"step {step}, {disk.steps[-1]}, {'done' if is_done else 'not done'}"
                raise AssertionError(f"{death}: {where}: {error}") from error
    assert steps, f"it ends within {STEPS_MAX} steps"
    return steps


def filled() -> tuple[Files, Truth]:
    with Store() as store:
        truth = store.run(fill(store, is_settled=True))
        return store.files(), truth


def damaged(files: Files, text: bytes) -> Files:
    """A bit of this text is wrong, wherever it stands in the journal."""
    wrong = bytes([text[0] ^ 1]) + text[1:]
    found = {path: each for path, each in files.items() if path.startswith("journal")}
    assert any(text in each for each in found.values()), "there is something to damage"
    return files | {path: each.replace(text, wrong, 1) for path, each in found.items()}


@pytest.fixture(params=list(DEATHS))
def death(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.slow
def test_formatting_that_was_interrupted_is_done_again_or_was_done(death: str) -> None:
    async def work(disk: StepDisk, _: str) -> None:
        await format_(disk)

    async def verify(store: Store) -> None:
        if "quorum.json" not in store.files():
            await format_(store.disk())
        storage = await store.open()
        assert storage.identity.directory_uuid == UUID
        assert storage.recovered.entries == ()
        assert storage.recovered.hard_state == HardState()
        await storage.perform([persist(entry(1), term=1)])

    with Store(DEATHS[death]) as store:
        steps = crash_everywhere(store, death, {}, work, verify)
    assert len(steps) == 10, steps


@pytest.mark.slow
def test_a_write_in_a_new_segment_is_there_or_is_not(death: str) -> None:
    files, truth = filled()
    more = [entry(index, 2, b"more" * 150) for index in range(14, 17)]
    acknowledged: list[Entry] = []

    async def work(disk: StepDisk, boot_id: str) -> None:
        acknowledged.clear()
        storage = await open_(disk, boot_id)
        for some in (more[:1], more[1:]):
            await storage.perform([persist(*some)])
            acknowledged.extend(some)
        await storage.settle()

    async def verify(store: Store) -> None:
        recovered = (await store.open()).recovered
        added = len([each for each in recovered.entries if each.index > truth.end_index])
        assert len(acknowledged) <= added, f"{len(acknowledged)} were acknowledged, {added} left"
        assert added in (0, 1, 3), added
        check(
            recovered, msgspec.structs.replace(truth, entries=truth.entries + tuple(more[:added]))
        )
        assert recovered.hard_state.repair is None

    with Store(DEATHS[death]) as store:
        steps = crash_everywhere(store, death, files, work, verify)
    assert len([step for step in steps if step.startswith("create journal")]) == 2, steps


@pytest.mark.slow
def test_a_snapshot_that_was_interrupted_takes_nothing_away(death: str) -> None:
    files, truth = filled()

    async def work(disk: StepDisk, boot_id: str) -> None:
        storage = await open_(disk, boot_id)
        await storage.save_snapshot(SnapshotId(LogIndex(11), Term(2)), MEMBERS, [b"of 10"])
        await storage.trim(LogIndex(9))

    async def verify(store: Store) -> None:
        storage = await store.open()
        assert check(storage.recovered, truth)
        snapshot = storage.recovered.snapshot
        assert snapshot is not None
        assert snapshot.id.end_index in (7, 11), snapshot
        assert await storage.load_state(snapshot)
        assert not [path for path in store.files() if path.endswith(".new")]

    with Store(DEATHS[death]) as store:
        steps = crash_everywhere(store, death, files, work, verify)
    assert any(step.startswith("remove journal") for step in steps), steps
    assert any(step.startswith("remove snapshot") for step in steps), steps


@pytest.mark.slow
def test_a_reset_takes_place_or_does_not(death: str) -> None:
    files, truth = filled()
    content = SnapshotContent(id=FETCHED, members=MEMBERS, state=(b"fetched",))
    data = b"".join(encode_snapshot(content))

    async def work(disk: StepDisk, boot_id: str) -> None:
        storage = await open_(disk, boot_id)
        size_bytes = await storage.begin_fetched(FETCHED, len(data))
        assert size_bytes == 0, "what was there is longer than the snapshot"
        await storage.write_fetched(FETCHED, 0, data[:40])
        await storage.write_fetched(FETCHED, 40, data[40:])
        snapshot = await storage.finish_fetched(FETCHED)
        state = HardState(term=Term(2), voted_for=MEMBER)
        await storage.perform(
            [
                ResetLog(sequence=0, snapshot=snapshot, hard_state=state),
                persist(entry(20, 2, b"behind it")),
            ]
        )

    async def verify(store: Store) -> None:
        recovered = (await store.open()).recovered
        assert recovered.hard_state == HardState(term=Term(2), voted_for=MEMBER)
        assert recovered.snapshot is not None
        if recovered.snapshot.id == FETCHED:
            assert recovered.entries == (entry(20, 2, b"behind it"),)
        else:
            assert check(recovered, truth)

    old = {path: each for path, each in files.items() if not path.endswith(".fetch")}
    longer = {path: data + b"?" for path in files if path.endswith(".fetch")}
    with Store(DEATHS[death]) as store:
        crash_everywhere(store, death, old | longer, work, verify)


@pytest.mark.slow
def test_a_crash_during_a_repair_forgets_no_damage(death: str) -> None:
    files, truth = filled()
    broken = damaged(files, truth.entries[8].data)

    async def work(disk: StepDisk, boot_id: str) -> None:
        storage = await open_(disk, boot_id)
        check(storage.recovered, truth)
        await repair(storage, truth)
        await storage.settle()

    async def verify(store: Store) -> None:
        storage = await store.open()
        check(storage.recovered, truth)
        await repair(storage, truth)
        again = await store.open()
        assert check(again.recovered, truth)

    with Store(DEATHS[death]) as store:
        steps = crash_everywhere(store, death, broken, work, verify)
        assert any(step.startswith("create journal") for step in steps), steps


@pytest.mark.slow
def test_a_repair_in_pieces_keeps_what_is_still_missing(death: str) -> None:
    files, truth = filled()
    broken = damaged(files, truth.entries[8].data)

    async def work(disk: StepDisk, boot_id: str) -> None:
        storage = await open_(disk, boot_id)
        state = storage.recovered.hard_state
        assert state.repair is not None
        for index in range(9, 14):
            left = msgspec.structs.replace(state.repair, from_index=LogIndex(index + 1))
            after = msgspec.structs.replace(state, repair=left if index < 13 else None)
            piece = persist(truth.entries[index - 1], cut=9 if index == 9 else None)
            await storage.perform([msgspec.structs.replace(piece, hard_state=after)])

    async def verify(store: Store) -> None:
        storage = await store.open()
        check(storage.recovered, truth)
        await repair(storage, truth)
        assert check((await store.open()).recovered, truth)

    with Store(DEATHS[death]) as store:
        crash_everywhere(store, death, broken, work, verify)


@pytest.mark.slow
def test_a_trimmed_segment_with_damage_is_kept_aside(death: str) -> None:
    files, truth = filled()
    broken = damaged(files, truth.entries[8].data)
    lost = [content for path, content in broken.items() if content != files[path]]

    async def work(disk: StepDisk, boot_id: str) -> None:
        storage = await open_(disk, boot_id)
        await repair(storage, truth)
        await storage.save_snapshot(SnapshotId(LogIndex(14), Term(2)), MEMBERS, [b"of 13"])
        await storage.perform([persist(entry(14, 2, b"more" * 300))])
        await storage.trim(LogIndex(14))

    async def verify(store: Store) -> None:
        storage = await store.open()
        recovered = storage.recovered
        ends = {each.index for each in recovered.entries}
        entries = truth.entries + ((entry(14, 2, b"more" * 300),) if 14 in ends else ())
        check(recovered, msgspec.structs.replace(truth, entries=entries))
        assert lost[0] in store.files().values(), "the damaged bytes are kept"

    with Store(DEATHS[death]) as store:
        steps = crash_everywhere(store, death, broken, work, verify)
        assert any(step.startswith("rename journal") for step in steps), steps


@pytest.mark.slow
def test_marks_that_are_made_anew_are_the_old_or_the_new_ones(death: str) -> None:
    files, truth = filled()
    torn = files | {"marks": files["marks"][:-1]}

    async def work(disk: StepDisk, boot_id: str) -> None:
        storage = await open_(disk, boot_id)
        await storage.perform([persist(entry(14, 2))])
        await storage.settle()

    async def verify(store: Store) -> None:
        recovered = (await store.open()).recovered
        is_added = recovered.entries[-1] == entry(14, 2)
        entries = truth.entries + ((entry(14, 2),) if is_added else ())
        assert check(recovered, msgspec.structs.replace(truth, entries=entries))

    with Store(DEATHS[death]) as store:
        steps = crash_everywhere(store, death, torn, work, verify)
        assert "rename marks.new marks" in steps, steps


@pytest.mark.slow
@pytest.mark.parametrize("is_vote_new", [False, True])
def test_a_start_that_is_killed_judges_a_torn_tail_no_other_way(is_vote_new: bool) -> None:
    """The machine left a torn block of full length; then every start but the last one is killed."""

    async def tear(store: Store) -> None:
        storage = await store.open()
        term = 3 if is_vote_new else 2
        torn = entry(14, term, b"torn" * 9)
        await storage.perform([persist(torn, term=term, vote=True)])

    with Store() as store:
        truth = store.run(fill(store, is_settled=True))
        store.run(tear(store))
        files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    files[newest] = files[newest].replace(b"torn" * 9, bytes(36))
    if is_vote_new:
        truth = msgspec.structs.replace(truth, term=Term(3))

    async def work(disk: StepDisk, boot_id: str) -> None:
        await open_(disk, boot_id)

    async def verify(store: Store) -> None:
        assert check((await store.open()).recovered, truth), "it was never acknowledged"

    with Store() as store:
        store.crash()
        steps = crash_everywhere(store, "killed", files, work, verify)
        assert any(step.startswith("create journal") for step in steps), steps
