"""Random runs keep what Raft promises, and end with a quorum that goes on."""

import pytest

from tests.metadata_quorum.raft.storms import Storm


@pytest.mark.parametrize("seed", range(5))
def test_a_short_storm_breaks_no_promise(seed: int) -> None:
    Storm(seed).run(1_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_long_storm_breaks_no_promise(seed: int) -> None:
    storm = Storm(seed, voters=3 if seed % 2 else 5)
    storm.run(5_000)
    assert storm.counts["crashes"] > 0
