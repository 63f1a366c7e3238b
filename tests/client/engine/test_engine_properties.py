"""Whatever brokers answer and whenever: one outcome a batch, nothing unknown is sent twice."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.client.support.engine_world import TOPIC_ID, ProducerWorld, failure, view
from tidelog.client.engine.produce.batch import Acknowledgement, Outcome
from tidelog.client.engine.produce.messages import (
    Answered,
    ConnectFailed,
    FetchMetadata,
    MetadataArrived,
    MetadataFailed,
    OpenStream,
    ProducerEffect,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TopicWanted,
)
from tidelog.client.engine.produce.outcomes import OUTCOME_UNKNOWN
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import Offset, TopicId

PARTITIONS = 3
ANSWERS = (
    None,
    None,
    ErrorCode.NOT_LEADER,
    ErrorCode.RESOURCE_EXHAUSTED,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.CORRUPT_BATCH,
)


class Cluster:
    """Two brokers that store, refuse, and break as the drawn numbers say."""

    def __init__(self, world: ProducerWorld) -> None:
        self.world = world
        self.requests: list[SendProduce] = []
        self.served: list[tuple[SendProduce, tuple[Outcome, ...]]] = []
        self.opening: list[OpenStream] = []
        self.open: dict[int, int] = {}
        self.is_asked = False
        self.stored: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.settled_unknown: set[int] = set()
        self.version = 0
        self.leaders = [1, 1, 2]
        self.topic_id = TOPIC_ID

    def take(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendProduce):
                for batch in effect.batches:
                    assert batch.number not in self.settled_unknown, "sent after it was unknown"
                self.requests.append(effect)
            elif isinstance(effect, OpenStream):
                self.opening.append(effect)
            elif isinstance(effect, FetchMetadata):
                self.is_asked = True

    def store(self, request: SendProduce) -> None:
        for batch in request.batches:
            self.stored[batch.partition].append(batch.number)

    def metadata(self, chance: int) -> None:
        if not self.is_asked and chance % 4 != 1:
            return
        self.is_asked = False
        if chance % 4 == 0:
            error = failure(ErrorCode.UNAVAILABLE)
            self.take(self.world.step(MetadataFailed(error=error)))
            return
        self.version += 1
        if chance % 4 == 1:
            self.leaders[chance % PARTITIONS] = 1 + chance // 4 % 2
        found = view({"t": [(leader, 0) for leader in self.leaders]}, self.version)
        topics = tuple(replace(each, topic_id=self.topic_id) for each in found.topics)
        found = replace(found, topics=topics)
        self.take(self.world.step(MetadataArrived(view=found)))

    def connect(self, chance: int) -> None:
        if not self.opening:
            return
        effect = self.opening.pop(0)
        broker_id, stream = effect.broker_id, effect.stream
        if chance % 3 == 0:
            failed = ConnectFailed(
                broker_id=broker_id, stream=stream, error=failure(ErrorCode.UNAVAILABLE)
            )
            self.take(self.world.step(failed))
            return
        self.open[broker_id] = stream
        self.take(self.world.step(StreamOpened(broker_id=broker_id, stream=stream)))

    def serve(self, chance: int) -> None:
        """The oldest request of a broker, batch by batch: stored, refused, or left open."""
        if not self.requests:
            return
        streams = sorted({found.stream for found in self.requests})
        stream = streams[chance // 7 % len(streams)]
        request = next(found for found in self.requests if found.stream == stream)
        self.requests.remove(request)
        outcomes: list[Outcome] = []
        for place, batch in enumerate(request.batches):
            drawn = chance // len(ANSWERS) ** place
            code = ANSWERS[drawn % len(ANSWERS)]
            if batch.topic_id != self.topic_id:
                outcomes.append(failure(ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            if code is None or (code in OUTCOME_UNKNOWN and drawn // len(ANSWERS) % 2):
                self.stored[batch.partition].append(batch.number)
            outcomes.append(
                Acknowledgement(base_offset=Offset(0)) if code is None else failure(code)
            )
        self.served.append((request, tuple(outcomes)))

    def answer(self, chance: int) -> None:
        """Any that was served: one partition of it may have made it wait for its followers."""
        if not self.served:
            return
        request, outcomes = self.served.pop(chance % len(self.served))
        self.settled_unknown |= {
            batch.number
            for batch, outcome in zip(request.batches, outcomes, strict=True)
            if not isinstance(outcome, Acknowledgement) and outcome.code in OUTCOME_UNKNOWN
        }
        self.take(
            self.world.step(
                Answered(
                    broker_id=request.broker_id,
                    stream=request.stream,
                    correlation_id=request.correlation_id,
                    outcomes=outcomes,
                )
            )
        )

    def break_stream(self, chance: int) -> None:
        """Any prefix of what is on its way was stored; nobody is told."""
        if not self.open:
            return
        broker_id = sorted(self.open)[chance % len(self.open)]
        stream = self.open.pop(broker_id)
        mine = [found for found in self.requests if found.stream == stream]
        self.requests = [found for found in self.requests if found.stream != stream]
        for request in mine[: chance % (len(mine) + 1)]:
            self.store(request)
        mine += [found for found, _ in self.served if found.stream == stream]
        self.served = [found for found in self.served if found[0].stream != stream]
        for request in mine:
            self.settled_unknown |= {batch.number for batch in request.batches}
        broken = StreamBroken(
            broker_id=broker_id, stream=stream, error=failure(ErrorCode.UNAVAILABLE)
        )
        self.take(self.world.step(broken))

    def produce(self, chance: int) -> None:
        if "t" not in self.world.accumulator.routes:
            return
        self.world.append("t", chance % PARTITIONS, 50 + chance % 400)
        if chance % 3 == 0:
            self.take(self.world.seal_all())

    def recreate(self, chance: int) -> None:
        """Now and then the topic is deleted and created again; metadata tell it at once."""
        if chance % 3:
            return
        self.topic_id = TopicId(chance.to_bytes(16, "big"))
        self.is_asked = True
        self.metadata(2)

    def wait(self, chance: int) -> None:
        self.take(self.world.tick(chance % 400))


MOVES = (
    *("produce", "produce", "produce", "produce", "serve", "serve", "answer", "answer"),
    *("metadata", "connect", "connect", "wait", "break_stream", "recreate"),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_batch_has_one_outcome_and_keeps_its_place(seed: int) -> None:
    random = Random(seed)
    world = ProducerWorld(batch_bytes=300, in_flight_max=3)
    cluster = Cluster(world)
    cluster.take(world.step(TopicWanted(topic="t")))
    cluster.metadata(2)
    for _ in range(random.randrange(20, 200)):
        getattr(cluster, random.choice(MOVES))(random.randrange(10_000))
    cluster.take(world.seal_all())
    for chance in range(200):
        cluster.metadata(2)
        cluster.connect(1)
        cluster.serve(0)
        cluster.answer(0)
        cluster.wait(399)
        if "t" in world.accumulator.routes and not world.core.lanes and chance > 5:
            break
    assert not world.core.lanes, "everything ends"
    assert world.accumulator.reserved_bytes == 0, "all memory is given back"
    assert len(world.outcomes) == world.accumulator.opened_count, "each batch has an outcome"
    for partition, numbers in cluster.stored.items():
        assert len(numbers) == len(set(numbers)), f"partition {partition} stored a batch twice"
        known = [
            number for number in numbers if isinstance(world.outcomes[number], Acknowledgement)
        ]
        assert known == sorted(known), f"partition {partition} was acknowledged out of order"
    for number, outcome in world.outcomes.items():
        is_stored = any(number in numbers for numbers in cluster.stored.values())
        if isinstance(outcome, Acknowledgement):
            assert is_stored, f"batch {number} was acknowledged and is not there"
        elif outcome.code is not ErrorCode.INDETERMINATE:
            assert not is_stored, f"batch {number} failed for sure and is there"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 900)), max_size=200),
    st.integers(1_000, 60_000),
)
def test_the_buffer_is_never_exceeded_and_batches_stay_in_size(
    records: list[tuple[int, int]], buffer_bytes: int
) -> None:
    world = ProducerWorld(batch_bytes=1_000, buffer_bytes=buffer_bytes)
    world.accumulator.set_route("t", b"i" * 16, 3)
    appended = 0
    for partition, size_bytes in records:
        batch = world.append("t", partition, size_bytes)
        if batch is None:
            break
        appended += 1
        is_alone = world.accumulator.opened_count == 1
        assert world.accumulator.reserved_bytes <= buffer_bytes or is_alone, "more than allowed"
    world.accumulator.seal_all()
    sealed = world.accumulator.take_sealed()
    assert sum(len(batch.columns) for batch in sealed) == appended, "a record was lost"
    assert all(batch.size_bytes <= 4_000 for batch in sealed), "a batch is too large"
