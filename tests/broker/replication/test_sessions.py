"""Leader's and follower's session by themselves: what each says and does, step by step."""

from tests.broker.support.copy_log import key_of
from tests.broker.support.session_world import LIMITS, SessionWorld, ends, in_session
from tidelog.broker.replication.follower.session import NAMES_MAX
from tidelog.broker.replication.leader.answer import AnswerDraft
from tidelog.wire.ids import Offset

KEY = key_of()


def test_a_full_start_names_every_partition() -> None:
    world = SessionWorld(3)
    ask = world.ask()
    assert ask is not None
    assert ask.session_sequence == 1
    assert [each.key.partition for each in ask.positions] == [0, 1, 2]


def test_many_partitions_are_named_by_several_requests() -> None:
    world = SessionWorld(2 * NAMES_MAX + 1)
    counts = []
    while (ask := world.ask()) is not None:
        counts.append(len(ask.positions))
    assert counts == [NAMES_MAX, NAMES_MAX, 1]
    while world.requests:
        world.deliver_request()
    assert len(world.leader_session.partitions) == 2 * NAMES_MAX + 1


def test_what_is_written_is_copied_committed_and_confirmed() -> None:
    world = in_session()
    world.write()
    world.commit()
    world.settle()
    assert ends(world) == (1, 1)
    assert world.follower.logs[KEY].log.high_watermark == 1
    assert world.leader.counted[-1].log_end_offset == 1
    assert world.leader.counted[-1].flushed_offset == 1
    assert world.follower.logs[KEY].batches == world.leader.logs[KEY].batches


def test_an_idle_stream_says_nothing() -> None:
    world = in_session()
    assert world.ask() is None
    assert world.answer() is None


def test_only_partitions_with_news_travel() -> None:
    world = in_session(3)
    world.write(1)
    answer = world.answer()
    assert answer is not None
    assert [each.key.partition for each in answer.partitions] == [1]
    world.deliver_answer()
    world.do_one(key_of(1))
    ask = world.ask()
    assert ask is not None
    assert [each.key.partition for each in ask.positions] == [1]


def test_a_follower_fetches_what_the_leader_has_not_flushed() -> None:
    world = in_session()
    world.write()
    assert world.leader.logs[KEY].log.flushed_offset == 0
    answer = world.answer()
    assert answer is not None
    assert answer.partitions[0].batches


def test_a_leader_sends_ahead_up_to_the_bound_on_unconfirmed_answers() -> None:
    world = in_session()
    answers = 0
    for _ in range(10):
        world.write()
        answers += world.answer() is not None
    assert answers == LIMITS.unconfirmed_answers_max
    while world.answers:
        world.deliver_answer()
    for _ in range(answers):
        world.do_one(KEY)
    world.flush(KEY)
    world.ask()
    world.deliver_request()
    answer = world.answer()
    assert answer is not None
    world.settle()
    assert ends(world) == (10, 10)


def test_an_answer_stays_within_its_bytes_and_partitions_take_turns() -> None:
    world = in_session(4)
    for partition in range(4):
        for _ in range(4):
            world.write(partition, b"x" * 60)
    size = world.leader.logs[KEY].batches[0][0].size_bytes
    seen: list[int] = []
    for _ in range(3):
        answer = world.answer()
        assert answer is not None
        total = sum(len(each.batches) for each in answer.partitions)
        assert total <= LIMITS.answer_bytes_max
        for each in answer.partitions:
            assert len(each.batches) <= LIMITS.partition_bytes_max
            if each.batches:
                assert len(each.batches) % size == 0
                seen.append(each.key.partition)
    assert seen[:4] == [0, 1, 2, 3], "each has its turn before the first one has its second"
    world.settle()
    assert [ends(world, partition) for partition in range(4)] == [(4, 4)] * 4


def test_a_batch_larger_than_an_answer_travels_alone_and_is_not_passed_over() -> None:
    world = in_session(2)
    world.write(0)
    world.write(1, b"x" * 2_000)
    first = world.answer()
    assert first is not None
    assert [each.key.partition for each in first.partitions] == [0]
    world.write(0)
    second = world.answer()
    assert second is not None
    assert [each.key.partition for each in second.partitions] == [1]


def test_the_watermark_alone_waits_while_batches_are_on_their_way() -> None:
    world = in_session()
    world.write()
    world.answer()
    world.commit(0, 0)
    world.leader.logs[KEY].log.high_watermark = Offset(1)
    world.leader_session.on_news(KEY)
    world.leader_session.on_numbers_due()
    assert world.answer() is None
    world.settle()
    assert world.follower.logs[KEY].log.high_watermark == 1


