"""One seed, one trace hash: whatever the hash seed, the heap, the allocator or the collector do."""

import os
import subprocess
import sys

import pytest

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
        timeout=300,
        check=False,
    )
    assert not done.stderr, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    found = [line[1] for line in lines if len(line) == 2 and len(line[1]) == 32]
    assert len(found) == int(SEEDS), done.stdout
    return found


@pytest.fixture(scope="module")
def expected() -> list[str]:
    return hashes(PYTHONHASHSEED="0")


@pytest.mark.slow
def test_seeds_have_trace_hashes_of_their_own(expected: list[str]) -> None:
    assert len(set(expected)) == int(SEEDS)


@pytest.mark.slow
def test_another_hash_seed_gives_the_same_trace(expected: list[str]) -> None:
    assert hashes(PYTHONHASHSEED="12345") == expected


@pytest.mark.slow
def test_a_perturbed_heap_gives_the_same_trace(expected: list[str]) -> None:
    assert hashes(JUNK, PYTHONHASHSEED="1") == expected


@pytest.mark.slow
def test_another_allocator_gives_the_same_trace(expected: list[str]) -> None:
    assert hashes(PYTHONMALLOC="malloc", PYTHONHASHSEED="2") == expected


@pytest.mark.slow
def test_an_eager_collector_gives_the_same_trace(expected: list[str]) -> None:
    assert hashes(EAGER, PYTHONHASHSEED="3") == expected


@pytest.mark.slow
def test_a_quorum_gives_the_same_traces_whatever_is_around_it() -> None:
    first = hashes(suite="quorum", PYTHONHASHSEED="0")
    assert len(set(first)) == int(SEEDS)
    assert hashes(JUNK, suite="quorum", PYTHONHASHSEED="12345", PYTHONMALLOC="malloc") == first
    assert hashes(EAGER, suite="quorum", PYTHONHASHSEED="3") == first


@pytest.mark.slow
def test_the_partition_log_gives_the_same_traces_whatever_is_around_it() -> None:
    first = hashes(suite="log", PYTHONHASHSEED="0")
    assert len(set(first)) == int(SEEDS)
    assert hashes(JUNK, suite="log", PYTHONHASHSEED="12345", PYTHONMALLOC="malloc") == first
    assert hashes(EAGER, suite="log", PYTHONHASHSEED="3") == first
