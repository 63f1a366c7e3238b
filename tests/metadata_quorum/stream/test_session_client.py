"""The broker session when the quorum has lost its registration, or answers it twice."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import pytest

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.contract.errors import fill_error
from tidelog.metadata.broker_reports import ClockVerdict, Reading, Registration
from tidelog.metadata.image.image import BrokerImage, Image
from tidelog.metadata.image.map import ImageMap
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.metadata_quorum.raft.types import NodeId
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.metadata_quorum.stream.local_image import LocalImage
from tidelog.metadata_quorum.stream.quorum_view import Leader
from tidelog.metadata_quorum.stream.session_client import (
    ID_IN_USE_MS,
    SESSION,
    TAKEN_BACK_MAX,
    BrokerSession,
    StoreEpoch,
)
from tidelog.ports import Clock, Network
from tidelog.v1 import broker_session_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LogIndex, Term

OURS, OTHERS = bytes([1]) * 16, bytes([2]) * 16


class FakeController:
    """Gives the epochs of a list, and takes heartbeats of one of them only."""

    def __init__(self, epochs: Sequence[int], valid_epoch: int) -> None:
        self.epochs = list(epochs)
        self.valid_epoch = valid_epoch
        self.registered = 0
        self.beats = 0
        self.registrations: list[broker_session_pb2.RegisterBrokerRequest] = []
        self.heartbeats: list[broker_session_pb2.BrokerSessionRequest] = []

    def leader(self) -> Leader | None:
        """Always the same."""
        return Leader(node_id=NodeId(1), term=Term(1), address="n1")

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """A registration; the last epoch again and again."""
        del peer, method, timeout_ms
        self.registrations.append(broker_session_pb2.RegisterBrokerRequest.FromString(message))
        self.registered += 1
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        return broker_session_pb2.RegisterBrokerResponse(broker_epoch=epoch).SerializeToString()

    def stream(self, peer: str, method: str) -> "FakeStream":
        """The session."""
        del peer
        assert method == SESSION
        return FakeStream(self)


class FakeStream:
    """Answers the heartbeat that was sent last."""

    def __init__(self, controller: FakeController) -> None:
        self.controller = controller
        self.last = broker_session_pb2.BrokerSessionRequest()

    async def send(self, message: bytes) -> None:
        """As the port says."""
        self.last = broker_session_pb2.BrokerSessionRequest.FromString(message)
        self.controller.heartbeats.append(self.last)

    async def receive(self) -> bytes | None:
        """As the port says."""
        answer = broker_session_pb2.BrokerSessionResponse(sequence=self.last.sequence)
        if self.last.broker_epoch == self.controller.valid_epoch:
            self.controller.beats += 1
        else:
            stale = TidelogError(ErrorCode.STALE_BROKER_EPOCH, tried="beat", happened="stale")
            fill_error(answer.error, stale)
        return answer.SerializeToString()

    def cancel(self) -> None:
        """As the port says."""


class FakeNodeClock:
    """Hears what it is told."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.heard: list[tuple[ClockVerdict, Reading]] = []

    def read(self) -> Reading:
        """As the port says."""
        return Reading(self.clock.wall_ms(), self.clock.uptime_ns() // 1_000_000)

    def off_own_ms(self, now: Reading) -> int | None:
        """It holds nothing."""
        del now
        return None

    def hear(self, verdict: ClockVerdict, told: Reading) -> None:
        """As the port says."""
        self.heard.append((verdict, told))


HERE = BrokerDirectory(uuid=bytes([9]) * 16)
THERE = BrokerDirectory(uuid=bytes([8]) * 16)
LISTENERS = {"client": "n4:1", "cluster": "n4:2"}
REGISTRATION = Registration(
    broker_id=BrokerId(4), incarnation=OURS, listeners=LISTENERS, directories=(HERE,)
)


def session(
    ports: SimulatedPorts,
    controller: FakeController,
    image: LocalImage,
    *,
    store_epoch: StoreEpoch | None = None,
) -> BrokerSession:
    network = cast("Network", controller)
    return BrokerSession(
        network,
        ports.clock,
        ControllerClient(network, ports.clock, controller),
        image,
        broker_id=BrokerId(4),
        cluster_id="c",
        applied_index=lambda: LogIndex(1),
        store_epoch=nothing_to_store if store_epoch is None else store_epoch,
        node_clock=FakeNodeClock(ports.clock),
    )


async def nothing_to_store(epoch: BrokerEpoch) -> Mapping[bytes, BrokerEpoch]:
    return {HERE.uuid: epoch}


def shows(
    epoch: int,
    incarnation: bytes,
    directory: BrokerDirectory = THERE,
    listeners: Mapping[str, str] = LISTENERS,
) -> LocalImage:
    """An image in which the broker has this registration."""
    broker = BrokerImage(
        broker_id=BrokerId(4),
        epoch=BrokerEpoch(epoch),
        incarnation=incarnation,
        listeners=dict(listeners),
        directories=(directory,),
        host_name="",
        rack="",
        is_fenced=True,
    )
    image = LocalImage()
    image.show(Image(version=1, brokers=ImageMap.of({BrokerId(4): broker})))
    return image


def simulate(work: Callable[[SimulatedPorts], Coroutine[Any, Any, None]]) -> None:
    world = World(1)

    async def forever(ports: SimulatedPorts) -> None:
        del ports
        await asyncio.Event().wait()

    try:
        world.run(work(world.machine("m").start("p", forever).ports))
        assert world.findings() == []
    finally:
        world.close()


def test_a_registration_that_was_written_already_may_be_answered_again() -> None:
    async def work(ports: SimulatedPorts) -> None:
        broker = session(ports, FakeController([7], 7), LocalImage())
        assert await broker.register(REGISTRATION) == 7
        assert await broker.register(REGISTRATION) == 7

    simulate(work)


def test_a_broker_whose_registration_was_lost_registers_again() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7, 8], valid_epoch=8)
        broker = session(ports, controller, shows(3, OTHERS))
        await broker.register(REGISTRATION)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(9):
                await broker.run()
        assert controller.registered == 1, "an image that is behind is waited for"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await broker.run()
        assert (broker.epoch, controller.registered) == (8, 2)
        assert controller.beats > 0

    simulate(work)


