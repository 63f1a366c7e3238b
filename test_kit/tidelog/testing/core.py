"""The nodes of a test cluster together: their quorum, their addresses, and what is done to one.

Owns the temporary directory and the order of a start and an end. Everything here runs on the
cluster's loop; changes take turns.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.metadata.image.image import Image
from tidelog.ports.real.disk import open_files
from tidelog.server.settings.configuration import DEV_DEFAULTS, NodeConfiguration
from tidelog.server.settings.loading import load, settings
from tidelog.server.storage.formatting import FormatOptions, InitialVoter
from tidelog.testing.loop import ClusterLoop
from tidelog.testing.node import DIRECTORIES_PER_NODE, ClusterNode, NodeState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId
from tidelog.wire.nearest import did_you_mean

UUID_BYTES: Final = 16
LOOK_SECONDS: Final = 0.02
"""Between two looks at what the nodes know."""
PREFIX: Final = "tidelog-test-"

DEFAULTS: Final[Mapping[str, str]] = {
    "quorum.election_timeout_ms": "250",
    "quorum.heartbeat_ms": "50",
}
"""What differs from a node's own defaults: everything is a thread away."""
DEFAULTS_OF_SEVERAL: Final[Mapping[str, str]] = {"quorum.session_timeout_ms": "3000"}
"""A node that is paused is replaced sooner, so that tests of that are short."""


class ClusterCore:
    """`start`, then everything else, `close` at the end."""

    def __init__(self, loop: ClusterLoop, brokers: int, given: Mapping[str, str]) -> None:
        configuration = configuration_of(brokers, given)
        self.nodes: dict[int, ClusterNode] = {}
        self.failures: list[str] = []
        """Of nodes that ended by themselves."""
        self._turn = asyncio.Lock()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        # All nodes share this process, which a shell may have given 256.
        open_files.raise_limit()
        kept = open_files.table_size(DIRECTORIES_PER_NODE * brokers)
        for number in range(1, brokers + 1):
            self.nodes[number] = ClusterNode(
                number, self.directory / f"node-{number}", loop, self._note_failure, kept
            )
        options = self._format_options(brokers, configuration)
        for node in self.nodes.values():
            node.prepare(configuration, options)

    @property
    def bootstrap(self) -> str:
        """Where clients find it, also while some of it is down."""
        return ",".join(node.client_port.address for node in self.nodes.values())

    async def start(self) -> None:
        """All nodes at once; returns when every one of them serves."""
        async with self._turn:
            await _together([node.start() for node in self.nodes.values()])

    async def close(self) -> None:
        """Nothing of it is left; the data need no orderly stop."""
        async with self._turn:
            try:
                await _together([node.kill() for node in self.nodes.values() if node.is_up])
            finally:
                for node in self.nodes.values():
                    node.close()
                shutil.rmtree(self.directory, ignore_errors=True)

    async def kill(self, number: int) -> None:
        """Of a node that is up."""
        async with self._turn:
            await self._up(number, "kill").kill()

    async def crash(self, number: int) -> None:
        """Of a node that is up."""
        async with self._turn:
            await self._up(number, "crash").crash()

    async def stop(self, number: int) -> None:
        """Of a node that is up."""
        async with self._turn:
            await self._up(number, "stop").stop()

    async def pause(self, number: int) -> None:
        """Of a node that is up."""
        async with self._turn:
            await self._up(number, "pause").pause()

    async def resume(self, number: int) -> None:
        """Of a node that is up."""
        async with self._turn:
            self._up(number, "resume").resume()

    async def restart(self, number: int) -> None:
        """Of any node; one that is up is stopped first."""
        async with self._turn:
            await self._restart(self.node(number, "restart"))

    async def heal(self) -> None:
        """All nodes are up, go on, and are counted in by the controller."""
        async with self._turn:
            for node in self.nodes.values():
                node.resume()
            await _together([node.start() for node in self.nodes.values() if not node.is_up])
            # Nodes tell nobody outside of what their images learn.
            while not self._are_all_counted_in():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)

    def state(self, number: int) -> NodeState:
        """How a node is."""
        return self.node(number, "look at").state

    def leader_of(self, topic: str, partition: int) -> int:
        """Who leads it, as the node with the newest metadata knows; 0: nobody does."""
        image = self._newest_image()
        found = image.topic_named(topic) if image is not None else None
        if found is None or not 0 <= partition < len(found.partitions):
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC if found is None else ErrorCode.UNKNOWN_PARTITION,
                tried=f"find the leader of {topic}-{partition}",
                happened="the cluster does not have it",
            )
        return max(0, found.partitions[PartitionId(partition)].leader_id)

    def controller(self) -> int:
        """Which node decides about metadata; 0: none at present."""
        for number, node in self.nodes.items():
            quorum = node.node.describe().quorum if node.node and node.is_up else None
            if quorum is not None and quorum.is_active_controller:
                return number
        return 0

    def node(self, number: int, verb: str) -> ClusterNode:
        """One of them."""
        node = self.nodes.get(number)
        if node is None:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=f"{verb} node {number}",
                happened=f"the cluster has nodes 1 to {len(self.nodes)}",
            )
        return node

    def _up(self, number: int, verb: str) -> ClusterNode:
        node = self.node(number, verb)
        if not node.is_up:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=f"{verb} node {number}",
                happened=f"it is {node.state.value}",
                hint=f"restart({number}) starts it.",
            )
        return node

    def _are_all_counted_in(self) -> bool:
        """Whether a new topic could have a replica on each of them."""
        image = self._newest_image()
        return image is not None and not any(each.is_fenced for each in image.brokers.values())

    def _newest_image(self) -> Image | None:
        views = [node.node.view() for node in self.nodes.values() if node.node and node.is_up]
        images = [view.image for view in views if view.image is not None]
        return max(images, key=lambda image: image.version) if images else None

    def _note_failure(self, node: ClusterNode, error: BaseException) -> None:
        self.failures.append(f"node {node.number}: {error}")

    def _format_options(self, brokers: int, configuration: NodeConfiguration) -> FormatOptions:
        voters = tuple(
            InitialVoter(
                node_id=node.number,
                address=node.cluster_port.address,
                directory_uuid=os.urandom(UUID_BYTES),
            )
            for node in self.nodes.values()
        )
        return FormatOptions(
            data_dir="",
            node_id=0,
            cluster_id=os.urandom(UUID_BYTES).hex(),
            voters=voters,
            default_replication_factor=configuration.default_replication_factor,
            broker_count=brokers,
        )

    async def _restart(self, node: ClusterNode) -> None:
        if node.is_up:
            await node.stop()
        await node.start()


def configuration_of(brokers: int, given: Mapping[str, str]) -> NodeConfiguration:
    """Every node's settings; a wrong name or value is refused."""
    known = {setting.path for setting in settings()}
    for name in given:
        if name not in known:
            raise TidelogError(
                ErrorCode.INVALID_CONFIGURATION,
                tried=f"start a test cluster with {name}",
                happened="there is no such setting",
                hint=did_you_mean(name, known) or "docs/configuration.md lists them.",
            )
    several = DEFAULTS_OF_SEVERAL if brokers > 1 else {}
    return load(flags={**DEFAULTS, **several, **given}, defaults=DEV_DEFAULTS)


async def _together(works: list[Coroutine[Any, Any, None]]) -> None:
    """All at once; the first failure is raised when all have ended."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
