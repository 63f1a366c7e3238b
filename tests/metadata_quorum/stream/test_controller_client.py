"""What a caller of the controller may conclude: retries that are safe, outcomes that are honest."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.raft.types import NodeId
from tidelog.metadata_quorum.stream.cluster_metadata import (
    CREATE_TOPICS,
    NOT_REPEATABLE,
    ClusterMetadata,
)
from tidelog.metadata_quorum.stream.controller_client import (
    LEADERLESS_MS_MAX,
    ControllerClient,
)
from tidelog.metadata_quorum.stream.local_image import LocalImage
from tidelog.metadata_quorum.stream.quorum_view import Leader
from tidelog.ports import DeathHint, Network, PeerUnreachable, RequestContext
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.v1 import (
    admin_pb2,
    broker_admin_pb2,
    controller_pb2,
    quorum_admin_pb2,
    topic_admin_pb2,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, Term

Outcome = bytes | TidelogError | None
"""None: no answer at all."""


def error(code: ErrorCode) -> TidelogError:
    return TidelogError(code, tried="ask", happened="so it is")


def unreachable(hint: DeathHint) -> PeerUnreachable:
    return PeerUnreachable(tried="ask", happened="it is gone", death_hint=hint)


class FakeNetwork:
    """Answers calls one after the other as a test wants; remembers whom it was asked for."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[str] = []

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """As the port says."""
        del method, message
        self.asked.append(peer)
        outcome = self.outcomes.pop(0)
        if outcome is None:
            await asyncio.sleep(timeout_ms / 1000)
            raise error(ErrorCode.DEADLINE_EXCEEDED)
        if isinstance(outcome, TidelogError):
            raise outcome
        return outcome


class FakeView:
    """A leader that a test chooses."""

    def __init__(self, node_id: int | None = 1) -> None:
        self.node_id = node_id

    def leader(self) -> Leader | None:
        """As the view says."""
        if self.node_id is None:
            return None
        return Leader(
            node_id=NodeId(self.node_id), term=Term(self.node_id), address=f"n{self.node_id}"
        )


Work = Callable[[SimulatedPorts], Coroutine[Any, Any, None]]


def simulate(work: Work) -> None:
    world = World(1)

    async def forever(ports: SimulatedPorts) -> None:
        del ports
        await asyncio.Event().wait()

    try:
        world.run(work(world.machine("m").start("p", forever).ports))
        assert world.findings() == []
    finally:
        world.close()


async def ask(
    ports: SimulatedPorts,
    outcomes: Sequence[Outcome],
    *,
    may_repeat: bool,
    view: FakeView | None = None,
    timeout_ms: int = 10_000,
) -> tuple[bytes | ErrorCode, int]:
    """What came of it, and how often it was asked."""
    network = FakeNetwork(outcomes)
    client = ControllerClient(cast("Network", network), ports.clock, view or FakeView())
    try:
        answer: bytes | ErrorCode = await client.call(
            "/m", b"", tried="do it", timeout_ms=timeout_ms, may_repeat=may_repeat
        )
    except TidelogError as failure:
        answer = failure.code
    return answer, len(network.asked)


@pytest.mark.parametrize("may_repeat", [True, False])
@pytest.mark.parametrize(
    "first",
    [
        error(ErrorCode.NOT_CONTROLLER),
        error(ErrorCode.UNAVAILABLE),
        unreachable(DeathHint.REFUSED),
        unreachable(DeathHint.CLOSED_EARLY),
    ],
)
def test_what_certainly_changed_nothing_is_asked_again(
    first: TidelogError, may_repeat: bool
) -> None:
    async def work(ports: SimulatedPorts) -> None:
        assert await ask(ports, [first, first, b"yes"], may_repeat=may_repeat) == (b"yes", 3)

    simulate(work)


@pytest.mark.parametrize(
    "first",
    [
        error(ErrorCode.INDETERMINATE),
        unreachable(DeathHint.NONE),
        error(ErrorCode.DEADLINE_EXCEEDED),
    ],
)
def test_an_unknown_outcome_is_asked_again_only_where_that_is_safe(first: TidelogError) -> None:
    async def work(ports: SimulatedPorts) -> None:
        assert await ask(ports, [first, b"yes"], may_repeat=True) == (b"yes", 2)
        found = await ask(ports, [first, b"yes"], may_repeat=False)
        assert found == (ErrorCode.INDETERMINATE, 1)

    simulate(work)


def test_a_refusal_is_an_outcome() -> None:
    async def work(ports: SimulatedPorts) -> None:
        refusal = error(ErrorCode.INVALID_ARGUMENT)
        found = await ask(ports, [refusal, b"yes"], may_repeat=True)
        assert found == (ErrorCode.INVALID_ARGUMENT, 1)

    simulate(work)


def test_without_a_leader_nothing_is_asked_and_the_caller_may_ask_again() -> None:
    async def work(ports: SimulatedPorts) -> None:
        found = await ask(ports, [], may_repeat=True, view=FakeView(None), timeout_ms=500)
        assert found == (ErrorCode.UNAVAILABLE, 0)

    simulate(work)


