"""What tests of every room share: a Toxiproxy server, a Java home, no deadlines of examples.

Owns how a missing tool is treated: elsewhere a skip with the ways to get it, under CI=true a
failure.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import java, toxiproxy

# A run in the background ignores Ctrl-C, and so would every program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does, and fails no test.
settings.register_profile("tidelog", deadline=None)
settings.load_profile("tidelog")


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
