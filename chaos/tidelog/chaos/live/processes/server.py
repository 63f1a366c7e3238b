"""One node of a cluster in a process of its own: formatted by the command line, fixed addresses.

Owns the settings file, the directory and the process of one node. Every wait has a deadline, and
what does not happen in time raises with the node's log.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.processes.process import Process
from tidelog.wire.errors import ErrorCode, TidelogError

FORMAT_SECONDS_MAX: Final = 30.0
BOTH_ROLES: Final = ("broker", "controller")
CONTROLLER: Final = ("controller",)

Condition = Callable[[], str | None]
"""None: it holds; else why it does not hold yet."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node is, before and after every start."""

    node_id: int
    client_address: str
    cluster_address: str


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Detours on the way to and from a node: a proxy in between, for each of them."""

    advertised_client: str = ""
    """What clients are told; empty: where it listens."""
    bootstrap_servers: tuple[str, ...] = ()
    peer_addresses: Mapping[int, str] = {}
    """Where it reaches the others."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int
    output: str
    errors: str


def run_command(arguments: Sequence[str], *, seconds_max: float = FORMAT_SECONDS_MAX) -> Ended:
    """`tidelog ARGUMENTS` in a process of its own."""
    command = [sys.executable, "-m", "tidelog", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired:
        raise TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=f"run `tidelog {' '.join(arguments)}`",
            happened=f"it ran on for {seconds_max} s",
        ) from None
    return Ended(code=done.returncode, output=done.stdout, errors=done.stderr)


def settings_text(place: Place, data_dir: Path, roles: Sequence[str], reach: Reach) -> str:
    """A node's settings file."""
    peers = [f"{number} = {_quoted(each)}" for number, each in reach.peer_addresses.items()]
    return "\n".join(
        [
            f"node_id = {place.node_id}",
            f"data_dir = {_quoted(str(data_dir))}",
            f"roles = [{', '.join(map(_quoted, roles))}]",
            "[peer_addresses]",
            *peers,
            "[listeners.client]",
            f"bind = {_quoted(place.client_address)}",
            f"advertised = {_quoted(reach.advertised_client)}",
            "[listeners.cluster]",
            f"bind = {_quoted(place.cluster_address)}",
            "[quorum]",
            f"bootstrap_servers = [{', '.join(map(_quoted, reach.bootstrap_servers))}]",
            "",
        ]
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


class ServerProcess(Process):
    """`tidelog server` over a directory that outlives it."""

    def __init__(
        self,
        directory: Path,
        place: Place,
        *,
        roles: Sequence[str] = CONTROLLER,
        reach: Reach | None = None,
        data_dir: Path | None = None,
        planted: str = "",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(f"node {place.node_id}", directory / "node.log")
        self.place = place
        self.data_dir = data_dir or directory / "data"
        self.settings_file = directory / "node.toml"
        self.directory_uuid = b""
        self.environment: dict[str, str] = {}
        """Added to the environment of the next start."""
        self._planted = planted
        text = settings_text(place, self.data_dir, roles, reach or Reach())
        self.settings_file.write_text(text, encoding="utf-8")

    @property
    def node_id(self) -> int:
        """The same after each start."""
        return self.place.node_id

    def format(self, *how: str) -> None:
        """`tidelog storage format`, with the way that is given."""
        command = ["storage", "format", "--config", str(self.settings_file), "--json", *how]
        ended = run_command(command)
        if ended.code != 0:
            raise self.failed("format the node's directory", ended.errors.strip())
        uuid: str = msgspec.json.decode(ended.output)["directory_uuid"]
        self.directory_uuid = bytes.fromhex(uuid)

    def start(self) -> None:
        """Begin the process; whoever needs the node waits for an answer of it."""
        with self.log_file.open("ab") as log:
            command = server_command(self.settings_file, self._planted)
            self._begin(command, self.environment, output=log, errors=log)

    def wipe(self) -> None:
        """Everything that it stored is gone."""
        assert not self.is_running, "a directory is wiped under a node that does not run"
        for each in self.data_dir.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    def journal(self) -> Path:
        """The quorum's youngest journal file."""
        return sorted((self.data_dir / "quorum").glob("journal-*.log"))[-1]


def server_command(settings_file: Path, planted: str = "") -> list[str]:
    """What starts a node; one that waits for its quorum serves already. `planted`: with that bug
    of the simulator's."""
    program = ["tidelog.chaos.live.processes.planted", planted] if planted else ["tidelog"]
    return [sys.executable, "-m", *program, "server", "--config", str(settings_file)]


def wait_until(
    is_so: Condition, seconds_max: float, *, tried: str, pause_seconds: float = 0.02
) -> float:
    """Ask again and again; how many seconds it took. A condition tells why it does not hold yet."""
    began = time.monotonic()
    while True:
        why_not = is_so()
        took = time.monotonic() - began
        if why_not is None:
            return took
        if took > seconds_max:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=tried,
                happened=f"not within {seconds_max:.0f} s: {why_not}",
            )
        time.sleep(pause_seconds)
