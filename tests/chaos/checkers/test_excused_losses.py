"""What an excused loss leaves to be judged: what lies below it, what came before and after."""

import msgspec

from tests.chaos.checkers.test_cluster_excuses import COMMITTED, KEY, TOPIC_ID, Scene
from tests.chaos.checkers.test_history_checks import PARTITION, poll, send
from tidelog.chaos.checkers import check_clients
from tidelog.chaos.checkers.cluster.board import PartitionBoard
from tidelog.chaos.checkers.history.history import Excuse, History, Loss, Poll, Send
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.wire.ids import BrokerId, LeaderEpoch

LOSS = Loss(kept=2, began_ns=20, ended_ns=40)


def kinds(*events: Send | Poll, loss: Loss = LOSS) -> set[str]:
    """The checks that find something in a partition that has lost records."""
    made = History()
    made.sends = [each for each in events if isinstance(each, Send)]
    made.polls = [each for each in events if isinstance(each, Poll)]
    made.excuse(PARTITION, Excuse.LOST)
    made.losses[PARTITION] = loss
    return {anomaly.check for anomaly in check_clients(made)}


OLD = (send("a", "b", at=0), send("c", at=2), poll((0, "a"), (1, "b"), (2, "c")))


def drained(*values: str) -> Poll:
    return poll(*enumerate(values), time=(90, 91), reader="drain", is_final=True)


def test_offsets_from_the_loss_on_may_be_given_again() -> None:
    assert kinds(*OLD, send("d", at=2, time=(50, 51)), drained("a", "b", "d")) == set()


def test_what_lies_below_the_loss_must_be_there_still() -> None:
    assert {"unseen", "vanished"} <= kinds(*OLD, drained("a"))
    again = send("d", at=1, time=(50, 51))
    assert {"inconsistent_offsets", "reused_offset"} <= kinds(*OLD, again, drained("a", "d"))


def test_what_was_over_before_the_loss_is_judged_as_ever() -> None:
    assert "reused_offset" in kinds(*OLD, send("d", at=2, time=(12, 13)))
    assert "inconsistent_offsets" in kinds(*OLD, poll((2, "x"), time=(14, 15)), send("x"))


def test_what_began_after_the_loss_is_judged_as_ever() -> None:
    late = (send("d", at=2, time=(50, 51)), send("e", at=2, time=(52, 53)))
    assert "reused_offset" in kinds(*OLD, *late)
    assert "unseen" in kinds(*OLD, late[0], drained("a", "b"))


def test_while_a_loss_goes_on_nothing_above_it_is_judged() -> None:
    both = (send("d", at=2, time=(50, 51)), send("e", at=2, time=(52, 53)))
    assert kinds(*OLD, *both, loss=Loss(kept=2, began_ns=20)) == set()


def lost() -> tuple[Scene, PartitionBoard]:
    """Both that were in sync have crashed."""
    scene = Scene({1: 3, 2: 3})
    assert scene.crash(1, 2) is Excuse.LOST
    return scene, scene.board


def test_a_loss_reaches_down_to_the_log_of_who_leads_after_it() -> None:
    _, board = lost()
    assert board.loss is not None
    assert board.loss.kept == COMMITTED
    board.see_leader(2, 7)
    board.see_leader(2, 9)
    assert board.loss.kept == 7, "what it takes later is new"


def test_a_leader_that_nobody_counted_on_keeps_nothing() -> None:
    _, board = lost()
    board.see_leader(3, 9)
    assert board.loss is not None
    assert board.loss.kept == 0


def test_a_loss_is_over_when_all_replicas_follow_a_later_leader() -> None:
    _, board = lost()
    everybody = tuple(BrokerId(each) for each in (1, 2, 3))
    board.image = msgspec.structs.replace(board.image, in_sync_replicas=everybody)
    board.see_end_of_loss(50)
    assert board.loss is not None
    assert board.loss.ended_ns is None, "it is the leader of before"
    later = msgspec.structs.replace(board.image, leader_epoch=LeaderEpoch(2))
    board.image = msgspec.structs.replace(later, leader_id=NO_LEADER)
    board.see_end_of_loss(55)
    assert board.loss.ended_ns is None, "nobody leads yet: what is left is not known"
    board.image = later
    board.see_end_of_loss(60)
    assert board.loss.ended_ns == 60


def test_a_topic_that_is_deleted_after_a_loss_stays_excused() -> None:
    scene, board = lost()
    topics = scene.watch.board
    topics.newest = msgspec.structs.replace(Image(), topics={TOPIC_ID: scene.topic})
    topics.see_image(msgspec.structs.replace(Image(), version=1))
    assert KEY not in topics.partitions
    scene.watch.settle()
    assert scene.history.excuses == {board.name: Excuse.LOST}
    assert scene.history.losses[board.name] == board.loss
