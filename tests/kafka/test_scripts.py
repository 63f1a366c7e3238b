"""Scripts for kafka-python with only their import changed print what they printed with Kafka.

`python -m bench.kafka_scripts --rewrite` has written the expected output, against Apache Kafka.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bench import kafka_scripts
from bench.kafka_scripts import Ran
from tests.support.node import running_node

AT_ONCE = 4
"""They wait more than they compute: most of them end when nothing comes for seconds."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ran]]]:
    """Every script, on one node; each has topics of its own."""
    directory = tmp_path_factory.mktemp("scripts")
    with (
        running_node(tmp_path_factory.mktemp("node")) as node,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        yield {
            name: pool.submit(kafka_scripts.run_migrated, name, node.bootstrap, directory)
            for name in kafka_scripts.names()
        }


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("name", kafka_scripts.names())
def test_a_script_prints_what_it_printed_with_kafka(ran: dict[str, Future[Ran]], name: str) -> None:
    found = ran[name].result()
    assert kafka_scripts.difference(name, kafka_scripts.expected(name), found.output) == ""
    assert found.errors == ""


def test_only_the_import_changes() -> None:
    text = "from kafka import A\nimport kafka\nimport kafka.errors\nx = 'from kafka'\n"
    changed = (
        "from tidelog.kafka import A\nfrom tidelog import kafka\nimport tidelog.kafka.errors\n"
        "x = 'from kafka'\n"
    )
    assert kafka_scripts.with_import_changed(text) == changed
