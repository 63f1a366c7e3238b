"""Who may say where a replica's log begins, and that a start is durable with whose word it was."""

from collections.abc import Callable

import pytest

from tests.broker.support.core_logs import code_of
from tests.broker.support.replica_core import KEY, SYNC, ReplicaCore, filled
from tidelog.broker.directory.core.messages import Done
from tidelog.broker.log.marks.marks import Mark, MarkKind
from tidelog.wire.errors import ErrorCode


def follower(count: int = 6, epoch: int = 1) -> ReplicaCore:
    """Follows in the epoch a leader whose batches it all has, with the watermark at their end."""
    core = ReplicaCore(SYNC)
    core.follow(epoch)
    core.copy_of(list(filled(count).stored()), 0)
    core.drain()
    core.commit_to(count, epoch=epoch)
    return core


def start_of(core: ReplicaCore) -> tuple[int, int]:
    log = core.log()
    return log.log_start_offset, log.log_start_epoch


def starts_marked(core: ReplicaCore) -> tuple[Mark, ...]:
    assert core.write is not None
    kinds = (MarkKind.LOG_START_EPOCH, MarkKind.LOG_START)
    return tuple(each for each in core.write.marks if each.kind in kinds)


def test_one_that_follows_decides_no_start() -> None:
    core = follower()
    assert code_of(core, core.trim(4)) is ErrorCode.NOT_LEADER
    core.drain()
    assert start_of(core) == (0, -1)


def test_what_a_leader_decided_before_it_was_deposed_is_refused_behind_that() -> None:
    core = filled(6)
    core.follow(2)
    assert code_of(core, core.trim(4)) is ErrorCode.NOT_LEADER


def test_one_that_leads_marks_a_start_with_its_own_epoch() -> None:
    core = filled(6)
    token = core.trim(4)
    assert starts_marked(core) == (
        Mark(KEY, MarkKind.LOG_START_EPOCH, 1),
        Mark(KEY, MarkKind.LOG_START, 4),
    )
    core.drain()
    assert isinstance(core.answers[token], Done)
    assert start_of(core) == (4, 1)


def test_one_that_follows_takes_over_what_a_leader_up_to_its_epoch_has_decided() -> None:
    core = follower(epoch=3)
    core.trim(4, start_epoch=2)
    assert starts_marked(core) == (
        Mark(KEY, MarkKind.LOG_START_EPOCH, 2),
        Mark(KEY, MarkKind.LOG_START, 4),
    )
    core.drain()
    assert start_of(core) == (4, 2)


def leads_by_now() -> ReplicaCore:
    return filled(6)


@pytest.mark.parametrize(("made", "epoch"), [(follower, 2), (leads_by_now, 1)])
def test_a_start_of_a_later_epoch_or_of_another_leader_is_refused(
    made: Callable[[], ReplicaCore], epoch: int
) -> None:
    core = made()
    assert code_of(core, core.trim(4, start_epoch=epoch)) is ErrorCode.FENCED_LEADER_EPOCH
    core.drain()
    assert start_of(core) == (0, -1)


def test_a_leader_decides_a_start_of_which_nobody_knows_whose_it_is() -> None:
    core = filled(6)
    core.trim(4)
    core.drain()
    core.log().log_start_epoch = type(core.log().log_start_epoch)(-1)
    core.trim(3)
    core.drain()
    assert start_of(core) == (4, -1), "that one was not asked for"
    core.trim(4)
    core.drain()
    assert start_of(core) == (4, 1)
    before = core.log().log_start_epoch
    core.trim(4)
    assert core.write is None, "it says nothing new"
    assert core.log().log_start_epoch == before


def test_of_two_trims_on_their_way_the_higher_one_keeps_its_epoch() -> None:
    core = follower(epoch=3)
    core.trim(5, start_epoch=3)
    core.trim(2, start_epoch=1)
    core.drain()
    assert start_of(core) == (5, 3)


def test_a_log_that_goes_on_elsewhere_is_marked_with_its_leaders_start_epoch() -> None:
    core = follower(epoch=3)
    core.restart_at(9, start_epoch=2)
    core.drain()
    assert start_of(core) == (9, 2)
    assert core.durable_marks[KEY, MarkKind.LOG_START_EPOCH] == 2


def test_whoever_waits_for_news_of_a_log_hears_that_its_start_has_moved() -> None:
    """Of a partition to which nobody writes followers would hear of it late."""
    core = filled(6)
    core.drain()
    core.advanced.clear()
    core.trim(4)
    core.drain()
    assert core.advanced == [KEY]
