"""Damages one file of a data directory at a time, and lets the directory work with it.

    python -m tidelog.chaos.fuzz.log_files --cases 10000 --seed 1

A case flips a bit, cuts a file or zeroes a sector of it; then the directory is opened, read by
offset and by time, scrubbed, sealed and compacted, appended to, ended in some way and opened once
more. Its verdict:

    detected   a typed error that names the file, or a part that was made anew and told of
    harmless   every record was served exactly, and nobody was told of anything
    WRONG      a wrong byte or record, a missing one without an error, any other exception, a hang

Each case depends on seed and index only: `--only INDEX` repeats one, `--first INDEX` goes on from
one. A share of the cases runs on real files (`--real-files`).
"""

import argparse
import asyncio
import faulthandler
import sys
import tempfile
import time
from collections import Counter
from random import Random
from typing import Final

import msgspec

from tidelog.chaos.fuzz.log_corpus import (
    IDENTITY,
    LIMITS,
    NODE_ID,
    Corpus,
    build_corpora,
    placed,
)
from tidelog.chaos.fuzz.log_damage import Damage, damage
from tidelog.chaos.fuzz.log_house import LogHouse, put_files
from tidelog.chaos.fuzz.log_judge import Judge
from tidelog.chaos.fuzz.log_real_files import examine_real_files
from tidelog.chaos.sim import SimulatedPorts
from tidelog.server.storage.format import CLEAN_MARKER, FILE_NAME, read_clean_marker, read_identity
from tidelog.wire.errors import TidelogError

HANG_SECONDS: Final = 60.0
"""A case that takes longer ends the process with a traceback."""
REAL_SHARE: Final = 50
"""One case in so many runs on real files as well."""
VERDICTS: Final = ("detected", "harmless", "WRONG")
CHANGES: Final = ("flip", "truncate", "zero")
_EPOCH: Final = 3
_SCRUB_MS: Final = 4_000
_WORK_MS: Final = 5_500


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one case."""

    damage: Damage
    verdict: str
    told: tuple[str, ...]
    wrong: tuple[str, ...]


def run_one(
    corpora: tuple[Corpus, ...], seed: int, index: int, *, is_real: bool = False
) -> Outcome:
    """The case of this index, judged."""
    random = Random(f"{seed}:{index}")
    corpus = random.choice(corpora)
    done = damage(corpus, random)
    judge = Judge(corpus, done, random)
    try:
        if done.path in (FILE_NAME, CLEAN_MARKER):
            _examine_node_files(corpus, done, judge)
        elif is_real:
            with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as root:
                asyncio.run(examine_real_files(root, corpus, done, judge))
        else:
            _examine(corpus, done, judge, random)
    except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
        judge.wrong.append(f"{type(error).__name__}: {error}")
    return Outcome(
        damage=done, verdict=judge.verdict, told=tuple(judge.told), wrong=tuple(judge.wrong)
    )


def _examine(corpus: Corpus, done: Damage, judge: Judge, random: Random) -> None:
    is_compacting = random.random() < 0.5
    limits = msgspec.structs.replace(LIMITS, scrub_interval_ms=_SCRUB_MS)
    house = LogHouse(random.randrange(1 << 30), limits=limits)
    put_files(house.medium, {**corpus.files, done.path: done.content})
    house.placed = placed(epoch=_EPOCH, dirty_ratio=0.01 if is_compacting else 1.0)
    try:
        for number in range(2):
            try:
                house.begin()
            except TidelogError as error:
                judge.tell(error)
                return
            house.call(lambda: judge.look(house.life, is_compacting=is_compacting))
            if not number:
                house.pass_ms(_WORK_MS)
                house.call(lambda: judge.append(house.life, 0))
                house.call(lambda: judge.look(house.life, is_compacting=is_compacting))
                random.choice((house.stop, house.kill, house.crash))()
        judge.wrong += house.world.findings()
    finally:
        house.close()


def _examine_node_files(corpus: Corpus, done: Damage, judge: Judge) -> None:
    """What a node's start makes of its own two small files."""
    house = LogHouse(1, limits=LIMITS)
    put_files(house.medium, {**corpus.files, done.path: done.content})
    found: list[object] = []

    async def live(ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        try:
            found.append(await read_identity(disk, NODE_ID))
        except TidelogError as error:
            judge.tell(error)
        found.append(await read_clean_marker(disk))

    try:
        process = house.machine.start("node", live)
        house.pass_ms(1_000)
        if process.exit_error is not None:
            raise process.exit_error
    finally:
        house.close()
    if not judge.told and found[0] != IDENTITY:
        judge.wrong.append(f"another identity: {found[0]}")


def run_many(
    corpora: tuple[Corpus, ...], seed: int, first: int, count: int, *, real_share: int
) -> tuple[Counter[tuple[str, str]], list[tuple[int, Outcome]], int]:
    """Counts by kind and verdict, what was wrong, and how many cases ran on real files."""
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[int, Outcome]] = []
    on_real_files = 0
    for index in range(first, first + count):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        is_real = bool(real_share) and index % real_share == 0
        outcome = run_one(corpora, seed, index, is_real=is_real)
        on_real_files += is_real
        for row in (outcome.damage.kind, "all"):
            counts[row, "cases"] += 1
            counts[row, outcome.verdict] += 1
            counts[row, outcome.damage.change] += 1
        if outcome.wrong:
            wrong.append((index, outcome))
    faulthandler.cancel_dump_traceback_later()
    return counts, wrong, on_real_files


def print_table(counts: Counter[tuple[str, str]]) -> None:
    """One line a kind of file."""
    columns = ("cases", *VERDICTS, *CHANGES)
    print(f"{'kind of file':24}" + "".join(f"{column:>10}" for column in columns))
    kinds = sorted({kind for kind, _ in counts} - {"all"})
    for kind in (*kinds, "all"):
        print(f"{kind:24}" + "".join(f"{counts[kind, column]:>10,}" for column in columns))


def _print_wrong(seed: int, index: int, outcome: Outcome) -> None:
    print(f"WRONG case {index} of seed {seed}: {outcome.damage}")
    for line in outcome.wrong:
        print(f"    {line}")
    for line in outcome.told[:3]:
        print(f"    told: {line}")


def main() -> int:
    """Runs, prints, and ends with 0 unless a case went wrong."""
    parser = argparse.ArgumentParser(description="Damages files of a data directory.")
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--real-files", type=int, default=REAL_SHARE, metavar="N")
    arguments = parser.parse_args()
    faulthandler.enable()
    began = time.perf_counter()
    corpora = build_corpora(arguments.seed)
    if arguments.only is not None:
        is_real = bool(arguments.real_files) and arguments.only % arguments.real_files == 0
        outcome = run_one(corpora, arguments.seed, arguments.only, is_real=is_real)
        print(f"{outcome.verdict}: {outcome.damage}")
        for line in (*outcome.wrong, *outcome.told):
            print(f"    {line}")
        return 1 if outcome.wrong else 0
    counts, wrong, on_real_files = run_many(
        corpora,
        arguments.seed,
        arguments.first,
        arguments.cases,
        real_share=arguments.real_files,
    )
    for index, outcome in wrong[:20]:
        _print_wrong(arguments.seed, index, outcome)
    print_table(counts)
    print(
        f"seed {arguments.seed}: {arguments.cases:,} cases, {on_real_files:,} of them on real "
        f"files; {len(wrong)} wrong; {time.perf_counter() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
