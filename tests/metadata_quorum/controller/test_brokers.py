"""Registration, heartbeats, fencing, stopping, emptying, removal: and each refusal."""

import msgspec
import pytest

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition
from tidelog.metadata.broker_reports import Registration
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata.records.entries import BrokerDirectory, FeatureRange
from tidelog.metadata_quorum.controller.brokers.changes import (
    BrokerState,
    Heartbeat,
    beat,
    drain,
    fence,
    remove,
)
from tidelog.metadata_quorum.controller.brokers.registration import register
from tidelog.metadata_quorum.controller.features import describe_features, finalise_features
from tidelog.metadata_quorum.controller.placement.load import candidates_of
from tidelog.metadata_quorum.controller.settings.quotas import (
    QUOTAS_MAX,
    Quota,
    alter_quotas,
    effective_quota,
    quota_of,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)


def beaten(
    image: Image, heartbeat: Heartbeat, required_index: int = 0
) -> tuple[Image, BrokerState]:
    """The image and the answer after a heartbeat."""
    decided = beat(image, heartbeat, required_index=required_index)
    return clusters.after(image, decided), decided.answer


def heartbeat(image: Image, broker: BrokerId = ONE) -> Heartbeat:
    """A heartbeat that wants nothing."""
    return Heartbeat(
        broker_id=broker, broker_epoch=image.brokers[broker].epoch, applied_index=image.version
    )


def refused(image: Image, wanted: Registration, code: ErrorCode, *, is_living: bool = False) -> str:
    """What happened instead of the registration."""
    with pytest.raises(TidelogError) as caught:
        register(image, wanted, is_living=is_living)
    return clusters.raised(code, caught).happened


def test_a_registration_is_fenced_and_has_an_epoch_above_all_others() -> None:
    image = clusters.cluster(2)
    decided = register(image, clusters.registration(3), is_living=False)
    image = clusters.after(image, decided)
    broker = image.brokers[BrokerId(3)]
    assert (broker.is_fenced, broker.epoch) == (True, decided.answer)
    assert broker.epoch > max(image.brokers[each].epoch for each in (ONE, TWO))


def test_the_epoch_of_a_removed_broker_is_not_given_again() -> None:
    image = clusters.cluster(2)
    epoch = image.brokers[TWO].epoch
    image = clusters.after(image, fence(image, TWO, epoch))
    image = clusters.after(image, remove(image, TWO))
    assert register(image, clusters.registration(2, 1), is_living=False).answer > epoch


def test_the_same_incarnation_has_the_same_answer() -> None:
    image = clusters.cluster(1)
    again = register(image, clusters.registration(1), is_living=True)
    assert (again.records, again.answer) == ((), image.brokers[ONE].epoch)


def test_an_id_that_another_living_process_holds_is_refused() -> None:
    image = clusters.cluster(1)
    other = clusters.registration(
        1, 1, boot="elsewhere", directories=(BrokerDirectory(clusters.directory(9)),)
    )
    happened = refused(image, other, ErrorCode.BROKER_ID_IN_USE, is_living=True)
    assert "h1:2" in happened
    copied = msgspec.structs.replace(
        clusters.registration(1, 1, boot="elsewhere"), listeners={"cluster": "h9:2"}
    )
    refused(image, copied, ErrorCode.BROKER_ID_IN_USE, is_living=True)
    assert register(image, other, is_living=False).records


def test_who_holds_the_directory_on_the_same_boot_is_the_successor() -> None:
    image = clusters.cluster(1)
    assert register(image, clusters.registration(1, 1), is_living=True).records


def test_who_holds_the_directory_at_the_same_addresses_after_a_boot_is_the_successor() -> None:
    image = clusters.cluster(1)
    booted = clusters.registration(1, 1, boot="elsewhere")
    assert register(image, booted, is_living=True).records


def test_a_registration_moves_leaders_away_before_the_new_process_serves() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=1)
    image = clusters.after(image, register(image, clusters.registration(1, 1), is_living=False))
    assert (partition(image).leader_id, partition(image).in_sync_replicas) == (TWO, (TWO,))


@pytest.mark.parametrize(
    "change",
    [
        {"broker_id": -1},
        {"incarnation": b"short"},
        {"listeners": {}},
        {"directories": (BrokerDirectory(b"short"),)},
        {"directories": (BrokerDirectory(bytes(16)), BrokerDirectory(bytes(16)))},
        {"directories": tuple(BrokerDirectory(n.to_bytes(16, "big")) for n in range(101))},
        {"rack": "x" * 256},
        {"directories": (BrokerDirectory(clusters.directory(1)),)},
    ],
)
def test_a_registration_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    wanted = clusters.registration(3)
    fields = {**msgspec.structs.asdict(wanted), **change}
    refused(clusters.cluster(1), Registration(**fields), ErrorCode.INVALID_ARGUMENT)


