"""A bounded slice of the comparison with aiokafka and kafka-python.

The whole: `python -m tests.wire.interoperate --batches 10000`.
"""

import pytest

from tests.wire import peers
from tests.wire.interoperate import compare_many
from tidelog.wire.batch import Codec


def test_generated_batches_agree_with_two_other_implementations() -> None:
    counts = compare_many(seed=1, batches=25)
    assert counts["read by aiokafka"] == 25


@pytest.mark.slow
@pytest.mark.fuzz
def test_generated_batches_of_all_codecs_agree_with_two_other_implementations() -> None:
    counts = compare_many(seed=2, batches=400)
    assert all(counts[f"codec {codec.name}"] > 20 for codec in Codec)
    if not peers.kafka_python_lacks():
        assert counts["read by kafka-python"] > 300
