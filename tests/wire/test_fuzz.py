"""A bounded slice of the mutation fuzzer.

The whole: `python -m tidelog.chaos.fuzz.batches --mutations 1000000`.
"""

import pytest

from tidelog.chaos.fuzz.batches import REPAIRED_SHARE_MIN, run_many
from tidelog.wire.batch import Codec


@pytest.mark.fuzz
def test_mutated_batches_are_read_right_or_refused_by_a_typed_error() -> None:
    counts, _ = run_many(seed=3, first=0, count=100)
    assert counts["all", "CorruptBatch"] > 30


@pytest.mark.slow
@pytest.mark.fuzz
def test_mutations_of_every_codec_end_in_every_way() -> None:
    counts, _ = run_many(seed=4, first=0, count=4_000)
    assert counts["all", "repaired"] >= REPAIRED_SHARE_MIN * 4_000
    for codec in Codec:
        assert counts[codec.name, "parsed"] > 20
        assert counts[codec.name, "CorruptBatch"] > 20
        assert counts[codec.name, "BatchTooLarge"] > 2
