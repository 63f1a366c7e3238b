"""Markers at the leader: when a coordinator hears what of them, in process and over the network."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.support.admission_house import (
    CONTEXT,
    AdmissionHouse,
    addressed,
    identity,
    key_of,
    sealed,
    with_house,
)
from tidelog.broker.services.markers import handler
from tidelog.broker.services.markers.handler import MarkerHandler
from tidelog.broker.services.markers.wire import WRITE_MARKERS, MarkerRpc
from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.marker_calls import MarkerPeers
from tidelog.broker.transactions.marking import MARKERS_PER_CALL_MAX, PartitionMarker
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.ports.real.clock import RealClock
from tidelog.v1 import marker_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionKey

NOT_HERE = TidelogError(ErrorCode.NOT_LEADER, tried="end", happened="another one leads")


class Observer:
    """Observes partition 0; shows what was ended when the test lets it."""

    def __init__(self) -> None:
        self.told: list[tuple[Identity, Decision, int]] = []
        self.is_told = asyncio.Event()
        self.are_two_told = asyncio.Event()
        self.may_show = asyncio.Event()
        self.refusal: TidelogError | None = None

    def observes(self, key: PartitionKey) -> bool:
        return key == key_of(0)

    async def marker_committed(
        self, key: PartitionKey, identity: Identity, decision: Decision, marker_offset: int
    ) -> None:
        assert key == key_of(0)
        self.told.append((identity, decision, marker_offset))
        self.is_told.set()
        if len(self.told) == 2:
            self.are_two_told.set()
        await self.may_show.wait()
        if self.refusal is not None:
            raise self.refusal


def marker(
    epoch: int = 6,
    *,
    partition: int = 0,
    coordinator_epoch: int = 3,
    producer_id: int = 7,
    version: int = 2,
    decision: Decision = Decision.COMMIT,
) -> PartitionMarker:
    return PartitionMarker(
        key=key_of(partition),
        identity=identity(epoch, producer_id),
        decision=decision,
        coordinator_epoch=LeaderEpoch(coordinator_epoch),
        transaction_version=version,
    )


def test_a_marker_ends_the_transaction_once_however_often_it_is_sent() -> None:
    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(5)))
        for _ in range(3):
            assert await house.end(6) is None
        assert [header.is_control for header in await house.headers()] == [False, True]
        assert house.replica().log.last_stable_offset == 2
        assert house.meter.markers_written == 3

    with_house(work)


def test_trap_12_a_marker_is_answered_when_those_who_observe_show_what_it_ended() -> None:
    observer = Observer()

    async def work(house: AdmissionHouse) -> None:
        ending = asyncio.ensure_future(house.end(6, decision=Decision.COMMIT))
        elsewhere = asyncio.ensure_future(house.end(6, partition=1))
        assert await elsewhere is None
        await observer.is_told.wait()
        assert not ending.done()
        observer.may_show.set()
        assert await ending is None
        assert await house.end(6, decision=Decision.COMMIT) is None
        # The second was there already: told all the same, at or above its place.
        assert observer.told == [(identity(6), Decision.COMMIT, 0)] * 2
        observer.refusal = NOT_HERE
        assert await house.end(6) is NOT_HERE

    with_house(work, observers=[observer])


def test_no_marker_waits_for_the_observer_of_another_one() -> None:
    observer = Observer()

    async def work(house: AdmissionHouse) -> None:
        markers = [marker(), marker(producer_id=8), marker(partition=1)]
        ending = asyncio.ensure_future(house.markers.write_all(markers, timeout_ms=10_000))
        await observer.are_two_told.wait()
        observer.may_show.set()
        assert await ending == [None] * 3

    with_house(work, observers=[observer])


def test_trap_19_a_coordinator_that_was_replaced_hears_so() -> None:
    async def work(house: AdmissionHouse) -> None:
        assert await house.end(6, coordinator_epoch=4) is None
        error = await house.end(7, coordinator_epoch=3)
        assert error is not None
        assert error.code is ErrorCode.NOT_COORDINATOR
        assert house.meter.marker_refusals == {"NOT_COORDINATOR": 1}

    with_house(work)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (marker(version=1), ErrorCode.UNSUPPORTED_VERSION),
        (marker(0), ErrorCode.INVALID_ARGUMENT),
        (marker(32_768), ErrorCode.INVALID_ARGUMENT),
        (marker(producer_id=-1), ErrorCode.INVALID_ARGUMENT),
        (marker(coordinator_epoch=-1), ErrorCode.INVALID_ARGUMENT),
        (marker(partition=9), ErrorCode.UNKNOWN_PARTITION),
    ],
)
def test_what_no_coordinator_sends_is_refused(wrong: PartitionMarker, code: ErrorCode) -> None:
    async def work(house: AdmissionHouse) -> None:
        error = await house.markers.write(wrong, timeout_ms=1_000)
        assert error is not None
        assert error.code is code
        assert await house.headers() == []

    with_house(work)


def test_trap_9_the_epoch_that_is_kept_for_fencing_ends_the_last_transaction() -> None:
    async def work(house: AdmissionHouse) -> None:
        await house.write(addressed(sealed(32_766)))
        assert await house.end(32_767) is None
        (answer,) = await house.write(addressed(sealed(32_766, 1)))
        assert answer.error is not None
        assert answer.error.code is ErrorCode.TRANSACTION_ABORTED

    with_house(work)


def test_a_marker_that_is_not_committed_in_time_may_be_there() -> None:
    observer = Observer()

    async def work(house: AdmissionHouse) -> None:
        error = await house.end(6, timeout_ms=50)
        assert error is not None
        assert (error.code, error.retriable) == (ErrorCode.DEADLINE_EXCEEDED, True)
        observer.may_show.set()
        assert await house.end(6) is None

    with_house(work, observers=[observer])


def test_trap_30_markers_in_flight_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MARKERS_IN_FLIGHT_MAX", 1)
    observer = Observer()

    async def work(house: AdmissionHouse) -> None:
        ending = asyncio.ensure_future(house.end(6))
        await house.settled()
        error = await house.end(6, partition=1)
        assert error is not None
        assert (error.code, error.retriable) == (ErrorCode.RESOURCE_EXHAUSTED, True)
        observer.may_show.set()
        assert await ending is None
        assert await house.end(6, partition=1) is None

    with_house(work, observers=[observer])


# -- on the wire ----------------------------------------------------------------------------------

ENDS = st.builds(
    marker,
    st.integers(1, 32_767),
    partition=st.integers(0, 3),
    coordinator_epoch=st.integers(0, 9),
    producer_id=st.integers(0, 3),
    version=st.integers(1, 3),
    decision=st.sampled_from(Decision),
)


class Calls:
    """Carries the calls of one broker's coordinators to the other's leaders."""

    cluster_id = "c"

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._answer = answer

    async def call(self, broker_id: int, method: str, message: bytes, timeout_ms: int) -> bytes:
        assert method == WRITE_MARKERS
        return await self._answer(message)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(ENDS, max_size=20, unique=True))
def test_what_a_coordinator_sends_is_what_a_leader_reads_and_the_answers_find_back(
    sent: Sequence[PartitionMarker],
) -> None:
    def answer_to(marker: PartitionMarker) -> TidelogError | None:
        return NOT_HERE if marker.key.partition % 2 else None

    class Handler:
        async def write_all(
            self, markers: Sequence[PartitionMarker], *, timeout_ms: int
        ) -> list[TidelogError | None]:
            assert sorted(markers, key=repr) == sorted(sent, key=repr)
            return [answer_to(each) for each in markers]

    async def main() -> None:
        handler, clock = cast(MarkerHandler, Handler()), RealClock()
        rpc = MarkerRpc(handler, clock, cluster_id="c")
        calls = Calls(lambda message: rpc.write_markers(CONTEXT, message))
        peers = MarkerPeers(cast(PeerCalls, calls))
        answers = await peers.write_markers(BrokerId(2), sent, timeout_ms=10)
        codes = [None if each is None else each.code for each in answers]
        assert codes == [None if answer_to(each) is None else NOT_HERE.code for each in sent]

    asyncio.run(main())


def test_write_markers_answers_each_partition_by_itself() -> None:
    async def work(house: AdmissionHouse) -> None:
        rpc = MarkerRpc(house.markers, house.ports.clock, cluster_id="c")
        peers = MarkerPeers(
            cast(PeerCalls, Calls(lambda message: rpc.write_markers(CONTEXT, message)))
        )
        sent = [marker(partition=number) for number in (9, 0, 1)]
        answers = await peers.write_markers(BrokerId(2), sent, timeout_ms=10)
        codes = [None if each is None else each.code for each in answers]
        assert codes == [ErrorCode.UNKNOWN_PARTITION, None, None]

    with_house(work)


def test_a_request_for_another_cluster_or_with_too_much_is_refused_as_a_whole() -> None:
    async def work(house: AdmissionHouse) -> None:
        rpc = MarkerRpc(house.markers, house.ports.clock, cluster_id="c")
        other = marker_pb2.WriteMarkersRequest(cluster_id="other")
        many = marker_pb2.WriteMarkersRequest(cluster_id="c")
        for _ in range(MARKERS_PER_CALL_MAX + 1):
            many.markers.add()
        undecided = marker_pb2.WriteMarkersRequest(cluster_id="c")
        undecided.markers.add(producer_id=7, producer_epoch=6)
        for message, code in (
            (other.SerializeToString(), ErrorCode.WRONG_CLUSTER),
            (many.SerializeToString(), ErrorCode.INVALID_ARGUMENT),
            (undecided.SerializeToString(), ErrorCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(TidelogError) as caught:
                await rpc.write_markers(CONTEXT, message)
            assert caught.value.code is code

    with_house(work)
