"""Drives the engine's cores without any I/O: scripts of inputs, printed effects.

The form of scripts, and how they are rewritten, stand in `tests.support.golden`.
"""

from collections.abc import Callable

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import (
    BrokerView,
    ClusterView,
    MetadataCache,
    PartitionView,
    TopicView,
)
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.invariants import check_accumulator, check_producer
from tidelog.client.engine.produce.accumulator import Accumulator, AccumulatorLimits
from tidelog.client.engine.produce.batch import Acknowledgement, Batch, Outcome
from tidelog.client.engine.produce.messages import (
    AllocateProducerId,
    Answered,
    BatchSealed,
    BreakStream,
    CompleteBatch,
    ConnectFailed,
    FetchMetadata,
    LeaderHint,
    MetadataArrived,
    MetadataFailed,
    OpenStream,
    ProducerEffect,
    ProducerIdAllocated,
    ProducerIdentity,
    ProducerIdFailed,
    ProducerMessage,
    RefuseTopic,
    RouteTopic,
    SendProduce,
    StreamBroken,
    StreamOpened,
    TellWaiting,
    TopicWanted,
)
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.client.engine.produce.settings import ProducerSettings
from tidelog.client.writing.producer_parts import waiting_text
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

MS = 1_000_000
TOPIC_ID = TopicId(b"i" * 16)
BROKERS_ALWAYS = {1, 2}
"""Their addresses are in every view."""


def failure(code: ErrorCode) -> TidelogError:
    """An error of a broker."""
    return TidelogError(code, tried="serve", happened="as the script says")


def view(
    leaders: dict[str, list[tuple[int, int]]], version: int = 1, *, cluster_id: str = "c"
) -> ClusterView:
    """Topics with (leader, epoch) each partition; brokers as they are named."""
    named = {leader for parts in leaders.values() for leader, _ in parts if leader >= 0}
    ids = sorted(named | BROKERS_ALWAYS)
    return ClusterView(
        cluster_id=cluster_id,
        controller_id=1,
        brokers=tuple(BrokerView(broker_id=found, address=f"b{found}") for found in ids),
        topics=tuple(
            TopicView(
                name=name,
                topic_id=TOPIC_ID,
                partitions=tuple(
                    PartitionView(
                        partition=PartitionId(number),
                        leader_id=leader,
                        leader_epoch=LeaderEpoch(epoch),
                    )
                    for number, (leader, epoch) in enumerate(parts)
                ),
            )
            for name, parts in leaders.items()
        ),
        version=version,
    )


class ProducerWorld:
    """Accumulator and core on a clock that only the script moves."""

    def __init__(
        self,
        *,
        batch_bytes: int = 1_000,
        buffer_bytes: int = 1_000_000,
        in_flight_max: int = 2,
        request_bytes_max: int = 10_000,
        is_idempotent: bool = False,
        is_transactional: bool = False,
        retries_max: int = 1_000,
    ) -> None:
        self.now_ns = 1_000_000_000
        limits = AccumulatorLimits(
            batch_bytes=batch_bytes,
            batch_bytes_max=4 * batch_bytes,
            buffer_bytes=buffer_bytes,
            linger_ns=5 * MS,
            in_flight_max=in_flight_max,
        )
        self.accumulator = Accumulator(limits, lambda: self.now_ns)
        backoff = Backoff(initial_ms=100, max_ms=1_000, salt=0)
        self.metadata = MetadataCache()
        desk = TopicDesk(
            TopicSettings(max_age_ms=300_000, bootstrap_timeout_ms=5_000), self.metadata, backoff
        )
        settings = ProducerSettings(
            in_flight_max=in_flight_max,
            request_bytes_max=request_bytes_max,
            request_timeout_ms=30_000,
            delivery_timeout_ms=120_000,
            retries_max=retries_max,
            is_idempotent=is_idempotent,
            is_transactional=is_transactional,
        )
        self.core = ProducerCore(settings, self.metadata, desk, backoff)
        self.sent: dict[int, SendProduce] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.sends: dict[int, int] = {}

    def append(self, topic: str, partition: int, size_bytes: int = 100) -> Batch | None:
        """One record of about this size."""
        route = self.accumulator.routes[topic]
        return self.accumulator.append(route, partition, 0, None, b"x" * size_bytes, (), size_bytes)

    def seal_all(self) -> list[ProducerEffect]:
        """Hand every open batch to the core."""
        self.accumulator.seal_all()
        sealed = [BatchSealed(batch=batch) for batch in self.accumulator.take_sealed()]
        return self.perform(self.core.steps(sealed, self.now_ns))

    def step(self, message: ProducerMessage) -> list[ProducerEffect]:
        """One message to the core."""
        return self.perform(self.core.step(message, self.now_ns))

    def tick(self, duration_ms: int) -> list[ProducerEffect]:
        """Let time pass."""
        self.now_ns += duration_ms * MS
        return self.perform(self.core.tick(self.now_ns))

    def perform(self, effects: list[ProducerEffect]) -> list[ProducerEffect]:
        """Do what a driver does, as far as there is no I/O in it; then check the invariants."""
        for effect in effects:
            if isinstance(effect, SendProduce):
                self.sent[effect.correlation_id] = effect
                for batch in effect.batches:
                    self.sends[batch.number] = self.sends.get(batch.number, 0) + 1
            elif isinstance(effect, CompleteBatch):
                assert effect.batch.number not in self.outcomes, "an outcome is given once"
                self.outcomes[effect.batch.number] = effect.outcome
                self.accumulator.release(effect.batch)
                effect.batch.complete(effect.outcome)
            elif isinstance(effect, RouteTopic):
                self.accumulator.set_route(effect.topic, effect.topic_id, effect.partition_count)
        check_producer(self.core)
        check_accumulator(self.accumulator)
        return effects


