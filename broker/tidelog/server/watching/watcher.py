"""What a node says of itself in its log: late loops, failed disks, quorum, leaders, in-sync sets.

Owns no decision. Each thing is said once when it begins and once when it ends; of what may come by
the thousand so many lines and a number. What it sees is counted for the metrics as well.
"""

from collections.abc import Callable
from typing import Final

from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import MemberId
from tidelog.metadata_quorum.stream.cluster_metadata import ClusterMetadata
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.ports import Clock, TaskScope
from tidelog.server.events import log as log_events
from tidelog.server.events.image import ImageEvents
from tidelog.server.events.limit import LimitedEvents
from tidelog.server.metrics.sources import Sources
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.watching.refusal_events import RefusalEvents
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, Term

WATCH_MS: Final = 1_000
"""How often the loop's lateness and the disk's health are looked at."""
REFUSALS_MS: Final = 10_000
"""How often refusals by limits are told, if there were any."""
LOST_AFTER: Final = 3
LOST_AGAIN_AFTER: Final = 60
"""Looks in a row without an active controller before that is worth a line."""
SILENT_MS: Final = 5_000
"""A member that was not heard for so long is worth a line: longer than a restart in order takes."""
NS_PER_MS: Final = 1_000_000


class NodeWatch:
    """`run` is a task of the node."""

    def __init__(
        self,
        clock: Clock,
        metadata: ClusterMetadata,
        controller_client: ControllerClient,
        trouble: Callable[[], TidelogError | None],
        controller: ControllerRole | None,
        broker: BrokerRole | None,
        sources: Sources,
        *,
        node_id: int,
        stall_log_ms: int,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._controller_client = controller_client
        self._trouble = trouble
        self._controller = controller
        self._broker = broker
        self._counts = sources.watched
        self._stall_log_ms = stall_log_ms
        self._events = LimitedEvents(log_events, clock)
        self._refusals = RefusalEvents(sources, log_events)
        self._image_events = ImageEvents(BrokerId(node_id), self._events, sources.roles)

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            scope.start(self._watch_loop(), name="stall log")
            scope.start(self._watch_leader(), name="controller log")
            scope.start(self._watch_image(), name="metadata log")
            scope.start(self._watch_refusals(), name="refusal log")
            if self._broker is not None:
                scope.start(self._watch_storage(self._broker), name="storage log")
            if self._controller is not None:
                scope.start(self._watch_quorum(self._controller), name="quorum log")
                scope.start(self._watch_quorum_disk(self._controller), name="quorum disk log")
                scope.start(self._watch_members(self._controller), name="quorum member log")

    async def _watch_storage(self, broker: BrokerRole) -> None:
        """Say once when a directory has failed: the node goes on answering, with errors for the
        partitions in it. Also when its disk takes nothing more, and when it does again."""
        told: dict[str, TidelogError] = {}
        full: dict[str, TidelogError] = {}
        while True:
            for name, failure in broker.failures.items():
                if name not in told:
                    told[name] = failure
                    log_events.error("storage_stopped", directory=name, error=failure)
            before, full = full, broker.full_disks
            for name in full.keys() - before.keys():
                self._events.error("disk_full", directory=name, error=full[name])
            for name in before.keys() - full.keys():
                self._events.info("disk_has_room", directory=name)
            await self._clock.sleep(WATCH_MS)

    async def _watch_quorum_disk(self, controller: ControllerRole) -> None:
        """Say when the quorum's disk is full, and when it has room again: the others go on, and
        nobody else would notice that one of them keeps nothing.
        """
        is_full = False
        while True:
            error = controller.quorum.full_disk
            if error is not None and not is_full:
                log_events.error("quorum_disk_full", error=error)
            elif error is None and is_full:
                log_events.info("quorum_disk_has_room")
            is_full = error is not None
            await self._clock.sleep(WATCH_MS)

    async def _watch_members(self, controller: ControllerRole) -> None:
        """Say as the leader which members do not hear it, and why: they know it least of all."""
        told: dict[MemberId, str] = {}
        while True:
            await self._clock.sleep(WATCH_MS)
            quorum = controller.quorum
            silent = {
                each.id: error
                for each in quorum.describe().progress
                if not 0 <= each.last_contact_ms < SILENT_MS
                if (error := quorum.peer_error(each.id)) is not None
            }
            for member_id, error in silent.items():
                if told.get(member_id) != error.happened:
                    self._events.warning(
                        "quorum_member_unreached", node_id=member_id.node_id, error=error
                    )
            told = {member_id: error.happened for member_id, error in silent.items()}

    async def _watch_loop(self) -> None:
        """Say when the loop was late: whoever holds it up holds up every deadline of the node."""
        clock, threshold_ms = self._clock, self._stall_log_ms
        while True:
            due_ns = clock.monotonic_ns() + WATCH_MS * NS_PER_MS
            await clock.sleep(WATCH_MS)
            late_ms = (clock.monotonic_ns() - due_ns) // NS_PER_MS
            if late_ms > threshold_ms:
                self._counts.stalls += 1
                self._counts.stalled_ms += late_ms
                log_events.warning("loop_stalled", late_ms=late_ms)

    async def _watch_leader(self) -> None:
        """Say when no active controller is known for a while, and when one is again."""
        missed = 0
        while True:
            await self._clock.sleep(WATCH_MS)
            leader = self._controller_client.leader()
            if leader is None:
                missed += 1
                # Once a minute: what stands in the way may be another thing by then.
                if missed % LOST_AGAIN_AFTER == LOST_AFTER:
                    trouble = self._trouble()
                    log_events.warning("no_controller", error=trouble or "a majority is missing")
            else:
                if missed >= LOST_AFTER:
                    log_events.info("controller_found", node_id=leader.node_id, term=leader.term)
                missed = 0

    async def _watch_image(self) -> None:
        """Say what happens to brokers, leaders and in-sync sets, as far as it is this node's."""
        metadata = self._metadata
        before = metadata.image()
        while True:
            after = await metadata.wait_version(before.version + 1)
            is_active = (
                self._controller is not None
                and self._controller.parts.controller.active_term is not None
            )
            self._image_events.follow(before, after, is_controller=is_active)
            before = after

    async def _watch_refusals(self) -> None:
        """Say now and then which limit refuses callers, and how many lines were left out."""
        while True:
            await self._clock.sleep(REFUSALS_MS)
            self._refusals.look()
            self._events.sweep()

    async def _watch_quorum(self, controller: ControllerRole) -> None:
        """One line for each change of role or term."""
        told: tuple[Role, Term] | None = None
        led: tuple[object, Term] | None = None
        seen = -1
        while True:
            described = controller.quorum.describe()
            now = (described.role, described.term)
            if described.leader is not None and (described.leader, described.term) != led:
                led = (described.leader, described.term)
                self._counts.leader_changes += 1
            if now != told:
                told = now
                self._counts.elections_won += described.role is Role.LEADER
                log_events.info(
                    "quorum_role",
                    role=described.role.value,
                    term=described.term,
                    commit_index=described.commit_index,
                )
            seen = await controller.quorum.wait_change(seen)