def test_without_a_leader_the_caller_is_told_long_before_its_deadline() -> None:
    async def work(ports: SimulatedPorts) -> None:
        started_ns = ports.clock.monotonic_ns()
        found = await ask(ports, [], may_repeat=False, view=FakeView(None), timeout_ms=30_000)
        assert found == (ErrorCode.UNAVAILABLE, 0)
        waited_ms = (ports.clock.monotonic_ns() - started_ns) // 1_000_000
        assert LEADERLESS_MS_MAX <= waited_ms < LEADERLESS_MS_MAX + 100

    simulate(work)


def test_an_attempt_that_may_be_repeated_takes_a_second_at_most() -> None:
    async def work(ports: SimulatedPorts) -> None:
        started_ns = ports.clock.monotonic_ns()
        assert await ask(ports, [None, b"yes"], may_repeat=True) == (b"yes", 2)
        assert 1_000 <= (ports.clock.monotonic_ns() - started_ns) // 1_000_000 < 1_200

    simulate(work)


def test_one_that_may_not_waits_as_long_as_the_leader_stays_and_a_second_more() -> None:
    async def work(ports: SimulatedPorts) -> None:
        view = FakeView(1)
        started_ns = ports.clock.monotonic_ns()

        async def move() -> None:
            await asyncio.sleep(3)
            view.node_id = 2

        moving = asyncio.get_running_loop().create_task(move())
        found = await ask(ports, [None, b"no"], may_repeat=False, view=view, timeout_ms=60_000)
        assert found == (ErrorCode.INDETERMINATE, 1)
        assert 4_000 <= (ports.clock.monotonic_ns() - started_ns) // 1_000_000 < 4_200
        await moving

    simulate(work)


def test_a_forwarded_call_is_answered_when_this_nodes_own_image_shows_it() -> None:
    async def work(ports: SimulatedPorts) -> None:
        image = LocalImage()
        answer = controller_pb2.ForwardResponse(response=b"done", applied_index=7)
        network = cast("Network", FakeNetwork([answer.SerializeToString()] * 2))
        metadata = ClusterMetadata(
            image,
            ControllerClient(network, ports.clock, FakeView()),
            network,
            ports.clock,
            cluster_id="c",
            node_id=BrokerId(4),
        )
        context = RequestContext(
            principal="p",
            listener="client",
            client_id="",
            address="",
            deadline_ns=NO_DEADLINE_NS,
        )
        with pytest.raises(TidelogError) as caught:
            await metadata.forward(context, CREATE_TOPICS, b"", timeout_ms=1_000)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(metadata.forward(context, CREATE_TOPICS, b"", timeout_ms=9_000))
        await asyncio.sleep(1)
        image.show(Image(version=6))
        await asyncio.sleep(1)
        assert not waiting.done()
        image.show(Image(version=7))
        assert (await waiting).response == b"done"

    simulate(work)


def forwarded(method: str, request: bytes) -> tuple[ErrorCode, int]:
    """What comes of a call whose first try has an unknown outcome, and how often it was sent."""
    found: list[tuple[ErrorCode, int]] = []

    async def work(ports: SimulatedPorts) -> None:
        network = FakeNetwork([error(ErrorCode.INDETERMINATE), error(ErrorCode.INVALID_ARGUMENT)])
        metadata = ClusterMetadata(
            LocalImage(),
            ControllerClient(cast("Network", network), ports.clock, FakeView()),
            cast("Network", network),
            ports.clock,
            cluster_id="c",
            node_id=BrokerId(4),
        )
        context = RequestContext(
            principal="p",
            listener="client",
            client_id="",
            address="",
            deadline_ns=NO_DEADLINE_NS,
        )
        with pytest.raises(TidelogError) as caught:
            await metadata.forward(context, method, request, timeout_ms=1_000)
        found.append((caught.value.code, len(network.asked)))

    simulate(work)
    return found[0]


@pytest.mark.parametrize("method", sorted(NOT_REPEATABLE))
def test_a_call_that_would_deny_or_undo_itself_is_forwarded_once(method: str) -> None:
    assert forwarded(method, b"") == (ErrorCode.INDETERMINATE, 1)


def test_a_call_that_only_asks_what_it_would_do_is_asked_again() -> None:
    kinds = (
        admin_pb2.CreateTopicsRequest,
        broker_admin_pb2.RemoveBrokerRequest,
        quorum_admin_pb2.RemoveVoterRequest,
        topic_admin_pb2.DeleteTopicsRequest,
    )
    methods = [each for each in sorted(NOT_REPEATABLE) if "Transfer" not in each]
    assert len(methods) == len(kinds)
    for method in methods:
        name = method.rpartition("/")[2]
        (kind,) = [each for each in kinds if each.DESCRIPTOR.name == f"{name}Request"]
        request = kind(validate_only=True).SerializeToString()
        assert forwarded(method, request) == (ErrorCode.INVALID_ARGUMENT, 2)
        assert forwarded(method, b"\xff") == (ErrorCode.INDETERMINATE, 1)


def test_for_how_long_nobody_has_led_is_counted_from_the_last_look_that_found_one() -> None:
    async def work(ports: SimulatedPorts) -> None:
        view = FakeView()
        client = ControllerClient(cast("Network", FakeNetwork([])), ports.clock, view)
        assert client.without_leader_ms() == 0
        await ports.clock.sleep(5_000)
        assert client.leader() is not None
        view.node_id = None
        await ports.clock.sleep(1_500)
        assert client.without_leader_ms() == 1_500
        view.node_id = 2
        assert client.without_leader_ms() == 0

    simulate(work)
