"""Settings: which there are, what they take, where a value comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import refusal
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings.catalogue import CATALOGUE, find_setting, settings_of
from tidelog.metadata.settings.inherited import cluster_value, inherited_by_topics
from tidelog.metadata.settings.kinds import Scope, Source, canonical, well_formed
from tidelog.metadata.settings.of_topics import TopicSettings, parse
from tidelog.metadata_quorum.controller.settings.configuration import (
    Alteration,
    Change,
    Operation,
    Target,
    alter_configurations,
    describe,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

TOPIC = Target(scope=Scope.TOPIC, name="t")
BROKER = Target(scope=Scope.BROKER, name="1")
CLUSTER = Target(scope=Scope.CLUSTER)


def base() -> Image:
    """Two brokers, a topic with two replicas."""
    return clusters.with_topic(clusters.cluster(2), (1, 2))


def altered(image: Image, target: Target, *changes: Change) -> Image:
    """The changes are made."""
    decided = alter_configurations(image, (Alteration(target=target, changes=changes),))
    assert decided.answer == (None,)
    return clusters.after(image, decided)


def refused(target: Target, *changes: Change) -> TidelogError:
    """The changes are not made, none of them."""
    image = base()
    decided = alter_configurations(image, (Alteration(target=target, changes=changes),))
    assert decided.records == ()
    (error,) = decided.answer
    assert error is not None
    return error


def value(image: Image, target: Target, name: str) -> tuple[str, Source]:
    """What counts, and why."""
    (found,) = describe(image, target, names=[name])
    return found.value, found.source


def test_every_default_is_a_value_that_this_release_acts_upon() -> None:
    for setting in CATALOGUE.values():
        assert canonical(setting, setting.default, tried="check") == setting.default
        assert setting.documentation.endswith("."), setting.name
        assert setting.scopes


def test_the_topics_of_a_broker_parse_to_the_defaults_of_the_catalogue() -> None:
    assert parse({}, topic="t") == TopicSettings()


def test_the_topic_counts_above_the_broker_above_the_cluster() -> None:
    image, name = base(), "segment.bytes"
    assert value(image, TOPIC, name) == (str(1 << 30), Source.DEFAULT)
    image = altered(image, CLUSTER, Change(name=name, value="8000"))
    assert value(image, TOPIC, name) == ("8000", Source.CLUSTER)
    image = altered(image, BROKER, Change(name=name, value="9000"))
    assert value(image, BROKER, name) == ("9000", Source.BROKER)
    assert inherited_by_topics(image, BrokerId(1)) == {name: "9000"}
    assert inherited_by_topics(image, BrokerId(2)) == {name: "8000"}
    image = altered(image, TOPIC, Change(name=name, value="010000"))
    assert value(image, TOPIC, name) == ("10000", Source.TARGET), "in its one form"
    inherited = inherited_by_topics(image, BrokerId(1))
    topic = image.topics[clusters.topic_id(1)]
    assert parse(topic.configuration, topic="t", inherited=inherited).segment_bytes == 10_000
    image = altered(image, TOPIC, Change(name=name, operation=Operation.DELETE))
    assert value(image, TOPIC, name) == ("8000", Source.CLUSTER)
    assert cluster_value(image, name) == "8000"


def test_the_minimum_in_sync_is_resolved_at_creation_and_again_when_it_is_unset() -> None:
    image, name = base(), "min.insync.replicas"
    assert value(image, TOPIC, name) == ("2", Source.TARGET)
    image = altered(image, TOPIC, Change(name=name, value="1"))
    image = altered(image, TOPIC, Change(name=name, operation=Operation.DELETE))
    assert value(image, TOPIC, name) == ("2", Source.TARGET)
    error = refused(TOPIC, Change(name=name, value="3"))
    assert "2 replicas" in refusal(ErrorCode.INVALID_CONFIGURATION, error).happened


@pytest.mark.parametrize(
    ("name", "given_value"),
    [
        ("compression.type", "zstd"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_what_this_release_does_not_act_upon_is_refused_and_its_default_taken(
    name: str, given_value: str
) -> None:
    error = refusal(
        ErrorCode.INVALID_CONFIGURATION, refused(TOPIC, Change(name=name, value=given_value))
    )
    assert "does not act upon" in error.happened
    assert CATALOGUE[name].default in error.hint
    setting = CATALOGUE[name]
    assert well_formed(setting, given_value, tried="read") == given_value, "a later release's"
    altered(base(), TOPIC, Change(name=name, value=setting.default))


def test_a_setting_of_a_node_s_file_is_not_looked_for_in_the_page_that_lists_it() -> None:
    with pytest.raises(TidelogError) as caught:
        find_setting("auto_create_topics", Scope.BROKER, tried="describe")
    assert "no such setting of a broker that calls can change" in caught.value.happened
    assert "configuration file" in caught.value.hint
    assert "restart" in caught.value.hint


@pytest.mark.parametrize(
    ("target", "change", "happened"),
    [
        (TOPIC, Change(name="segment.byte", value="1"), "no such setting"),
        (TOPIC, Change(name="placement.strict", value="true"), "a setting of the cluster"),
        (TOPIC, Change(name="segment.bytes", value="-5"), "not a number from 1024"),
        (TOPIC, Change(name="message.timestamp.type", value="Never"), "not `CreateTime`"),
        (CLUSTER, Change(name="placement.strict", value="yes"), "not `true` or `false`"),
        (TOPIC, Change(name="cleanup.policy", value=""), "empty"),
        (TOPIC, Change(name="cleanup.policy", value="delete,delete"), "twice"),
        (
            TOPIC,
            Change(name="cleanup.policy", operation=Operation.APPEND, value="shred"),
            "not `compact` or `delete`",
        ),
        (TOPIC, Change(name="min.cleanable.dirty.ratio", value="1.01"), "from 0 to 1"),
        (TOPIC, Change(name="min.cleanable.dirty.ratio", value="half"), "from 0 to 1"),
        (TOPIC, Change(name="min.cleanable.dirty.ratio", value="-0.5"), "from 0 to 1"),
        (TOPIC, Change(name="retention.ms", value="-2"), "not a number from -1"),
        (
            TOPIC,
            Change(name="cleanup.policy", operation=Operation.SUBTRACT, value="delete"),
            "empty",
        ),
        (
            TOPIC,
            Change(name="segment.bytes", operation=Operation.APPEND, value="5"),
            "no list",
        ),
    ],
)
def test_a_change_that_cannot_be_is_refused(target: Target, change: Change, happened: str) -> None:
    error = refusal(ErrorCode.INVALID_CONFIGURATION, refused(target, change))
    assert happened in error.happened


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    assert "`segment.bytes`" in refused(TOPIC, Change(name="segment.byte", value="1")).hint


def test_a_wrong_change_keeps_the_right_ones_of_its_target_from_being_made() -> None:
    refused(
        TOPIC, Change(name="segment.bytes", value="8000"), Change(name="flush", value="sometimes")
    )


def test_changes_to_a_list_leave_its_other_members() -> None:
    name = "cleanup.policy"
    image = altered(base(), TOPIC, Change(name=name, operation=Operation.APPEND, value="compact"))
    assert value(image, TOPIC, name)[0] == "compact,delete"
    image = altered(image, TOPIC, Change(name=name, operation=Operation.SUBTRACT, value="delete"))
    assert value(image, TOPIC, name)[0] == "compact"


def test_the_settings_of_housekeeping_are_read_as_numbers() -> None:
    given_values = {
        "cleanup.policy": "delete,compact",
        "delete.retention.ms": "1",
        "flush": "replicated",
        "max.compaction.lag.ms": "2",
        "message.timestamp.after.max.ms": "3",
        "message.timestamp.before.max.ms": "4",
        "min.cleanable.dirty.ratio": "0.250",
        "min.compaction.lag.ms": "5",
        "retention.bytes": "6",
        "retention.ms": "7",
        "segment.ms": "8",
        "validate.records": "True",
    }
    assert parse(given_values, topic="t") == TopicSettings(
        is_compacted=True,
        is_deleted=True,
        delete_retention_ms=1,
        is_flush_sync=False,
        max_compaction_lag_ms=2,
        timestamp_after_max_ms=3,
        timestamp_before_max_ms=4,
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=5,
        retention_bytes=6,
        retention_ms=7,
        segment_ms=8,
        is_every_record_validated=True,
    )
    compacted = parse({"cleanup.policy": "compact"}, topic="t")
    assert (compacted.is_compacted, compacted.is_deleted) == (True, False)


def test_the_defaults_are_those_that_kafkas_users_know() -> None:
    found = {name: CATALOGUE[name].default for name in CATALOGUE}
    assert found["retention.ms"] == found["segment.ms"] == "604800000"
    assert found["retention.bytes"] == "-1"
    assert found["delete.retention.ms"] == "86400000"
    assert found["message.timestamp.after.max.ms"] == "3600000"
    assert (found["cleanup.policy"], found["min.cleanable.dirty.ratio"]) == ("delete", "0.5")


@pytest.mark.parametrize(
    ("text", "one_form"),
    [("0.5", "0.5"), ("00.50", "0.5"), ("1.0", "1"), (".5", "0.5"), ("0", "0"), ("1.", "1")],
)
def test_equal_decimals_are_equal_texts(text: str, one_form: str) -> None:
    setting = CATALOGUE["min.cleanable.dirty.ratio"]
    assert canonical(setting, text, tried="set") == one_form


def test_a_change_that_is_made_already_writes_nothing() -> None:
    change = Change(name="segment.bytes", value="8000")
    image = altered(base(), TOPIC, change)
    again = alter_configurations(image, (Alteration(target=TOPIC, changes=(change,)),))
    assert (again.records, again.answer) == ((), (None,))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (Target(scope=Scope.TOPIC, name="nothing"), ErrorCode.UNKNOWN_TOPIC),
        (Target(scope=Scope.BROKER, name="7"), ErrorCode.UNKNOWN_BROKER),
        (Target(scope=Scope.BROKER, name="one"), ErrorCode.INVALID_ARGUMENT),
        (Target(scope=Scope.BROKER, name="01"), ErrorCode.INVALID_ARGUMENT),
        (Target(scope=Scope.CLUSTER, name="c"), ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_a_target_that_is_not_there_is_refused(target: Target, code: ErrorCode) -> None:
    refusal(code, refused(target, Change(name="segment.bytes", value="8000")))
    with pytest.raises(TidelogError) as caught:
        describe(base(), target)
    clusters.raised(code, caught)


def test_doubled_targets_and_settings_are_refused() -> None:
    change = Change(name="segment.bytes", value="8000")
    refusal(ErrorCode.INVALID_ARGUMENT, refused(TOPIC, change, change))
    alteration = Alteration(target=TOPIC, changes=(change,))
    for alterations in ((alteration, alteration), (alteration,) * 1_001):
        with pytest.raises(TidelogError) as caught:
            alter_configurations(base(), alterations)
        clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_a_description_without_names_has_all_settings_in_order() -> None:
    assert [each.setting.name for each in describe(base(), CLUSTER)] == [
        each.name for each in settings_of(Scope.CLUSTER)
    ]
    assert value(base(), CLUSTER, "default.replication.factor") == ("1", Source.DEFAULT)


@given(name=st.sampled_from(sorted(CATALOGUE)), text=st.text(max_size=30))
def test_any_text_is_a_value_in_its_one_form_or_refused(name: str, text: str) -> None:
    setting = CATALOGUE[name]
    try:
        found = canonical(setting, text, tried="set")
    except TidelogError as error:
        refusal(ErrorCode.INVALID_CONFIGURATION, error)
    else:
        assert canonical(setting, found, tried="set") == found
