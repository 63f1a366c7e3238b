"""Which partition records without a key go to, as batches are sealed."""

from tests.client.support.engine_world import TOPIC_ID
from tidelog.client.engine.produce.accumulator import (
    STICKY_NS,
    Accumulator,
    AccumulatorLimits,
    Route,
)


class Sending:
    """A producer with linger 0 that seals each record at once."""

    def __init__(self, *, in_flight_max: int = 5) -> None:
        self.now_ns = 1_000_000_000
        limits = AccumulatorLimits(
            batch_bytes=1_000,
            batch_bytes_max=4_000,
            buffer_bytes=1_000_000,
            linger_ns=0,
            in_flight_max=in_flight_max,
        )
        self.accumulator = Accumulator(limits, lambda: self.now_ns)
        self.accumulator.set_route("t", TOPIC_ID, 3)

    @property
    def route(self) -> Route:
        return self.accumulator.routes["t"]

    def send(self, size_bytes: int = 100, *, is_done: bool = True) -> int:
        """The partition of the record."""
        route = self.route
        batch = self.accumulator.append(route, route.sticky, 0, None, b"", (), size_bytes)
        assert batch is not None
        self.accumulator.seal_due(self.now_ns)
        for sealed in self.accumulator.take_sealed():
            if is_done:
                self.accumulator.release(sealed)
        return batch.partition


def test_small_batches_that_follow_each_other_stay_with_one_partition() -> None:
    sending = Sending()
    sending.send()
    partitions = set()
    for _ in range(9):
        sending.now_ns += STICKY_NS // 10
        partitions.add(sending.send())
    assert len(partitions) == 1


def test_they_take_turns_with_the_partitions_all_the_same() -> None:
    sending = Sending()
    partitions = []
    for _ in range(300):
        sending.now_ns += STICKY_NS // 10
        partitions.append(sending.send())
    assert all(80 < partitions.count(each) < 120 for each in range(3))


def test_records_far_apart_take_the_next_partition_each() -> None:
    sending = Sending()
    partitions = []
    for _ in range(6):
        sending.now_ns += STICKY_NS
        partitions.append(sending.send())
    assert partitions == [0, 1, 2, 0, 1, 2]


def test_a_full_batch_moves_on_however_young_the_stay_is() -> None:
    sending = Sending()
    sending.send()
    first = sending.send(1_000)
    assert sending.route.sticky != first


def test_a_partition_that_gives_no_answer_is_left_for_those_that_do() -> None:
    sending = Sending(in_flight_max=1_000)
    sending.send()
    silent = sending.route.sticky
    counts = [0, 0, 0]
    for _ in range(300):
        sending.now_ns += STICKY_NS // 10
        partition = sending.route.sticky
        counts[partition] += 1
        sending.send(is_done=partition != silent)
    assert counts[silent] <= 11, "one stay, until the first look at who has the least under way"
