"""Directories that went back in time: how the controller tells, what becomes of the replicas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata_quorum.controller import clusters
from tests.metadata_quorum.controller.clusters import partition
from tidelog.metadata.apply.entries import apply_entries
from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.broker_reports import InSyncChange, InSyncMember
from tidelog.metadata.directory_epochs import (
    ABSENT_MAX,
    NO_STORED_EPOCH,
    STORED_EPOCH_MAX,
    epoch_above,
    epochs_at_registration,
    epochs_when_served,
    ineligible_replicas,
)
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata.records.entries import (
    BrokerDirectory,
    DirectoryEpoch,
    decode_entry,
    encode_entry,
)
from tidelog.metadata_quorum.controller.brokers.changes import fence
from tidelog.metadata_quorum.controller.brokers.registration import register
from tidelog.metadata_quorum.controller.partitions.in_sync import alter_partitions
from tidelog.metadata_quorum.controller.partitions.leaders import elect_longest
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Disks:
    """What lies in the directory of each broker of a cluster that stores epochs."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.stored: dict[int, int] = dict.fromkeys(image.brokers, -1)
        self.starts = 0

    def start(
        self,
        broker: int,
        *,
        stored: int | None = None,
        boot: str = "boot",
        clean: int = -1,
        serves: bool = True,
        stores: bool = True,
    ) -> None:
        """The process starts. `stored`: a copy with that epoch lies there instead."""
        if stored is not None:
            self.stored[broker] = stored
        self.starts += 1
        wanted = clusters.registration(
            broker, self.starts, boot=boot, clean=clean, stored=self.stored[broker]
        )
        self.image = clusters.after(self.image, register(self.image, wanted, is_living=False))
        if stores:
            self.stored[broker] = self.epoch(broker)
        if serves:
            self.image = clusters.unfenced(self.image, broker)

    def die(self, *brokers: int) -> None:
        """The controller notices."""
        for broker in brokers:
            fenced = fence(self.image, BrokerId(broker), BrokerEpoch(self.epoch(broker)))
            self.image = clusters.after(self.image, fenced)

    def epoch(self, broker: int) -> int:
        return self.image.brokers[BrokerId(broker)].epoch

    def expected(self, broker: int) -> DirectoryEpoch:
        (only,) = self.image.brokers[BrokerId(broker)].directory_epochs
        return only


def three(*, flush: str = "sync", in_sync_min: int = 0) -> Disks:
    """Three brokers that serve and have stored their epochs, one partition of three replicas."""
    disks = Disks(
        clusters.with_topic(clusters.cluster(3), (1, 2, 3), flush=flush, in_sync_min=in_sync_min)
    )
    for broker in (1, 2, 3):
        disks.start(broker)
    return disks


def all_in_sync(disks: Disks, number: int = 0) -> None:
    """As if every follower had caught up."""
    now = partition(disks.image, number)
    change = InSyncChange(
        topic_id=clusters.topic_id(1),
        partition=number,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        members=tuple(
            InSyncMember(broker_id=each, broker_epoch=disks.image.brokers[each].epoch)
            for each in now.replicas
        ),
    )
    epoch = disks.image.brokers[now.leader_id].epoch
    decided = alter_partitions(disks.image, now.leader_id, epoch, (change,))
    assert decided.answer[0].error is None, decided.answer[0].error
    disks.image = clusters.after(disks.image, decided)
    assert partition(disks.image, number).in_sync_replicas == now.replicas


@pytest.mark.parametrize("clean", ["of the copy", "of the last stop", "none"])
@pytest.mark.parametrize("boot", ["boot", "another boot"])
def test_an_old_copy_is_not_counted_whatever_its_signs_say(clean: str, boot: str) -> None:
    disks = three()
    copied = disks.stored[2]
    disks.start(2)
    all_in_sync(disks)
    disks.die(1, 2, 3)
    marker = {"of the copy": copied, "of the last stop": disks.epoch(2), "none": -1}[clean]
    disks.start(2, stored=copied, boot=boot, clean=marker)
    now = partition(disks.image)
    assert TWO not in (*now.in_sync_replicas, *now.eligible_replicas)
    assert now.leader_id != TWO
    assert disks.expected(2).went_back_to == copied


