"""What must hold in the client's cores after every step; tests and simulation check it.

Owns no state. A violated invariant is a bug of the engine, never of a broker: it asserts.
"""

import itertools

from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.produce.accumulator import Accumulator
from tidelog.client.engine.produce.lane import Lane
from tidelog.client.engine.produce.producer import BATCHES_IN_FLIGHT_MAX, ProducerCore
from tidelog.client.engine.produce.sequences import SEQUENCE_MAX
from tidelog.client.types.records import TopicPartition


def check_accumulator(accumulator: Accumulator) -> None:
    """Memory is counted once, and a partition has at most one open batch."""
    limits = accumulator.limits
    reserved = sum(batch.reserved_bytes for batch in accumulator.open.values())
    assert accumulator.reserved_bytes >= reserved, "open batches hold more than was reserved"
    for batch in accumulator.open.values():
        route = accumulator.routes[batch.topic]
        assert route.open[batch.partition] is batch, f"{batch!r} is open twice"
        assert batch.size_bytes <= batch.checkpoint_bytes, f"{batch!r} outgrew its reservation"
        is_single = len(batch.columns) == 1
        assert is_single or batch.size_bytes <= limits.batch_bytes_max, f"{batch!r} is too large"


def check_producer(core: ProducerCore) -> None:
    """Every unfinished batch is in one place, in order, and sent by one request at most."""
    in_requests = [
        (id(batch), attempt)
        for link in core.links.values()
        for request in link.requests.values()
        for batch, attempt in zip(request.batches, request.attempts, strict=True)
    ]
    assert len(in_requests) == len(set(in_requests)), "a try of a batch is in two requests"
    # A try that was given up may still be in a request; what is in flight always is.
    in_lanes = {
        (id(batch), batch.attempts) for lane in core.lanes.values() for batch in lane.in_flight
    }
    assert in_lanes <= set(in_requests), "what is in flight is in no request"
    is_idempotent = core.settings.is_idempotent
    assert is_idempotent or len(in_lanes) == len(in_requests), "a request holds a batch that is not"
    for name, lane in core.lanes.items():
        numbers = [batch.number for batch in lane.waiting]
        assert numbers == sorted(numbers), f"{name} waits out of order: {numbers}"
        assert not lane.is_idle, f"{name} is kept without batches"
        every = [*lane.waiting, *lane.in_flight, *lane.refused]
        assert all(batch.outcome is None for batch in every), f"{name} keeps a batch that is done"
        if lane.in_flight and lane.waiting:
            first_waiting = numbers[0]
            assert all(batch.number < first_waiting for batch in lane.in_flight), (
                f"{name} sent a batch before an older one"
            )
        check_sequences(name, lane)
    for link in core.links.values():
        count = len(link.requests)
        assert count <= core.settings.in_flight_max, f"{count} requests in flight"
        assert link.is_open or not link.requests, "requests without a stream"


def check_sequences(name: tuple[str, int], lane: Lane) -> None:
    """Numbered batches of a partition are of one epoch, one behind the other, before all others."""
    every = sorted((*lane.waiting, *lane.in_flight, *lane.refused), key=lambda batch: batch.number)
    numbered = [batch for batch in every if batch.base_sequence >= 0]
    assert every[: len(numbered)] == numbered, f"{name} numbered a batch before an older one"
    assert len(numbered) <= BATCHES_IN_FLIGHT_MAX, f"{name} has {len(numbered)} numbered batches"
    for batch, behind in itertools.pairwise(numbered):
        if batch.topic_id != behind.topic_id:
            continue
        epochs = {(each.producer_id, each.producer_epoch) for each in (batch, behind)}
        assert len(epochs) == 1, f"{name} has numbers of several epochs at once: {epochs}"
        distance = (behind.base_sequence - batch.base_sequence) & SEQUENCE_MAX
        assert distance >= len(batch.columns), f"{name} gave a sequence twice"


def check_consumer(core: ConsumerCore) -> None:
    """Positions are ordered, what is ready is present and without a gap, credit adds up."""
    window_bytes = core.settings.window_bytes
    for state in core.partitions.values():
        assert (state.position is None) == (state.fetch_offset is None), f"{state!r}: half known"
        if state.position is not None and state.fetch_offset is not None:
            assert state.position <= state.fetch_offset, f"{state!r} was read backwards"
    ready: dict[int, int] = {}
    read_to: dict[TopicPartition, int] = {}
    for fetched in core.ready:
        name = fetched.topic_partition
        state = core.partitions[name]
        assert state.keeps(fetched), f"{state!r} keeps void bytes"
        ready[fetched.broker_id] = ready.get(fetched.broker_id, 0) + len(fetched.data)
        is_behind = read_to.get(name, fetched.first_offset) == fetched.first_offset
        assert is_behind, f"{state!r} has a gap before {fetched.first_offset}, or has it twice"
        read_to[name] = fetched.next_offset
    for name, next_offset in read_to.items():
        state = core.partitions[name]
        assert next_offset == state.fetch_offset, f"{state!r} has read to {next_offset} only"
    for link in core.links.values():
        assert link.buffered_bytes == ready.get(link.broker_id, 0), "buffered bytes do not add up"
        if link.is_open:
            total = link.outstanding_bytes + link.buffered_bytes + link.ungranted_bytes
            assert total == window_bytes, f"credit leaks: {total} of {window_bytes}"
