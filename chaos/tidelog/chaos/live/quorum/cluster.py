"""Several node processes that form one metadata quorum on loopback.

Owns which nodes there are, their fixed addresses and the cluster's id; formats them with one list
of first voters. It must never leave a process behind: `close` ends what it started, by pid.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from tidelog.chaos.live.processes.ports import free_ports
from tidelog.chaos.live.processes.server import (
    CONTROLLER,
    Condition,
    Place,
    Reach,
    ServerProcess,
    wait_until,
)
from tidelog.chaos.live.quorum.client import CONTROL_MS, QuorumClient, QuorumSeen
from tidelog.wire.errors import ErrorCode, TidelogError

SERVE_SECONDS_MAX: Final = 40.0
LEADER_SECONDS_MAX: Final = 30.0
CATCH_UP_SECONDS_MAX: Final = 60.0
CONTACT_MS_MAX: Final = 1_000
"""The leader heard of a voter at most so long ago: it lives."""


Detour = Callable[[Mapping[int, Place]], Mapping[int, Reach]]
"""From where the nodes are to how each of them is reached, and reaches others."""


class QuorumCluster:
    """Nodes 1 to `nodes`; the first `voters` of them are formatted as the first voters."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int,
        voters: int,
        roles: Sequence[str] = CONTROLLER,
        data_dirs: dict[int, Path] | None = None,
        detour: Detour | None = None,
        planted: str = "",
    ) -> None:
        assert 1 <= voters <= nodes, "the first voters are nodes of the cluster"
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2 * nodes)]
        places = {
            number: Place(
                node_id=number,
                client_address=addresses[number - 1],
                cluster_address=addresses[nodes + number - 1],
            )
            for number in range(1, nodes + 1)
        }
        straight = Reach(bootstrap_servers=tuple(addresses[nodes : nodes + voters]))
        reaches = {} if detour is None else detour(places)
        self.cluster_id = os.urandom(16).hex()
        self.client = QuorumClient()
        self.nodes: dict[int, ServerProcess] = {}
        for number, place in places.items():
            self.nodes[number] = ServerProcess(
                directory / f"node{number}",
                place,
                roles=roles,
                reach=reaches.get(number, straight),
                data_dir=(data_dirs or {}).get(number),
                planted=planted,
            )
        self._first_voters = range(1, voters + 1)

    def __enter__(self) -> "QuorumCluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs, let the connections go."""
        for node in self.running():
            node.kill()
        self.client.__exit__(None, None, None)

    # -- life ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Format the first voters with one list, start them, wait for a leader."""
        uuids = {number: os.urandom(16).hex() for number in self._first_voters}
        voters = ",".join(
            f"{number}@{self.nodes[number].place.cluster_address}/{uuid}"
            for number, uuid in uuids.items()
        )
        for number in self._first_voters:
            self.nodes[number].format("--cluster-id", self.cluster_id, "--initial-voters", voters)
        self.start(*self._first_voters)
        self.wait_settled()

    def join(self, number: int) -> None:
        """Format a further node, or one that was wiped, and start it: it becomes a learner."""
        self.nodes[number].format("--cluster-id", self.cluster_id, "--join")
        self.start(number)

    def start(self, *numbers: int) -> None:
        """Start them all, then wait until each serves."""
        for number in numbers:
            self.nodes[number].start()
        for number in numbers:
            self.wait_serving(self.nodes[number])

    def restart_all(self) -> None:
        """kill -9 of every node that runs, then all of them again."""
        numbers = [node.node_id for node in self.running()]
        for number in numbers:
            self.nodes[number].kill()
        self.start(*numbers)
        self.wait_settled()

    def running(self) -> list[ServerProcess]:
        """The nodes whose process is there."""
        return [node for node in self.nodes.values() if node.is_running]

    def answering(self) -> list[ServerProcess]:
        """Those of them that are not paused."""
        return [node for node in self.running() if not node.is_paused]

    # -- what an operator sees -------------------------------------------------------------------

    def describe(self) -> QuorumSeen:
        """By the first node that can tell."""
        problems: list[str] = []
        for node in self.answering():
            try:
                return self.client.ask(self.client.describe(node.place.client_address, CONTROL_MS))
            except TidelogError as error:
                problems.append(f"node {node.node_id}: {error.code.name} {error.happened}")
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried="describe the quorum", happened="; ".join(problems)
        )

    def leader(self) -> ServerProcess:
        """The node that leads now."""
        return self.nodes[self.describe().leader_id]

    def follower(self) -> ServerProcess:
        """A voter that does not lead."""
        seen = self.describe()
        return self.nodes[
            next(each.node_id for each in seen.voters if each.node_id != seen.leader_id)
        ]

    def wait_serving(self, node: ServerProcess) -> None:
        """Until its client listener answers; the quorum may still be without a leader."""

        def is_serving() -> str | None:
            if not node.is_running:
                raise node.failed("start the node", "its process has ended")
            try:
                self.client.ask(self.client.read_settings(node.place.client_address, 1_000))
            except TidelogError as error:
                if error.code is ErrorCode.INVALID_ARGUMENT:
                    return None
                return f"{error.code.name}: {error.happened}"
            return None

        try:
            wait_until(is_serving, SERVE_SECONDS_MAX, tried=f"start node {node.node_id}")
        except TidelogError as error:
            raise node.failed(error.tried, error.happened) from None

    def wait_settled(self) -> QuorumSeen:
        """Until there is a leader that hears of every voter that runs, and none of them lags."""
        found: list[QuorumSeen] = []

        def is_settled() -> str | None:
            try:
                seen = self.describe()
            except TidelogError as error:
                return error.happened
            alive = {node.node_id for node in self.answering()}
            for each in seen.members:
                is_silent = not 0 <= each.last_contact_ms <= CONTACT_MS_MAX
                if each.node_id in alive and (is_silent or each.is_repairing):
                    return f"node {each.node_id} is not heard of, or is repairing"
            found[:] = [seen]
            return None

        self.wait(is_settled, LEADER_SECONDS_MAX, tried="settle the quorum")
        self.wait_applied(found[0].commit_index)
        return found[0]

    def wait_applied(self, index: int) -> None:
        """Until every node that answers shows the entry."""
        for node in self.answering():

            def is_applied(address: str = node.place.client_address) -> str | None:
                try:
                    _, applied = self.client.ask(self.client.read_settings(address, CONTROL_MS))
                except TidelogError as error:
                    return f"{error.code.name}: {error.happened}"
                return None if applied >= index else f"it shows {applied}, not {index} yet"

            self.wait(is_applied, CATCH_UP_SECONDS_MAX, tried=f"catch up node {node.node_id}")

    def wait(self, condition: Condition, seconds_max: float, *, tried: str) -> float:
        """`wait_until`, with the nodes' logs in the error."""
        try:
            return wait_until(condition, seconds_max, tried=tried)
        except TidelogError as error:
            logs = "\n".join(
                f"--- node {node.node_id}\n{node.log_text()[-1_500:]}" for node in self.running()
            )
            raise TidelogError(
                error.code, tried=error.tried, happened=f"{error.happened}\n{logs}"
            ) from None
