"""Each invariant of a subscription is seen to fail on the state that it forbids, and holds else."""

from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.groups.subscription.test_subscription import (
    BEGIN,
    P0,
    P1,
    Stream,
    assigned,
    reading,
    refused,
)
from tidelog.broker.groups.subscription.core import invariants
from tidelog.broker.groups.subscription.core.commits import NEVER_MS
from tidelog.broker.groups.subscription.core.messages import (
    Effect,
    FindPositions,
    SendCommit,
    SendHeartbeat,
)
from tidelog.broker.groups.subscription.core.partition import SentPart
from tidelog.wire.calls.groups import CommitAnswer
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import NO_OFFSET, Offset, PartitionKey

KEYS = (P0, P1)


# -- what is spoilt is seen ----------------------------------------------------------------------


def busy() -> Stream:
    """It has sent records of both, has some of one left, and a commit is under way."""
    stream = reading(*KEYS, begin=msgspec.structs.replace(BEGIN, credit_records=6))
    stream.brought(P0, 0, 4)
    stream.brought(P1, 0, 4)
    stream.acknowledge((0, 2), (1, 1))
    return stream


def keeps_one_in_the_place_of_another(stream: Stream) -> None:
    stream.core._partitions[P0], stream.core._partitions[P1] = (
        stream.core._partitions[P1],
        stream.core._partitions[P0],
    )


def knows_half_of_a_beginning(stream: Stream) -> None:
    stream.core._partitions[P0].next_read = NO_OFFSET


def sends_what_was_not_read(stream: Stream) -> None:
    stream.core._partitions[P0].sent_end = Offset(99)


def has_records_from_before_what_was_sent(stream: Stream) -> None:
    stream.core._partitions[P1].sent_end = Offset(3)


def buffers_out_of_order(stream: Stream) -> None:
    stream.core._partitions[P1].buffer.reverse()


def counts_bytes_that_are_not_there(stream: Stream) -> None:
    stream.core._partitions[P0].buffered_bytes += 1


def waits_for_parts_out_of_order(stream: Stream) -> None:
    stream.core._partitions[P0].unacknowledged.appendleft(SentPart(Offset(9), 0, 1))


def forgets_what_it_sent_last(stream: Stream) -> None:
    stream.core._partitions[P0].unacknowledged.append(SentPart(Offset(5), 0, 1))


def sends_parts_without_records(stream: Stream) -> None:
    stream.core._partitions[P0].unacknowledged[-1] = SentPart(Offset(4), 0, 0)


def reads_what_it_asks_about(stream: Stream) -> None:
    stream.core._partitions[P0].is_finding = True


def reads_what_is_gone(stream: Stream) -> None:
    stream.core._partitions[P0].needs_reset = True


def reads_ahead_of_what_it_gives_up(stream: Stream) -> None:
    stream.core._partitions[P1].is_leaving = True


def forgets_to_ask_where_to_begin(stream: Stream) -> None:
    stream.core._partitions[P0].is_ready = False
    stream.core._find_due_ms = NEVER_MS
    stream.core._commits._queue.clear()


def gives_more_than_its_credit(stream: Stream) -> None:
    stream.core._credit = -1


def tells_the_client_of_too_little(stream: Stream) -> None:
    assert stream.core._announced is not None
    del stream.core._announced[P0]


def owns_without_being_a_member(stream: Stream) -> None:
    assert stream.core._member is not None
    stream.core._member.lose(0)


def keeps_what_nobody_waits_for(stream: Stream) -> None:
    partition = stream.core._partitions[P0]
    partition.unacknowledged.clear()
    partition.is_leaving = True
    tells_the_client_of_too_little(stream)


def commits_without_a_group(stream: Stream) -> None:
    stream.core._member = None


def counts_positions_that_do_not_wait(stream: Stream) -> None:
    stream.core._commits.position_count += 1


def commits_a_position_of_no_topic(stream: Stream) -> None:
    stream.core._commits._queue[0].topics.clear()


def commits_for_nobody(stream: Stream) -> None:
    stream.core._commits._queue.clear()
    stream.core._commits.position_count = 0


def has_sent_another_than_the_first(stream: Stream) -> None:
    del stream.core._commits._queue[0].offsets[P0]


