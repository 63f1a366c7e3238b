"""A process that used a client ends: no thread of a call stops inside a lock that others need."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from tests.client.support.contract_server import ContractServer
from tests.support.waiting import HANG_SECONDS

LINGERING: Final = """
import atexit, sys, threading, time

def left_alone():
    # Registered before the SDK's own: runs behind it, right before the interpreter ends.
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            print(thread.name)

atexit.register(left_alone)

def linger(frame, event, argument):
    # On a loaded machine a thread may be out of work and still not ended. The producer's own is
    # awaited by its close, and would give the others time.
    is_end = event == "return" and frame.f_code.co_name == "run"
    if is_end and threading.current_thread().name != "tidelog-producer":
        time.sleep(0.3)

threading.setprofile(linger)
from tidelog.client import AdminClient, Consumer, Producer
"""
PRODUCE: Final = """
producer = Producer(bootstrap_servers=sys.argv[1])
producer.send("t", b"value").get(30)
"""
CONSUME: Final = """
consumer = Consumer("t", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest")
assert next(consumer).value == b"value"
"""
ASK: Final = """
admin = AdminClient(bootstrap_servers=sys.argv[1])
assert admin.list_topics() == ["t"]
"""

LOCKED: Final = """
import gc, threading
from tidelog.client.shared import lifecycle

lock, is_locked = threading.Lock(), threading.Event()

class Call:
    def __init__(self):
        self.itself = self
    def __del__(self):
        with lock:
            pass

def work():
    with lock:
        is_locked.set()
        threading.Event().wait(0.2)

gc.disable()
with lifecycle.watching_threads():
    threading.Thread(target=work, daemon=True).start()
is_locked.wait()
Call()
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as started:
        started.create("t", 1)
        yield started


@pytest.mark.parametrize("close", ["", "{}.close()"])
@pytest.mark.parametrize("name", ["producer", "consumer", "admin"])
def test_no_thread_of_a_client_outlives_the_interpreter(
    server: ContractServer, name: str, close: str
) -> None:
    programs = {"producer": PRODUCE, "consumer": PRODUCE + CONSUME, "admin": ASK}
    program = LINGERING + programs[name] + close.format(name)
    done = subprocess.run(
        [sys.executable, "-c", program, server.address],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_call_that_is_freed_at_the_end_does_not_wait_for_a_thread_that_stopped() -> None:
    subprocess.run([sys.executable, "-c", LOCKED], check=True, timeout=HANG_SECONDS)
