"""Drives the consumer's core by scripts: `> command` lines, and below each what the core did."""

from collections.abc import Callable

from tests.client.support.engine_world import MS, TOPIC_ID, failure
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import (
    BrokerView,
    ClusterView,
    MetadataCache,
    PartitionView,
    TopicView,
)
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import (
    BreakStream,
    ConsumerEffect,
    ConsumerMessage,
    FetchAnswered,
    FetchMetadata,
    MetadataArrived,
    OffsetsArrived,
    OpenStream,
    PartitionBatches,
    QueryOffsets,
    SendFetch,
    StreamBroken,
    StreamOpened,
    TellReadAgain,
    TellUnread,
)
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.engine.invariants import check_consumer
from tidelog.client.types.records import TopicPartition
from tidelog.wire.batch import checksum, encode_batch, fetch_sum
from tidelog.wire.calls.fetch import Divergence
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetSpec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

Fields = dict[str, str]


def effect_text(effect: ConsumerEffect) -> str:
    """One line."""
    match effect:
        case SendFetch():
            return f"send to b{effect.broker_id} stream {effect.stream}: {_request(effect)}"
        case FetchMetadata():
            return f"fetch metadata of {', '.join(effect.topics) or 'the cluster'}"
        case OpenStream():
            return f"open stream {effect.stream} to b{effect.broker_id}"
        case BreakStream():
            return f"break stream {effect.stream} to b{effect.broker_id}"
        case QueryOffsets():
            asked = " ".join(
                f"t-{each.partition} {each.spec.name.lower()}@{each.leader_epoch}"
                for each in effect.queries
            )
            return f"ask b{effect.broker_id} for offsets: {asked}"
        case TellUnread():
            return f"tell t-{effect.partition.partition} waits: {effect.error.code.name}"
        case TellReadAgain():
            return "tell all is read again"


def _request(effect: SendFetch) -> str:
    parts = [
        f"read t-{each.partition} from {each.fetch_offset}"
        f" leader@{each.leader_epoch} behind@{each.last_fetched_epoch}"
        + (" stays" if each.stays_here else "")
        for each in effect.positions
    ]
    parts += [f"stop t-{partition}" for _, partition in effect.removed]
    if effect.credit_bytes:
        parts.append("credit")
    return f"session {effect.session_epoch}, " + ", ".join(parts)


