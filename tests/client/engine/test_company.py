"""When a batch that has room is sealed, as others of its partition are under way or not."""

from tests.client.support.engine_world import TOPIC_ID
from tidelog.client.engine.produce.accumulator import BEHIND_NS, Accumulator, AccumulatorLimits
from tidelog.client.engine.produce.batch import Batch

MS = 1_000_000
START_NS = 1_000_000_000


class Collecting:
    """One accumulator, its clock by hand."""

    def __init__(self, *, linger_ns: int = 0, in_flight_max: int = 5) -> None:
        self.now_ns = START_NS
        limits = AccumulatorLimits(
            batch_bytes=1_000,
            batch_bytes_max=4_000,
            buffer_bytes=1_000_000,
            linger_ns=linger_ns,
            in_flight_max=in_flight_max,
        )
        self.accumulator = Accumulator(limits, lambda: self.now_ns)
        self.accumulator.set_route("t", TOPIC_ID, 2)

    def put(self, partition: int = 0, size_bytes: int = 100) -> Batch:
        route = self.accumulator.routes["t"]
        batch = self.accumulator.append(route, partition, 0, None, b"", (), size_bytes)
        assert batch is not None
        return batch

    def sealed(self) -> list[Batch]:
        self.accumulator.seal_due(self.now_ns)
        return self.accumulator.take_sealed()

    @property
    def next_ns(self) -> int | None:
        """From the start on."""
        found = self.accumulator.next_linger_ns()
        return None if found is None else found - START_NS


def test_the_first_batch_goes_at_once_and_the_next_one_when_that_is_done() -> None:
    collecting = Collecting()
    first = collecting.put()
    assert collecting.sealed() == [first]
    second = collecting.put()
    assert collecting.sealed() == []
    assert collecting.put() is second, "it takes company in meanwhile"
    collecting.now_ns += BEHIND_NS - 1
    assert collecting.sealed() == []
    collecting.accumulator.release(first)
    assert collecting.next_ns == 0, "due since it was opened"
    assert collecting.sealed() == [second]


def test_a_batch_waits_for_those_before_it_no_longer_than_the_bound() -> None:
    collecting = Collecting()
    collecting.put()
    collecting.sealed()
    second = collecting.put()
    assert collecting.next_ns == BEHIND_NS
    collecting.now_ns += BEHIND_NS
    assert collecting.sealed() == [second]


def test_a_longer_linger_counts_whoever_is_under_way() -> None:
    collecting = Collecting(linger_ns=3 * BEHIND_NS)
    first = collecting.put()
    collecting.now_ns += 3 * BEHIND_NS
    assert collecting.sealed() == [first]
    second = collecting.put()
    collecting.now_ns += 3 * BEHIND_NS - 1
    assert collecting.sealed() == []
    collecting.now_ns += 1
    assert collecting.sealed() == [second]


def test_a_full_batch_waits_for_nobody() -> None:
    collecting = Collecting()
    collecting.put()
    collecting.sealed()
    full = collecting.put(size_bytes=1_000)
    assert collecting.sealed() == [full]


def test_a_batch_that_has_become_full_behind_another_goes_at_the_end_of_its_linger() -> None:
    collecting = Collecting(linger_ns=2 * MS)
    collecting.put()
    collecting.now_ns += 2 * MS
    collecting.sealed()
    full = collecting.put()
    assert collecting.next_ns == 4 * MS, "it may be full by then"
    collecting.put(size_bytes=900)
    collecting.now_ns += 2 * MS
    assert collecting.next_ns == 4 * MS
    assert collecting.sealed() == [full]


def test_flush_waits_for_nobody() -> None:
    collecting = Collecting()
    collecting.put()
    collecting.sealed()
    second = collecting.put()
    collecting.accumulator.seal_all()
    assert collecting.accumulator.take_sealed() == [second]


def test_another_partition_is_not_waited_for_and_tells_when_the_thread_wakes() -> None:
    collecting = Collecting(linger_ns=2 * MS)
    collecting.put()
    collecting.now_ns += 2 * MS
    collecting.sealed()
    behind = collecting.put()
    collecting.now_ns += 3 * MS
    assert collecting.sealed() == []
    other = collecting.put(partition=1)
    assert collecting.next_ns == 7 * MS, "the one that was opened later is due before"
    collecting.now_ns += 2 * MS
    assert collecting.sealed() == [other]
    assert collecting.next_ns == 2 * MS + BEHIND_NS
    assert behind.number in collecting.accumulator.open


def test_nobody_is_woken_for_a_batch_that_could_not_leave() -> None:
    collecting = Collecting(in_flight_max=1)
    collecting.put()
    collecting.sealed()
    collecting.put()
    assert collecting.next_ns is None
    collecting.now_ns += BEHIND_NS
    assert collecting.sealed() == []
