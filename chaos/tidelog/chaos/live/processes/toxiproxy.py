"""Finds or starts a Toxiproxy server for whoever breaks connections on purpose.

Looks, in this order, at $TIDELOG_TOXIPROXY (the address of a server that runs already), for
`toxiproxy-server` on PATH, and for `.tools/server`, which it builds with Go when it can. It ends
only a server that it has started, by its process id.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tidelog.chaos.live.processes.ports import free_port

TOP: Final = Path(__file__).resolve().parents[5]
BUILT: Final = TOP / ".tools/server"
MODULE: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
BUILD_TIMEOUT_SECONDS: Final = 300
START_TIMEOUT_SECONDS: Final = 10.0
WAYS: Final = (
    "no Toxiproxy server: set TIDELOG_TOXIPROXY=http://host:port, put toxiproxy-server on PATH, "
    "or install Go, with which .tools/server is built"
)


class ToxiproxyMissingError(RuntimeError):
    """No server was found and none could be built."""


def find_server(built: Path = BUILT) -> str:
    """The address of a running server, or the program to start."""
    address = os.environ.get("TIDELOG_TOXIPROXY", "")
    if address:
        return address if "://" in address else f"http://{address}"
    program = shutil.which("toxiproxy-server")
    if program is not None:
        return program
    if not built.is_file():
        _build(built)
    return str(built)


def _build(built: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ToxiproxyMissingError(WAYS)
    built.parent.mkdir(exist_ok=True)
    environment = {**os.environ, "GOBIN": str(built.parent)}
    command = [go, "install", MODULE]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ToxiproxyMissingError(f"{WAYS}; `{' '.join(command)}` took too long") from error
    if done.returncode or not built.is_file():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ToxiproxyMissingError(f"{WAYS}; `{' '.join(command)}` failed: {last}")


@contextmanager
def running_server() -> Iterator[tuple[str, int]]:
    """Host and port of a server's API; one that was started here ends here."""
    found = find_server()
    if "://" in found:
        parts = urlsplit(found)
        assert parts.hostname is not None, f"TIDELOG_TOXIPROXY={found} has no host"
        yield parts.hostname, parts.port or 8474
        return
    port = free_port()
    process = subprocess.Popen(
        [found, "-host", "127.0.0.1", "-port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_listening(port, process)
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait(timeout=START_TIMEOUT_SECONDS)


def _wait_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except ConnectionRefusedError:
            # Nothing tells when the port opens; what can be waited for is the server's death.
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.02)
            assert process.poll() is None, f"toxiproxy ended with {process.returncode}"
    raise AssertionError(f"toxiproxy did not listen on {port} in {START_TIMEOUT_SECONDS} s")
