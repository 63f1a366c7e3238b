"""What holds of every core after every input, and of every step from one state to the next.

Checks of one member; what holds between members is the simulator's to check.
"""

from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Role


def check(state: Description) -> None:
    """Pointers stand in order; a role has what it takes."""
    who = f"node {state.id.node_id} in term {state.term}"
    assert state.term == state.hard_state.term, f"{who}: the term is the hard state's"
    assert state.persisted_state.term <= state.term, f"{who}: a term is flushed that is not there"
    assert state.log_start_index - 1 <= state.applied_index, f"{who}: the log starts too late"
    assert state.applied_index <= state.commit_index, f"{who}: applied beyond the commit index"
    assert state.commit_index <= state.last_index, f"{who}: committed beyond the log's end"
    assert state.persisted_index <= state.last_index, f"{who}: flushed beyond the log's end"
    assert state.last_term <= state.term, f"{who}: an entry of a later term"
    assert state.members_index <= state.last_index, f"{who}: members of an entry that is not there"
    if state.snapshot is not None:
        assert state.log_start_index <= state.snapshot.end_index, f"{who}: a gap after the snapshot"
    if state.role is not Role.FOLLOWER:
        assert not state.is_repairing, f"{who}: a {state.role.value} that has to be repaired"
        assert state.role is Role.LEADER or state.leader is None, f"{who}: campaigns with a leader"
    if state.role in (Role.CANDIDATE, Role.LEADER):
        assert state.hard_state.voted_for == state.id, f"{who}: campaigned without its own vote"
    if state.role is Role.LEADER:
        _check_leader(state, who)
    else:
        assert not state.progress, f"{who}: progress of others without leading"
        assert state.transfer_to is None, f"{who}: hands over what it does not have"


def _check_leader(state: Description, who: str) -> None:
    assert state.leader == state.id, f"{who}: a leader knows that it leads"
    assert state.persisted_state == state.hard_state, f"{who}: leads with a vote not flushed"
    assert state.last_term == state.term, f"{who}: a leader has an entry of its term"
    assert state.commit_index <= state.persisted_index, f"{who}: committed what it has not flushed"
    expected = [member.id for member in state.members if member.id != state.id]
    assert sorted(each.id for each in state.progress) == expected, f"{who}: progress of others"
    for each in state.progress:
        other = f"{who}: node {each.id.node_id}"
        assert each.match_index < each.next_index, f"{other} is sent what it has"
        assert each.next_index <= state.last_index + 1, f"{other} is sent what is not there"


def check_step(before: Description, after: Description) -> None:
    """Nothing that was promised is taken back; `before` and `after` are of one process."""
    who = f"node {after.id.node_id} in term {after.term}"
    assert before.id == after.id, f"{who}: became another member"
    assert before.term <= after.term, f"{who}: the term fell from {before.term}"
    assert before.persisted_state.term <= after.persisted_state.term, f"{who}: a flushed term fell"
    assert before.commit_index <= after.commit_index, f"{who}: the commit index fell"
    assert before.applied_index <= after.applied_index, f"{who}: the applied index fell"
    assert before.log_start_index <= after.log_start_index, f"{who}: the log's start fell"
    if before.term == after.term:
        vote = before.hard_state.voted_for
        assert vote in (None, after.hard_state.voted_for), f"{who}: voted twice"
        assert before.leader is None or after.leader in (None, before.leader), f"{who}: two leaders"
        if before.role is Role.LEADER and after.role is Role.LEADER:
            assert before.last_index <= after.last_index, f"{who}: a leader truncated its log"
