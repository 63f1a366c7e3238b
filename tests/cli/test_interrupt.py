"""Ctrl-C and SIGTERM: what a command says then, and that it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.cli.partition.throttle import REMOVE_THROTTLE

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


SAYING: Final = """
import argparse, os, signal
from types import SimpleNamespace as Given
from tidelog.cli.broker import drain
from tidelog.cli.cluster import rebalance
from tidelog.cli.cluster.rebalance_run import Execution
from tidelog.cli.cluster.rebalance_plan import Move
from tidelog.cli.frame import interrupt
from tidelog.client.types.records import TopicPartition

class Admin:
    def __getattr__(self, name):
        def call(*given, **named):
            if name == "drain_broker":
                return Given(remaining_replicas=3, warnings=())
            if name == "describe_configs":
                return [Given(entries=())]
            if name == "alter_partition_reassignments":
                return dict.fromkeys(given[0])
            if name in ("list_brokers", "list_partition_reassignments"):
                os.kill(os.getpid(), signal.{signal})
            raise AssertionError(name)
        return call

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

interrupt.install()
admin = Admin()
if "{command}" == "drain":
    drain.admin_client, drain.note_voter = (lambda _: admin), (lambda *_: None)
    drain.run(Given(broker=3, wait=True, throttle=5000, cancel=False, dry_run=False, json=False,
                    timeout=None))
else:
    move = Move(partition=TopicPartition("t", 0), after=(1,), before=(2,), size_bytes=1)
    running = Execution(admin, [move], throttle=5000, say=print)
    running._start = lambda moves: admin.list_brokers()
    rebalance._carry_out(running, Given(timeout=None, no_wait={no_wait}, at_once=1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["drain", "rebalance", "rebalance --no-wait"])
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_move_says_that_it_goes_on_and_how_the_throttle_is_removed(
    command: str, name: str, code: int
) -> None:
    program = (
        SAYING.replace("{signal}", name)
        .replace("{command}", command.split()[0])
        .replace("{no_wait}", str("--no-wait" in command))
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == code, done
    assert "goes on" in done.stderr
    assert f"the throttle stays: afterwards `{REMOVE_THROTTLE}`" in done.stderr
    assert "Traceback" not in done.stderr


INTERRUPTING: Final = """
import importlib.abc, os, signal, sys

class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tidelog", "python -m tidelog"])
@pytest.mark.parametrize(
    "module", ["tidelog.cli.main", "tidelog.cli.own_words", "tidelog.wire.nearest", "argparse"]
)
def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_word(
    form: str, module: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    script = [str(Path(sys.executable).with_name("tidelog"))]
    command = script if form == "tidelog" else [sys.executable, "-m", "tidelog"]
    done = subprocess.run(
        [*command, "topic", "list"],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPT_AT": module},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_program_that_imports_the_command_keeps_its_own_ctrl_c() -> None:
    program = "import signal, tidelog.cli.main\nprint(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=True,
    )
    assert done.stdout == "default_int_handler\n"
