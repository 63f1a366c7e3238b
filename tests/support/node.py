"""A real node for a test: a process of its own, an ephemeral port, the test's directory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.chaos.live.processes.node import NodeProcess

__all__ = ["NodeProcess", "node", "running_node"]


@contextmanager
def running_node(
    directory: Path,
    *,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[NodeProcess]:
    """A started node, killed at the end."""
    node = NodeProcess(directory, arguments=arguments, environment=environment)
    node.start()
    try:
        yield node
    finally:
        if node.is_running:
            node.kill()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node for one test: `from tests.support.node import NodeProcess, node`."""
    with running_node(tmp_path) as started:
        yield started