def test_a_broker_stops_when_its_new_epoch_is_below_the_one_that_was_lost() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7, 4], valid_epoch=4)
        broker = session(ports, controller, shows(3, OTHERS))
        await broker.register(REGISTRATION)
        with pytest.raises(TidelogError) as caught:
            async with asyncio.timeout(60):
                await broker.run()
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert "epoch 4 after 7" in caught.value.happened

    simulate(work)


def test_a_late_call_of_an_earlier_process_of_the_node_is_registered_over() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7, 9], valid_epoch=9)
        broker = session(ports, controller, shows(8, OTHERS, directory=HERE))
        await broker.register(REGISTRATION)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await broker.run()
        assert (broker.epoch, controller.registered) == (9, 2)
        assert controller.beats > 0

    simulate(work)


@pytest.mark.parametrize(
    ("directory", "listeners"), [(THERE, LISTENERS), (HERE, {"client": "n5:1", "cluster": "n5:2"})]
)
def test_a_broker_stops_when_another_nodes_process_has_its_id(
    directory: BrokerDirectory, listeners: dict[str, str]
) -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7, 9], valid_epoch=9)
        broker = session(ports, controller, shows(8, OTHERS, directory, listeners))
        await broker.register(REGISTRATION)
        with pytest.raises(TidelogError) as caught:
            await broker.run()
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert controller.registered == 1

    simulate(work)


def test_a_broker_whose_registration_is_taken_again_and_again_stops() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7], valid_epoch=9)
        broker = session(ports, controller, shows(8, OTHERS, directory=HERE))
        await broker.register(REGISTRATION)
        with pytest.raises(TidelogError) as caught:
            async with asyncio.timeout(60):
                await broker.run()
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert controller.registered == 1 + TAKEN_BACK_MAX

    simulate(work)


