"""Records of the present that a broker refuses for their time: its clock is off, so they wait."""

import time
from collections.abc import Callable

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.client.support.engine_world import MS, ProducerWorld, failure, view
from tidelog.client.engine.produce.batch import Acknowledgement, Batch, Outcome
from tidelog.client.engine.produce.clocks import PRESENT_MS
from tidelog.client.engine.produce.messages import (
    Answered,
    FetchMetadata,
    MetadataArrived,
    ProducerIdAllocated,
    ProducerIdentity,
    StreamOpened,
    TellWaiting,
    TopicWanted,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

WALL_MS = 1_800_000_000_000
DELIVERY_MS = 120_000
REFUSED = failure(ErrorCode.INVALID_TIMESTAMP)


class Sender:
    """A producer with an open stream, and a wall clock that goes with its own."""

    def __init__(self, *, is_idempotent: bool) -> None:
        self.world = world = ProducerWorld(is_idempotent=is_idempotent, in_flight_max=5)
        self._began_ns = world.now_ns
        world.step(TopicWanted(topic="t"))
        if is_idempotent:
            identity = ProducerIdentity(producer_id=7, producer_epoch=0, batches_in_flight_max=16)
            world.step(ProducerIdAllocated(identity=identity))
        world.step(MetadataArrived(view=view({"t": [(1, 0)]})))

    @property
    def wall_ms(self) -> int:
        return WALL_MS + (self.world.now_ns - self._began_ns) // MS

    def send(self, ahead_ms: int = 0) -> Batch:
        """One batch with one record, of a time so far ahead of this client's clock."""
        batch = self.world.append("t", 0)
        assert batch is not None
        batch.columns.timestamps[:] = [self.wall_ms + ahead_ms]
        self.world.seal_all()
        if not self.world.sent:
            self.world.step(StreamOpened(broker_id=1, stream=1))
        return batch

    def answer(self, batch: Batch, outcome: Outcome, *, knows_time: bool = True) -> list[object]:
        """To the last try of the batch."""
        number = max(n for n, request in self.world.sent.items() if batch in request.batches)
        request = self.world.sent[number]
        answered = Answered(
            broker_id=1,
            stream=request.stream,
            correlation_id=request.correlation_id,
            outcomes=tuple(outcome for _ in request.batches),
            wall_ms=self.wall_ms if knows_time else 0,
        )
        return list(self.world.step(answered))

    def outcome(self, batch: Batch) -> Outcome | None:
        return self.world.outcomes.get(batch.number)


BOTH_KINDS = pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])


@BOTH_KINDS
def test_a_record_of_the_present_is_sent_again_and_another_leader_looked_for(
    is_idempotent: bool,
) -> None:
    sender = Sender(is_idempotent=is_idempotent)
    batch = sender.send()
    effects = sender.answer(batch, REFUSED)
    assert sender.outcome(batch) is None
    effects += sender.world.tick(1_000)
    assert any(isinstance(each, FetchMetadata) for each in effects)
    assert batch.attempts == 2
    sender.answer(batch, Acknowledgement(base_offset=Offset(5)))
    assert sender.outcome(batch) == Acknowledgement(base_offset=Offset(5))


@BOTH_KINDS
@pytest.mark.parametrize("ahead_ms", [PRESENT_MS + 1, 2 * 3_600_000, -DELIVERY_MS - PRESENT_MS - 1])
def test_a_time_that_is_not_the_present_here_either_stays_refused(
    is_idempotent: bool, ahead_ms: int
) -> None:
    sender = Sender(is_idempotent=is_idempotent)
    batch = sender.send(ahead_ms)
    sender.answer(batch, REFUSED)
    assert sender.outcome(batch) == REFUSED


@BOTH_KINDS
def test_without_a_clock_nothing_is_concluded(is_idempotent: bool) -> None:
    sender = Sender(is_idempotent=is_idempotent)
    batch = sender.send()
    sender.answer(batch, REFUSED, knows_time=False)
    assert sender.outcome(batch) == REFUSED


@BOTH_KINDS
def test_it_is_told_meanwhile_and_ends_with_both_clocks(is_idempotent: bool) -> None:
    sender = Sender(is_idempotent=is_idempotent)
    batch = sender.send()
    told: list[TellWaiting] = []
    waited_ms = 0
    while sender.outcome(batch) is None:
        is_asked = batch in sender.world.core.lanes["t", 0].in_flight
        effects = sender.answer(batch, REFUSED) if is_asked else []
        effects += sender.world.tick(500)
        told += [each for each in effects if isinstance(each, TellWaiting)]
        waited_ms += 500
        assert waited_ms <= DELIVERY_MS + 1_000
    assert told
    assert told[0].error.code is ErrorCode.INVALID_TIMESTAMP
    error = sender.outcome(batch)
    assert isinstance(error, TidelogError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert not error.retriable
    assert "delivery_timeout_ms=120000" in error.happened
    assert "as the script says" in error.happened, "what the broker says of its own clock"
    assert "this client's clock, which shows 2027-01-15T08:" in error.happened
    assert "cluster describe" in error.hint


def test_numbered_batches_keep_their_order() -> None:
    sender = Sender(is_idempotent=True)
    batches = [sender.send() for _ in range(3)]
    sender.answer(batches[0], REFUSED)
    for later in batches[1:]:
        sender.answer(later, failure(ErrorCode.OUT_OF_ORDER_SEQUENCE))
    sender.world.tick(2_000)
    again = sorted(sender.world.sent)[3:]
    assert [each for number in again for each in sender.world.sent[number].batches] == batches
    assert [each.base_sequence for each in batches] == [0, 1, 2]
    assert {each.producer_epoch for each in batches} == {0}


# With the real clients.


@pytest.mark.parametrize("clients", BOTH, ids=repr)
def test_a_broker_whose_clock_is_put_right_takes_the_records_after_all(clients: Clients) -> None:
    with ContractServer() as server:
        server.judge = lambda _name, _partition, before: (
            ErrorCode.INVALID_TIMESTAMP if before < 3 else None
        )
        with clients.Producer(bootstrap_servers=server.address) as producer:
            assert producer.send("t", b"x").get(30).offset == 0
        assert server.seen_batches == 4


@pytest.mark.parametrize("clients", BOTH, ids=repr)
@pytest.mark.parametrize(
    ("time_of", "happened"),
    [
        (lambda: None, "delivery_timeout_ms=1500"),
        (lambda: int(time.time() * 1000) + 7_200_000, "as the test wants"),
    ],
    ids=["present", "future"],
)
def test_both_clients_end_with_the_error_that_fits(
    clients: Clients, time_of: Callable[[], int | None], happened: str
) -> None:
    with ContractServer() as server:
        server.judge = lambda _name, _partition, _before: ErrorCode.INVALID_TIMESTAMP
        with clients.Producer(
            bootstrap_servers=server.address, delivery_timeout_ms=1_500, request_timeout_ms=1_000
        ) as producer:
            future = producer.send("t", b"x", timestamp_ms=time_of())
            with pytest.raises(TidelogError) as caught:
                future.get(30)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        assert happened in caught.value.happened
        assert (server.seen_batches > 1) == ("delivery" in happened)
