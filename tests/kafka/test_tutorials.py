"""What tutorials and services written for kafka-python 2 do, with only their import changed.

The scripts are made after what is published; what they print beside them is what kafka-python
documents, read and kept by hand: other than those of `scripts/` they were not run against Kafka.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import kafka_scripts
from bench.kafka_scripts import Ran
from tidelog.testing import TestCluster

pytestmark = [pytest.mark.slow, pytest.mark.live]

TUTORIALS = Path(__file__).parent / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.py"))
AT_ONCE = 2


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ran]]]:
    """Every script, on one node; each has topics of its own."""
    directory = tmp_path_factory.mktemp("tutorials")

    def run(name: str) -> Ran:
        text = (TUTORIALS / f"{name}.py").read_text("utf-8")
        script = directory / f"{name}.py"
        script.write_text(kafka_scripts.with_import_changed(text), "utf-8")
        return kafka_scripts.run(script, cluster.bootstrap)

    with TestCluster() as cluster, ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_script_of_a_tutorial_prints_what_it_should(
    ran: dict[str, Future[Ran]], name: str
) -> None:
    found = ran[name].result()
    assert found.errors == ""
    assert found.output == (TUTORIALS / f"{name}.txt").read_text("utf-8")
