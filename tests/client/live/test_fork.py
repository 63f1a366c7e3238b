"""Importing starts nothing, and a slice of the fork matrix holds."""

import pickle
import subprocess
import sys

import pytest

from tests.client.support import fork_matrix
from tests.support.waiting import HANG_SECONDS
from tidelog.client import AdminClient, Consumer, Producer
from tidelog.client.errors import ForkedClientError

pytestmark = pytest.mark.slow


def test_importing_and_making_a_client_does_not_even_import_grpc() -> None:
    program = (
        "import sys, threading, tidelog.client as c\n"
        "c.Producer().close(); c.Consumer('t').close(); c.AdminClient().close()\n"
        "assert 'grpc' not in sys.modules, 'grpc was imported'\n"
        "assert threading.active_count() == 1, 'a thread was started'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_SECONDS)


@pytest.mark.parametrize("client", [Producer(), Consumer(), AdminClient()])
def test_a_client_cannot_be_pickled(client: Producer | Consumer | AdminClient) -> None:
    with pytest.raises(ForkedClientError, match="pickle"):
        pickle.dumps(client)


def test_grpc_of_somebody_else_counts_as_well() -> None:
    program = (
        "import os, sys, grpc\n"
        "channel = grpc.insecure_channel('127.0.0.1:1')\n"
        "try: channel.unary_unary('/a/b')(b'', timeout=5)\n"
        "except grpc.RpcError: pass\n"
        "from tidelog.client import Producer\n"
        "from tidelog.client.errors import ForkedClientError\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: Producer()\n"
        "    except ForkedClientError: os._exit(7)\n"
        "    os._exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_SECONDS)


def test_a_slice_of_the_matrix_has_no_hang_no_crash_and_the_errors_that_are_due(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = fork_matrix.main(["--runs", "2"])
    assert code == 0, capfd.readouterr().out