def test_a_broker_that_cannot_speak_a_level_in_force_is_refused() -> None:
    spoken = {"group.version": FeatureRange(0, 1), "transaction.version": FeatureRange(0, 2)}
    wanted = msgspec.structs.replace(clusters.registration(1), features=spoken)
    happened = refused(clusters.empty(), wanted, ErrorCode.UNSUPPORTED_VERSION)
    assert "metadata.version" in happened


def test_a_broker_is_unfenced_when_its_metadata_is_recent_enough() -> None:
    image = clusters.with_topic(clusters.cluster(1), (1,))
    image = clusters.after(image, fence(image, ONE, image.brokers[ONE].epoch))
    assert partition(image).leader_id == NO_LEADER
    wants = msgspec.structs.replace(heartbeat(image), wants_unfence=True)
    same, answer = beaten(image, wants, required_index=image.version + 1)
    assert same is image
    assert answer.is_fenced
    image, answer = beaten(image, wants, required_index=image.version)
    assert not answer.is_fenced
    assert partition(image).leader_id == ONE


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    image = clusters.cluster(1)
    directories = image.brokers[ONE].directories
    quiet = msgspec.structs.replace(heartbeat(image), wants_unfence=True, directories=directories)
    assert beat(image, quiet, required_index=0).records == ()


def test_a_heartbeat_of_an_older_process_is_refused() -> None:
    image = clusters.cluster(1)
    stale = msgspec.structs.replace(heartbeat(image), broker_epoch=BrokerEpoch(0))
    with pytest.raises(TidelogError) as caught:
        beat(image, stale, required_index=0)
    clusters.raised(ErrorCode.STALE_BROKER_EPOCH, caught)


def test_a_running_broker_cannot_swap_its_directories() -> None:
    image = clusters.cluster(1)
    other = (BrokerDirectory(clusters.directory(8)),)
    with pytest.raises(TidelogError) as caught:
        beat(image, msgspec.structs.replace(heartbeat(image), directories=other), required_index=0)
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


def test_a_session_of_an_older_process_fences_nobody() -> None:
    image = clusters.cluster(1)
    assert not fence(image, ONE, BrokerEpoch(0)).answer
    assert not fence(image, BrokerId(9), BrokerEpoch(1)).answer
    epoch = image.brokers[ONE].epoch
    assert fence(image, ONE, epoch).answer
    image = clusters.after(image, fence(image, ONE, epoch))
    assert not fence(image, ONE, epoch).answer, "it is fenced already"


def test_a_broker_may_stop_when_nothing_is_left_that_others_could_lead() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), (1, 2), in_sync_min=1)
    image = clusters.after(image, fence(image, TWO, image.brokers[TWO].epoch))
    image = clusters.unfenced(image, 2)
    stop = msgspec.structs.replace(heartbeat(image), wants_shut_down=True)
    image, answer = beaten(image, stop)
    assert (answer.may_shut_down, answer.remaining_leaders) == (False, 2), "2 is not in sync yet"
    image = clusters.after(image, fence(image, TWO, image.brokers[TWO].epoch))
    image, answer = beaten(image, msgspec.structs.replace(stop, applied_index=image.version))
    assert (answer.may_shut_down, answer.remaining_leaders) == (True, 0), "nobody can follow"
    assert partition(image).leader_id == ONE


def test_a_broker_that_hands_over_may_stop_at_once() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1, 2), in_sync_min=1)
    stop = msgspec.structs.replace(heartbeat(image), wants_shut_down=True)
    image, answer = beaten(image, stop)
    assert answer.may_shut_down
    assert partition(image).leader_id == TWO
    assert image.brokers[ONE].is_shutting_down


def test_an_empty_broker_can_be_kept_empty() -> None:
    image = clusters.cluster(2)
    image = clusters.after(image, drain(image, ONE, is_cancelled=False))
    assert image.brokers[ONE].is_draining
    assert [each.broker_id for each in candidates_of(image)] == [TWO], "it gets no replicas"
    image = clusters.after(image, drain(image, ONE, is_cancelled=True))
    assert not image.brokers[ONE].is_draining
    assert drain(image, ONE, is_cancelled=True).records == ()