def written_and_confirmed(partitions: int) -> SessionWorld:
    """A record of partition 0 is everywhere; that it is committed the follower does not know."""
    world = in_session(partitions)
    world.write()
    world.answer()
    world.deliver_answer()
    world.do_one(KEY)
    world.flush(KEY)
    world.ask()
    world.deliver_request()
    world.commit()
    return world


def test_the_watermark_alone_waits_for_batches_and_is_told_when_it_is_due() -> None:
    world = written_and_confirmed(1)
    assert world.leader_session.are_numbers_waiting
    assert world.answer() is None
    world.leader_session.on_numbers_due()
    answer = world.answer()
    assert answer is not None
    assert [(each.high_watermark, each.batches) for each in answer.partitions] == [(1, b"")]
    assert not world.leader_session.may_tell_numbers
    assert world.answer() is None


def test_the_watermark_goes_with_the_batches_of_another_partition() -> None:
    world = written_and_confirmed(2)
    world.write(1)
    answer = world.answer()
    assert answer is not None
    assert [(each.key.partition, bool(each.batches)) for each in answer.partitions] == [
        (1, True),
        (0, False),
    ]
    assert not world.leader_session.are_numbers_waiting
    world.leader_session.on_numbers_due()
    assert world.answer() is None, "there is nothing left to be told"


def test_a_gap_in_requests_leads_to_a_full_start() -> None:
    world = in_session(2)
    world.write()
    world.answer()
    world.deliver_answer()
    world.do_one(KEY)
    world.flush(KEY)
    assert world.ask() is not None
    world.requests.clear()
    world.write()
    world.answer()
    world.deliver_answer()
    world.do_one(KEY)
    world.flush(KEY)
    assert world.ask() is not None
    counted = len(world.leader.counted)
    world.deliver_request()
    assert len(world.leader.counted) == counted, "a position behind a gap counts for nothing"
    answer = world.answer()
    assert answer is not None
    assert answer.is_full_start_wanted
    assert world.answer() is None, "a full start is asked for once"
    world.deliver_answer()
    ask = world.ask()
    assert ask is not None
    assert ask.session_sequence == 1
    assert len(ask.positions) == 2
    world.settle()
    assert ends(world) == (2, 2)


def test_a_gap_in_answers_leads_to_a_full_start() -> None:
    world = in_session()
    world.write()
    world.answer()
    world.answers.clear()
    world.write()
    world.answer()
    assert world.deliver_answer() == [], "behind a gap nothing is taken in"
    ask = world.ask()
    assert ask is not None
    assert ask.session_sequence == 1
    world.settle()
    assert ends(world) == (2, 2)


def test_answers_of_an_earlier_session_are_dropped() -> None:
    world = SessionWorld()
    world.leader.logs[KEY].write(b"v")
    world.ask()
    world.deliver_request()
    late = world.answer()
    assert late is not None
    assert late.answer_sequence == 1
    world.follower_session.reset()
    world.ask()
    assert world.deliver_answer() == []
    world.settle()
    assert ends(world) == (1, 1)


def test_what_was_sent_for_an_earlier_naming_is_dropped() -> None:
    world = in_session()
    world.write()
    world.answer()
    world.follow(KEY, 1, is_unclean=True)
    ask = world.ask()
    assert ask is not None
    assert ask.removed == (KEY,)
    assert world.deliver_answer() == []
    world.settle()
    assert ends(world) == (1, 1)


def test_a_read_that_was_overtaken_by_a_naming_is_left_out() -> None:
    world = in_session()
    world.write()
    draft = AnswerDraft(world.leader_session)
    read = draft.next_read()
    assert read is not None
    world.follow(KEY, 1, is_unclean=True)
    world.ask()
    world.deliver_request()
    draft.take(read, world.leader.logs[KEY].piece(0, 300, 1))
    assert draft.next_read() is None
    answer = draft.finish()
    assert answer is None or not any(each.batches for each in answer.partitions)
    world.settle()
    assert ends(world) == (1, 1)


def test_a_piece_of_an_earlier_naming_does_not_leave_with_a_later_number() -> None:
    world = in_session(2)
    world.write(0)
    world.write(1)
    draft = AnswerDraft(world.leader_session)
    read = draft.next_read()
    assert read is not None
    draft.take(read, world.leader.logs[KEY].piece(0, 300, 1))
    second = draft.next_read()
    assert second is not None
    world.follow(KEY, 1, is_unclean=True)
    world.ask()
    world.deliver_request()
    draft.take(second, world.leader.logs[key_of(1)].piece(0, 300, 1))
    answer = draft.finish()
    assert answer is not None
    assert [each.key.partition for each in answer.partitions if each.batches] == [1]
    world.answers.append(answer)
    world.settle()
    assert [ends(world, partition) for partition in range(2)] == [(1, 1), (1, 1)]
