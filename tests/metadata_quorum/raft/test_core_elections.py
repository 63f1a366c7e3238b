"""Elections: timeouts, PreVote, CheckQuorum, leases, votes that must be flushed."""

import pytest

from tests.metadata_quorum.raft.harness import Quorum, member_id, members_of
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX, TERM_STEP_MAX
from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.effects import Persist, Role, Send
from tidelog.metadata_quorum.raft.inputs import PeerDied, Persisted
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import HardState, MemberId, Members, Options, Recovered
from tidelog.wire.ids import LogIndex, Term


def _vote_request(
    sender: MemberId,
    receiver: MemberId,
    term: int,
    *,
    last: tuple[int, int],
    is_pre_vote: bool,
    is_leadership_transfer: bool = False,
) -> VoteRequest:
    return VoteRequest(
        sender=sender,
        receiver=receiver,
        term=Term(term),
        last_term=Term(last[0]),
        last_index=LogIndex(last[1]),
        is_pre_vote=is_pre_vote,
        is_leadership_transfer=is_leadership_transfer,
    )


def _responses(quorum: Quorum) -> list[VoteResponse]:
    return [message for message in quorum.sent if isinstance(message, VoteResponse)]


def test_one_voter_elects_itself_at_the_first_tick() -> None:
    quorum = Quorum(1)
    quorum.settle()
    state = quorum.state(1)
    assert (state.role, state.term, state.commit_index) == (Role.LEADER, 1, 1)


def test_one_voter_leads_only_after_its_vote_is_flushed() -> None:
    quorum = Quorum(1)
    assert quorum.state(1).role is Role.CANDIDATE
    quorum.flush(1)
    assert quorum.state(1).role is Role.LEADER
    assert quorum.state(1).commit_index == 0
    quorum.flush(1)
    assert quorum.state(1).commit_index == 1


def test_three_voters_elect_one_leader_whom_all_follow() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    assert [quorum.state(node).leader for node in (1, 2, 3)] == [leader] * 3
    assert quorum.state(leader).term == 1


def test_a_pre_vote_changes_no_term_anywhere() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.isolate(1)
    quorum.run(10_000)
    assert quorum.state(1).role is Role.PRE_CANDIDATE
    assert quorum.state(1).term == 0


def test_a_member_that_was_cut_off_comes_back_without_disturbing_the_leader() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    follower = next(each for each in quorum.machines if each != leader)
    term = quorum.state(leader).term
    quorum.isolate(follower)
    quorum.run(5_000)
    quorum.heal()
    quorum.run(2_000)
    assert quorum.leader() == leader
    assert quorum.state(follower).term == term


def test_a_leader_that_hears_no_majority_steps_down_within_an_election_timeout() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.isolate(leader)
    quorum.run(1_100)
    assert quorum.state(leader).role is not Role.LEADER


def test_a_paused_leader_steps_down_before_anything_else() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    effects = quorum.tick(leader, 5_000)
    assert quorum.state(leader).role is not Role.LEADER
    assert not any(
        isinstance(effect, Send) and isinstance(effect.message, TimeoutNow) for effect in effects
    )


def test_a_paused_leader_of_one_voter_leads_on() -> None:
    quorum = Quorum(1)
    quorum.settle()
    quorum.tick(1, 60_000)
    assert quorum.state(1).role is Role.LEADER


def test_votes_are_refused_while_a_leader_is_heard_of_unless_it_hands_over() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    asker, voter = (each for each in quorum.machines if each != leader)
    last = (1, 99)
    quorum.step(_vote_request(asker, voter, 9, last=last, is_pre_vote=True))
    assert not _responses(quorum)[-1].is_granted
    quorum.step(_vote_request(asker, voter, 9, last=last, is_pre_vote=False))
    assert quorum.state(voter).term == 1
    quorum.step(
        _vote_request(asker, voter, 10, last=last, is_pre_vote=False, is_leadership_transfer=True)
    )
    assert quorum.state(voter).hard_state.voted_for == asker


def test_a_vote_goes_only_to_a_log_that_is_at_least_as_new() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.elect()
    voter = quorum.leader()
    assert voter is not None
    asker = next(each for each in quorum.machines if each != voter)
    quorum.restart(voter)
    last = quorum.state(voter).last_index
    for is_pre_vote in (True, False):
        request = _vote_request(asker, voter, 5, last=(1, last - 1), is_pre_vote=is_pre_vote)
        quorum.step(request)
        quorum.flush(voter)
        assert not _responses(quorum)[-1].is_granted
    quorum.step(_vote_request(asker, voter, 6, last=(1, last), is_pre_vote=True))
    assert _responses(quorum)[-1].is_granted
    quorum.step(_vote_request(asker, voter, 6, last=(1, last), is_pre_vote=False))
    quorum.flush(voter)
    assert _responses(quorum)[-1].is_granted


def test_a_vote_leaves_after_its_flush_and_is_not_given_twice() -> None:
    quorum = Quorum(1, 2, 3)
    one, two, three = (member_id(node) for node in (1, 2, 3))
    quorum.step(_vote_request(two, one, 1, last=(0, 0), is_pre_vote=False))
    assert not _responses(quorum)
    quorum.step(_vote_request(three, one, 1, last=(0, 0), is_pre_vote=False))
    quorum.flush(1)
    assert [(each.receiver, each.is_granted) for each in _responses(quorum)] == [
        (two, True),
        (three, False),
    ]
    quorum.restart(1)
    quorum.step(_vote_request(three, one, 1, last=(0, 0), is_pre_vote=False))
    assert not _responses(quorum)[-1].is_granted