def test_only_a_stopped_broker_without_replicas_is_removed() -> None:
    image = clusters.with_topic(clusters.cluster(2), (1,))
    for broker, code in (
        (BrokerId(9), ErrorCode.UNKNOWN_BROKER),
        (TWO, ErrorCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(TidelogError) as caught:
            remove(image, broker)
        clusters.raised(code, caught)
    for broker in (ONE, TWO):
        image = clusters.after(image, fence(image, broker, image.brokers[broker].epoch))
    with pytest.raises(TidelogError) as caught:
        remove(image, ONE)
    assert "1 replicas" in clusters.raised(ErrorCode.INVALID_ARGUMENT, caught).happened
    image = clusters.after(image, remove(image, TWO))
    assert TWO not in image.brokers


SUPPORTED = {"metadata.version": FeatureRange(1, 3), "group.version": FeatureRange(0, 2)}


def speaking(features: dict[str, FeatureRange]) -> Image:
    """A cluster with one broker that speaks these levels."""
    image = clusters.empty()
    own = {"group.version": FeatureRange(0, 1), "transaction.version": FeatureRange(0, 2)}
    spoken = {**own, **features}
    wanted = msgspec.structs.replace(clusters.registration(1), features=spoken)
    return clusters.after(image, register(image, wanted, is_living=False))


def test_feature_levels_are_described_as_all_nodes_speak_them() -> None:
    image = speaking({"metadata.version": FeatureRange(1, 2)})
    found = {each.name: each for each in describe_features(image, SUPPORTED)}
    assert list(found) == sorted(found)
    metadata = found["metadata.version"]
    assert (metadata.finalised_level, metadata.level_min, metadata.level_max) == (1, 1, 2)


@pytest.mark.parametrize(
    ("levels", "code"),
    [
        ((("metadata.versio", 1),), ErrorCode.INVALID_ARGUMENT),
        ((("metadata.version", 4),), ErrorCode.UNSUPPORTED_VERSION),
        ((("metadata.version", 3),), ErrorCode.UNSUPPORTED_VERSION),
        ((("metadata.version", 1), ("metadata.version", 2)), ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_a_level_that_somebody_cannot_speak_is_refused(
    levels: tuple[tuple[str, int], ...], code: ErrorCode
) -> None:
    image = speaking({"metadata.version": FeatureRange(1, 2)})
    with pytest.raises(TidelogError) as caught:
        finalise_features(image, levels, allow_downgrade=False, supported=SUPPORTED)
    clusters.raised(code, caught)


def test_a_level_is_lowered_only_when_that_is_allowed_and_the_metadata_s_never() -> None:
    features = {"metadata.version": FeatureRange(1, 3), "group.version": FeatureRange(0, 2)}
    raised = speaking(features)
    levels = raised.features.updated({"group.version": 2, "metadata.version": 2})
    raised = msgspec.structs.replace(raised, features=levels)
    for name, allow in (("group.version", False), ("metadata.version", True)):
        with pytest.raises(TidelogError) as caught:
            finalise_features(raised, ((name, 1),), allow_downgrade=allow, supported=SUPPORTED)
        clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)
    lowered = finalise_features(
        raised, (("group.version", 1),), allow_downgrade=True, supported=SUPPORTED
    )
    assert len(lowered.records) == 1
    same = finalise_features(
        raised, (("group.version", 2),), allow_downgrade=False, supported=SUPPORTED
    )
    assert same.records == ()


def test_quotas_replace_each_other_and_one_without_limits_removes() -> None:
    image = clusters.empty()
    everybody = Quota(client_id="", requests_per_second=10)
    mine = Quota(client_id="me", produce_bytes_per_second=5)
    image = clusters.after(image, alter_quotas(image, (everybody, mine)))
    assert alter_quotas(image, (everybody, mine)).records == ()
    assert effective_quota(image, "me") == mine
    assert effective_quota(image, "you").requests_per_second == 10
    image = clusters.after(image, alter_quotas(image, (Quota(client_id="me"),)))
    assert quota_of(image, "me") == Quota(client_id="me")
    assert effective_quota(image, "me").requests_per_second == 10


@pytest.mark.parametrize(
    "quotas",
    [
        (Quota(client_id="a"), Quota(client_id="a")),
        (Quota(client_id="a", requests_per_second=0),),
        (Quota(client_id="a", fetch_bytes_per_second=1 << 63),),
        (Quota(client_id="x" * 256),),
        tuple(Quota(client_id=str(number)) for number in range(QUOTAS_MAX + 1)),
    ],
)
def test_quotas_that_cannot_be_are_refused_together(quotas: tuple[Quota, ...]) -> None:
    with pytest.raises(TidelogError) as caught:
        alter_quotas(clusters.empty(), quotas)
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)
