"""A crash at every step of every hand-over: nothing flushed is lost, nothing dropped comes back."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import pytest

from tests.broker.log.test_open_log import CLEANED, CLEANED_RECORDS, FIRST, SECOND, THIRD
from tests.broker.support.open_fixtures import (
    DIRECTORY,
    EPOCH,
    KEY,
    Batch,
    Reopened,
    Sealed,
    describe,
    key_of,
    put,
    put_durable,
    start,
    stored,
    values,
)
from tidelog.broker.log.marks.marks import Mark, MarkKind, encode_marks
from tidelog.broker.log.opening.directory import open_directory
from tidelog.chaos.sim import FaultKind, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.ports import Append

CRASH_KINDS: Final = (
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.HOLE,
    FaultKind.LOST_NAME,
)
SEEDS: Final = 12

Step = Callable[[SimulatedDisk], Awaitable[None]]
"""One operation of a hand-over; a crash comes behind it, before anything more is flushed."""


def flushed(*paths: str, directories: Sequence[str] = ()) -> Step:
    async def step(disk: SimulatedDisk) -> None:
        files = [await disk.open(path) for path in paths]
        await disk.flush(files, directories=directories)

    return step


def created(path: str, content: bytes) -> Step:
    return lambda disk: put(disk, path, content)


def renamed(old: str, new: str) -> Step:
    return lambda disk: disk.rename(old, new)


def removed(path: str) -> Step:
    return lambda disk: disk.remove(path)


def appended(path: str, content: bytes) -> Step:
    async def step(disk: SimulatedDisk) -> None:
        await disk.append([Append(await disk.open(path), [content])])

    return step


def cut(path: str, size_bytes: int) -> Step:
    async def step(disk: SimulatedDisk) -> None:
        await disk.truncate(await disk.open(path), size_bytes)

    return step


def marked(kind: MarkKind, value: int) -> Step:
    """The mark as the writer appends it: to the file of marks."""
    return appended("marks", _entries((kind, value)))


def _entries(*marks: tuple[MarkKind, int]) -> bytes:
    return encode_marks(Mark(KEY, kind, value) for kind, value in marks)


class HandOver:
    """Files and marks that are durable, the steps from there, and what may be found behind each."""

    def __init__(
        self,
        *,
        files: Mapping[str, bytes],
        steps: Sequence[Step],
        is_legal: Callable[[int, Reopened], bool],
        marks: Sequence[tuple[MarkKind, int]] = ((MarkKind.FLUSHED, 10),),
    ) -> None:
        self.files = dict(files)
        self.steps = list(steps)
        self.is_legal = is_legal
        self.marks = marks


def active_last() -> dict[str, bytes]:
    files = Sealed(FIRST, SECOND, THIRD).files
    del files[key_of(8).sidecar_path]
    return files


def old_segments() -> list[str]:
    return [path for base in (0, 3) for path in (key_of(base).path, key_of(base).sidecar_path)]


def seal() -> HandOver:
    """The job's sidecar takes its name."""
    files = active_last()
    path = key_of(3).sidecar_path
    content = files.pop(path)
    return HandOver(
        files=files,
        steps=[
            created(f"{path}.new", content),
            flushed(f"{path}.new"),
            renamed(f"{path}.new", path),
            flushed(directories=[DIRECTORY]),
        ],
        is_legal=lambda done, found: (
            found.records == values(0, 10) and (done < 4 or not found.opened.to_seal)
        ),
    )


def compaction() -> HandOver:
    """Sidecar, then log, take their names; that made durable, the old segments go."""
    key = key_of(0, 1)
    log, sidecar = key.path, key.sidecar_path
    old = old_segments()
    steps = [
        created(f"{log}.new", CLEANED[log]),
        created(f"{sidecar}.new", CLEANED[sidecar]),
        flushed(f"{log}.new", f"{sidecar}.new"),
        renamed(f"{sidecar}.new", sidecar),
        renamed(f"{log}.new", log),
        flushed(directories=[DIRECTORY]),
        *(removed(path) for path in old),
        flushed(directories=[DIRECTORY]),
    ]

    def is_legal(done: int, found: Reopened) -> bool:
        is_new = found.records == CLEANED_RECORDS and found.bases == [(0, 1), (8, 0)]
        return is_new or (done < 6 and found.records == values(0, 10))

    return HandOver(files=active_last(), steps=steps, is_legal=is_legal)


