"""Changes of members and transfers of leadership."""

from collections.abc import Callable

from tests.metadata_quorum.raft.harness import Outcome, Quorum, member, member_id
from tidelog.metadata_quorum.raft.effects import Done, Refused, Role, Uncertain
from tidelog.metadata_quorum.raft.inputs import (
    AddLearner,
    Input,
    Promote,
    RemoveMember,
    Transfer,
)
from tidelog.metadata_quorum.raft.membership import decode_members, encode_members
from tidelog.metadata_quorum.raft.messages import VoteRequest
from tidelog.metadata_quorum.raft.types import MemberId, Members
from tidelog.wire.errors import ErrorCode


def _add(node_id: int, directory: int = 0) -> Callable[[int], Input]:
    return lambda n: AddLearner(request_id=n, member=member(node_id, directory=directory))


def _promote(node_id: int, directory: int = 0) -> Callable[[int], Input]:
    return lambda n: Promote(request_id=n, member_id=member_id(node_id, directory))


def _remove(target: MemberId) -> Callable[[int], Input]:
    return lambda n: RemoveMember(request_id=n, member_id=target)


def _transfer(to: MemberId | None) -> Callable[[int], Input]:
    return lambda n: Transfer(request_id=n, to=to)


def _ask(quorum: Quorum, leader: MemberId, make: Callable[[int], Input]) -> Outcome | None:
    request = quorum.request(leader, make)
    quorum.run(500)
    return quorum.at(leader).answers.get(request)


def _code(outcome: Outcome | None) -> ErrorCode:
    assert isinstance(outcome, Refused), f"{outcome} is no refusal"
    return outcome.code


def test_the_stored_form_of_members_does_not_change_by_accident() -> None:
    members = Members((member(1), member(2, is_learner=True)))
    data = encode_members(members)
    assert decode_members(data) == members
    assert data.hex() == (
        "83a474797065ac726166745f6d656d62657273a776657273696f6e01a76d656d626572739284a76e6f64"
        "655f696401ae6469726563746f72795f75756964c41001000100010001000100010001000100a7616464"
        "72657373a76e6f6465313a31aa69735f6c6561726e6572c284a76e6f64655f696402ae6469726563746f"
        "72795f75756964c41002000200020002000200020002000200a761646472657373a76e6f6465323a31aa"
        "69735f6c6561726e6572c3"
    )


def test_a_learner_joins_catches_up_and_is_promoted() -> None:
    quorum = Quorum(1, joining=[2])
    quorum.settle()
    assert isinstance(_ask(quorum, member_id(1), _add(2)), Done)
    assert quorum.state(2).applied_index == 2
    assert isinstance(_ask(quorum, member_id(1), _promote(2)), Done)
    assert quorum.state(1).members.voters == (member_id(1), member_id(2))
    assert quorum.state(2).members == quorum.state(1).members


def test_repeated_requests_are_answered_with_success() -> None:
    quorum = Quorum(1, joining=[2])
    quorum.settle()
    first = quorum.request(1, _add(2))
    second = quorum.request(1, _add(2))
    quorum.run(500)
    assert quorum.at(1).answers[first] == quorum.at(1).answers[second]
    for make in (_promote(2), _promote(2), _add(2), _remove(member_id(2)), _remove(member_id(2))):
        assert isinstance(_ask(quorum, member_id(1), make), Done)


def test_one_change_at_a_time() -> None:
    quorum = Quorum(1, joining=[2, 3])
    quorum.settle()
    quorum.request(1, _add(2))
    refused = quorum.at(1).answers[quorum.request(1, _add(3))]
    assert _code(refused) is ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS


def test_a_new_leader_changes_no_members_before_it_has_committed() -> None:
    quorum = Quorum(1, joining=[2])
    quorum.flush(1)
    assert quorum.state(1).role is Role.LEADER
    assert _code(quorum.at(1).answers[quorum.request(1, _add(2))]) is ErrorCode.UNAVAILABLE


