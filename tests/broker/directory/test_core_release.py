"""Partitions that have stopped are let go so that their files are opened again: the core alone."""

import pytest

from tests.broker.support.core_logs import REPLICATED, code_of, filled
from tests.broker.support.core_model import DEFAULTS, CoreModel, failure, key_of
from tests.broker.support.replica_core import KEY, SYNC, ReplicaCore
from tidelog.broker.directory.core.messages import (
    AddPartition,
    Configure,
    FailPartition,
    ReleasePartition,
)
from tidelog.broker.log.marks.marks import MarkKind, PartitionMarks
from tidelog.broker.log.state.log import PartitionLog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset


def fail(model: CoreModel) -> None:
    """A file of partition 0 could not be read."""
    model.tell(FailPartition(key=key_of(0), error=failure(ErrorCode.STORAGE_FAILED)))


def release(model: CoreModel) -> int:
    """Let partition 0 go; the token."""
    token = model.new_token()
    model.tell(ReleasePartition(token=token, key=key_of(0)))
    return token


def test_what_is_let_go_keeps_its_files_and_its_marks() -> None:
    model = filled(4)
    model.trim(2)
    model.drain()
    log = model.core.state.partitions[key_of(0)].log
    fail(model)
    token = release(model)
    model.drain()
    assert code_of(model, token) is None
    assert model.removed_directories == []
    assert model.released[key_of(0)] == PartitionMarks(
        flushed_offset=log.log_end_offset, log_start_offset=2, log_start_epoch=0
    )
    assert key_of(0) not in model.core.state.partitions
    assert model.core.is_idle
    told = {kind: value for (key, kind), value in model.durable_marks.items() if key == key_of(0)}
    starts = {MarkKind.LOG_START_EPOCH: 0, MarkKind.LOG_START: 2}
    assert told == {MarkKind.FLUSHED: 4, **starts}, "no mark says that it is gone"


def test_it_is_let_go_once_what_was_written_is_flushed() -> None:
    model = filled(2)
    written = model.append()
    fail(model)
    token = release(model)
    assert token not in model.answers
    model.drain()
    assert code_of(model, written) is None
    assert code_of(model, token) is None
    assert model.released[key_of(0)].flushed_offset == 3


def test_what_waits_for_the_flush_interval_is_flushed_first() -> None:
    model = CoreModel()
    model.tell(Configure(key=key_of(0), settings=REPLICATED))
    model.append(is_all=False)
    model.end_write()
    fail(model)
    token = release(model)
    model.drain()
    assert code_of(model, token) is None
    assert model.released[key_of(0)].flushed_offset == 1


def test_a_trim_on_its_way_is_waited_for() -> None:
    model = filled(4)
    trim = model.trim(2)
    fail(model)
    release(model)
    assert key_of(0) not in model.released
    model.drain()
    assert code_of(model, trim) is None
    assert model.released[key_of(0)].log_start_offset == 2


def test_a_cut_that_has_not_begun_is_given_up() -> None:
    model = filled(4)
    model.append()
    cut = model.cut(1, is_unclean=True)
    fail(model)
    token = release(model)
    model.drain()
    assert cut in model.answers
    assert code_of(model, token) is None
    marks = model.released[key_of(0)]
    assert marks.flushed_offset <= 5


def test_what_is_opened_again_is_marked_and_takes_batches() -> None:
    model = filled(3)
    fail(model)
    release(model)
    model.drain()
    log = PartitionLog(key_of(0), LeaderEpoch(0))
    log.log_start_offset = log.log_end_offset = Offset(3)
    log.flushed_offset = log.high_watermark = Offset(3)
    model.durable_marks.clear()
    model.tell(AddPartition(log=log, settings=DEFAULTS, is_opened_at_work=True))
    model.drain()
    assert model.durable_marks == {(key_of(0), MarkKind.FLUSHED): 3}


def test_marks_of_a_log_that_could_not_be_opened_stay_as_they_were() -> None:
    told = PartitionMarks(flushed_offset=7, log_start_offset=3, committed_offset=6, gaps_from=4)
    log = PartitionLog(KEY, LeaderEpoch(0))
    log.failure, log.unopened = failure(ErrorCode.STORAGE_FAILED), told
    core = ReplicaCore(SYNC, log)
    core.follow(1)
    token = core.new_token()
    core.tell(ReleasePartition(token=token, key=KEY))
    core.drain()
    assert core.released[KEY] == told


def test_the_watermark_of_one_of_several_replicas_is_kept() -> None:
    core = ReplicaCore(SYNC)
    core.lead(1, 2)
    core.append()
    core.append()
    core.drain()
    core.follower_at(2, 1)
    core.tell(FailPartition(key=KEY, error=failure(ErrorCode.STORAGE_FAILED)))
    token = core.new_token()
    core.tell(ReleasePartition(token=token, key=KEY))
    core.drain()
    marks = core.released[KEY]
    assert (marks.flushed_offset, marks.committed_offset) == (2, 1)


def test_a_directory_that_fails_meanwhile_refuses_it() -> None:
    model = filled(2)
    model.append()
    fail(model)
    token = release(model)
    model.end_write(failure(ErrorCode.STORAGE_FAILED))
    model.drain()
    assert code_of(model, token) is ErrorCode.STORAGE_FAILED
    assert key_of(0) in model.core.state.partitions


def test_what_is_served_is_not_let_go() -> None:
    model = filled(2)
    with pytest.raises(AssertionError, match="is served"):
        release(model)
