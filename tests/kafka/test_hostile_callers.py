"""Wrong arguments under kafka-python's names: each is accepted, or refused by an error that a
script can name and that names the argument, and the object does its work afterwards.

The calls are made from the signatures and the table of options: what comes tomorrow is tried too.
"""

from collections.abc import Iterator

import pytest

import tidelog.kafka
import tidelog.kafka.admin
from tests.client.support.hostile_structs import structs_of
from tests.client.support.hostile_subjects import tally_of
from tests.kafka.support.hostile_subjects import SUBJECTS, TAKEN
from tidelog.testing import TestCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore::tidelog.kafka.shared.options.KafkaOptionWarning"),
]

TRIPLES_MIN = 300
"""Of each class."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(settings={"auto_create_topics": False}) as running:
        for name in ("sent", "read", "held", "t", "5"):
            running.create_topic(name)
        running.producer().send("read", b"first").get(30)
        # Nobody coordinates groups before somebody asks who does.
        running.admin().list_group_offsets("g")
        yield running


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_wrong_argument_is_named_and_breaks_nothing(name: str, cluster: TestCluster) -> None:
    tally = tally_of(SUBJECTS[name](cluster.bootstrap))
    print(f"\n{name}: {tally}")
    assert tally.tried >= TRIPLES_MIN, "the signatures were not read"
    assert not tally.faults, f"{tally}\n" + "\n".join(tally.faults[:60])


def test_every_exported_struct_is_tried() -> None:
    exported = structs_of(tidelog.kafka) | structs_of(tidelog.kafka.admin)
    assert exported <= set(TAKEN), "say how a new struct is used, or that it is only handed out"
