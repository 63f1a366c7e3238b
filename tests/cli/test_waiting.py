"""A producer that gets nowhere says so while it waits, and in the end with what it knows."""

import re

import pytest

from tests.cli.running import run_cli
from tests.client.support.contract_server import ContractServer
from tidelog.wire.errors import ErrorCode

pytestmark = [pytest.mark.slow, pytest.mark.live]


def test_produce_says_what_it_waits_for() -> None:
    with ContractServer() as server:
        server.create("few")
        server.judge = lambda topic, partition, before: ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS
        limits = ("-X", "delivery_timeout_ms=7000", "-X", "request_timeout_ms=2000")
        done = run_cli("produce", "few", *limits, bootstrap=server.address, stdin=b"line\n")
    assert done.code == 1
    first, *rest = done.err.splitlines()
    assert re.fullmatch(
        r"waiting: partition few-0: as the test wants \[NOT_ENOUGH_IN_SYNC_REPLICAS\], "
        r"for \d+ s, \d+ tries; records are given up after delivery_timeout_ms=7000",
        first,
    )
    assert len(rest) == 3, done.err
    assert "[NOT_ENOUGH_IN_SYNC_REPLICAS]" in rest[0]
    assert re.search(r"not stored within .*\(\d+ tries; so for \d\.\d s\)", rest[1])
