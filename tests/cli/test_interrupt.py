"""Ctrl-C and SIGTERM at a moment at which there is nothing left to put in order."""

import signal
import subprocess
import sys

import pytest

from tests.support.waiting import HANG_SECONDS

AT_THE_END = """
import os, signal
from tidelog.cli.frame import interrupt
from tidelog.client import Consumer
from tidelog.testing import TestCluster

interrupt.install()
with TestCluster() as cluster:
    consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g")
    interrupt.stop_in_order(consumer.wakeup)
    consumer.close()
    os.kill(os.getpid(), signal.{name})
    print("went on", flush=True)
"""


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_after_the_consumer_was_closed_ends_the_command_without_a_word(
    name: str, code: int
) -> None:
    assert hasattr(signal, name)
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END.format(name=name)],
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
