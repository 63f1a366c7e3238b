"""Every program of examples/ does what its first lines promise, on a real cluster."""

import json
import os
import runpy
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.testing import TestCluster
from tools.repository import TOP

EXAMPLES = TOP / "examples"
LINES_MAX = 60

PRINTS = {
    "hello.py": "read 'hello, log 2'",
    "json_values.py": "cellar: 11.5 °C\nattic: 28.25 °C\n",
    "keys_and_order.py": "ada: +100 -30\nbob: +20 -20\ncyd: +5\n",
    "fire_and_forget.py": "10000 arrived\n",
    "strict_order.py": "offsets rise by one: True\nread in the order of writing: True\n",
    "replay.py": "an hour after noon: lunch dinner\nonce more: breakfast lunch dinner\n",
    "groups.py": "together: [2, 2] partitions, in all [0, 1, 2, 3]\nalone again: [4] partitions",
    "work_queue.py": "200 jobs done, 200 different ones\n",
    "broadcast.py": "".join(
        f"{group}: TIDE 101, TIDE 103, TIDE 99\n" for group in ("website", "alerts", "archive")
    ),
    "at_least_once.py": "payment 4 came again: booked already\n10 payments booked\n",
    "at_most_once.py": "9 of 10 shown, 9 different ones\n",
    "transfers.py": "ada -100 bob +0 cyd +100 in all 0\n",
    "exactly_once.py": "100 orders, 100 bills, 100 different ones\n",
    "two_phases.py": "rows: silk rum\nrecords: silk rum\n",
    "table_state.py": "sold out: {'espresso': '2.40'}\nbefore the last price: {'espresso': '2.20'",
    "arrow_tables.py": "TIDE: 329967\nWAVE: 165033\n",
    "request_reply.py": "1 2 3 -> 6\n40 2 -> 42\n",
}
"""What each prints, or a part of it."""

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster() as started:
        yield started


@pytest.fixture
def environment(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)
    return dict(os.environ)


@pytest.mark.parametrize("name", PRINTS)
def test_a_program_prints_what_it_promises_and_does_so_again(
    name: str, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "TIDELOG_BOOTSTRAP" in environment
    if name == "arrow_tables.py":
        pytest.importorskip("pyarrow")
    # Members hear of each other at their heartbeats: seconds, which need not pass twice.
    for _ in range(1 if name == "groups.py" else 2):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert PRINTS[name] in capsys.readouterr().out


def test_the_web_handler_answers_once_the_record_is_stored(
    cluster: TestCluster, environment: dict[str, str]
) -> None:
    server = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "web_handler.py"), "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        places = [
            json.loads(urllib.request.urlopen(f"{url}visits", body, HANG_SECONDS).read())
            for body in (b"first", b"second")
        ]
        assert places == [{"partition": 0, "offset": offset} for offset in range(2)]
        with cluster.consumer("visits", auto_offset_reset="earliest") as consumer:
            assert [next(consumer).value for _ in range(2)] == [b"first", b"second"]
        server.send_signal(signal.SIGINT)
        assert server.wait(HANG_SECONDS) in (-signal.SIGINT, 130, 1)
    finally:
        server.kill()
        server.communicate()


def test_the_typed_program_runs_and_its_own_test_passes(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.typed import orders

    orders.main(environment["TIDELOG_BOOTSTRAP"])
    assert "ada 1200" in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/typed"],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def programs() -> list[Path]:
    return sorted(EXAMPLES.glob("*.py"))


def test_every_program_is_short_and_says_what_to_type() -> None:
    for path in programs():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= LINES_MAX, path.name
        assert f"`python examples/{path.name}`" in text.partition('"""\n')[0], path.name
        assert "sleep(" not in text, path.name


def test_every_program_has_a_test() -> None:
    assert {path.name for path in programs()} == {*PRINTS, "web_handler.py"}
