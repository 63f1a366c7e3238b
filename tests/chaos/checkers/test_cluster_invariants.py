"""Each invariant of a cluster finds the state that is bad in its way, and says so."""

import msgspec
import pytest

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.cluster.board import (
    LATELY_NS,
    SOON_NS,
    ClusterBoard,
    OwnTrim,
    PartitionBoard,
    Position,
)
from tidelog.chaos.checkers.cluster.metadata import MetadataWatch
from tidelog.chaos.checkers.history.history import Excuse
from tidelog.chaos.checkers.partition import starts, steps
from tidelog.chaos.checkers.partition.lives import LivesWatch
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium, NameChange
from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.metadata.image.map import ImageMap
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

TOPIC_ID = TopicId(bytes(range(16)))
KEY = PartitionKey(TOPIC_ID, PartitionId(0))


def partition(
    *,
    leader: int = 1,
    epoch: int = 1,
    partition_epoch: int | None = None,
    in_sync: tuple[int, ...] = (1, 2, 3),
    unclean: bool = False,
) -> PartitionImage:
    return PartitionImage(
        partition=PartitionId(0),
        leader_id=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(epoch if partition_epoch is None else partition_epoch),
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        in_sync_replicas=tuple(BrokerId(each) for each in in_sync),
        is_recovered_unclean=unclean,
    )


def topic(
    *partitions: PartitionImage, flush: str = "sync", minimum: int = 2, **settings: str
) -> TopicImage:
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return TopicImage(
        topic_id=TOPIC_ID,
        name="t",
        configuration={"flush": flush, "min.insync.replicas": str(minimum), **more},
        is_internal=False,
        partitions=partitions,
    )


def image(version: int, *topics: TopicImage) -> Image:
    return Image(version=version, topics=ImageMap.of({each.topic_id: each for each in topics}))


def board_of(*, flush: str = "sync", minimum: int = 2) -> PartitionBoard:
    return PartitionBoard(KEY, topic(partition(), flush=flush, minimum=minimum), partition())


def log_at(
    end: int, *, watermark: int = 0, flushed: int | None = None, start: int = 0
) -> PartitionLog:
    log = PartitionLog(KEY, LeaderEpoch(1))
    log.log_start_offset = Offset(start)
    log.log_end_offset = Offset(end)
    log.high_watermark = Offset(watermark)
    log.flushed_offset = Offset(end if flushed is None else flushed)
    return log


def position(*, end: int = 0, watermark: int = 0) -> Position:
    return Position(log_end_offset=end, high_watermark=watermark)


# -- steps of one replica ----------------------------------------------------------------------


def test_a_watermark_behind_the_end_is_out_of_order() -> None:
    assert list(steps.offsets_in_order(board_of(), "n1", log_at(5, watermark=5))) == []
    assert list(steps.offsets_in_order(board_of(), "n1", log_at(5, watermark=6)))
    assert list(steps.offsets_in_order(board_of(), "n1", log_at(5, watermark=2, start=3)))


def test_a_watermark_never_falls_in_one_life() -> None:
    before = position(watermark=4)
    assert not list(steps.watermark_never_falls(board_of(), "n1", log_at(9, watermark=4), before))
    assert list(steps.watermark_never_falls(board_of(), "n1", log_at(9, watermark=3), before))


def test_a_log_is_never_cut_below_its_watermark() -> None:
    before = position(end=9, watermark=4)
    assert not list(steps.nothing_committed_is_truncated(board_of(), "n1", log_at(4), before))
    assert list(steps.nothing_committed_is_truncated(board_of(), "n1", log_at(3), before))


@pytest.mark.parametrize(
    ("in_sync", "moved_to", "is_bad"), [(1, 5, True), (2, 5, False), (1, 4, False)]
)
def test_a_watermark_moves_only_with_as_many_in_sync_as_the_topic_asks_for(
    in_sync: int, moved_to: int, is_bad: bool
) -> None:
    log, before = log_at(9, watermark=moved_to), position(watermark=4)
    found = list(steps.watermark_waits_for_enough(board_of(), "n1", log, before, in_sync, 2))
    assert bool(found) is is_bad