def outcome_text(outcome: Outcome) -> str:
    if isinstance(outcome, Acknowledgement):
        return f"stored at {outcome.base_offset}"
    return f"{outcome.code.name} ({outcome.happened})"


def number_text(batch: Batch) -> str:
    """`+7.1:30`: producer id, epoch, base sequence; nothing without them."""
    if batch.base_sequence < 0:
        return ""
    return f"+{batch.producer_id}.{batch.producer_epoch}:{batch.base_sequence}"


def effect_text(effect: ProducerEffect) -> str:
    """One line."""
    match effect:
        case SendProduce():
            parts = " ".join(
                f"#{batch.number}:{batch.topic}-{batch.partition}@{epoch}{number_text(batch)}"
                for batch, epoch in zip(effect.batches, effect.leader_epochs, strict=True)
            )
            where = f"b{effect.broker_id} stream {effect.stream}"
            return f"send request {effect.correlation_id} to {where}: {parts}"
        case CompleteBatch():
            return f"complete #{effect.batch.number}: {outcome_text(effect.outcome)}"
        case FetchMetadata():
            return f"fetch metadata of {', '.join(effect.topics) or 'the cluster'}"
        case AllocateProducerId():
            return "allocate a producer id"
        case OpenStream():
            return f"open stream {effect.stream} to b{effect.broker_id} at {effect.address}"
        case BreakStream():
            return f"break stream {effect.stream} to b{effect.broker_id}"
        case RouteTopic():
            return f"route {effect.topic} over {effect.partition_count}"
        case RefuseTopic():
            final = "for good" if effect.is_final else "for now"
            return f"refuse {effect.topic} {final}: {effect.error.code.name}"
        case TellWaiting():
            return f"warn: {waiting_text(effect, 120_000)}"


class Script:
    """Reads commands, drives a world, collects what is printed."""

    def __init__(self) -> None:
        self.world = ProducerWorld()
        self.version = 0
        self._commands: dict[str, Callable[[list[str]], list[ProducerEffect]]] = {
            "want": lambda words: self.world.step(TopicWanted(topic=words[0])),
            "metadata": self._metadata,
            "unreachable": lambda _: self.world.step(
                MetadataFailed(error=failure(ErrorCode.UNAVAILABLE))
            ),
            "batch": self._batch,
            "opened": lambda words: self.world.step(
                StreamOpened(broker_id=int(words[0]), stream=int(words[1]))
            ),
            "refused-connection": lambda words: self.world.step(
                ConnectFailed(
                    broker_id=int(words[0]),
                    stream=int(words[1]),
                    error=failure(ErrorCode.UNAVAILABLE),
                )
            ),
            "broken": lambda words: self.world.step(
                StreamBroken(
                    broker_id=int(words[0]),
                    stream=int(words[1]),
                    error=failure(ErrorCode[words[2] if len(words) > 2 else "UNAVAILABLE"]),
                )
            ),
            "answer": self._answer,
            "idempotent": self._idempotent,
            "producer-id": lambda words: self.world.step(
                ProducerIdAllocated(
                    identity=ProducerIdentity(
                        producer_id=int(words[0]), producer_epoch=0, batches_in_flight_max=16
                    )
                )
            ),
            "no-producer-id": lambda words: self.world.step(
                ProducerIdFailed(error=failure(ErrorCode[words[0]]))
            ),
            "wait": lambda words: self.world.tick(int(words[0])),
        }

    def run(self, command: str) -> str:
        """What one command makes the core do, as text."""
        words = command.split()
        effects = self._commands[words[0]](words[1:])
        return "\n".join(effect_text(effect) for effect in effects) or "nothing"

    def _idempotent(self, words: list[str]) -> list[ProducerEffect]:
        """`idempotent [IN_FLIGHT]`: first of all."""
        self.world = ProducerWorld(is_idempotent=True, in_flight_max=int(words[0] if words else 5))
        return []

    def _metadata(self, words: list[str]) -> list[ProducerEffect]:
        """`metadata t=1@0,2@0`: leaders and epochs of the partitions."""
        leaders = {}
        for word in words:
            name, _, parts = word.partition("=")
            leaders[name] = [
                (int(part.partition("@")[0]), int(part.partition("@")[2]))
                for part in parts.split(",")
            ]
        self.version += 1
        return self.world.step(MetadataArrived(view=view(leaders, self.version)))

    def _batch(self, words: list[str]) -> list[ProducerEffect]:
        """`batch t-0 t-1`: one record each, sealed together."""
        for word in words:
            topic, _, partition = word.rpartition("-")
            assert self.world.append(topic, int(partition)) is not None, "there is room"
        return self.world.seal_all()

    def _answer(self, words: list[str]) -> list[ProducerEffect]:
        """`answer REQUEST OFFSET|ERROR_CODE[>LEADER@EPOCH] …`, one for each batch."""
        request = self.world.sent[int(words[0])]
        parts = [word.partition(">") for word in words[1:]]
        outcomes: tuple[Outcome, ...] = tuple(
            Acknowledgement(base_offset=Offset(int(said)))
            if said.isdigit()
            else failure(ErrorCode[said])
            for said, _, _ in parts
        )
        hints = tuple(
            LeaderHint(
                leader_id=int(hint.partition("@")[0]),
                leader_epoch=LeaderEpoch(int(hint.partition("@")[2])),
            )
            if hint
            else None
            for _, _, hint in parts
        )
        return self.world.step(
            Answered(
                broker_id=request.broker_id,
                stream=request.stream,
                correlation_id=request.correlation_id,
                outcomes=outcomes,
                hints=hints,
            )
        )
