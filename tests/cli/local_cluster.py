"""A cluster of `tidelog server` processes for a test: formatted, started, killed, asked."""

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.cli.running import Done, cli_command, cli_environment, run_cli
from tests.support.ports import free_ports
from tests.support.waiting import HANG_SECONDS, wait_until

CLUSTER_ID: Final = "test-cluster"


class LocalCluster:
    """Nodes 1 to `count`, each with a file and two ports of its own."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * count)
        self.client = {node: f"127.0.0.1:{ports[node - 1]}" for node in range(1, count + 1)}
        self.cluster = {
            node: f"127.0.0.1:{ports[count + node - 1]}" for node in range(1, count + 1)
        }
        for node in self.client:
            self.file(node).write_text(self._settings(node), encoding="utf-8")

    def file(self, node: int) -> Path:
        """The node's configuration."""
        return self.directory / f"node{node}.toml"

    def data(self, node: int) -> Path:
        """The node's data directory."""
        return self.directory / f"data{node}"

    def log(self, node: int) -> Path:
        """What the node has said on stderr."""
        return self.directory / f"log{node}"

    def _settings(self, node: int) -> str:
        servers = ", ".join(f'"{address}"' for address in self.cluster.values())
        return (
            f'node_id = {node}\ndata_dir = "{self.data(node)}"\n'
            f'[listeners.client]\nbind = "{self.client[node]}"\n'
            f'[listeners.cluster]\nbind = "{self.cluster[node]}"\n'
            f"[quorum]\nbootstrap_servers = [{servers}]\n"
        )

    def format(self, node: int, *arguments: str) -> None:
        """`tidelog storage format`, which must work."""
        done = run_cli("storage", "format", "--config", str(self.file(node)), *arguments)
        assert (done.code, done.err) == (0, ""), done

    def format_voters(self, *nodes: int, strangers: Sequence[int] = ()) -> dict[int, str]:
        """The nodes as the first voters of a new cluster; strangers believe in another one. Their
        directories' uuids."""
        drawn = run_cli("storage", "random-uuid", "-n", str(len(nodes))).out.decode().split()
        voters = ",".join(
            f"{node}@{self.cluster[node]}/{uuid}" for node, uuid in zip(nodes, drawn, strict=True)
        )
        for node in nodes:
            cluster_id = f"not-{CLUSTER_ID}" if node in strangers else CLUSTER_ID
            self.format(node, "-C", cluster_id, "--initial-voters", voters)
        return dict(zip(nodes, drawn, strict=True))

    def start(self, *nodes: int) -> None:
        """All of them at once; returns when each serves."""
        self.begin(*nodes)
        for node in nodes:
            self._wait(node, self._out(node), b"cluster: ")

    def wait_logged(self, node: int, text: str) -> None:
        """Until a node that was begun has said so."""
        self._wait(node, self.log(node), text.encode())

    def _wait(self, node: int, file: Path, text: bytes) -> None:
        def is_there() -> bool:
            assert self._processes[node].poll() is None, self.log(node).read_text("utf-8")
            return text in file.read_bytes()

        wait_until(is_there, told=lambda: self.log(node).read_text("utf-8"))

    def begin(self, *nodes: int) -> None:
        """All of them at once, whether or not they can serve."""
        for node in nodes:
            with self.log(node).open("ab") as log, self._out(node).open("wb") as out:
                self._processes[node] = subprocess.Popen(
                    cli_command("server", "--config", str(self.file(node))),
                    env=cli_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                )

    def _out(self, node: int) -> Path:
        return self.directory / f"out{node}"

    def stop(self, *nodes: int, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends them and waits."""
        for node in nodes:
            self._processes[node].send_signal(number)
        for node in nodes:
            self._processes.pop(node).wait(HANG_SECONDS)

    def close(self) -> None:
        """Kill what still runs."""
        self.stop(*list(self._processes), number=signal.SIGKILL)

    def run(self, *arguments: str) -> Done:
        """A command that finds the cluster by every node that runs."""
        bootstrap = ",".join(self.client[node] for node in sorted(self._processes))
        return run_cli(*arguments, bootstrap=bootstrap)

    def ok(self, *arguments: str) -> str:
        """A command that works and says nothing on stderr."""
        done = self.run(*arguments)
        assert (done.code, done.err) == (0, ""), done
        return done.out.decode()

    def quorum(self) -> "Shown":
        """`tidelog quorum describe --json`."""
        return msgspec.json.decode(self.ok("quorum", "describe", "--json"), type=Shown)

    def wait_learner(self, node: int) -> "ShownMember":
        """Until the node is a learner without lag."""

        def learners() -> "list[ShownMember]":
            found = [each for each in self.quorum().members if each.node_id == node]
            return [each for each in found if each.is_learner and each.lag == 0]

        return wait_until(learners, told=lambda: self.ok("quorum", "describe"))[0]


class ShownMember(msgspec.Struct, frozen=True, kw_only=True):
    """Of the JSON of `quorum describe`."""

    node_id: int
    directory_uuid: str
    is_learner: bool
    lag: int
    match_index: int
    state: str
    last_contact_ms: int


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `quorum describe`."""

    leader_id: int
    term: int
    last_index: int
    commit_index: int
    members: list[ShownMember]

    @property
    def voters(self) -> list[int]:
        """Node ids."""
        return [each.node_id for each in self.members if not each.is_learner]

    def member(self, node: int) -> ShownMember:
        """The only one of this node."""
        (found,) = [each for each in self.members if each.node_id == node]
        return found


def without_uuids(text: str) -> str:
    """What is drawn, left out."""
    return re.sub(r"[0-9a-f]{32}", "UUID", text)