def trim() -> HandOver:
    """The mark is durable before the segments below it go."""
    steps = [
        marked(MarkKind.LOG_START, 9),
        flushed("marks"),
        *(removed(path) for path in old_segments()),
        flushed(directories=[DIRECTORY]),
    ]

    def is_legal(done: int, found: Reopened) -> bool:
        is_trimmed = found.records == values(9, 10) and found.bases == [(8, 0)]
        if is_trimmed:
            return set(found.names) == {f"{8:020d}.log"}
        return done < 2 and found.records == values(0, 10)

    return HandOver(files=active_last(), steps=steps, is_legal=is_legal)


def truncation() -> HandOver:
    """The lower mark; later segments from the last on; the sidecar of the last left; its tail."""
    last = key_of(0)
    steps = [
        marked(MarkKind.FLUSHED, 2),
        flushed("marks"),
        *_removed_durably(key_of(8).path),
        *_removed_durably(key_of(3).path, key_of(3).sidecar_path),
        *_removed_durably(last.sidecar_path),
        cut(last.path, len(stored(FIRST[:1]))),
        flushed(last.path, directories=[DIRECTORY]),
    ]

    def is_legal(done: int, found: Reopened) -> bool:
        end = found.opened.log.log_end_offset
        is_whole = end in (2, 3, 8, 10) and found.records == values(0, end)
        return is_whole and (done < len(steps) or end == 2)

    return HandOver(files=active_last(), steps=steps, is_legal=is_legal)


def _removed_durably(*paths: str) -> list[Step]:
    return [*(removed(path) for path in paths), flushed(directories=[DIRECTORY])]


def roll() -> HandOver:
    """Written, flushed, marked; then the next segment is made and written to."""
    files = {key_of(0).path: stored(FIRST)}
    steps = [
        appended(key_of(0).path, Batch(3, epoch=1).stored),
        flushed(key_of(0).path),
        created(key_of(4).path, Batch(4, epoch=1).stored),
        marked(MarkKind.FLUSHED, 4),
        appended(key_of(4).path, Batch(5, epoch=1).stored),
        flushed(key_of(4).path, "marks", directories=["", DIRECTORY]),
        marked(MarkKind.FLUSHED, 6),
    ]

    def is_legal(done: int, found: Reopened) -> bool:
        end = found.opened.log.log_end_offset
        durable = 3 if done < 2 else 4 if done < 6 else 6
        return durable <= end and found.records == values(0, end)

    return HandOver(files=files, steps=steps, is_legal=is_legal, marks=((MarkKind.FLUSHED, 3),))


HAND_OVERS: Final = {
    "seal": seal,
    "compaction": compaction,
    "trim": trim,
    "truncation": truncation,
    "roll": roll,
}
CASES: Final = [
    (name, done) for name, make in HAND_OVERS.items() for done in range(len(make().steps) + 1)
]


async def opened_now(world: World) -> Reopened:
    directory = await open_directory(start(world), {KEY: EPOCH})
    return describe(world, directory.logs[KEY])


def crash_behind(name: str, done: int, seed: int, *, is_machine: bool) -> None:
    world = World(seed, enabled=CRASH_KINDS, probabilities=dict.fromkeys(CRASH_KINDS, 0.5))
    hand_over = HAND_OVERS[name]()
    machine = world.machine("m")

    async def main() -> None:
        disk = start(world)
        await disk.make_directory(DIRECTORY)
        await put_durable(disk, {**hand_over.files, "marks": _entries(*hand_over.marks)})
        for step in hand_over.steps[:done]:
            await step(disk)
        before = None
        for crash in (is_machine, False, True, True):
            machine.crash() if crash else machine.processes["p"].kill()
            found = await opened_now(world)
            assert found.code is None, found.opened.log.failure
            assert hand_over.is_legal(done, found), (found.bases, found.records, found.names)
            assert before in (None, found.records), "an opening tells the same as the one before"
            before = found.records

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_machine", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize(("name", "done"), CASES)
def test_a_crash_behind_any_step_loses_nothing_and_brings_nothing_back(
    name: str, done: int, is_machine: bool
) -> None:
    for seed in range(SEEDS):
        crash_behind(name, done, seed, is_machine=is_machine)