def test_the_others_lead_when_they_are_back_and_let_it_in_again() -> None:
    disks = three()
    copied = disks.stored[2]
    disks.start(2)
    all_in_sync(disks)
    disks.die(1, 2, 3)
    disks.start(2, stored=copied)
    assert partition(disks.image).leader_id == NO_LEADER
    disks.start(3)
    assert partition(disks.image).leader_id == THREE
    disks.start(1)
    all_in_sync(disks)


def test_a_restart_with_its_own_directory_keeps_its_place() -> None:
    disks = three()
    disks.start(2)
    all_in_sync(disks)
    disks.die(1, 2, 3)
    disks.start(2)
    assert partition(disks.image).leader_id == TWO
    assert disks.expected(2).went_back_from is None


def test_a_crash_between_the_registration_and_the_storing_takes_no_place_away() -> None:
    disks = three()
    all_in_sync(disks)
    disks.die(1, 2, 3)
    for _ in range(3):
        disks.start(2, serves=False, stores=False)
    disks.start(2, serves=False)
    disks.start(2)
    assert partition(disks.image).leader_id == TWO


def test_a_crash_before_the_new_epoch_is_stored_leaves_an_old_copy_an_old_copy() -> None:
    disks = three()
    copied = disks.stored[2]
    disks.start(2)
    all_in_sync(disks)
    disks.die(1, 2, 3)
    disks.start(2, stored=copied, serves=False, stores=False)
    assert disks.expected(2).went_back_to == copied
    disks.start(2, serves=False, stores=False)
    assert disks.expected(2).went_back_to == copied
    disks.start(2)
    assert partition(disks.image).leader_id == NO_LEADER


def test_the_first_start_after_an_upgrade_counts_as_before() -> None:
    image = clusters.with_topic(clusters.cluster(3), (1, 2, 3))
    assert image.brokers[TWO].directory_epochs == ()
    disks = Disks(image)
    disks.die(1, 2, 3)
    disks.start(2)
    assert partition(disks.image).leader_id == TWO
    assert disks.expected(2).served_epoch == disks.epoch(2)


def test_a_copy_from_before_the_upgrade_holds_no_epoch_and_is_told_after_it() -> None:
    disks = three()
    all_in_sync(disks)
    disks.die(1, 2, 3)
    disks.start(2, stored=NO_STORED_EPOCH)
    assert partition(disks.image).leader_id == NO_LEADER
    assert disks.expected(2).went_back_to == NO_STORED_EPOCH


def test_a_release_that_stores_nothing_is_expected_to_have_stored_nothing() -> None:
    disks = three()
    all_in_sync(disks)
    disks.die(1, 2, 3)
    old = clusters.registration(2, 99)
    disks.image = clusters.after(disks.image, register(disks.image, old, is_living=False))
    disks.image = clusters.unfenced(disks.image, 2)
    assert disks.image.brokers[TWO].directory_epochs == ()
    assert partition(disks.image).leader_id == TWO