def test_a_learner_that_is_not_heard_of_or_unknown_is_not_promoted() -> None:
    quorum = Quorum(1, joining=[2])
    quorum.settle()
    assert _code(_ask(quorum, member_id(1), _promote(2))) is ErrorCode.UNKNOWN_VOTER
    quorum.crash(2)
    _ask(quorum, member_id(1), _add(2))
    assert _code(_ask(quorum, member_id(1), _promote(2))) is ErrorCode.VOTER_NOT_CAUGHT_UP
    assert _code(_ask(quorum, member_id(1), _promote(2, 7))) is ErrorCode.UNKNOWN_VOTER


def test_the_last_voter_stays() -> None:
    quorum = Quorum(1)
    quorum.settle()
    outcome = _ask(quorum, member_id(1), _remove(member_id(1)))
    assert _code(outcome) is ErrorCode.INVALID_ARGUMENT


def test_a_wiped_node_comes_back_as_another_member() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    gone = next(each for each in quorum.machines if each != leader)
    quorum.crash(gone)
    quorum.add_machine(member_id(gone.node_id, 1), Members())
    assert isinstance(_ask(quorum, leader, _add(gone.node_id, 1)), Done)
    promoted_early = _ask(quorum, leader, _promote(gone.node_id, 1))
    assert _code(promoted_early) is ErrorCode.INVALID_ARGUMENT
    assert isinstance(_ask(quorum, leader, _remove(gone)), Done)
    assert isinstance(_ask(quorum, leader, _promote(gone.node_id, 1)), Done)
    assert member_id(gone.node_id, 1) in quorum.state(leader).members.voters


def test_a_leader_that_removes_itself_hands_over_after_the_commit() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    assert isinstance(_ask(quorum, leader, _remove(leader)), Done)
    assert quorum.state(leader).role is Role.FOLLOWER
    successor = quorum.leader()
    assert successor not in (None, leader)


def test_a_removed_member_does_not_campaign() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    gone = next(each for each in quorum.machines if each != leader)
    assert isinstance(_ask(quorum, leader, _remove(gone)), Done)
    quorum.sent.clear()
    quorum.run(5_000)
    asked = [message for message in quorum.sent if isinstance(message, VoteRequest)]
    assert asked == []
    assert quorum.leader() == leader


def test_a_removed_member_that_does_not_know_it_disturbs_nobody() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    gone = next(each for each in quorum.machines if each != leader)
    quorum.isolate(gone)
    assert isinstance(_ask(quorum, leader, _remove(gone)), Done)
    quorum.heal()
    quorum.run(10_000)
    assert quorum.leader() == leader
    assert quorum.state(leader).term == 1
    assert quorum.state(gone).term == 1


def test_a_truncated_change_of_members_is_taken_back() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.isolate(leader)
    request = quorum.request(leader, _add(4))
    assert quorum.state(leader).members.find(member_id(4)) is not None
    quorum.run(5_000)
    assert isinstance(quorum.at(leader).answers[request], Uncertain)
    quorum.heal()
    quorum.run(2_000)
    assert quorum.state(leader).members.find(member_id(4)) is None


def test_leadership_is_handed_over_within_a_round_trip_or_two() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    target = next(each for each in quorum.machines if each != leader)
    request = quorum.request(leader, _transfer(target))
    quorum.settle()
    assert quorum.leader() == target
    quorum.run(500)
    assert isinstance(quorum.at(leader).answers[request], Done)


def test_no_proposals_are_taken_during_a_transfer_and_it_is_given_up_in_time() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    target = next(each for each in quorum.machines if each != leader)
    quorum.isolate(target)
    quorum.propose(leader)
    request = quorum.request(leader, _transfer(target))
    refused = quorum.at(leader).answers[quorum.propose(leader)]
    assert _code(refused) is ErrorCode.UNAVAILABLE
    quorum.run(1_200)
    assert _code(quorum.at(leader).answers[request]) is ErrorCode.DEADLINE_EXCEEDED
    assert quorum.state(leader).role is Role.LEADER
    assert quorum.state(leader).transfer_to is None


def test_a_transfer_to_nobody_in_particular_takes_the_furthest_and_needs_another_voter() -> None:
    quorum = Quorum(1)
    quorum.settle()
    assert _code(_ask(quorum, member_id(1), _transfer(None))) is ErrorCode.INVALID_ARGUMENT
    three = Quorum(1, 2, 3)
    leader = three.elect()
    three.run(500)
    assert isinstance(_ask(three, leader, _transfer(None)), Done)
    assert three.leader() not in (None, leader)
