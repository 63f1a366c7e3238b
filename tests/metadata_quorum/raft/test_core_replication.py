"""Replication: what is acknowledged, counted, committed, batched and sent again."""

from tests.metadata_quorum.raft.harness import Quorum, member_id
from tidelog.metadata_quorum.raft.effects import Accepted, Refused, Role
from tidelog.metadata_quorum.raft.inputs import Persisted
from tidelog.metadata_quorum.raft.messages import AppendRequest, AppendResponse
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, MemberId, Options
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LogIndex, Term


def _append(
    sender: int, receiver: int, term: int, previous: tuple[int, int], *terms: int, commit: int = 0
) -> AppendRequest:
    first = previous[1] + 1
    return AppendRequest(
        sender=member_id(sender),
        receiver=member_id(receiver),
        term=Term(term),
        previous_term=Term(previous[0]),
        previous_index=LogIndex(previous[1]),
        entries=tuple(
            Entry(
                index=LogIndex(first + place),
                term=Term(each),
                kind=EntryKind.COMMAND,
                data=b"%d/%d" % (each, first + place),
            )
            for place, each in enumerate(terms)
        ),
        commit_index=LogIndex(commit),
        round=1,
    )


def _answers(quorum: Quorum, sender: int | MemberId) -> list[AppendResponse]:
    own = sender if isinstance(sender, MemberId) else member_id(sender)
    return [
        message
        for message in quorum.sent
        if isinstance(message, AppendResponse) and message.sender == own
    ]


def _others(quorum: Quorum, leader: MemberId) -> list[MemberId]:
    return [each for each in quorum.machines if each != leader]


def test_a_command_is_applied_by_everybody_once() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    request = quorum.propose(leader, b"put")
    quorum.run(500)
    accepted = quorum.at(leader).answers[request]
    assert isinstance(accepted, Accepted)
    for machine in quorum.machines.values():
        assert [entry.data for entry in machine.applied] == [b"", b"put"]


def test_only_the_leader_takes_proposals_and_only_of_its_term() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    follower = _others(quorum, leader)[0]
    refused = quorum.at(follower).answers[quorum.propose(follower)]
    assert isinstance(refused, Refused)
    assert (refused.code, refused.leader) == (ErrorCode.NOT_CONTROLLER, leader)


def test_an_entry_is_acknowledged_only_when_it_is_flushed() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 1, (0, 0), 1, 1))
    assert _answers(quorum, 1) == []
    quorum.flush(1)
    assert [each.match_index for each in _answers(quorum, 1)] == [2]


def test_the_completion_of_an_overwritten_entry_acknowledges_nothing() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 1, (0, 0), 1))
    quorum.step(_append(3, 1, 2, (0, 0), 2))
    quorum.flush(1, 1)
    assert _answers(quorum, 1) == []
    assert quorum.state(1).persisted_index == 0
    quorum.flush(1)
    assert [(each.term, each.match_index) for each in _answers(quorum, 1)] == [(2, 1)]


def test_a_heartbeat_is_answered_without_waiting_for_entries_to_be_flushed() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 1, (0, 0), 1))
    quorum.flush(1)
    quorum.step(_append(2, 1, 1, (1, 1), 1))
    quorum.step(_append(2, 1, 1, (1, 2)))
    assert [each.match_index for each in _answers(quorum, 1)] == [1, 1]


def test_one_answer_speaks_for_several_appends_of_one_flush() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 1, (0, 0), 1))
    quorum.step(_append(2, 1, 1, (1, 1), 1))
    quorum.step(_append(2, 1, 1, (1, 2), 1))
    quorum.flush(1)
    assert [each.match_index for each in _answers(quorum, 1)] == [3]


def test_the_leader_commits_nothing_that_it_has_not_flushed() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    commit_index = quorum.state(leader).commit_index
    quorum.propose(leader)
    for _ in range(4):
        quorum.deliver()
        for follower in _others(quorum, leader):
            quorum.flush(follower)
    assert quorum.state(leader).progress[0].match_index == commit_index + 1
    assert quorum.state(leader).commit_index == commit_index
    quorum.flush(leader)
    assert quorum.state(leader).commit_index == commit_index + 1


