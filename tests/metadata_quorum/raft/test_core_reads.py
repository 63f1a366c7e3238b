"""Reads that see everything committed before they were asked for."""

from tests.metadata_quorum.raft.harness import Quorum
from tidelog.metadata_quorum.raft.effects import ReadAt, Refused, Role
from tidelog.metadata_quorum.raft.messages import AppendRequest, ReadIndexRequest
from tidelog.metadata_quorum.raft.types import Options
from tidelog.wire.errors import ErrorCode


def test_one_voter_answers_at_once() -> None:
    quorum = Quorum(1)
    quorum.settle()
    assert quorum.at(1).answers[quorum.read(1)] == ReadAt(index=quorum.state(1).commit_index)


def test_a_leader_answers_after_a_round_that_began_after_the_read() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    request = quorum.read(leader)
    assert request not in quorum.at(leader).answers
    quorum.settle()
    assert isinstance(quorum.at(leader).answers[request], ReadAt)


def test_reads_that_arrive_during_a_round_share_the_next() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    quorum.sent.clear()
    requests = [quorum.read(leader) for _ in range(100)]
    quorum.settle()
    assert all(isinstance(quorum.at(leader).answers[each], ReadAt) for each in requests)
    assert len([each for each in quorum.sent if isinstance(each, AppendRequest)]) == 4


def test_a_leader_that_was_replaced_answers_no_read() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.isolate(leader)
    request = quorum.read(leader)
    quorum.run(3_000)
    refused = quorum.at(leader).answers[request]
    assert isinstance(refused, Refused)
    assert quorum.state(leader).role is not Role.LEADER


def test_followers_forward_their_reads_together() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    follower = next(each for each in quorum.machines if each != leader)
    quorum.sent.clear()
    requests = [quorum.read(follower) for _ in range(10)]
    quorum.settle()
    assert all(isinstance(quorum.at(follower).answers[each], ReadAt) for each in requests)
    assert len([each for each in quorum.sent if isinstance(each, ReadIndexRequest)]) == 2


def test_a_lost_forwarded_read_is_asked_again_and_refused_in_the_end() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    follower = next(each for each in quorum.machines if each != leader)
    first = quorum.read(follower)
    quorum.network.clear()
    quorum.run(300)
    assert isinstance(quorum.at(follower).answers[first], ReadAt)
    quorum.isolate(follower)
    second = quorum.read(follower)
    quorum.run(1_100)
    refused = quorum.at(follower).answers[second]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.UNAVAILABLE


def test_a_new_leader_answers_reads_only_after_its_first_commit() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.elect()
    quorum.run(500)
    old = quorum.leader()
    assert old is not None
    quorum.crash(old)
    quorum.is_flushing = False
    one, other = (each for each in quorum.machines if each != old)
    for _ in range(60):
        quorum.run(50)
        for own_id in (one, other):
            if quorum.leader() is None:
                quorum.flush(own_id)
        if quorum.leader() is not None:
            break
    leader = quorum.leader()
    assert leader is not None
    request = quorum.read(leader)
    quorum.settle()
    assert request not in quorum.at(leader).answers
    quorum.is_flushing = True
    quorum.settle()
    answer = quorum.at(leader).answers[request]
    assert answer == ReadAt(index=quorum.state(leader).commit_index)


def test_reads_beyond_the_limit_are_refused() -> None:
    quorum = Quorum(1, 2, 3, options=Options(reads_waiting_max=2))
    leader = quorum.elect()
    for _ in range(2):
        quorum.read(leader)
    refused = quorum.at(leader).answers[quorum.read(leader)]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
