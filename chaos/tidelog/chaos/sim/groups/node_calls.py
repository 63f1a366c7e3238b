"""How members reach whole nodes: lookups and calls over the simulated network, by the contract.

Owns whom each member takes for the coordinator of its group, and the machines from which members
call. A call ends at its deadline at the latest; what was on its way may arrive all the same.
"""

import asyncio
from typing import Final

from tidelog.broker.groups.state.messages import Answer, AnyRequest, RemoveMembers
from tidelog.chaos.sim.groups.wires import OnAnswer, is_elsewhere
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.group_wire import Decode, encode
from tidelog.chaos.workloads.log_client import error_of
from tidelog.v1 import coordinator_pb2
from tidelog.wire.errors import TidelogError

CALL_MS: Final = 1_000
MACHINES: Final = 3
_FIND: Final = "/tidelog.v1.CoordinatorService/FindCoordinators"


class NodeCalls:
    """Implements `wires.Calls`."""

    def __init__(self, world: World, bootstrap: tuple[str, ...]) -> None:
        self._bootstrap: Final = bootstrap
        self._random: Final = world.seeds.purpose("lookups")
        self._trace: Final = world.trace
        self._targets: Final[dict[tuple[str, str], str]] = {}
        self._processes: Final[list[Process]] = [
            world.machine(f"members-{number}").start(f"members-{number}", _wait)
            for number in range(MACHINES)
        ]

    @property
    def names(self) -> list[str]:
        """Of the processes in which members live."""
        return [each.name for each in self._processes]

    def call(self, who: str, group: str, request: AnyRequest, on_answer: OnAnswer) -> None:
        """Exactly one call of `on_answer`."""
        encoded = encode(request)
        if encoded is None:
            on_answer(None)
            return
        process = self._processes[ord(who[-1]) % MACHINES]
        is_any = isinstance(request, RemoveMembers)
        work = self._call(process.ports, who, group, encoded, is_any, on_answer)
        process.start_task(work, f"call of {who}")

    async def _call(
        self,
        ports: SimulatedPorts,
        who: str,
        group: str,
        encoded: tuple[str, bytes, Decode],
        is_any: bool,
        on_answer: OnAnswer,
    ) -> None:
        method, data, decode = encoded
        answer = None
        try:
            address = self._any() if is_any else await self._find(ports, who, group)
            if address:
                received = await ports.network.call(address, method, data, timeout_ms=CALL_MS)
                answer = Answer(request_id=0, result=decode(received))
        except TidelogError:
            self._targets.pop((who, group), None)
        if answer is not None and is_elsewhere(answer):
            self._targets.pop((who, group), None)
        self._trace.note(who, "answer" if answer else "no answer", method.rpartition("/")[2])
        on_answer(answer)

    def _any(self) -> str:
        return self._bootstrap[self._random.below(len(self._bootstrap))]

    async def _find(self, ports: SimulatedPorts, who: str, group: str) -> str:
        """The coordinator's address; empty: nobody can say."""
        known = self._targets.get((who, group))
        if known is not None:
            return known
        request = coordinator_pb2.FindCoordinatorsRequest(
            kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=[group]
        )
        received = await ports.network.call(
            self._any(), _FIND, request.SerializeToString(), timeout_ms=CALL_MS
        )
        [place] = coordinator_pb2.FindCoordinatorsResponse.FromString(received).coordinators
        if place.error.code:
            raise error_of(place.error)
        self._targets[who, group] = place.address
        return place.address


async def _wait(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()