def waits_to_store_nothing(stream: Stream) -> None:
    stream.core._commits._sent = None
    stream.core._commits._queue[0].offsets.clear()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (keeps_one_in_the_place_of_another, "kept in the place of"),
        (knows_half_of_a_beginning, "a beginning that is not known"),
        (sends_what_was_not_read, "sent what was not read"),
        (has_records_from_before_what_was_sent, "ascend"),
        (buffers_out_of_order, "ascend"),
        (counts_bytes_that_are_not_there, "bytes are buffered"),
        (waits_for_parts_out_of_order, "parts end at"),
        (forgets_what_it_sent_last, "nobody waits for it"),
        (sends_parts_without_records, "without records"),
        (reads_what_it_asks_about, "ready, and asked about"),
        (reads_what_is_gone, "what it reads is gone"),
        (reads_ahead_of_what_it_gives_up, "to be given up"),
        (forgets_to_ask_where_to_begin, "never asked about again"),
        (gives_more_than_its_credit, "credit of -1"),
        (tells_the_client_of_too_little, "the client was told"),
        (owns_without_being_a_member, "owned by no member"),
        (keeps_what_nobody_waits_for, "it is not given up"),
        (commits_without_a_group, "without a group"),
        (counts_positions_that_do_not_wait, "positions wait"),
        (commits_a_position_of_no_topic, "of no topic"),
        (commits_for_nobody, "nobody waits for"),
        (has_sent_another_than_the_first, "another acknowledgement"),
        (waits_to_store_nothing, "nothing is to be stored"),
    ],
)
def test_a_spoilt_subscription_is_seen(spoil: Callable[[Stream], None], says: str) -> None:
    stream = busy()
    assert stream.core._partitions[P1].buffer, "some is left"
    assert stream.core._commits._sent is not None, "a commit is under way"
    spoil(stream)
    with pytest.raises(AssertionError, match=says):
        invariants.check(stream.core)


# -- they hold whatever comes --------------------------------------------------------------------

CODES = (
    ErrorCode.UNAVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER,
    ErrorCode.FENCED_MEMBER_EPOCH,
)


class Told(msgspec.Struct):
    """What was asked, and is not answered yet."""

    beats: list[SendHeartbeat] = []
    commits: list[SendCommit] = []
    asked: list[FindPositions] = []

    def note(self, effects: Iterable[Effect]) -> None:
        for each in effects:
            match each:
                case SendHeartbeat():
                    self.beats.append(each)
                case SendCommit():
                    self.commits.append(each)
                case FindPositions():
                    self.asked.append(each)


@pytest.mark.slow
@given(st.data())
def test_the_invariants_hold_whatever_comes_in_whatever_order(data: st.DataObject) -> None:
    stream, told = Stream(msgspec.structs.replace(BEGIN, credit_records=20)), Told()
    told.note(stream.pass_time(0))
    steps = ("time", "beat", "commit", "find", "records", "acknowledge", "credit", "lost", "gone")
    for step in data.draw(st.lists(st.sampled_from(steps), min_size=20, max_size=60)):
        if stream.core._is_over:
            break
        told.note(_step(stream, told, step, data))


def _step(stream: Stream, told: Told, step: str, data: st.DataObject) -> list[Effect]:
    core, now_ms = stream.core, stream.now_ms
    is_refused = data.draw(st.integers(0, 4)) == 0
    error = refused(data.draw(st.sampled_from(CODES)))
    key: PartitionKey = data.draw(st.sampled_from(KEYS))
    number = data.draw(st.integers(0, 12))
    offset = core.readable().get(key)
    match step:
        case "time":
            return stream.pass_time(data.draw(st.sampled_from((1, 200, 1_000, 3_000))))
        case "beat" if told.beats:
            beat = told.beats.pop(0)
            keys = data.draw(st.sampled_from(((), (P0,), (P1,), KEYS)))
            epoch = max(1, core._member.epoch if core._member is not None else 1)
            answer = error if is_refused else assigned(*keys, epoch=epoch)
            return stream.take(core.on_heartbeat(beat.request, answer, now_ms))
        case "commit" if told.commits:
            commit = told.commits.pop(0)
            count = len(commit.request.offsets)
            stored = CommitAnswer(errors=(None,) * count)
            return stream.take(
                core.on_committed(commit.request, error if is_refused else stored, now_ms)
            )
        case "find" if told.asked:
            asked = told.asked.pop(0)
            if is_refused:
                return stream.take(core.on_positions(asked.keys, error, now_ms))
            stream.told.append(asked)
            return stream.found(committed=number - 1, start=number // 2, end=number)
        case "records" if offset is not None:
            return stream.brought(key, offset, number)
        case "acknowledge":
            return stream.acknowledge((key.partition, number))
        case "credit":
            return stream.take(core.on_credit(number, now_ms))
        case "lost" if offset is not None:
            gone = refused(ErrorCode.OFFSET_OUT_OF_RANGE)
            return stream.take(core.on_read_failed(key, offset, gone, now_ms))
        case "gone" if is_refused:
            return stream.take(core.on_deleted((), now_ms))
        case _:
            return []
