"""Batches that a producer sends again, wherever the first one is: planned, written, committed."""

from tests.broker.support.core_logs import code_of
from tests.broker.support.core_model import CoreModel, failure
from tests.broker.support.replica_core import ReplicaCore
from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.log.producer_state import ProducerState
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch, iterate_headers
from tidelog.wire.errors import ErrorCode

SYNC = TopicSettings(in_sync_replicas_min=2)


def sealed(sequence: int, *, epoch: int = 0, records: int = 1) -> bytes:
    return encode_batch(
        [(9, None, b"%d" % sequence, ())] * records,
        producer_id=5,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def send(core: CoreModel, sequence: int, *, is_all: bool = True, epoch: int = 0) -> int:
    token = core.new_token()
    core.submit(token, sealed(sequence, epoch=epoch), 0, is_all=is_all)
    return token


def offset_of(core: CoreModel, token: int) -> int | None:
    """None: it is not answered yet."""
    answer = core.answers.get(token)
    if answer is None:
        return None
    assert isinstance(answer, Appended), f"{answer}"
    return answer.base_offset


def leading() -> ReplicaCore:
    core = ReplicaCore(SYNC)
    core.lead(1, 2)
    return core


def test_one_that_is_planned_in_the_same_write_is_written_once() -> None:
    core = CoreModel(partitions=1)
    core.append()
    first, again = send(core, 0), send(core, 0)
    core.end_write()
    assert core.write is not None
    assert len(core.write.writes[0].pieces) == 2
    core.end_write()
    assert offset_of(core, again) is None
    core.drain()
    assert offset_of(core, first) == offset_of(core, again) == 1
    assert core.log().log_end_offset == 2
    assert {first, again} <= core.written.keys()


def test_one_that_is_being_flushed_is_answered_with_that_flush() -> None:
    core = CoreModel(partitions=1)
    first = send(core, 0)
    core.end_write()
    again, soon = send(core, 0), send(core, 0, is_all=False)
    assert offset_of(core, soon) == 0, "acks=1 waits for no flush"
    assert offset_of(core, again) is None
    assert again in core.written
    core.end_flush()
    assert offset_of(core, first) == offset_of(core, again) == 0
    core.drain()
    assert core.core.is_idle


def test_one_that_is_to_be_flushed_yet_is_waited_for() -> None:
    core = CoreModel(partitions=1, topic=TopicSettings(is_flush_sync=False))
    send(core, 0, is_all=False)
    core.end_write()
    assert not core.has_flush
    again = send(core, 0)
    assert offset_of(core, again) is None
    assert again in core.written
    core.drain()
    assert offset_of(core, again) == 0


def test_one_that_is_durable_is_answered_at_once() -> None:
    core = CoreModel(partitions=1)
    send(core, 0)
    core.drain()
    assert offset_of(core, send(core, 0)) == 0


def test_one_that_awaits_its_commit_is_answered_with_it_and_in_order() -> None:
    core = leading()
    first, second = send(core, 0), send(core, 1)
    core.drain()
    again = send(core, 0)
    assert offset_of(core, again) is None
    assert list(core.written) == [first, second, again]
    core.follower_at(2, 1)
    assert offset_of(core, first) == offset_of(core, again) == 0
    assert offset_of(core, second) is None
    core.follower_at(2, 2)
    assert offset_of(core, second) == 1
    assert offset_of(core, send(core, 1)) == 1


def test_one_that_is_committed_in_a_memory_that_is_left_alone_is_answered_with_its_flush() -> None:
    core = ReplicaCore(TopicSettings(is_flush_sync=False))
    core.lead(1, 2)
    first = send(core, 0)
    core.end_write()
    core.follower_at(2, 1)
    assert offset_of(core, first) == offset_of(core, send(core, 0)) == 0
    core.lead(1)
    again = send(core, 0)
    assert offset_of(core, again) is None
    core.end_flush()
    assert offset_of(core, again) == 0


def test_one_whose_leader_follows_by_now_is_indeterminate() -> None:
    core = leading()
    send(core, 0)
    core.drain()
    again = send(core, 0)
    core.follow(2)
    assert code_of(core, again) is ErrorCode.INDETERMINATE


def test_one_that_was_refused_may_come_again() -> None:
    core = CoreModel(partitions=1)
    first, again = send(core, 0), send(core, 0)
    core.end_write(failure(ErrorCode.STORAGE_FULL))
    core.drain()
    assert code_of(core, first) is ErrorCode.STORAGE_FULL
    assert offset_of(core, again) == 0, "it waited behind that write, and is the first now"


def test_of_a_write_that_did_not_fit_those_that_were_sent_again_are_refused_as_well() -> None:
    core = CoreModel(partitions=1)
    core.append()
    first, again = send(core, 0), send(core, 0)
    core.end_write()
    core.end_write(failure(ErrorCode.STORAGE_FULL))
    core.drain()
    assert code_of(core, first) is code_of(core, again) is ErrorCode.STORAGE_FULL
    assert core.log().log_end_offset == 1


def test_what_leaves_a_gap_or_is_fenced_is_refused_and_takes_no_offset() -> None:
    core = CoreModel(partitions=1)
    send(core, 0, epoch=1)
    gap, zombie = send(core, 2, epoch=1), send(core, 0, epoch=0)
    core.drain()
    assert code_of(core, gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert code_of(core, zombie) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert core.log().log_end_offset == 1


def test_a_new_epoch_fences_the_old_one_within_one_write() -> None:
    core = CoreModel(partitions=1)
    core.append()
    old, new, late = send(core, 0), send(core, 0, epoch=1), send(core, 1)
    core.drain()
    assert offset_of(core, old) == 1
    assert offset_of(core, new) == 2
    assert code_of(core, late) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_a_follower_that_leads_knows_the_producers_of_what_it_has_copied() -> None:
    source = leading()
    for sequence in range(3):
        send(source, sequence)
    source.drain()
    core = ReplicaCore(SYNC)
    core.follow(1)
    core.copy_of(list(source.stored()), 0)
    core.drain()
    core.lead(2, 2)
    again, later = send(core, 2), send(core, 3)
    core.drain()
    core.follower_at(2, 4, epoch=2)
    assert (offset_of(core, again), offset_of(core, later)) == (2, 3)
    assert core.log().producers.find(5) is not None


def test_what_was_cut_off_may_come_again() -> None:
    source = leading()
    for sequence in range(3):
        send(source, sequence)
    source.drain()
    core = ReplicaCore(SYNC)
    core.follow(1)
    core.copy_of(list(source.stored()), 0)
    core.commit_to(2)
    core.drain()
    core.cut(2)
    core.drain()
    state = ProducerState()
    for content in core.files.values():
        for _, header in iterate_headers(content):
            state.note(header)
    assert core.log().producers == state
    core.lead(2, 2)
    token = send(core, 2)
    core.drain()
    core.follower_at(2, 3, epoch=2)
    assert offset_of(core, token) == 2