def test_of_several_directories_only_the_replicas_in_the_old_one_are_left_out() -> None:
    held = tuple(BrokerDirectory(clusters.directory(2, number)) for number in range(2))
    uuids = [each.uuid for each in held]
    image = clusters.after(
        clusters.cluster(3),
        register(
            clusters.cluster(3),
            clusters.registration(2, 1, directories=held, stored=-1),
            is_living=False,
        ),
    )
    image = clusters.unfenced(image, 2)
    image = clusters.with_topic(image, *((1, 2, 3),) * 4)
    first = image.brokers[TWO].epoch
    again = clusters.registration(2, 2, directories=held, stored=first)
    image = clusters.after(image, register(image, again, is_living=False))
    second = image.brokers[TWO].epoch
    image = clusters.unfenced(image, 2)
    disks = Disks(image)
    for number in range(4):
        all_in_sync(disks, number)
    disks.die(1, 3, 2)
    mixed = clusters.registration(
        2, 3, directories=held, stored={uuids[0]: second, uuids[1]: first}, clean=second
    )
    image = clusters.after(disks.image, register(disks.image, mixed, is_living=False))
    image = clusters.unfenced(image, 2)
    found = {number: partition(image, number).directory_of(TWO) for number in range(4)}
    assert set(found.values()) == set(uuids), "both hold something"
    for number, uuid in found.items():
        assert (partition(image, number).leader_id == TWO) is (uuid == uuids[0])


def test_a_directory_that_was_away_is_judged_by_the_epoch_that_it_served_last() -> None:
    known = epochs_when_served(
        epochs_at_registration((), (_of(1), _of(2)), _stored({1: -1, 2: -1})),
        (_of(1), _of(2)),
        BrokerEpoch(4),
    )
    away = epochs_at_registration(known, (_of(1), _of(2, is_online=False)), _stored({1: 4}))
    away = epochs_when_served(away, (_of(1), _of(2, is_online=False)), BrokerEpoch(7))
    back = epochs_at_registration(away, (_of(1), _of(2)), _stored({1: 7, 2: 4}))
    assert [each.went_back_from for each in back] == [None, None]
    older = epochs_at_registration(away, (_of(1), _of(2)), _stored({1: 7, 2: 3}))
    assert [each.went_back_from for each in older] == [None, 4]


def test_a_directory_that_is_not_named_is_remembered_and_so_are_not_too_many() -> None:
    known: tuple[DirectoryEpoch, ...] = ()
    for number in range(ABSENT_MAX + 50):
        known = epochs_at_registration(known, (_of(number),), _stored({number: number}))
        known = epochs_when_served(known, (_of(number),), BrokerEpoch(number + 1))
    assert len(known) == ABSENT_MAX + 1
    back = epochs_at_registration(known, (_of(60),), _stored({60: 60}))
    assert back[0].went_back_from == 61


def test_a_sole_replica_is_elected_and_flagged() -> None:
    disks = Disks(clusters.with_topic(clusters.cluster(1), (1,)))
    disks.start(1)
    copied = disks.stored[1]
    disks.start(1)
    disks.die(1)
    disks.start(1, stored=copied)
    now = partition(disks.image)
    assert (now.leader_id, now.is_recovered_unclean) == (ONE, True)


def test_where_the_last_one_in_sync_went_back_every_replica_is_asked() -> None:
    """Those that left the set before may hold more than the copy does."""
    disks = three(in_sync_min=1)
    copied = disks.stored[2]
    disks.start(2)
    all_in_sync(disks)
    disks.die(1, 3)
    assert partition(disks.image).in_sync_replicas == (2,)
    disks.die(2)
    disks.start(2, stored=copied)
    now = partition(disks.image)
    assert now.last_known_eligible == (1, 2, 3)
    assert now.leader_id == NO_LEADER
    early = elect_longest(disks.image, clusters.topic_id(1), 0, {TWO: (LeaderEpoch(1), Offset(5))})
    assert "1, 3" in clusters.refusal(ErrorCode.NO_ELIGIBLE_LEADER, early.error).happened


def test_when_all_directories_are_old_the_longest_log_leads() -> None:
    disks = three()
    copied = dict(disks.stored)
    for broker in (1, 2, 3):
        disks.start(broker)
    all_in_sync(disks)
    disks.die(1, 2, 3)
    for broker in (1, 2, 3):
        disks.start(broker, stored=copied[broker])
    now = partition(disks.image)
    assert (now.leader_id, now.in_sync_replicas) == (NO_LEADER, ())
    ends = {
        ONE: (LeaderEpoch(3), Offset(70)),
        TWO: (LeaderEpoch(3), Offset(90)),
        THREE: (LeaderEpoch(2), Offset(80)),
    }
    election = elect_longest(disks.image, clusters.topic_id(1), 0, ends)
    assert election.leader_id == TWO
    assert election.record is not None


