"""A model beside the storage: what was acknowledged is there after every crash, nothing else is."""

import asyncio
import contextlib
import random

import msgspec
import pytest

from tests.metadata_quorum.storage.storage_steps import (
    MEMBER,
    MEMBERS,
    entry,
    format_,
    open_,
)
from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import Entry, HardState, Recovered, SnapshotId
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex, Term

CRASH_KINDS = (
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.HOLE,
    FaultKind.LOST_NAME,
)
LIVES = 6


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the storage should hold."""

    term: int = 0
    vote: bool = False
    start: int = 1
    """Below it entries may be missing."""
    entries: tuple[Entry, ...] = ()
    """From the journal's start on, as far as the model knows."""
    snapshot: SnapshotId | None = None

    @property
    def end(self) -> int:
        """The index behind the last."""
        return self.entries[-1].index + 1 if self.entries else self.start


class Model:
    """Draws work, does it, and remembers which states may be found afterwards."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = State()
        self.under_way: State | None = None
        self.acknowledged = 0

    def effects(self) -> tuple[list[Persist | ResetLog], State]:
        """A few effects and the state behind them."""
        state = self.state
        effects: list[Persist | ResetLog] = []
        for _ in range(self.random.randint(1, 4)):
            cut = None
            term, vote, entries = state.term, state.vote, state.entries
            if self.random.random() < 0.3:
                term, vote = term + 1, self.random.random() < 0.5
                committed = state.snapshot.end_index if state.snapshot else 1
                floor = max(state.start, committed, state.end - 6)
                if floor <= state.end and self.random.random() < 0.6:
                    cut = self.random.randint(floor, state.end)
                    entries = tuple(each for each in entries if each.index < cut)
            term = max(term, 1)
            begin = entries[-1].index + 1 if entries else state.start
            added = tuple(
                entry(begin + k, term, b"%d/%d/" % (begin + k, term) * self.random.randint(1, 20))
                for k in range(self.random.randint(0, 4))
            )
            effects.append(
                Persist(
                    sequence=0,
                    hard_state=hard_state(term, vote),
                    truncate_from=None if cut is None else LogIndex(cut),
                    entries=added,
                )
            )
            state = msgspec.structs.replace(state, term=term, vote=vote, entries=entries + added)
        return effects, state

    async def step(self, storage: QuorumStorageFiles) -> None:
        """One piece of work."""
        choice = self.random.random()
        if choice < 0.7:
            effects, after = self.effects()
            self.under_way = after
            await storage.perform(effects)
            self.state, self.under_way = after, None
            self.acknowledged += 1
        elif choice < 0.8:
            await storage.settle()
        elif choice < 0.93:
            await self.snapshot(storage)
        else:
            await self.reset(storage)

    async def snapshot(self, storage: QuorumStorageFiles) -> None:
        """Of a part of the log; then a trim to a part of that."""
        entries = self.state.entries
        if not entries:
            return
        last = self.random.choice(entries)
        snapshot_id = SnapshotId(LogIndex(last.index + 1), last.term)
        if self.state.snapshot is not None and snapshot_id <= self.state.snapshot:
            return
        await storage.save_snapshot(snapshot_id, MEMBERS, [b"state", b"%d" % last.index])
        first = self.random.randint(max(1, last.index - 5), last.index + 1)
        self.state = msgspec.structs.replace(
            self.state,
            start=max(self.state.start, first),
            snapshot=snapshot_id,
            entries=tuple(each for each in entries if each.index >= first),
        )
        if self.state.start > last.index and not self.state.entries:
            self.state = msgspec.structs.replace(self.state, start=last.index + 1)
        await storage.trim(LogIndex(first))

    async def reset(self, storage: QuorumStorageFiles) -> None:
        """A fetched snapshot takes the place of the log."""
        term = max(self.state.term, 1)
        snapshot_id = SnapshotId(LogIndex(self.state.end + self.random.randint(1, 5)), Term(term))
        after = State(
            term=term, vote=self.state.vote, start=snapshot_id.end_index, snapshot=snapshot_id
        )
        self.under_way = after
        saved = await storage.save_snapshot(snapshot_id, MEMBERS, [b"fetched"])
        state = hard_state(term, self.state.vote)
        await storage.perform([ResetLog(sequence=0, snapshot=saved, hard_state=state)])
        self.state, self.under_way = after, None

    def check(self, recovered: Recovered) -> None:
        """One of the states that are possible, and go on from it."""
        assert recovered.hard_state.repair is None, recovered.hard_state
        possible = [self.state] + ([self.under_way] if self.under_way else [])
        found = [state for state in possible if fits(recovered, state)]
        assert found, (recovered, possible)
        self.state = found[-1]
        if self.under_way is not None and found[-1] is not self.under_way:
            term, vote = recovered.hard_state.term, recovered.hard_state.voted_for is not None
            self.state = msgspec.structs.replace(self.state, term=term, vote=vote)
        self.under_way = None


def hard_state(term: int, vote: bool) -> HardState:
    """Without a repair."""
    return HardState(term=Term(term), voted_for=MEMBER if vote else None)


def fits(recovered: Recovered, state: State) -> bool:
    """Whether this is what the model says; older entries may be there besides."""
    found = recovered.entries
    kept = tuple(each for each in found if each.index >= state.start)
    if state.snapshot is not None and (
        recovered.snapshot is None or recovered.snapshot.id < state.snapshot
    ):
        return False
    if [each.index for each in found] != list(
        range(found[0].index if found else 0, (found[-1].index + 1) if found else 0)
    ):
        return False
    is_later = recovered.hard_state.term >= state.term
    return kept == state.entries and is_later


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def run_seed(seed: int) -> int:
    world = World(seed, enabled=CRASH_KINDS, probabilities=dict.fromkeys(CRASH_KINDS, 0.5))
    model = Model(seed)

    async def live(life: int) -> None:
        process = world.machine("node").start(f"node{life}", wait_forever)
        disk = process.ports.open_disk("quorum")
        if life == 0:
            await format_(disk)
        storage = await open_(disk, process.ports.host.boot_id())
        model.check(storage.recovered)
        is_machine = model.random.random() < 0.7

        async def work() -> None:
            try:
                while True:
                    await model.step(storage)
            except TidelogError:
                if not process.is_dead:
                    raise

        task = asyncio.ensure_future(work())
        await asyncio.sleep(model.random.random() * 0.3)
        world.machine("node").crash() if is_machine else process.kill()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def main() -> None:
        for life in range(LIVES):
            await live(life)

    try:
        world.run(main())
    finally:
        world.close()
    return model.acknowledged


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_every_crash_and_nothing_else() -> None:
    acknowledged = sum(run_seed(seed) for seed in range(60))
    assert acknowledged > 1_000, f"only {acknowledged} writes were acknowledged"
