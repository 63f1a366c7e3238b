"""One seed, one trace hash: whatever the hash seed, the heap, the allocator or the collector do."""

import os
import subprocess
import sys

import pytest

from tests.support.waiting import HANG_SECONDS

SEEDS = "3"

PLAIN = "import sys; from tidelog.chaos.sim.__main__ import main; sys.exit(main(sys.argv[1:]))"
JUNK = "junk = [bytearray(n % 977) for n in range(200_000)]; del junk[::3]; " + PLAIN
EAGER = "import gc; gc.set_threshold(40, 2, 2); gc.disable = lambda: None; " + PLAIN


def hashes(program: str = PLAIN, *, suite: str = "skeleton", **environment: str) -> list[str]:
    arguments = ["--suite", suite, "--seeds", SEEDS, "--first-seed", "5", "--hashes"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert not done.stderr, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    found = [line[1] for line in lines if len(line) == 2 and len(line[1]) == 32]
    assert len(found) == int(SEEDS), done.stdout
    return found


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["skeleton", "quorum", "log", "clients"])
def test_a_suite_gives_the_same_traces_whatever_is_around_it(suite: str) -> None:
    first = hashes(suite=suite, PYTHONHASHSEED="0")
    assert len(set(first)) == int(SEEDS)
    assert hashes(JUNK, suite=suite, PYTHONHASHSEED="12345", PYTHONMALLOC="malloc") == first
    assert hashes(EAGER, suite=suite, PYTHONHASHSEED="3") == first
