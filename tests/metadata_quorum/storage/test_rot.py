"""A bit rots after every death, on top of drawn work: nothing acknowledged is ever passed over."""

import asyncio
import contextlib
import random

import msgspec
import pytest

from tests.metadata_quorum.storage.storage_steps import format_, open_
from tests.metadata_quorum.storage.stores import Store
from tests.metadata_quorum.storage.test_crashes import Model, State, fits, hard_state
from tidelog.metadata_quorum.raft.effects import Persist
from tidelog.metadata_quorum.raft.types import Recovered
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles
from tidelog.wire.errors import TidelogError

LIVES = 8


def without_old(state: State, recovered: Recovered) -> State:
    """What the snapshot holds may be gone from the log: damage there needs no repair."""
    base = recovered.snapshot.last_index if recovered.snapshot else 0
    start = min(max(state.start, base + 1), state.end)
    kept = tuple(each for each in state.entries if each.index >= start)
    return msgspec.structs.replace(state, start=start, entries=kept, snapshot=None)


def explains(recovered: Recovered, state: State) -> bool:
    """Whether a member that held this state may say so: all is here, or lost from a place on."""
    known = without_old(state, recovered)
    repair = recovered.hard_state.repair
    if repair is None or recovered.hard_state.term < state.term:
        base = recovered.snapshot.last_index if recovered.snapshot else 0
        end = max(base, recovered.entries[-1].index if recovered.entries else 0)
        return fits(recovered, known) and end == state.end - 1
    kept = tuple(each for each in recovered.entries if each.index >= known.start)
    is_front = kept == known.entries[: len(kept)]
    return is_front and repair.last_index == state.end - 1


async def mend(model: Model, storage: QuorumStorageFiles, state: State) -> None:
    """As a leader does: by entries, or by a snapshot where it has none."""
    repair = storage.recovered.hard_state.repair
    assert repair is not None
    if repair.from_index < state.start:
        await model.reset(storage)
        return
    missing = tuple(each for each in state.entries if each.index >= repair.from_index)
    after = hard_state(model.state.term, model.state.vote)
    await storage.perform(
        [Persist(sequence=0, hard_state=after, truncate_from=repair.from_index, entries=missing)]
    )


async def take_over(model: Model, storage: QuorumStorageFiles) -> bool:
    """Go on from what was found; returns whether there was something to repair."""
    recovered = storage.recovered
    possible = [model.state] + ([model.under_way] if model.under_way else [])
    found = [state for state in possible if explains(recovered, state)]
    assert found, (recovered, possible)
    term, vote = recovered.hard_state.term, recovered.hard_state.voted_for is not None
    snapshot = recovered.snapshot.id if recovered.snapshot else None
    state = without_old(found[-1], recovered)
    model.state = msgspec.structs.replace(state, term=term, vote=vote, snapshot=snapshot)
    model.under_way = None
    if recovered.hard_state.repair is None:
        return False
    await mend(model, storage, model.state)
    return True


def rot(store: Store, drawn: random.Random) -> None:
    """One bit of any file but the identity."""
    files = [inode for path, inode in store.medium.files() if path != "quorum.json"]
    inode = drawn.choice([each for each in files if each.seen])
    position = drawn.randrange(len(inode.seen))
    changed = inode.seen[position] ^ 1 << drawn.randrange(8)
    inode.seen[position] = changed
    inode.durable, inode.certain_bytes = bytearray(inode.seen), len(inode.seen)
    inode.pending.clear()


async def live(store: Store, model: Model) -> bool:
    """One life and its end; returns whether it began with a repair."""
    disk = store.disk()
    storage = await open_(disk, store.boot_id)
    is_repaired = await take_over(model, storage)

    async def work() -> None:
        while True:
            await model.step(storage)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(model.random.random() * 0.2)
    store.kill()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, TidelogError):
        await task
    return is_repaired


def run_seed(seed: int) -> tuple[int, int]:
    """Acknowledged writes, and repairs."""
    model = Model(seed)
    repairs = 0
    with Store(seed=seed) as store:

        async def main() -> None:
            nonlocal repairs
            await format_(store.disk())
            for _ in range(LIVES):
                repairs += await live(store, model)
                rot(store, model.random)

        store.run(main())
    return model.acknowledged, repairs


@pytest.mark.slow
def test_a_bit_that_rots_after_each_killed_process_takes_nothing_acknowledged() -> None:
    outcomes = [run_seed(seed) for seed in range(60)]
    assert sum(acknowledged for acknowledged, _ in outcomes) > 1_000
    assert sum(repairs for _, repairs in outcomes) > 20
