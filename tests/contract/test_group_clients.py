"""A client in another language reads as a member of a group, and goes on when a leader is killed.

Node's runs here, its packages being few; those that need minutes of downloads and a compiler have
their commands in examples/grpc/README.md, and the same program tries them.
"""

import pytest

from examples.grpc.try_client import COUNT, try_client
from tests.contract.descriptors import TOP
from tests.contract.test_node_client import node_program

__all__ = ["node_program"]

GRPC = TOP / "examples/grpc"
LINES_MAX = 100
CLIENTS = ("node/numbers.js", "go/main.go", "java/src/main/java/Numbers.java")


@pytest.mark.slow
@pytest.mark.live
def test_a_node_client_reads_everything_across_the_kill_of_a_leader(node_program: str) -> None:
    lines = try_client([node_program, str(GRPC / "node/numbers.js")])
    assert sum(line.endswith("was killed") for line in lines) == 1
    assert lines[-1] == f"done: {COUNT} numbers"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_stays_short_and_the_page_says_how_it_is_tried(client: str) -> None:
    assert len((GRPC / client).read_text().splitlines()) <= LINES_MAX
    page = (GRPC / "README.md").read_text()
    assert f"]({client})" in page
    assert page.count("examples/grpc/try_client.py") >= len(CLIENTS)
