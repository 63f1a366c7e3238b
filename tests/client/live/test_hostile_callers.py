"""Wrong arguments: each is accepted as documented or refused by a typed error that names it, and
the object does its work afterwards.

The calls are made from the signatures: a parameter that comes tomorrow is tried as well.
"""

from collections.abc import Iterator

import pytest

from tests.client.hostile_others import OTHERS
from tests.client.support.hostile_structs import EXPORTED, TAKEN, StructSubject
from tests.client.support.hostile_subjects import SUBJECTS, tally_of
from tidelog.testing import TestCluster

pytestmark = [pytest.mark.slow, pytest.mark.live]

ALL = {**SUBJECTS, **OTHERS, "Structs": StructSubject}
TRIPLES_MIN = 300
"""Of each class; together they are some thirty thousand."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(settings={"auto_create_topics": False}) as running:
        for name in ("sent", "read", "held", "t", "5"):
            running.create_topic(name)
        running.producer().send("read", b"first").get(30)
        # Nobody coordinates groups before somebody asks who does.
        running.admin().list_group_offsets("g")
        yield running


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_argument_is_named_and_breaks_nothing(name: str, cluster: TestCluster) -> None:
    tally = tally_of(ALL[name](cluster.bootstrap))
    print(f"\n{name}: {tally}")
    assert tally.tried >= TRIPLES_MIN, "the signatures were not read"
    assert not tally.faults, f"{tally}\n" + "\n".join(tally.faults[:60])


def test_every_exported_struct_is_tried() -> None:
    assert set(TAKEN) == EXPORTED, "say how a new struct is used, or that it is only handed out"