def test_a_held_vote_is_dropped_when_the_term_has_moved_on() -> None:
    quorum = Quorum(1, 2, 3)
    one, two, three = (member_id(node) for node in (1, 2, 3))
    quorum.step(_vote_request(two, one, 1, last=(0, 0), is_pre_vote=False))
    quorum.step(_vote_request(three, one, 2, last=(0, 0), is_pre_vote=False))
    quorum.flush(1)
    assert [(each.receiver, each.term) for each in _responses(quorum)] == [(three, 2)]


def test_requests_for_votes_leave_after_the_own_vote_is_flushed() -> None:
    core = RaftCore(
        member_id(1),
        Recovered(hard_state=HardState(), snapshot=None, bootstrap=members_of(1, 2, 3), entries=()),
        Options(jitter_seed=1),
    )
    core.tick(0)
    effects = core.tick(2_000)
    asked = [effect.message for effect in effects if isinstance(effect, Send)]
    assert [each.receiver.node_id for each in asked] == [2, 3]
    effects = core.step(
        VoteResponse(
            sender=member_id(2),
            receiver=member_id(1),
            term=Term(1),
            is_granted=True,
            is_pre_vote=True,
        )
    )
    assert [type(effect) for effect in effects][:1] == [Persist]
    assert not any(isinstance(effect, Send) for effect in effects)
    effects = core.give(Persisted(sequence=1))
    requests = [effect.message for effect in effects if isinstance(effect, Send)]
    assert all(isinstance(each, VoteRequest) and not each.is_pre_vote for each in requests)
    assert len(requests) == 2


def test_a_hint_that_the_leader_died_brings_an_election_forward() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.crash(leader)
    for own_id in quorum.machines:
        if own_id != leader:
            quorum.give(own_id, PeerDied(node_id=leader.node_id))
    quorum.run_until(lambda: quorum.leader() is not None, within_ms=700)


def test_a_hint_about_another_member_changes_nothing() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    one, other = (each for each in quorum.machines if each != leader)
    before = quorum.state(one)
    assert quorum.give(one, PeerDied(node_id=other.node_id)) == []
    assert quorum.state(one) == before


def test_a_wrong_hint_is_forgotten_when_the_leader_is_heard_of_again() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    for own_id in quorum.machines:
        if own_id != leader:
            quorum.give(own_id, PeerDied(node_id=leader.node_id))
    quorum.run(3_000)
    assert quorum.leader() == leader
    assert quorum.state(leader).term == 1


def test_a_node_without_members_never_campaigns() -> None:
    quorum = Quorum(joining=[1])
    quorum.run(10_000)
    assert quorum.state(1).role is Role.FOLLOWER
    assert quorum.sent == []


def test_a_learner_never_campaigns_but_votes() -> None:
    quorum = Quorum(1, 2)
    machine = quorum.add_machine(member_id(3), Members((*members_of(1, 2), *members_of(3))))
    assert machine.running.describe().role is Role.FOLLOWER
    quorum.step(_vote_request(member_id(1), member_id(3), 1, last=(0, 0), is_pre_vote=False))
    quorum.flush(3)
    assert _responses(quorum)[-1].is_granted


def test_messages_that_make_no_sense_are_passed_over() -> None:
    quorum = Quorum(1, 2, 3)
    before = quorum.state(1)
    one, two = member_id(1), member_id(2)
    core = quorum.at(1).running
    for message in (
        _vote_request(two, two, 1, last=(0, 0), is_pre_vote=False),
        _vote_request(one, one, 1, last=(0, 0), is_pre_vote=False),
        _vote_request(two, one, 0, last=(0, 0), is_pre_vote=False),
        _vote_request(two, one, 1, last=(3, 0), is_pre_vote=False),
        TimeoutNow(sender=two, receiver=one, term=Term(7)),
    ):
        assert core.step(message) == []
    assert quorum.state(1) == before


@pytest.mark.parametrize("term", [NUMBER_MAX, 1 << 63, (1 << 64) - 1, TERM_STEP_MAX + 100])
def test_a_term_that_no_election_can_have_led_to_is_passed_over(term: int) -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    for node in (1, 2, 3):
        sender = member_id(node % 3 + 1)
        for forged in (
            _vote_request(
                sender,
                member_id(node),
                term,
                last=(1, 5),
                is_pre_vote=False,
                is_leadership_transfer=True,
            ),
            AppendRequest(
                sender=sender,
                receiver=member_id(node),
                term=Term(term),
                previous_index=LogIndex(0),
                previous_term=Term(0),
                entries=(),
                commit_index=LogIndex(0),
                round=1,
            ),
        ):
            quorum.at(node).running.step(forged)
    quorum.run(5_000)
    assert [quorum.state(node).leader for node in (1, 2, 3)] == [leader] * 3
    assert quorum.state(leader).term == 1


def test_in_the_last_term_nobody_stands_for_election_and_nothing_breaks() -> None:
    state = HardState(term=Term(NUMBER_MAX), voted_for=None)
    alone = RaftCore(
        member_id(1),
        Recovered(hard_state=state, snapshot=None, bootstrap=members_of(1), entries=()),
        Options(),
    )
    several = RaftCore(
        member_id(1),
        Recovered(hard_state=state, snapshot=None, bootstrap=members_of(1, 2, 3), entries=()),
        Options(),
    )
    for core in (alone, several):
        for now_ms in range(0, 10_000, 50):
            core.tick(now_ms)
        assert (core.describe().role, core.describe().term) == (Role.FOLLOWER, NUMBER_MAX)
    several.step(TimeoutNow(sender=member_id(2), receiver=member_id(1), term=Term(NUMBER_MAX)))
    assert several.describe().term == NUMBER_MAX