class ConsumerScript:
    """`reset none` first, for a consumer without a reset policy."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.version = 0
        self.query: QueryOffsets | None = None
        self.core = self._core(OffsetSpec.EARLIEST)
        self._commands: dict[str, Callable[[list[str], Fields], list[ConsumerEffect]]] = {
            "reset": self._reset,
            "assign": self._assign,
            "seek": self._seek,
            "metadata": self._metadata,
            "opened": lambda words, _: self._step(
                StreamOpened(broker_id=int(words[0]), stream=int(words[1]))
            ),
            "broken": lambda words, _: self._step(
                StreamBroken(
                    broker_id=int(words[0]),
                    stream=int(words[1]),
                    error=failure(ErrorCode.UNAVAILABLE),
                )
            ),
            "answer": self._answer,
            "offset": self._offset,
            "wait": self._wait,
        }

    def run(self, command: str) -> str:
        """What one command makes the core do, as text."""
        words = [word for word in command.split() if "=" not in word]
        fields = dict(word.split("=", 1) for word in command.split() if "=" in word)
        if words[0] in ("take", "state"):
            return self._take() if words[0] == "take" else self._state(words[1])
        effects = self._commands[words[0]](words[1:], fields)
        check_consumer(self.core)
        return "\n".join(effect_text(effect) for effect in effects) or "nothing"

    def _core(self, reset: OffsetSpec | None) -> ConsumerCore:
        metadata, backoff = MetadataCache(), Backoff(initial_ms=100, max_ms=1_000)
        desk = TopicDesk(
            TopicSettings(max_age_ms=300_000, bootstrap_timeout_ms=5_000), metadata, backoff
        )
        settings = ConsumerSettings(
            reset=reset,
            window_bytes=10_000,
            grant_bytes=1_000,
            partition_bytes_max=0,
            verify=True,
            replica_lease_ms=60_000,
        )
        return ConsumerCore(settings, metadata, desk, backoff)

    def _step(self, message: ConsumerMessage) -> list[ConsumerEffect]:
        return self._noted(self.core.step(message, self.now_ns))

    def _noted(self, effects: list[ConsumerEffect]) -> list[ConsumerEffect]:
        for effect in effects:
            if isinstance(effect, QueryOffsets):
                self.query = effect
        return effects

    def _reset(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        del fields
        assert words == ["none"], "the other policies behave alike"
        self.core = self._core(None)
        return []

    def _assign(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        del fields
        self.core.assign([_name(word) for word in words], self.now_ns)
        return self._wait(["0"], {})

    def _seek(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        """`seek t-0 5 behind=3`"""
        self.core.seek(_name(words[0]), int(words[1]), int(fields.get("behind", "-1")))
        return self._wait(["0"], {})

    def _metadata(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        """`metadata t=1@3,2@0`: leaders and epochs; brokers 1 to 3 live but for `fenced` ones."""
        leaders = [part.split("@") for part in fields["t"].split(",")]
        partitions = tuple(
            PartitionView(
                partition=PartitionId(number),
                leader_id=int(leader),
                leader_epoch=LeaderEpoch(int(epoch)),
            )
            for number, (leader, epoch) in enumerate(leaders)
        )
        self.version += 1
        view = ClusterView(
            cluster_id="c",
            controller_id=1,
            brokers=tuple(
                BrokerView(broker_id=each, address=f"b{each}", is_fenced=f"fenced-b{each}" in words)
                for each in (1, 2, 3)
            ),
            topics=(TopicView(name="t", topic_id=TOPIC_ID, partitions=partitions),),
            version=self.version,
        )
        return self._step(MetadataArrived(view=view))

    def _answer(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        """`answer BROKER STREAM SESSION t-0 …`, with one of

        records=BASE+COUNT@EPOCH, error=CODE leader=ID@EPOCH, parted=EPOCH@END, nearer=ID.
        """
        broker_id, stream, session = (int(word) for word in words[:3])
        number = _name(words[3]).partition
        part = PartitionBatches(topic_id=TOPIC_ID, partition=PartitionId(number))
        if "records" in fields:
            part = _records(number, fields["records"])
        if "error" in fields:
            leader = fields.get("leader", "").split("@")
            part = PartitionBatches(
                topic_id=TOPIC_ID,
                partition=PartitionId(number),
                error=failure(ErrorCode[fields["error"]]),
                leader_id=int(leader[0]) if leader[0] else None,
                leader_epoch=LeaderEpoch(int(leader[1]) if leader[0] else -1),
            )
        if "parted" in fields:
            epoch, end = fields["parted"].split("@")
            found = Divergence(leader_epoch=LeaderEpoch(int(epoch)), end_offset=Offset(int(end)))
            part = PartitionBatches(
                topic_id=TOPIC_ID, partition=PartitionId(number), divergence=found
            )
        if "nearer" in fields:
            part = PartitionBatches(
                topic_id=TOPIC_ID,
                partition=PartitionId(number),
                preferred_replica=int(fields["nearer"]),
            )
        return self._step(
            FetchAnswered(
                broker_id=broker_id,
                stream=stream,
                session_epoch=session,
                size_bytes=0,
                partitions=(part,),
            )
        )

    def _offset(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        """`offset 42` or `offset CODE`, to the last question."""
        del fields
        assert self.query is not None, "nobody asked"
        is_number = words[0].isdigit()
        answer = OffsetAnswer(
            topic_id=TOPIC_ID,
            partition=PartitionId(0),
            offset=Offset(int(words[0]) if is_number else -1),
            error=None if is_number else failure(ErrorCode[words[0]]),
        )
        return self._step(OffsetsArrived(query=self.query, answers=(answer,)))

    def _wait(self, words: list[str], fields: Fields) -> list[ConsumerEffect]:
        del fields
        self.now_ns += int(words[0]) * MS
        return self._noted(self.core.tick(self.now_ns))

    def _take(self) -> str:
        error = self.core.take_error()
        if error is not None:
            return f"raise {type(error).__name__} {error.code.name}: {error.happened}"
        fetched = self.core.take()
        if fetched is None:
            return "nothing"
        self.core.partitions[fetched.topic_partition].hand_over(fetched.next_offset)
        name = fetched.topic_partition
        return f"t-{name.partition} {fetched.first_offset} to {fetched.next_offset - 1}"

    def _state(self, word: str) -> str:
        state = self.core.partitions[_name(word)]
        return f"{state!r} reads b{state.broker_id}, epochs {state.epochs!r}"


def _name(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    return TopicPartition(topic, int(number))


def _records(number: int, text: str) -> PartitionBatches:
    place, _, epoch = text.partition("@")
    base, count = (int(word) for word in place.split("+"))
    data = encode_batch(
        [(0, None, b"v" * 20, ())] * count, base_offset=base, leader_epoch=int(epoch)
    )
    return PartitionBatches(
        topic_id=TOPIC_ID,
        partition=PartitionId(number),
        batches=data,
        fetch_sum=fetch_sum(TopicId(TOPIC_ID), number, base, checksum(data)),
        high_watermark=Offset(1_000),
        log_start_offset=Offset(0),
        leader_epoch=LeaderEpoch(int(epoch)),
    )