def test_an_only_replica_is_enough_also_while_it_has_not_heard_of_others() -> None:
    board, alone = board_of(), msgspec.structs.replace(partition(), replicas=(BrokerId(1),))
    assert board.in_sync_min(partition(), 0) == 2
    assert board.in_sync_min(None, 0) == 2
    assert board.in_sync_min(alone, 0) == 1, "as it knows"
    board.image = alone
    assert board.in_sync_min(None, 0) == 1


def test_an_only_replica_that_got_others_is_enough_for_a_while() -> None:
    now_ns = [0]
    seen, alone = (
        ClusterBoard(lambda: now_ns[0]),
        msgspec.structs.replace(partition(), replicas=(BrokerId(1),)),
    )
    for version, each in enumerate((alone, partition()), start=1):
        now_ns[0] += 10
        seen.see_image(image(version, topic(each)))
    board = seen.partitions[KEY]
    assert board.in_sync_min(partition(), now_ns[0]) == 1
    assert board.in_sync_min(partition(), now_ns[0] + LATELY_NS) == 2


@pytest.mark.parametrize(
    ("flush", "flushed", "end", "is_bad"),
    [
        ("sync", 5, 9, False),
        ("sync", 4, 9, True),
        ("replicated", 4, 9, False),
        ("replicated", 4, 4, True),
    ],
)
def test_what_is_committed_is_in_every_log_of_the_in_sync_set(
    flush: str, flushed: int, end: int, is_bad: bool
) -> None:
    leader = log_at(9, watermark=5)
    in_sync = {"n1": leader, "n2": log_at(end, flushed=flushed)}
    found = list(steps.watermark_waits_for_all(board_of(flush=flush), "n1", leader, in_sync))
    assert bool(found) is is_bad


def test_with_flush_sync_nothing_is_committed_that_is_not_flushed() -> None:
    log = log_at(9, watermark=5, flushed=4)
    assert list(steps.watermark_is_flushed(board_of(), "n1", log))
    assert not list(steps.watermark_is_flushed(board_of(flush="replicated"), "n1", log))


@pytest.mark.parametrize(
    ("moved_to", "flushed", "is_bad"), [(5, 4, True), (5, 5, False), (4, 3, False)]
)
def test_a_leader_that_is_in_sync_alone_commits_nothing_more_that_is_not_flushed(
    moved_to: int, flushed: int, is_bad: bool
) -> None:
    log, before = log_at(9, watermark=moved_to, flushed=flushed), position(watermark=4)
    board = board_of(flush="replicated")
    assert bool(list(steps.watermark_of_one_is_flushed(board, "n1", log, before))) is is_bad


def test_a_leader_goes_by_it_that_it_is_in_sync_alone_once_it_has_known_that_for_a_while() -> None:
    board, alone = board_of(flush="replicated"), partition(in_sync=(1,))
    assert not board.is_in_sync_alone(1, alone, LATELY_NS), "nobody has looked"
    board.see_own(1, alone, 10)
    board.see_own(1, alone, 20)
    assert not board.is_in_sync_alone(1, alone, LATELY_NS + 9)
    assert not board.is_in_sync_alone(1, alone, SOON_NS + 9, for_ns=SOON_NS)
    assert board.is_in_sync_alone(1, alone, SOON_NS + 10, for_ns=SOON_NS)
    assert board.is_in_sync_alone(1, alone, LATELY_NS + 10)
    assert not board.is_in_sync_alone(1, None, LATELY_NS + 10)
    assert not board.is_in_sync_alone(1, partition(), LATELY_NS + 10)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(None, id="it_stood_still"),
        pytest.param(partition(), id="others_came_and_went"),
        pytest.param(partition(in_sync=(1,), epoch=2), id="something_changed"),
        pytest.param(partition(in_sync=(2,), leader=2), id="another_one_led"),
        pytest.param(
            msgspec.structs.replace(partition(in_sync=(1,)), replicas=(BrokerId(1),)),
            id="it_was_the_only_one",
        ),
    ],
)
def test_whatever_comes_between_begins_that_while_anew(between: PartitionImage | None) -> None:
    board, alone = board_of(flush="replicated"), partition(in_sync=(1,))
    board.see_own(1, alone, 10)
    board.see_own(1, between, 20)
    board.see_own(1, alone, 30)
    assert not board.is_in_sync_alone(1, alone, LATELY_NS + 29)
    assert board.is_in_sync_alone(1, alone, LATELY_NS + 30)