def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 1, (0, 0), 1))
    quorum.flush(1)
    quorum.step(_append(2, 3, 1, (0, 0), 1))
    quorum.flush(3)
    quorum.network.clear()
    quorum.crash(2)
    quorum.is_flushing = True
    leader = quorum.elect()
    assert quorum.state(leader).commit_index == 2
    assert quorum.at(leader).running.term_at(LogIndex(1)) == 1


def test_a_conflicting_tail_is_replaced_a_term_at_a_time() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 3, (0, 0), 1, 2, 2, 2, 2, 2))
    quorum.flush(1)
    quorum.step(_append(3, 1, 4, (1, 6), 4))
    quorum.flush(1)
    rejection = _answers(quorum, 1)[-1]
    assert not rejection.is_success
    assert (rejection.hint_index, rejection.hint_term) == (1, 1)
    quorum.step(_append(3, 1, 4, (1, 1), 1, 4))
    quorum.flush(1)
    state = quorum.state(1)
    assert (state.last_index, state.last_term) == (3, 4)


def test_a_committed_entry_is_never_truncated_whatever_is_sent() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.step(_append(2, 1, 1, (0, 0), 1, 1, commit=2))
    quorum.flush(1)
    quorum.step(_append(3, 1, 2, (0, 0), 2, 2))
    assert quorum.at(1).running.term_at(LogIndex(2)) == 1


def test_entries_that_do_not_follow_each_other_are_passed_over() -> None:
    quorum = Quorum(1, 2, 3)
    sound = _append(2, 1, 1, (0, 0), 1, 1)
    core = quorum.at(1).running
    for entries in ((sound.entries[1],), (sound.entries[0], sound.entries[0])):
        broken = AppendRequest(
            sender=sound.sender,
            receiver=sound.receiver,
            term=sound.term,
            previous_index=LogIndex(0),
            previous_term=Term(0),
            entries=entries,
            commit_index=LogIndex(0),
            round=0,
        )
        assert core.step(broken) == []


def test_commands_gather_while_the_pipeline_is_full() -> None:
    quorum = Quorum(1, 2, 3, options=Options(in_flight_appends_max=2))
    leader = quorum.elect()
    quorum.run(500)
    before = len(quorum.sent)
    for _ in range(50):
        quorum.propose(leader)
    assert len(quorum.sent) - before == 4
    quorum.run(500)
    assert all(len(machine.applied) == 51 for machine in quorum.machines.values())


def test_lost_appends_are_found_by_the_next_heartbeat() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.run(500)
    quorum.propose(leader)
    quorum.network.clear()
    quorum.run(quorum.options.heartbeat_ms * 2)
    assert all(len(machine.applied) == 2 for machine in quorum.machines.values())


def test_proposals_beyond_the_cap_are_refused_until_some_are_committed() -> None:
    quorum = Quorum(1, 2, 3, options=Options(uncommitted_bytes_max=100))
    leader = quorum.elect()
    quorum.propose(leader, b"x" * 80)
    refused = quorum.at(leader).answers[quorum.propose(leader, b"x" * 80)]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    quorum.run(500)
    assert isinstance(quorum.at(leader).answers[quorum.propose(leader, b"x" * 80)], Accepted)


def test_nothing_acknowledged_is_lost_when_everybody_crashes() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.propose(leader, b"kept")
    quorum.run(500)
    for own_id in quorum.machines:
        quorum.restart(own_id)
    quorum.network.clear()
    quorum.elect()
    quorum.run(500)
    assert all(machine.applied[1].data == b"kept" for machine in quorum.machines.values())


def test_a_leader_of_an_older_term_learns_of_the_newer_one() -> None:
    quorum = Quorum(1, 2, 3)
    leader = quorum.elect()
    quorum.isolate(leader)
    quorum.run_until(lambda: quorum.leader() not in (None, leader))
    quorum.heal()
    quorum.run(2_000)
    assert quorum.state(leader).role is Role.FOLLOWER
    assert quorum.state(leader).term > 1


def test_a_completion_repeated_changes_nothing() -> None:
    quorum = Quorum(1)
    quorum.settle()
    before = quorum.state(1)
    assert quorum.give(1, Persisted(sequence=1)) == []
    assert quorum.state(1) == before
