"""Settings of groups: at the cluster and at one group, and never such that no member can live."""

import pytest

from tests.metadata_quorum.controller import clusters
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings.kinds import Scope, Source
from tidelog.metadata.settings.of_groups import read_group_settings
from tidelog.metadata_quorum.controller.settings.configuration import (
    Alteration,
    Change,
    Target,
    alter_configurations,
    describe,
)
from tidelog.wire.errors import ErrorCode, TidelogError

SESSION = "group.consumer.session.timeout.ms"
HEARTBEAT = "group.consumer.heartbeat.interval.ms"
CLUSTER = Target(scope=Scope.CLUSTER)
READERS = Target(scope=Scope.GROUP, name="readers")


def altered(image: Image, target: Target, **changes: str) -> tuple[Image, TidelogError | None]:
    """The image after it, and what was refused; `__` for the dot."""
    alteration = Alteration(
        target=target,
        changes=tuple(
            Change(name=name.replace("__", "."), value=value) for name, value in changes.items()
        ),
    )
    decision = alter_configurations(image, (alteration,))
    return clusters.after(image, decision), decision.answer[0]


def test_a_group_s_own_setting_counts_above_the_cluster_s() -> None:
    image = clusters.empty()
    image, error = altered(image, CLUSTER, group__consumer__session__timeout__ms="20000")
    assert error is None
    image, error = altered(image, READERS, group__consumer__session__timeout__ms="10000")
    assert error is None
    (own,) = describe(image, READERS, names=(SESSION,))
    assert (own.value, own.source) == ("10000", Source.TARGET)
    other = Target(scope=Scope.GROUP, name="others")
    (inherited,) = describe(image, other, names=(SESSION,))
    assert (inherited.value, inherited.source) == ("20000", Source.CLUSTER)
    times = read_group_settings(
        {**dict(image.cluster_configuration), **image.group_configurations["readers"]}
    )
    assert (times.session_ms, times.heartbeat_ms) == (10_000, 3_000)


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        (READERS, {SESSION: "5000"}),
        (CLUSTER, {SESSION: "2000000"}),
        (CLUSTER, {HEARTBEAT: "3001"}),
        (CLUSTER, {"group.consumer.min.session.timeout.ms": "50000"}),
        (CLUSTER, {"group.consumer.max.session.timeout.ms": "7000"}),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    target: Target, changes: dict[str, str]
) -> None:
    named = {name.replace(".", "__"): value for name, value in changes.items()}
    _, error = altered(clusters.empty(), target, **named)
    clusters.refusal(ErrorCode.INVALID_CONFIGURATION, error)


def test_a_group_needs_a_name_and_takes_no_setting_of_the_cluster() -> None:
    image = clusters.empty()
    nameless = Target(scope=Scope.GROUP, name="")
    _, error = altered(image, nameless, group__consumer__session__timeout__ms="10000")
    clusters.refusal(ErrorCode.INVALID_ARGUMENT, error)
    _, error = altered(image, READERS, group__consumer__min__session__timeout__ms="10000")
    clusters.refusal(ErrorCode.INVALID_CONFIGURATION, error)


def test_what_was_set_before_a_bound_moved_is_brought_within_it() -> None:
    times = read_group_settings({SESSION: "50", HEARTBEAT: "60000"})
    assert (times.session_ms, times.heartbeat_ms) == (6_000, 3_000)
    assert read_group_settings({"group.consumer.assignor": "range"}).is_range