class InUse(FakeController):
    """Holds the id to be another process's for so long; another leader each so often, or never."""

    def __init__(self, clock: Clock, *, free_after_ms: int, term_ms: int) -> None:
        super().__init__([7], 7)
        self.clock = clock
        self.started_ns = clock.monotonic_ns()
        self.free_after_ms = free_after_ms
        self.term_ms = term_ms

    def now_ms(self) -> int:
        """Since it is there."""
        return (self.clock.monotonic_ns() - self.started_ns) // 1_000_000

    def leader(self) -> Leader | None:
        """In a later term, later."""
        return Leader(node_id=NodeId(1), term=Term(1 + self.now_ms() // self.term_ms), address="n1")

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """Refused until it is free."""
        if self.now_ms() < self.free_after_ms:
            raise TidelogError(ErrorCode.BROKER_ID_IN_USE, tried="register", happened="in use")
        return await super().call(peer, method, message, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("free_after_ms", "term_ms", "is_registered"),
    [
        (ID_IN_USE_MS - 1_000, 1_000_000, True),
        (2 * ID_IN_USE_MS, 1_000_000, False),
        (2 * ID_IN_USE_MS, ID_IN_USE_MS - 1_000, True),
    ],
)
def test_a_held_id_is_waited_for_as_long_as_one_controller_may_take_to_give_it_free(
    free_after_ms: int, term_ms: int, *, is_registered: bool
) -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = InUse(ports.clock, free_after_ms=free_after_ms, term_ms=term_ms)
        broker = session(ports, controller, LocalImage())
        if is_registered:
            assert await broker.register(REGISTRATION) == 7
            return
        with pytest.raises(TidelogError) as caught:
            await broker.register(REGISTRATION)
        assert caught.value.code is ErrorCode.BROKER_ID_IN_USE
        assert ID_IN_USE_MS <= controller.now_ms() < ID_IN_USE_MS + 1_000

    simulate(work)


class TellingController(FakeController):
    """Tells another session time as it is told to, and takes its time to answer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__([5], 5)
        self.clock = clock
        self.registered_ms = 3_000
        self.beaten_ms = 0
        self.is_fenced = False
        self.delay_ms = 0

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        answer = await super().call(peer, method, message, timeout_ms=timeout_ms)
        await self.clock.sleep(self.delay_ms)
        told = broker_session_pb2.RegisterBrokerResponse.FromString(answer)
        told.session_timeout_ms = self.registered_ms
        return told.SerializeToString()

    def stream(self, peer: str, method: str) -> "TellingStream":
        del peer, method
        return TellingStream(self)


class TellingStream(FakeStream):
    """Of it."""

    controller: TellingController

    async def receive(self) -> bytes | None:
        """As the port says."""
        await self.controller.clock.sleep(self.controller.delay_ms)
        answer = broker_session_pb2.BrokerSessionResponse.FromString(await super().receive() or b"")
        answer.session_timeout_ms = self.controller.beaten_ms
        answer.heartbeat_interval_ms = 100
        answer.is_fenced = self.controller.is_fenced
        return answer.SerializeToString()


def test_the_session_lasts_as_long_as_the_controller_says_and_says_again() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = TellingController(ports.clock)
        broker = session(ports, controller, shows(5, OURS))
        await broker.register(REGISTRATION)
        assert broker.session_timeout_ms == 3_000
        running = asyncio.ensure_future(broker.run())
        await ports.clock.sleep(500)
        assert broker.session_timeout_ms == 3_000, "an earlier release says it once"
        controller.beaten_ms = 20_000
        await ports.clock.sleep(500)
        assert broker.session_timeout_ms == 20_000
        running.cancel()

    simulate(work)


def test_silence_counts_from_the_heartbeat_that_was_answered_not_from_its_answer() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = TellingController(ports.clock)
        controller.delay_ms = 700
        broker = session(ports, controller, shows(5, OURS))
        await broker.register(REGISTRATION)
        assert broker.silent_ms >= 700
        running = asyncio.ensure_future(broker.run())
        for _ in range(30):
            await ports.clock.sleep(100)
            assert 700 <= broker.silent_ms <= 700 + 100 + 700
        running.cancel()

    simulate(work)


def test_a_broker_knows_that_it_is_fenced_before_its_image_does() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = TellingController(ports.clock)
        broker = session(ports, controller, shows(5, OURS))
        await broker.register(REGISTRATION)
        told = [broker.is_fenced]
        running = asyncio.ensure_future(broker.run())
        await ports.clock.sleep(300)
        told.append(broker.is_fenced)
        controller.is_fenced = True
        await ports.clock.sleep(300)
        told.append(broker.is_fenced)
        assert told == [True, False, True]
        running.cancel()

    simulate(work)


def test_a_broker_asks_to_serve_only_once_its_epoch_is_stored() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7], 7)
        is_stored = asyncio.Event()

        async def store(epoch: BrokerEpoch) -> Mapping[bytes, BrokerEpoch]:
            await is_stored.wait()
            return {HERE.uuid: epoch}

        broker = session(ports, controller, LocalImage(), store_epoch=store)
        await broker.register(REGISTRATION)
        running = asyncio.ensure_future(broker.run())
        broker.want_unfence()
        await asyncio.sleep(5)
        assert not any(each.wants_unfence for each in controller.heartbeats)
        is_stored.set()
        await asyncio.sleep(1)
        assert controller.heartbeats[-1].wants_unfence
        running.cancel()

    simulate(work)


def test_another_epoch_is_stored_as_well_before_the_broker_asks_to_serve_under_it() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7, 9], valid_epoch=9)
        stored: list[int] = []

        async def store(epoch: BrokerEpoch) -> Mapping[bytes, BrokerEpoch]:
            await asyncio.sleep(1)
            stored.append(epoch)
            return {HERE.uuid: epoch}

        image = shows(8, OTHERS, directory=HERE)
        broker = session(ports, controller, image, store_epoch=store)
        await broker.register(REGISTRATION)
        await broker.store_epoch()
        broker.want_unfence()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await broker.run()
        assert stored == [7, 9]
        for each in controller.heartbeats:
            assert each.broker_epoch in stored or not each.wants_unfence
        assert controller.heartbeats[-1].wants_unfence
        first, second = (list(each.stored_epochs) for each in controller.registrations)
        assert first == []
        (told,) = second
        assert (told.directory_uuid, told.broker_epoch) == (HERE.uuid, 7)

    simulate(work)


def test_a_directory_in_which_the_epoch_could_not_be_stored_is_registered_as_failed() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = FakeController([7, 8], valid_epoch=8)

        async def store(epoch: BrokerEpoch) -> Mapping[bytes, BrokerEpoch]:
            return {}

        broker = session(ports, controller, LocalImage(), store_epoch=store)
        await broker.register(REGISTRATION)
        await broker.store_epoch()
        await broker.register_again()
        first, second = controller.registrations
        assert [each.is_online for each in first.directories] == [True]
        assert [each.is_online for each in second.directories] == [False]

    simulate(work)


@pytest.mark.parametrize(
    ("paused_s", "breaks"), [(6, 0), (8, 1)], ids=["shorter than contact", "longer"]
)
def test_a_process_that_stood_still_counts_the_silence_whoever_answers_it_first(
    paused_s: int, breaks: int
) -> None:
    world = World(1)
    counted: list[int] = []

    async def live(ports: SimulatedPorts) -> None:
        broker = session(ports, FakeController([7], 7), LocalImage())
        await broker.register(REGISTRATION)
        registered = broker.breaks

        async def count() -> None:
            while True:
                counted.append(broker.breaks - registered)
                await ports.clock.sleep(100)

        await asyncio.gather(broker.run(), count())

    async def work() -> None:
        process = world.machine("m").start("p", live)
        await asyncio.sleep(5)
        process.pause()
        await asyncio.sleep(paused_s)
        process.resume()
        await asyncio.sleep(5)
        assert counted[-1] == breaks

    try:
        world.run(work())
        assert world.findings() == []
    finally:
        world.close()


def test_a_session_that_was_said_to_be_over_is_one_that_breaks() -> None:
    async def work(ports: SimulatedPorts) -> None:
        controller = TellingController(ports.clock)
        broker = session(ports, controller, LocalImage())
        await broker.register(REGISTRATION)
        controller.is_fenced = True
        before = broker.breaks
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await broker.run()
        assert broker.breaks > before

    simulate(work)
