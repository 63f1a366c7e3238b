"""A node's part in the metadata quorum: voter, active controller, server of the metadata stream.

Owns the order in which these are put together. It must never answer a member before the identity
of its directory is checked. The walk "a broker dies" passes through what is assembled here.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.metadata_quorum.active.broker_sessions import SessionTimes
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.recovery.survey import ONLY_AN_EXPORT
from tidelog.metadata_quorum.services.methods import ControllerParts
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles, open_storage
from tidelog.metadata_quorum.stream.local_image import LocalImage
from tidelog.metadata_quorum.stream.server import METHOD, MetadataStreamServer
from tidelog.ports import Clock, Disk, Method, StreamMethod
from tidelog.server.ports.node import NodePorts
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.storage.format import NodeIdentity
from tidelog.wire.errors import ErrorCode, TidelogError

CATCH_UP_MS: Final = 1_000
RETRY_MS: Final = 100


class ControllerRole:
    """Made by `open_controller`; `run` is its life."""

    def __init__(
        self,
        *,
        storage: QuorumStorageFiles,
        image: LocalImage,
        quorum: QuorumRunner,
        stream: MetadataStreamServer,
        parts: ControllerParts,
        clock: Clock,
    ) -> None:
        self.storage: Final = storage
        self.image: Final = image
        self.quorum: Final = quorum
        self.stream: Final = stream
        self.parts: Final = parts
        self._clock = clock
        self._is_current = False

    @property
    def is_current(self) -> bool:
        """Whether the image holds what was committed when this process started."""
        return self._is_current

    @property
    def lone_damage(self) -> TidelogError | None:
        """Why this node waits for ever: it has lost entries, and nobody else has them."""
        described = self.quorum.describe()
        own = self.storage.member_id
        if not described.is_repairing or described.members.voters != (own,):
            return None
        is_empty = described.log_start_index > described.last_index and (
            self.storage.recovered.snapshot is None
        )
        return TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried="lead the quorum alone",
            happened=ONLY_AN_EXPORT
            if is_empty
            else f"entries behind {described.last_index} are damaged here, and no other voter has "
            "them",
            hint="Stop the node, then see `tidelog storage info DIR`."
            if is_empty
            else "Stop the node, then `tidelog quorum recover --unsafe DIR --dry-run` shows what "
            "is left.",
        )

    def methods(self) -> Mapping[str, Method]:
        """For the `cluster` listener."""
        return {
            **self.quorum.methods(),
            **self.parts.methods(),
            METHOD: StreamMethod(self.stream.observe),
        }

    async def run(self, address: str) -> None:
        """Until stopped; raises what ended the quorum's storage, since the node must not go on."""
        await self.quorum.run(address=address)
        if self.quorum.failure is not None:
            raise self.quorum.failure

    async def run_controller(self) -> None:
        """Until cancelled."""
        await self.parts.run()

    async def catch_up(self) -> None:
        """Until what was committed before now is applied here."""
        while not self._is_current:
            try:
                await self.quorum.read_index(timeout_ms=CATCH_UP_MS)
            except TidelogError:
                # No leader, or none that a majority follows: there is nothing to catch up with yet.
                await self._clock.sleep(RETRY_MS)
            else:
                self._is_current = True

    async def stop(self) -> None:
        """Hand over, answer everybody, settle what is written."""
        await self.quorum.stop()
        if self.quorum.failure is None:
            await self.storage.close()


async def open_controller(
    disk: Disk,
    image: LocalImage,
    identity: NodeIdentity,
    configuration: NodeConfiguration,
    ports: NodePorts,
) -> ControllerRole:
    """Check whose directory it is, and recover what it holds; the image shows what is applied."""
    storage = await open_storage(
        disk,
        node_id=identity.node_id,
        cluster_id=identity.cluster_id,
        boot_id=ports.host.boot_id(),
    )
    machine = MetadataStateMachine(image.show)
    quorum = _quorum(storage, machine, configuration, ports)
    stream = MetadataStreamServer(quorum, cluster_id=storage.cluster_id)
    parts = ControllerParts(
        ActiveController(quorum=quorum, state_machine=machine, clock=ports.clock),
        network=ports.network,
        clock=ports.clock,
        random=ports.random,
        authorizer=ports.authorizer,
        observers=stream.observers,
        cluster_id=storage.cluster_id,
        defaults=configuration.topic_defaults(),
        times=SessionTimes(session_timeout_ms=configuration.quorum.session_timeout_ms),
        peer_addresses=_peer_addresses(configuration),
    )
    return ControllerRole(
        storage=storage,
        image=image,
        quorum=quorum,
        stream=stream,
        parts=parts,
        clock=ports.clock,
    )


def _quorum(
    storage: QuorumStorageFiles,
    machine: MetadataStateMachine,
    configuration: NodeConfiguration,
    ports: NodePorts,
) -> QuorumRunner:
    return QuorumRunner(
        storage=storage,
        state_machine=machine,
        network=ports.network,
        clock=ports.clock,
        random=ports.random,
        limits=configuration.quorum_limits(),
        peer_addresses=_peer_addresses(configuration),
        bootstrap_servers=configuration.quorum.bootstrap_servers,
        bootstrap_command=storage.bootstrap_command,
        raft_options=configuration.raft_options(),
    )


def _peer_addresses(configuration: NodeConfiguration) -> dict[int, str]:
    return {int(number): address for number, address in configuration.peer_addresses.items()}
