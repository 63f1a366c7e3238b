"""What a controller allows, refuses, and fills in."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata_quorum.controller import clusters
from tidelog.metadata import invariants
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.broker_reports import Registration
from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import NewTopic, TopicDefaults
from tidelog.metadata.records.entries import FenceRecord, FormatRecord
from tidelog.metadata.refusals.unknown_topics import unknown_topic
from tidelog.metadata.topic_names import validate_topic_name
from tidelog.metadata_quorum.controller.brokers.registration import plan_registration
from tidelog.metadata_quorum.controller.topics.changes import (
    PartitionCountChange,
    TopicSelector,
    create_partitions,
    delete_topics,
)
from tidelog.metadata_quorum.controller.topics.creation import (
    PARTITIONS_PER_REQUEST_MAX,
    REPLICAS_PER_REQUEST_MAX,
    TOPICS_PER_REQUEST_MAX,
    TopicPlan,
    create_topics,
    plan_topic,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, TopicId
from tidelog.wire.nearest import KNOWN_MAX, nearest_name

REPLICATED = TopicDefaults(replication_factor_max=50)


def cluster(brokers: int) -> Image:
    """An image with live brokers 1…n."""
    image = apply_entry(Image(), (FormatRecord(cluster_id="c"),))
    for number in range(1, brokers + 1):
        registration = Registration(
            broker_id=BrokerId(number), incarnation=bytes(16), listeners={"client": f"h:{number}"}
        )
        record = plan_registration(image, registration)
        image = apply_entry(image, (record,))
        fence = FenceRecord(broker_id=record.broker_id, epoch=record.epoch, is_fenced=False)
        image = apply_entry(image, (fence,))
    return image


def plan(image: Image, wanted: NewTopic, defaults: TopicDefaults | None = None) -> TopicPlan:
    """A plan with a topic id of its own."""
    topic_id = clusters.topic_id(500 + len(image.topics))
    return plan_topic(image, wanted, topic_id, defaults or TopicDefaults())


def refusal(image: Image, wanted: NewTopic, defaults: TopicDefaults | None = None) -> TidelogError:
    """Why the topic cannot be created."""
    with pytest.raises(TidelogError) as caught:
        plan(image, wanted, defaults)
    return caught.value


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_a_name_of_the_allowed_characters_is_taken(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(TidelogError) as caught:
        validate_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_NAME


def test_a_topic_that_asks_for_nothing_gets_the_defaults() -> None:
    found = plan(
        cluster(3),
        NewTopic(name="t"),
        TopicDefaults(partition_count=4, replication_factor=2, replication_factor_max=3),
    )
    assert (found.partition_count, found.replication_factor) == (4, 2)


def test_a_replication_factor_above_the_live_brokers_is_refused_naming_their_number() -> None:
    error = refusal(cluster(2), NewTopic(name="t", replication_factor=3))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert error.happened == "2 of 2 registered brokers take replicas"


def test_a_fenced_broker_is_not_alive() -> None:
    image = cluster(2)
    fence = FenceRecord(
        broker_id=BrokerId(1), epoch=image.brokers[BrokerId(1)].epoch, is_fenced=True
    )
    error = refusal(apply_entry(image, (fence,)), NewTopic(name="t", replication_factor=2))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert error.happened == "1 of 2 registered brokers take replicas (1 not there)"


def test_partition_counts_beyond_either_limit_are_refused() -> None:
    defaults = TopicDefaults(partition_count_max=5, partitions_total_max=6)
    image = cluster(1)
    assert refusal(image, NewTopic(name="t", partition_count=6), defaults).code is (
        ErrorCode.INVALID_PARTITION_COUNT
    )
    image = apply_entry(image, plan(image, NewTopic(name="t", partition_count=4), defaults).records)
    assert refusal(image, NewTopic(name="u", partition_count=3), defaults).code is (
        ErrorCode.INVALID_PARTITION_COUNT
    )
    assert plan(image, NewTopic(name="u", partition_count=2), defaults).partition_count == 2


def test_a_name_that_exists_is_refused() -> None:
    image = cluster(1)
    image = apply_entry(image, plan(image, NewTopic(name="t")).records)
    assert refusal(image, NewTopic(name="t")).code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    error = refusal(cluster(1), NewTopic(name="t", configuration={"segment.byte": "4096"}))
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert "segment.bytes" in error.hint


@pytest.mark.parametrize("value", ["", "-1", "1e9", "12", "99999999999999999", "9" * 5_000])
def test_a_setting_out_of_bounds_is_refused_naming_the_bounds(value: str) -> None:
    error = refusal(cluster(1), NewTopic(name="t", configuration={"segment.bytes": value}))
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert "1024" in error.happened


def test_an_unknown_topic_is_told_with_the_nearest_name() -> None:
    image = cluster(1)
    image = apply_entry(image, plan(image, NewTopic(name="orders")).records)
    error = unknown_topic("order", image, tried="produce")
    assert error.code is ErrorCode.UNKNOWN_TOPIC
    assert "`orders`" in error.hint


def test_no_nearest_name_is_looked_for_where_that_takes_long() -> None:
    many = [f"topic-{number}" for number in range(KNOWN_MAX + 1)]
    assert nearest_name("topic-1", many[1:]) == "topic-1"
    assert nearest_name("topic-1", many) is None
    assert nearest_name("x" * 10_000, ["x" * 10_000]) is None


def test_a_broker_that_registers_again_gets_a_higher_epoch_and_is_fenced() -> None:
    image = cluster(2)
    registration = Registration(broker_id=BrokerId(1), incarnation=bytes(16), listeners={})
    record = plan_registration(image, registration)
    assert record.epoch > max(broker.epoch for broker in image.brokers.values())
    assert record.is_fenced


@given(
    brokers=st.integers(1, 6),
    topics=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), max_size=5),
)
def test_every_plan_places_distinct_live_brokers_and_spreads_leaders(
    brokers: int, topics: list[tuple[int, int]]
) -> None:
    image = cluster(brokers)
    for number, (partitions, factor) in enumerate(topics):
        wanted = NewTopic(
            name=f"t{number}", partition_count=partitions, replication_factor=min(factor, brokers)
        )
        before = image
        image = apply_entry(image, plan(image, wanted, REPLICATED).records)
        invariants.check(image)
        invariants.check_step(before, image)
        topic = image.topic_named(f"t{number}")
        assert topic is not None
        leaders = [partition.leader_id for partition in topic.partitions]
        counts = [leaders.count(broker) for broker in image.brokers]
        assert max(counts) - min(counts) <= 1, "leaders are spread evenly"


def test_an_apply_shares_every_topic_that_it_does_not_touch() -> None:
    image = cluster(1)
    image = apply_entry(image, plan(image, NewTopic(name="a")).records)
    later = apply_entry(image, plan(image, NewTopic(name="b")).records)
    (topic_id,) = image.topics
    assert later.topics[topic_id] is image.topics[topic_id]
    assert "b" not in image.topic_ids, "the older image stays as it was"


def test_more_replicas_than_a_partition_may_have_are_refused() -> None:
    few = TopicDefaults(replication_factor_max=1)
    error = refusal(cluster(3), NewTopic(name="t", replication_factor=2), few)
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "1 to 1 replicas" in error.happened
    told = NewTopic(name="t", assignments=((BrokerId(1), BrokerId(2)),))
    assert refusal(cluster(3), told, few).code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(("factor", "minimum"), [(2, "2"), (3, "2"), (4, "3"), (5, "3")])
def test_a_majority_has_to_be_in_sync_unless_the_topic_says_otherwise(
    factor: int, minimum: str
) -> None:
    found = plan(cluster(5), NewTopic(name="t", replication_factor=factor))
    topic = apply_entry(cluster(5), found.records).topic_named("t")
    assert topic is not None
    assert topic.configuration["min.insync.replicas"] == minimum


def test_explicit_replicas_are_taken_in_their_order() -> None:
    wanted = NewTopic(name="t", assignments=((BrokerId(2),), (BrokerId(1),)))
    found = plan(cluster(2), wanted)
    assert found.partition_count == 2
    image = apply_entry(cluster(2), found.records)
    topic = image.topic_named("t")
    assert topic is not None
    assert [partition.leader_id for partition in topic.partitions] == [2, 1]


@pytest.mark.parametrize(
    "wanted",
    [
        NewTopic(name="t", partition_count=2, assignments=((BrokerId(1),),)),
        NewTopic(name="t", replication_factor=2, assignments=((BrokerId(1),),)),
        NewTopic(name="t", assignments=((BrokerId(9),),)),
    ],
)
def test_explicit_replicas_that_contradict_the_request_are_refused(wanted: NewTopic) -> None:
    error = refusal(cluster(2), wanted, REPLICATED)
    assert error.code is ErrorCode.INVALID_ARGUMENT


def test_the_cluster_s_defaults_count_above_the_node_s() -> None:
    image = clusters.cluster(2)
    settings = image.cluster_configuration.updated({"num.partitions": "3"})
    image = msgspec.structs.replace(image, cluster_configuration=settings)
    found = plan(image, NewTopic(name="t"), TopicDefaults(partition_count=7, replication_factor=2))
    assert (found.partition_count, found.replication_factor) == (3, 1), "1 since it was formatted"


def test_the_minimum_in_sync_is_written_down_at_creation() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1, 2, 3))
    assert image.topics[clusters.topic_id(1)].configuration == {"min.insync.replicas": "2"}
    wanted = NewTopic(name="u", configuration={"min.insync.replicas": "2"})
    assert refusal(image, wanted).code is ErrorCode.INVALID_CONFIGURATION


def test_names_that_metrics_show_as_one_warn() -> None:
    image = apply_entry(cluster(1), plan(cluster(1), NewTopic(name="a.b")).records)
    (warning,) = plan(image, NewTopic(name="a_b")).warnings
    assert "a.b" in warning
    assert plan(image, NewTopic(name="ab")).warnings == ()


def test_strict_placement_is_the_cluster_s_setting() -> None:
    image = clusters.cluster(2, racks=("a", "a"))
    wanted = NewTopic(name="t", replication_factor=2)
    assert plan(image, wanted, REPLICATED).warnings
    settings = image.cluster_configuration.updated({"placement.strict": "true"})
    image = msgspec.structs.replace(image, cluster_configuration=settings)
    error = refusal(image, wanted, REPLICATED)
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR


def ids(count: int) -> list[TopicId]:
    """New topic ids."""
    return [clusters.topic_id(1_000 + number) for number in range(count)]


def test_topics_of_one_request_succeed_and_fail_on_their_own() -> None:
    image = cluster(2)
    wanted = [NewTopic(name="a"), NewTopic(name="b b"), NewTopic(name="c", partition_count=2)]
    decided = create_topics(image, wanted, ids(3), TopicDefaults())
    first, second, third = decided.answer
    assert isinstance(first, TopicPlan)
    assert isinstance(second, TidelogError)
    assert isinstance(third, TopicPlan)
    after = clusters.after(image, decided)
    assert list(after.topic_ids) == ["a", "c"]
    assert after.index.partition_count == 3
    assert decided.dry().records == ()
    assert decided.dry().answer == decided.answer
    again = create_topics(after, wanted[:1], ids(4)[3:], TopicDefaults())
    (error,) = again.answer
    assert isinstance(error, TidelogError)
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_request_with_a_name_twice_or_too_many_topics_is_refused() -> None:
    for wanted in (
        [NewTopic(name="a"), NewTopic(name="a")],
        [NewTopic(name=f"t{number}") for number in range(TOPICS_PER_REQUEST_MAX + 1)],
    ):
        with pytest.raises(TidelogError) as caught:
            create_topics(cluster(1), wanted, ids(len(wanted)), TopicDefaults())
        clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


class Watched(Mapping[str, str]):
    """Settings of a topic that tell when they are looked at: it is planned then."""

    def __init__(self) -> None:
        self.looks = 0

    def __getitem__(self, name: str) -> str:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return iter(())

    def __len__(self) -> int:
        return 0


def planned(counts: list[int], factor: int = 1, brokers: int = 1) -> list[int]:
    """Which of such topics of one request are planned; the others are refused for the counts."""
    defaults = TopicDefaults(partition_count_max=2 * PARTITIONS_PER_REQUEST_MAX)
    settings = [Watched() for _ in counts]
    wanted = [
        NewTopic(
            name=f"t{number}",
            partition_count=count,
            replication_factor=factor,
            configuration=settings[number],
        )
        for number, count in enumerate(counts)
    ]
    decided = create_topics(clusters.cluster(brokers), wanted, ids(len(wanted)), defaults)
    for each, watched in zip(decided.answer, settings, strict=True):
        assert isinstance(each, TidelogError) == (not watched.looks)
        if isinstance(each, TidelogError):
            clusters.refusal(ErrorCode.INVALID_PARTITION_COUNT, each)
    return [number for number, watched in enumerate(settings) if watched.looks]


def test_what_a_request_would_create_is_counted_before_any_of_it_is_planned() -> None:
    most = PARTITIONS_PER_REQUEST_MAX
    assert planned([most]) == [0]
    assert planned([most + 1]) == []
    assert planned([most] * 12) == [0]
    assert planned([most - 1, 2, 1, 1]) == [0, 2], "what is refused is not counted"


def test_replicas_are_counted_as_well_as_partitions() -> None:
    each = REPLICAS_PER_REQUEST_MAX // 5
    assert planned([each, 1], factor=5, brokers=5) == [0]


def test_refused_deletions_name_the_topic_and_not_its_id() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,))
    (missing,) = delete_topics(image, (TopicSelector(name="nowhere"),)).answer
    assert missing.error is not None
    assert missing.error.tried == "delete topic nowhere"
    by_id = TopicSelector(topic_id=clusters.topic_id(1))
    for selectors in ((TopicSelector(name="t"), by_id), (by_id, by_id)):
        with pytest.raises(TidelogError) as caught:
            delete_topics(image, selectors)
        assert caught.value.happened == "it names topic t twice"


def test_a_deleted_topic_s_name_is_free_at_once() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,))
    by_id = TopicSelector(topic_id=clusters.topic_id(1))
    for selector in (TopicSelector(name="t"), by_id):
        decided = delete_topics(image, (selector,))
        after = clusters.after(image, decided)
        assert "t" not in after.topic_ids
        clusters.with_topic(after, (1,), number=2)
        (again,) = delete_topics(after, (selector,)).answer
        code = ErrorCode.UNKNOWN_TOPIC if selector.name else ErrorCode.UNKNOWN_TOPIC_ID
        clusters.refusal(code, again.error)


def test_deletions_that_cannot_be_are_refused() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,))
    name, by_id = TopicSelector(name="t"), TopicSelector(topic_id=clusters.topic_id(1))
    both = TopicSelector(name="t", topic_id=clusters.topic_id(1))
    for selectors in ((name, by_id), (both,), (TopicSelector(),), (name,) * 1_001):
        with pytest.raises(TidelogError) as caught:
            delete_topics(image, selectors)
        clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_the_cluster_s_own_topics_are_neither_deleted_nor_enlarged() -> None:
    image = clusters.cluster(1)
    wanted = NewTopic(name="__own", is_internal=True)
    image = apply_entry(image, plan(image, wanted).records)
    (deleted,) = delete_topics(image, (TopicSelector(name="__own"),)).answer
    clusters.refusal(ErrorCode.INVALID_ARGUMENT, deleted.error)
    change = PartitionCountChange(topic="__own", partition_count=2)
    (grown,) = create_partitions(image, (change,), TopicDefaults()).answer
    clusters.refusal(ErrorCode.INVALID_ARGUMENT, grown.error)


def grown(image: Image, change: PartitionCountChange) -> TidelogError | None:
    """What became of it."""
    (result,) = create_partitions(image, (change,), REPLICATED).answer
    return result.error


def test_a_topic_gets_more_partitions_where_they_are_fewest() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1,), (2,))
    change = PartitionCountChange(topic="t", partition_count=3)
    decided = create_partitions(image, (change,), TopicDefaults())
    image = clusters.after(image, decided)
    assert clusters.partition(image, 2).leader_id == 3
    again = create_partitions(image, (change,), TopicDefaults())
    assert (again.records, again.answer[0].partition_count) == ((), 3), "nothing is done twice"
    told = PartitionCountChange(topic="t", partition_count=4, assignments=((BrokerId(2),),))
    image = clusters.after(image, create_partitions(image, (told,), TopicDefaults()))
    assert clusters.partition(image, 3).replicas == (2,)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (PartitionCountChange(topic="u", partition_count=3), ErrorCode.UNKNOWN_TOPIC),
        (PartitionCountChange(topic="t", partition_count=1), ErrorCode.INVALID_PARTITION_COUNT),
        (
            PartitionCountChange(topic="t", partition_count=10_001),
            ErrorCode.INVALID_PARTITION_COUNT,
        ),
        (
            PartitionCountChange(
                topic="t", partition_count=4, assignments=((BrokerId(1), BrokerId(2)),)
            ),
            ErrorCode.INVALID_ARGUMENT,
        ),
        (
            PartitionCountChange(topic="t", partition_count=3, assignments=((BrokerId(1),),)),
            ErrorCode.INVALID_ARGUMENT,
        ),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    change: PartitionCountChange, code: ErrorCode
) -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), (2, 1))
    clusters.refusal(code, grown(image, change))


def test_partitions_of_several_topics_count_together_against_the_limits() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,))
    image = clusters.with_topic(image, (1,), name="u", number=2)
    changes = [PartitionCountChange(topic=name, partition_count=3) for name in "tu"]
    defaults = TopicDefaults(partitions_total_max=5)
    first, second = create_partitions(image, changes, defaults).answer
    assert first.error is None
    clusters.refusal(ErrorCode.INVALID_PARTITION_COUNT, second.error)
    with pytest.raises(TidelogError) as caught:
        create_partitions(image, [changes[0], changes[0]], defaults)
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)
    large = TopicDefaults(partition_count_max=100_000)
    change = PartitionCountChange(topic="t", partition_count=PARTITIONS_PER_REQUEST_MAX + 2)
    (result,) = create_partitions(image, [change], large).answer
    clusters.refusal(ErrorCode.INVALID_PARTITION_COUNT, result.error)
