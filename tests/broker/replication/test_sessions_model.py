"""Leader and follower over a stream that loses, with other leaders in between: a copy is a copy.

A longer run: TIDELOG_MODEL_EXAMPLES=3000 python -m pytest -q tests/broker/replication
"""

import os
from collections import Counter
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.broker.support.copy_log import CopyLog, key_of
from tests.broker.support.session_world import LIMITS, SessionWorld
from tidelog.wire.batch import BatchHeader
from tidelog.wire.ids import PartitionKey

EXAMPLES = int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "120"))
PARTITIONS = 2
KEYS = [key_of(number) for number in range(PARTITIONS)]
number_of_partition = st.sampled_from(range(PARTITIONS))


def same_below(one: CopyLog, other: CopyLog, offset: int) -> bool:
    """Whether both hold the same up to the offset, as far as both still hold it."""
    start = max(one.log.log_start_offset, other.log.log_start_offset)
    first, second = (
        {base: batch for base, batch in each.content(offset).items() if base >= start}
        for each in (one, other)
    )
    return first == second


class SessionMachine(RuleBasedStateMachine):
    """Every step is one thing that happens at one end, or on the way."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = SessionWorld(PARTITIONS)
        self.epochs = dict.fromkeys(KEYS, 1)
        self.counted = 0
        self.former: dict[PartitionKey, list[list[tuple[BatchHeader, bytes]]]] = {
            key: [] for key in KEYS
        }
        """What earlier leaders had: one of them may lead again, with what nobody copied."""

    # -- the leader --------------------------------------------------------------------------------

    @rule(number=number_of_partition, size=st.sampled_from([1, 80, 700]), count=st.integers(1, 3))
    def write(self, number: int, size: int, count: int) -> None:
        self.world.write(number, bytes(size), count)

    @rule(number=number_of_partition, share=st.floats(0, 1))
    def commit(self, number: int, share: float) -> None:
        leader = self.world.leader.logs[key_of(number)]
        ends = [
            header.next_offset
            for header, _ in leader.batches
            if header.next_offset > leader.log.high_watermark
        ]
        if ends:
            self.world.commit(number, ends[int((len(ends) - 1) * share)])

    @rule(number=number_of_partition, share=st.floats(0, 1))
    def trim(self, number: int, share: float) -> None:
        leader = self.world.leader.logs[key_of(number)]
        room = leader.log.high_watermark - leader.log.log_start_offset
        leader.trim(leader.log.log_start_offset + int(room * share))
        self.world.leader_session.on_news(key_of(number))

    @rule(number=number_of_partition, share=st.floats(0, 1), writes=st.integers(0, 3))
    def another_leader(self, number: int, share: float, writes: int) -> None:
        """It has all that is committed, and perhaps more; the follower does not know it yet."""
        key = key_of(number)
        leader = self.world.leader.logs[key]
        log = leader.log
        self.former[key].append(list(leader.batches))
        leader.cut(log.high_watermark + int((log.log_end_offset - log.high_watermark) * share))
        self.epochs[key] += 1
        leader.lead(self.epochs[key])
        for _ in range(writes):
            leader.write(b"by another")
        self.world.leader_session.on_news(key)

    @precondition(lambda self: any(self.former.values()))
    @rule(number=number_of_partition, which=st.integers(0, 10), writes=st.integers(0, 2))
    def a_former_leader(self, number: int, which: int, writes: int) -> None:
        """It leads again, if it has all that is committed."""
        key = key_of(number)
        leader = self.world.leader.logs[key]
        log, known = leader.log, self.former[key]
        if not known:
            return
        batches = [
            each for each in known[which % len(known)] if each[0].next_offset > log.log_start_offset
        ]
        below: dict[int, bytes] = {each[0].base_offset: each[1] for each in batches}
        committed = leader.content(log.high_watermark)
        if any(below.get(offset) != batch for offset, batch in committed.items()):
            return
        if not batches and log.log_start_offset != log.high_watermark:
            return
        known.append(list(leader.batches))
        watermark = log.high_watermark
        leader.become(batches)
        assert log.high_watermark == watermark, "it has all that is committed"
        self.epochs[key] += 1
        leader.lead(self.epochs[key])
        for _ in range(writes):
            leader.write(b"by a former one")
        self.world.leader_session.on_news(key)
        self.seen["former leader"] += 1

    @rule(number=number_of_partition)
    def learn_of_the_leader(self, number: int) -> None:
        key = key_of(number)
        if self.world.follower.logs[key].log.leader_epoch < self.epochs[key]:
            self.world.follow(key, self.epochs[key])

    # -- what happens one after the other ----------------------------------------------------------

    @rule()
    def ask(self) -> None:
        self.world.ask()

    @precondition(lambda self: self.world.requests)
    @rule()
    def deliver_request(self) -> None:
        self.world.deliver_request()

    @rule()
    def answer(self) -> None:
        self.world.answer()

    @precondition(lambda self: self.world.answers)
    @rule()
    def deliver_answer(self) -> None:
        self.world.deliver_answer()

    @rule(number=number_of_partition)
    def do_one(self, number: int) -> None:
        if self.world.follower.asked[key_of(number)]:
            self.world.do_one(key_of(number))

    @rule(number=number_of_partition)
    def flush(self, number: int) -> None:
        self.world.flush(key_of(number))

    @rule(duration_ms=st.integers(1, 200))
    def wait(self, duration_ms: int) -> None:
        self.world.now_ms += duration_ms
        if duration_ms >= self.world.limits.numbers_wait_ms:
            self.world.leader_session.on_numbers_due()

    @rule()
    def run_a_while(self) -> None:
        """Otherwise hardly anything would ever come to an end."""
        world = self.world
        for _ in range(3):
            world.ask()
            while world.requests:
                world.deliver_request()
            world.answer()
            while world.answers:
                world.deliver_answer()
            for key in KEYS:
                while world.follower.asked[key]:
                    world.do_one(key)

    # -- what is lost ------------------------------------------------------------------------------

    @rule(requests=st.integers(0, 3), answers=st.integers(0, 3))
    def break_stream(self, requests: int, answers: int) -> None:
        """A suffix is lost in both directions: what comes before it is still delivered."""
        world = self.world
        for _ in range(min(requests, len(world.requests))):
            world.deliver_request()
        for _ in range(min(answers, len(world.answers))):
            world.deliver_answer()
        world.break_stream()
        self.seen["break"] += 1

    @precondition(lambda self: len(self.world.requests) > 1)
    @rule()
    def lose_a_request(self) -> None:
        """No stream does that; the numbers tell it nevertheless."""
        self.world.requests.popleft()
        self.seen["lost request"] += 1

    @precondition(lambda self: len(self.world.answers) > 1)
    @rule()
    def lose_an_answer(self) -> None:
        self.world.answers.popleft()
        self.seen["lost answer"] += 1

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def what_counts_is_a_prefix_of_the_leaders_log(self) -> None:
        counted = self.world.leader.counted
        for position in counted[self.counted :]:
            leader = self.world.leader.logs[position.key]
            follower = self.world.follower.logs[position.key]
            assert same_below(leader, follower, position.log_end_offset), position
        self.counted = len(counted)

    @invariant()
    def what_is_committed_is_the_same(self) -> None:
        for key in KEYS:
            leader, follower = self.world.leader.logs[key], self.world.follower.logs[key]
            assert same_below(leader, follower, follower.log.high_watermark), key

    @invariant()
    def no_copy_has_a_hole(self) -> None:
        for key in KEYS:
            batches = self.world.follower.logs[key].batches
            for (one, _), (other, _) in pairwise(batches):
                assert one.next_offset == other.base_offset, key

    @invariant()
    def what_is_on_its_way_is_bounded(self) -> None:
        session = self.world.leader_session
        unconfirmed = session.answer_sequence - session.confirmed_answer
        assert unconfirmed <= LIMITS.unconfirmed_answers_max
        for answer in self.world.answers:
            sizes = [len(each.batches) for each in answer.partitions if each.batches]
            assert len(sizes) <= 1 or sum(sizes) <= LIMITS.answer_bytes_max

    def teardown(self) -> None:
        """Once nothing is lost any more, both logs are the same."""
        world = self.world
        self.seen.update(world.seen)
        for key in KEYS:
            self.learn_of_the_leader(key.partition)
        world.settle()
        for number, key in enumerate(KEYS):
            world.commit(number)
            world.settle()
            leader, follower = world.leader.logs[key], world.follower.logs[key]
            assert follower.log.log_end_offset == leader.log.log_end_offset
            assert follower.log.high_watermark == leader.log.high_watermark
            assert follower.log.log_start_offset == leader.log.log_start_offset
            assert same_below(leader, follower, leader.log.log_end_offset)
            assert not world.follower.lost, "nothing that is committed was to be cut off"


@pytest.mark.slow
def test_a_copy_is_a_prefix_whatever_is_lost_and_whoever_leads() -> None:
    SessionMachine.seen.clear()
    run_state_machine_as_test(
        SessionMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    seen = SessionMachine.seen
    print(f"\n{dict(seen)}")
    assert seen["AppendCopies"], f"nothing was ever copied: {dict(seen)}"