def test_whoever_is_in_sync_holds_what_is_committed() -> None:
    board = board_of()
    board.committed = 5
    assert not list(steps.in_sync_holds_committed(board, "n2", log_at(5)))
    assert list(steps.in_sync_holds_committed(board, "n2", log_at(4)))


def test_whoever_is_elected_holds_what_was_committed_before() -> None:
    board = board_of()
    board.epochs[2] = 5
    assert not list(steps.leader_holds_committed(board, "n2", log_at(5), 2))
    assert list(steps.leader_holds_committed(board, "n2", log_at(4), 2))


def test_only_the_broker_that_metadata_name_leads_an_epoch() -> None:
    assert not list(steps.one_leader_an_epoch(board_of(), 1, 1))
    assert not list(steps.one_leader_an_epoch(board_of(), 2, 0))
    assert list(steps.one_leader_an_epoch(board_of(), 2, 1))


@pytest.mark.parametrize(
    ("flush", "in_sync", "shaken", "is_bad"),
    [
        ("replicated", (), {1, 2}, False),
        ("replicated", (), {1}, True),
        ("replicated", (1,), set(), False),
        ("sync", (), {1, 2}, True),
    ],
)
def test_an_in_sync_set_is_lost_only_with_the_machines_of_all_its_members(
    flush: str, in_sync: tuple[int, ...], shaken: set[int], is_bad: bool
) -> None:
    board = board_of(flush=flush)
    lost = (BrokerId(1), BrokerId(2))
    board.image = msgspec.structs.replace(partition(in_sync=in_sync), last_known_eligible=lost)
    assert bool(list(steps.losses_have_causes(board, shaken))) is is_bad


def test_a_directory_that_went_back_explains_that_nobody_is_in_sync() -> None:
    board = board_of(flush="sync")
    lost = (BrokerId(1), BrokerId(2))
    board.image = msgspec.structs.replace(partition(in_sync=()), last_known_eligible=lost)
    assert list(steps.losses_have_causes(board, {1, 2}, {3: None}))
    assert not list(steps.losses_have_causes(board, {}, {2: None}))


@pytest.mark.parametrize(
    ("epoch", "in_sync", "end", "is_bad"),
    [
        (5, (1, 2), -1, False),  # the process that was in sync has died, nobody knows yet
        (6, (1, 2), -1, True),
        (6, (1, 2), 4, True),
        (6, (1, 2), 5, False),
        (6, (1,), 4, False),
    ],
)
def test_an_old_copy_counts_only_once_it_holds_what_is_committed(
    epoch: int, in_sync: tuple[int, ...], end: int, is_bad: bool
) -> None:
    board = board_of()
    board.committed = 5
    board.old_copies[2] = 5
    board.image = partition(in_sync=in_sync)
    found = steps.nobody_counts_on_old_copies(board, {1: 3, 2: epoch}, {1: 5, 2: end})
    assert bool(list(found)) is is_bad


def test_an_eligible_old_copy_counts_too_and_a_sole_replica_may_be_one() -> None:
    board = board_of()
    board.committed = 5
    board.old_copies[2] = 5
    board.image = msgspec.structs.replace(partition(in_sync=(1,)), eligible_replicas=(BrokerId(2),))
    assert list(steps.nobody_counts_on_old_copies(board, {2: 6}, {}))
    board.image = msgspec.structs.replace(
        board.image, replicas=(BrokerId(2),), in_sync_replicas=(BrokerId(2),), eligible_replicas=()
    )
    assert not list(steps.nobody_counts_on_old_copies(board, {2: 6}, {}))


# -- the board ---------------------------------------------------------------------------------


def test_the_board_counts_changes_of_leaders_and_what_was_committed_before_each() -> None:
    board = ClusterBoard()
    board.see_image(image(1, topic(partition())))
    board.partitions[KEY].committed = 7
    board.see_image(image(2, topic(partition(leader=2, epoch=2))))
    assert board.leader_changes == 1
    assert board.partitions[KEY].epochs == {1: 0, 2: 7}