def test_an_epoch_of_a_lost_history_is_not_given_again() -> None:
    disks = three()
    disks.start(2, stored=500)
    assert disks.epoch(2) == 501
    disks.start(1)
    assert disks.epoch(1) == 502


def test_a_stored_epoch_that_nobody_ever_had_and_a_strange_directory_are_refused() -> None:
    image = clusters.cluster(1)
    too_large = clusters.registration(1, 1, stored=STORED_EPOCH_MAX + 1)
    strange = clusters.registration(1, 1, stored={clusters.directory(9): 1})
    for wanted in (too_large, strange):
        with pytest.raises(TidelogError) as caught:
            register(image, wanted, is_living=False)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_what_is_expected_survives_a_snapshot() -> None:
    disks = three()
    disks.start(2, stored=1)
    pieces = tuple(EncodedImage(disks.image, None))
    found, _ = decode_image(pieces)
    for broker_id, broker in disks.image.brokers.items():
        assert found.brokers[broker_id].directory_epochs == broker.directory_epochs
    assert disks.expected(2).went_back_to == 1


def test_a_release_that_does_not_know_the_record_passes_it_over() -> None:
    image = clusters.cluster(1)
    decided = register(image, clusters.registration(1, 1, stored=-1), is_living=False)
    payload = encode_entry(decided.records).replace(b"directory_epochs", b"directory_epoch5")
    known = decode_entry(payload)
    assert len(known) == len(decided.records) - 1
    assert apply_entries(image, (known,)).brokers[ONE].epoch == decided.answer


@given(
    last=st.integers(0, 100),
    stored=st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(-1, 100), max_size=4),
)
def test_the_next_epoch_is_above_every_one_that_was_ever_seen(
    last: int, stored: dict[bytes, int]
) -> None:
    found = {uuid: BrokerEpoch(epoch) for uuid, epoch in stored.items()}
    above = epoch_above(BrokerEpoch(last), found)
    assert above > last
    assert all(above > epoch for epoch in stored.values())
    assert above - 1 in (last, *stored.values())


def _of(number: int, *, is_online: bool = True) -> BrokerDirectory:
    return BrokerDirectory(clusters.directory(1, number), is_online)


def _stored(epochs: dict[int, int]) -> dict[bytes, BrokerEpoch]:
    return {clusters.directory(1, number): BrokerEpoch(epoch) for number, epoch in epochs.items()}


def test_a_replica_that_may_not_lead_is_told_with_the_reason_and_what_becomes_of_it() -> None:
    disks = three()
    copied = disks.stored[2]
    disks.start(2)
    served = disks.epoch(2)
    all_in_sync(disks)
    assert list(ineligible_replicas(disks.image, partition(disks.image))) == []
    disks.die(1, 3, 2)
    disks.start(2, stored=copied)
    (told,) = ineligible_replicas(disks.image, partition(disks.image))
    assert told.broker_id == TWO
    assert f"it held broker epoch {copied}, and was served under {served}" in told.reason
    assert told.hint == "Start broker 3: it fetches what it lacks from there."
    disks.start(3, stored=0)
    (two, three_) = ineligible_replicas(disks.image, partition(disks.image))
    assert two.hint == three_.hint
    assert "The longest log of the brokers 1, 2, 3 leads" in two.hint
    disks = three()
    copied = disks.stored[2]
    disks.start(2)
    all_in_sync(disks)
    disks.start(2, stored=copied)
    (told,) = ineligible_replicas(disks.image, partition(disks.image))
    assert told.hint == "It fetches what it lacks from broker 3, and is in sync then."
    all_in_sync(disks)
    assert list(ineligible_replicas(disks.image, partition(disks.image))) == []
