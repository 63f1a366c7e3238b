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


UNSTOPPED: Final = """
import asyncio, gc, sys
from tidelog.client.aio import AsyncConsumer, AsyncProducer, AsyncTable

async def producer():
    made = AsyncProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
    for _ in range(3):
        await made.send("t", b"lost")
    return made

async def member():
    made = AsyncConsumer("t", group_id="g", bootstrap_servers=sys.argv[1])
    await made.getmany(timeout_ms=1)
    return made

async def table():
    return await AsyncTable("t", bootstrap_servers=sys.argv[1]).__aenter__()
"""
ENDS: Final = {
    "asyncio.run": "asyncio.run({}())",
    "a loop that is closed": "loop = asyncio.new_event_loop()\n"
    "kept = loop.run_until_complete({}())\nloop.close()",
    "a loop that is left": "loop = asyncio.new_event_loop()\nkept = loop.run_until_complete({}())",
    "a client that is freed": "loop = asyncio.new_event_loop()\nloop.run_until_complete({}())\n"
    "loop.close()\ndel loop\ngc.collect()",
}
TOLD: Final = {
    "producer": "AsyncProducer was not closed before its event loop ended: 3 record(s)",
    "member": "AsyncConsumer was not closed before its event loop ended: it has not left group 'g'",
    "table": "ResourceWarning: AsyncTable was not closed",
}


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("end", ENDS)
def test_an_asyncio_client_that_nobody_closed_says_what_is_lost(
    server: ContractServer, name: str, end: str
) -> None:
    program = UNSTOPPED + ENDS[end].format(name)
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program, server.address],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(TOLD[name]) == 1, done.stderr
    assert done.stderr.count("ResourceWarning: Async") == 1, done.stderr
    # Of a loop that is freed with tasks in it Python and gRPC say what they like.
    assert "Traceback" not in done.stderr or end != "asyncio.run"
    assert "the asyncio producer failed" not in done.stderr


def test_an_asyncio_client_that_was_closed_says_nothing(server: ContractServer) -> None:
    program = (
        UNSTOPPED
        + """
async def main():
    for make in (producer, member, table):
        await (await make()).close()

asyncio.run(main())
gc.collect()
"""
    )
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program, server.address],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_call_that_is_freed_at_the_end_does_not_wait_for_a_thread_that_stopped() -> None:
    subprocess.run([sys.executable, "-c", LOCKED], check=True, timeout=HANG_SECONDS)


FOREIGN: Final = """
import _thread, threading
from tidelog.client.shared import lifecycle

is_begun, never = threading.Event(), threading.Event()

def foreign():
    # As a thread of gRPC's that runs a callback: Python makes an object for it that stands for it.
    threading.current_thread()
    is_begun.set()
    never.wait()

with lifecycle.watching_threads():
    _thread.start_new_thread(foreign, ())
    is_begun.wait()
"""


def test_a_thread_that_python_has_not_started_does_not_end_the_process_by_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