def test_an_older_image_changes_nothing() -> None:
    board = ClusterBoard()
    board.see_image(image(2, topic(partition(leader=2, epoch=2))))
    board.see_image(image(1, topic(partition())))
    assert board.partitions[KEY].image.leader_id == 2


def test_a_deleted_topic_is_remembered_by_name_only() -> None:
    board = ClusterBoard()
    board.see_image(image(1, topic(partition())))
    name = board.partitions[KEY].name
    board.see_image(image(2))
    assert (list(board.partitions), list(board.deleted)) == ([], [name])


def test_an_unclean_election_excuses_what_is_lost() -> None:
    board = ClusterBoard()
    board.see_image(image(1, topic(partition())))
    board.see_image(image(2, topic(partition(leader=3, epoch=2, unclean=True))))
    assert board.partitions[KEY].excuse is Excuse.LOST


def test_a_second_unclean_election_widens_the_loss_of_the_first() -> None:
    board = ClusterBoard(now_ns=iter((10, 20, 30)).__next__)
    board.see_image(image(1, topic(partition())))
    board.see_image(image(2, topic(partition(leader=3, epoch=2, unclean=True))))
    found = board.partitions[KEY]
    found.see_leader(3, 4)
    first = found.loss
    board.see_image(image(3, topic(partition(leader=3, epoch=2))))
    assert found.loss == first, "the mark is gone since all have gone on from there"
    board.see_image(image(4, topic(partition(leader=1, epoch=4, unclean=True))))
    assert found.loss is not None
    assert (found.loss.began_ns, found.loss.ended_ns) == (10, None)


def test_a_violation_is_told_once() -> None:
    board = ClusterBoard()
    board.report("a")
    board.report("a")
    assert board.violations == ["a"]


# -- metadata ----------------------------------------------------------------------------------


def test_images_of_one_version_say_the_same_at_every_node() -> None:
    board = ClusterBoard()
    watch = MetadataWatch(board)
    watch.see("n1", 1, image(1, topic(partition())))
    watch.see("n2", 1, image(1, topic(partition())))
    assert board.violations == []
    watch.see("n3", 1, image(1, topic(partition(leader=2))))
    assert [text.split(":")[0] for text in board.violations] == ["metadata_differ"]


def test_a_node_never_shows_an_older_image_in_one_life() -> None:
    board = ClusterBoard()
    watch = MetadataWatch(board)
    watch.see("n1", 1, image(2))
    watch.see("n1", 2, image(1))
    assert board.violations == []
    watch.see("n1", 1, image(1))
    assert [text.split(":")[0] for text in board.violations] == ["metadata_went_back"]


# -- bytes -------------------------------------------------------------------------------------


def stored(
    *values: str, watermark: int, times_ms: tuple[int, ...] = (0, 0)
) -> tuple[PartitionLog, Medium]:
    """A log of one segment with a batch for each value, and the medium that holds it."""
    log, medium = PartitionLog(KEY, LeaderEpoch(1)), Medium("m")
    log.begin_segment(SegmentKey(KEY, Offset(0)))
    content = bytearray()
    for offset, (value, time_ms) in enumerate(zip(values, times_ms, strict=True)):
        record = (time_ms, None, value.encode(), ())
        batch = encode_batch([record], base_offset=offset, leader_epoch=1)
        log.take_in(read_header(batch))
        content += batch
    log.high_watermark = Offset(watermark)
    inode = Inode()
    inode.write(bytes(content))
    directory: Directory = medium.root
    *folders, name = log.segments[0].key.path.split("/")
    for folder in folders:
        child = Directory()
        medium.change_names(NameChange(added=(directory, folder, child)))
        directory = child
    medium.change_names(NameChange(added=(directory, name, inode)))
    return log, medium


# -- lives -------------------------------------------------------------------------------------


