"""What runs nodes raises its limit of open files first."""

import asyncio
from pathlib import Path

from tests.ports.support.limits import open_files_limit
from tidelog.ports.real.disk.open_files import LIMIT
from tidelog.server.ports.real import real_ports
from tidelog.testing.core import ClusterCore
from tidelog.testing.loop import ClusterLoop


def test_a_node_begins_by_raising_its_limit_of_open_files(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with real_ports(tmp_path / "data", is_controller=True):
            return LIMIT.read()

    with open_files_limit(1_024) as hard:
        assert asyncio.run(run()) == (hard, hard)


def test_a_cluster_for_tests_begins_by_raising_the_limit_of_its_process() -> None:
    loop = ClusterLoop()
    with open_files_limit(1_024) as hard:

        async def run() -> tuple[int, int]:
            core = ClusterCore(loop, 1, {})
            try:
                return LIMIT.read()
            finally:
                await core.close()

        try:
            assert loop.run_until_complete(run()) == (hard, hard)
        finally:
            loop.close()
