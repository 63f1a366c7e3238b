"""The asyncio form of a test cluster, and the rules of processes that both forms keep."""

import asyncio
import subprocess
import sys
from typing import Final

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.testing import AsyncTestCluster, start_cluster
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = [pytest.mark.slow, pytest.mark.live]


FORKED: Final = """
import os, sys
from tidelog.client.errors import ForkedClientError
from tidelog.testing import TestCluster

with TestCluster() as cluster:
    directory = cluster.directory_of(1)
    # Many times: a child that gRPC wakes up in crashes once in eight.
    for _ in range(20):
        if os.fork() == 0:
            refusals = 0
            for use in (lambda: cluster.kill(1), lambda: cluster.producer(), TestCluster):
                try:
                    use()
                except ForkedClientError:
                    refusals += 1
            cluster.close()
            os._exit(0 if refusals == 3 else 1)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        assert code == 0, f"a child may do nothing, and ended with {code}"
    assert directory.is_dir(), "what the child closed is still there"
    cluster.producer().send("t", b"x").get(10)
"""
FORGOTTEN: Final = """
from tidelog.testing import TestCluster

cluster = TestCluster()
cluster.start()
cluster.producer().send("t", b"x")
print(cluster.directory_of(1))
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_a_coroutine_produces_reads_and_kills_while_its_loop_goes_on() -> None:
    async def scenario() -> tuple[list[bytes], int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.ensure_future(count())
        async with start_cluster(brokers=1) as cluster:
            topic = await cluster.create_topic("letters", partitions=2)
            producer = cluster.producer(linger_ms=0)
            await producer.send_and_wait(topic, b"before", partition=0)
            await cluster.kill(1)
            await cluster.restart(1)
            await producer.send_and_wait(topic, b"after", partition=0)
            consumer = cluster.consumer(topic, auto_offset_reset="earliest")
            values = [(await consumer.getone()).value for _ in range(2)]
            await cluster.delete_topic(topic)
        counting.cancel()
        return values, turns

    values, turns = asyncio.run(scenario())
    assert values == [b"before", b"after"]
    assert turns > 20


def test_a_cluster_that_was_not_started_says_so() -> None:
    async def scenario() -> ErrorCode:
        with pytest.raises(TidelogError, match="`with` statement") as refused:
            await AsyncTestCluster().kill(1)
        return refused.value.code

    assert asyncio.run(scenario()) is ErrorCode.INVALID_ARGUMENT


def test_a_forked_child_can_neither_use_nor_harm_the_cluster_of_its_parent() -> None:
    run(FORKED)


def test_a_cluster_that_was_never_closed_ends_with_the_interpreter() -> None:
    from pathlib import Path

    assert not Path(run(FORGOTTEN).strip()).exists()