def test_a_start_derives_what_the_life_before_had() -> None:
    board, one = ClusterBoard(), board_of()
    lives = LivesWatch(board)
    before, _ = stored("a", "b", watermark=2)
    lives.on_death("n1", one, before)
    lives.on_start("n1", one, stored("a", "b", watermark=0)[0])
    assert board.violations == []
    other, _ = stored("a", "b", watermark=2)
    other.segments[0].max_timestamp = 99
    lives.on_death("n1", one, before)
    lives.on_start("n1", one, other)
    assert [text.split(":")[0] for text in board.violations] == ["rebuilt_segment"]


# -- where copies begin ---------------------------------------------------------------------------


def begun(start: int, epoch: int, *, leads: bool = False) -> PartitionLog:
    """One of several replicas, whose log begins there by the word of that epoch's leader."""
    log = log_at(9, watermark=9, start=start)
    log.log_start_epoch = LeaderEpoch(epoch)
    log.keep_uncommitted()
    if leads:
        log.led_from = Offset(9)
    return log


def test_a_start_is_decided_where_the_leader_of_its_epoch_has_it() -> None:
    board = board_of()
    starts.note_decided(board, 2, begun(7, 1))
    assert board.decided_start == 0, "it follows, and says that it was its leader"
    starts.note_decided(board, 1, begun(5, -1))
    assert board.decided_start == 0, "nobody is known to have decided it"
    starts.note_decided(board, 1, begun(5, 1))
    assert board.decided_start == 5


def test_of_an_epoch_that_nobody_has_seen_whoever_leads_is_believed() -> None:
    board = board_of()
    starts.note_decided(board, 2, begun(5, 4))
    assert board.decided_start == 0
    starts.note_decided(board, 2, begun(5, 4, leads=True))
    assert board.decided_start == 5


def test_an_only_replica_decides_though_nobody_leads() -> None:
    board = board_of()
    board.leaders[2] = -1
    log = begun(5, 2)
    log.uncommitted = None
    starts.note_decided(board, 1, log)
    assert board.decided_start == 5


def test_a_start_that_no_leader_has_decided_is_found() -> None:
    board = board_of()
    board.decided_start = 5
    before = Position(log_start_offset=3)
    assert not list(starts.start_moves_by_a_leaders_word(board, 2, begun(5, 1), before))
    (found,) = starts.start_moves_by_a_leaders_word(board, 2, begun(6, 1), before)
    assert found.startswith("start_moved_alone: ")
    before.log_start_offset = 6
    assert not list(starts.start_moves_by_a_leaders_word(board, 2, begun(6, 1), before))


def test_one_in_sync_without_its_head_is_found() -> None:
    board = board_of()
    board.decided_start = 5
    assert not list(starts.in_sync_holds_the_head(board, 2, begun(5, 1)))
    (found,) = starts.in_sync_holds_the_head(board, 2, begun(6, -1))
    assert found.startswith("in_sync_lacks_head: ")


def test_what_an_earlier_version_had_trimmed_is_found_once_it_was_out_of_sync() -> None:
    board = ClusterBoard()
    board.see_image(image(1, topic(partition())))
    (held,) = board.partitions.values()
    held.own_trims[2] = OwnTrim(start=6)
    assert not list(starts.in_sync_holds_the_head(held, 2, begun(6, -1))), "nobody knows it yet"
    board.see_image(image(2, topic(partition(epoch=2, in_sync=(1, 3)))))
    board.see_image(image(3, topic(partition(epoch=3))))
    assert list(starts.in_sync_holds_the_head(held, 2, begun(6, -1)))
    assert not list(starts.in_sync_holds_the_head(held, 2, begun(0, -1)))
    assert not held.own_trims, "it was copied anew"


def test_a_copy_without_records_may_begin_where_such_a_one_leads_and_no_other() -> None:
    board = board_of()
    board.unreadable_below = 6
    empty, filled = Position(), Position(log_end_offset=9)
    assert not list(starts.start_moves_by_a_leaders_word(board, 2, begun(6, -1), empty))
    assert list(starts.start_moves_by_a_leaders_word(board, 2, begun(6, -1), filled))
    assert list(starts.start_moves_by_a_leaders_word(board, 2, begun(7, -1), empty))
    assert not list(starts.in_sync_holds_the_head(board, 2, begun(6, -1)))
    board.own_trims[2].has_left = True
    assert list(starts.in_sync_holds_the_head(board, 2, begun(6, -1)))
