"""What tests of every room share: a Toxiproxy server, a Java home, no deadlines of examples.

Owns how a missing tool is treated: elsewhere a skip with the ways to get it, under CI=true a
failure; and how many workers share the tests, and what tests tell is shown at the end.
"""

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import distribution, java, toxiproxy
from tests.support.golden import Golden, Script, replay
from tests.support.telling import TOLD, Tell

# A run in the background ignores Ctrl-C, and so would every program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does, and fails no test.
settings.register_profile("tidelog", deadline=None)
settings.load_profile("tidelog")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the simulation's suites and of golden scripts."""
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write down what the cores answer today in the golden scripts, instead of comparing",
    )
    parser.addoption(
        "--every-plant",
        action="store_true",
        help="search every planted bug, not only those that are found soon and one by turns",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file, long ones first."""
    return distribution.make_scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker only: elsewhere the order of the files stays."""
    if hasattr(config, "workerinput"):
        distribution.longest_first(items)


def pytest_collection_finish() -> None:
    """What was imported stays to the end: no collection of garbage has to look through it again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests tell about what they did, whether they passed or not."""
    reports = [each for name in ("passed", "failed") for each in terminalreporter.getreports(name)]
    told = [text for each in reports for name, text in each.user_properties if name == TOLD]
    if told:
        terminalreporter.section("told by tests")
        for text in sorted(str(each) for each in told):
            terminalreporter.line(text)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """A line for the summary of the run."""
    return lambda text: record_property(TOLD, text)


@pytest.fixture(scope="session")
def toxiproxy_address() -> Iterator[tuple[str, int]]:
    """Host and port of a Toxiproxy server's API on loopback."""
    try:
        with toxiproxy.running_server() as address:
            yield address
    except toxiproxy.ToxiproxyMissingError as error:
        if toxiproxy.is_required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for JAVA_HOME."""
    home = java.find_java_home(tmp_path_factory.mktemp("java"))
    if home is None:
        if toxiproxy.is_required():
            pytest.fail(java.MISSING, pytrace=False)
        pytest.skip(java.MISSING)
    return home


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Runs a golden script; with `--rewrite` its answers are written anew."""
    is_rewriting = request.config.getoption("--rewrite")

    def run(path: Path, make: Callable[[], Script]) -> None:
        expected = path.read_text(encoding="utf-8")
        actual = replay(expected, make())
        if is_rewriting:
            path.write_text(actual, encoding="utf-8")
        else:
            assert actual == expected

    return run
