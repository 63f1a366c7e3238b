"""One test for each normative sentence of Figure 2 of the Raft paper (Ongaro and Ousterhout, 2014).

Named after box and number in the figure. Where Tidelog departs (PreVote, a leader's first entry,
promises that wait for their flush) the test says what stands in the sentence's place.
"""

from tests.metadata_quorum.raft import notation
from tests.metadata_quorum.raft.script_commands import Script
from tests.metadata_quorum.raft.script_world import member_id
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import Entry, EntryKind
from tidelog.wire.ids import LogIndex, Term


class Cluster:
    """A script's world, for asserting instead of printing."""

    def __init__(self, *lines: str) -> None:
        self.script = Script()
        self.run(*lines)

    def run(self, *lines: str) -> str:
        """Commands; all that they printed."""
        return "\n".join(self.script.run(line) for line in lines)

    def describe(self, text: str) -> Description:
        return self.script.world.nodes[text].core.describe()

    def step(self, message: Message) -> list[Message]:
        """Give a message to its receiver; what is under way afterwards because of it."""
        world = self.script.world
        world.network = []
        node = world.nodes[notation.name(message.receiver)]
        world.perform(node, node.core.step(message))
        return list(world.network)

    def durable_terms(self, text: str) -> list[int]:
        return [int(one.term) for one in self.script.world.nodes[text].durable.entries]


def entry(index: int, term: int, data: bytes = b"x") -> Entry:
    return Entry(index=LogIndex(index), term=Term(term), kind=EntryKind.COMMAND, data=data)


def append(term: int, previous: tuple[int, int], *entries: Entry, commit: int = 0) -> AppendRequest:
    """From 1 to 2."""
    return AppendRequest(
        sender=member_id("1"),
        receiver=member_id("2"),
        term=Term(term),
        previous_index=LogIndex(previous[0]),
        previous_term=Term(previous[1]),
        entries=entries,
        commit_index=LogIndex(commit),
        round=1,
    )


def vote(sender: str, term: int, last: tuple[int, int]) -> VoteRequest:
    """To 2, from somebody who asks for the real thing."""
    return VoteRequest(
        sender=member_id(sender),
        receiver=member_id("2"),
        term=Term(term),
        last_index=LogIndex(last[0]),
        last_term=Term(last[1]),
        is_pre_vote=False,
    )


def only_append_response(messages: list[Message]) -> AppendResponse:
    (answer,) = messages
    assert isinstance(answer, AppendResponse)
    return answer


def only_vote(messages: list[Message]) -> VoteResponse:
    (answer,) = messages
    assert isinstance(answer, VoteResponse)
    return answer


LOG_OF_TWO = ("voters 1 2 3", "log 2 term=3 1 2")


# State


def test_state_1_term_vote_and_log_are_durable_before_an_answer_leaves() -> None:
    cluster = Cluster(*LOG_OF_TWO, "hold 2")
    assert cluster.step(vote("1", 4, (9, 3))) == []
    cluster.run("flush 2")
    assert only_vote(list(cluster.script.world.network)).is_granted
    state = cluster.script.world.nodes["2"].durable.hard_state
    assert (state.term, state.voted_for) == (4, member_id("1"))
    assert cluster.step(append(5, (2, 2), entry(3, 5))) == []
    cluster.run("flush 2")
    assert cluster.durable_terms("2") == [1, 2, 5]
    assert only_append_response(list(cluster.script.world.network)).match_index == 3


def test_state_2_the_term_begins_at_0_and_never_falls() -> None:
    cluster = Cluster("voters 1 2 3")
    assert cluster.describe("2").term == 0
    cluster.step(append(4, (0, 0)))
    cluster.step(append(3, (0, 0)))
    assert cluster.describe("2").term == 4


def test_state_3_the_commit_index_begins_at_0_and_never_falls() -> None:
    cluster = Cluster("voters 1 2 3")
    assert cluster.describe("2").commit_index == 0
    cluster.step(append(1, (0, 0), entry(1, 1), entry(2, 1), commit=2))
    cluster.step(append(1, (0, 0), entry(1, 1), commit=1))
    assert cluster.describe("2").commit_index == 2


def test_state_4_nothing_is_applied_at_first_and_nothing_twice() -> None:
    cluster = Cluster("voters 1 2 3")
    assert cluster.describe("2").applied_index == 0
    cluster.step(append(1, (0, 0), entry(1, 1), entry(2, 1), commit=2))
    cluster.step(append(1, (0, 0), entry(1, 1), entry(2, 1), commit=2))
    assert cluster.describe("2").applied_index == 2


def test_state_5_a_new_leader_begins_to_send_behind_its_own_last_entry() -> None:
    cluster = Cluster("voters 1 2 3", "log 1 term=1 1 1", "campaign 1", "stabilize")
    first = Cluster("voters 1 2 3", "log 1 term=1 1 1", "campaign 1", "deliver 2 3", "deliver 1")
    first.run("deliver 2 3", "deliver 1")
    sent = [one for one in first.script.world.network if isinstance(one, AppendRequest)]
    assert sent, "a new leader speaks at once"
    assert {int(one.previous_index) for one in sent} == {2}
    assert cluster.describe("1").commit_index == 3


def test_state_6_a_match_index_begins_at_0_and_never_falls() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 1", "deliver 2 3", "deliver 1", "deliver 2 3")
    cluster.run("deliver 1")
    assert {peer.match_index for peer in cluster.describe("1").progress} == {0}
    cluster.run("stabilize", "propose 1 a", "stabilize")
    late = AppendResponse(
        sender=member_id("2"),
        receiver=member_id("1"),
        term=cluster.describe("1").term,
        is_success=True,
        match_index=LogIndex(1),
        hint_index=LogIndex(0),
        hint_term=Term(0),
        round=0,
        repair_from_index=LogIndex(0),
    )
    cluster.step(late)
    matches = {peer.id: peer.match_index for peer in cluster.describe("1").progress}
    assert matches[member_id("2")] == 2


# AppendEntries, receiver


def test_append_1_an_older_term_is_refused_with_the_newer_one() -> None:
    answer = only_append_response(Cluster(*LOG_OF_TWO).step(append(2, (2, 2), entry(3, 2))))
    assert (answer.is_success, answer.term) == (False, 3)


def test_append_2_without_the_previous_entry_of_that_term_nothing_is_stored() -> None:
    for previous in ((3, 3), (2, 1)):
        cluster = Cluster(*LOG_OF_TWO)
        answer = only_append_response(cluster.step(append(3, previous, entry(previous[0] + 1, 3))))
        assert not answer.is_success
        assert cluster.durable_terms("2") == [1, 2]


def test_append_3_a_conflicting_entry_goes_with_all_that_follow_it() -> None:
    cluster = Cluster("voters 1 2 3", "log 2 term=3 1 2 2 2")
    answer = only_append_response(cluster.step(append(3, (1, 1), entry(2, 3))))
    assert answer.match_index == 2
    assert cluster.durable_terms("2") == [1, 3]


def test_append_4_only_entries_that_are_not_there_are_appended() -> None:
    cluster = Cluster("voters 1 2 3", "log 2 term=3 1 2 3")
    assert cluster.step(append(3, (1, 1), entry(2, 2, b"t2")))
    assert cluster.durable_terms("2") == [1, 2, 3], "a late, shorter request cuts nothing"
    cluster.step(append(3, (1, 1), entry(2, 2, b"t2"), entry(3, 3, b"t3"), entry(4, 3)))
    assert cluster.durable_terms("2") == [1, 2, 3, 3]


def test_append_5_the_commit_index_is_taken_over_up_to_the_last_entry_in_common() -> None:
    cluster = Cluster("voters 1 2 3", "log 2 term=3 1 2 2 2")
    cluster.step(append(3, (1, 1), entry(2, 2, b"t2"), commit=4))
    assert cluster.describe("2").commit_index == 2


# RequestVote, receiver


def test_vote_1_an_older_term_gets_no_vote() -> None:
    answer = only_vote(Cluster(*LOG_OF_TWO).step(vote("1", 2, (9, 1))))
    assert (answer.is_granted, answer.term) == (False, 3)


def test_vote_2_one_vote_a_term_and_only_for_a_log_that_is_as_far() -> None:
    cluster = Cluster(*LOG_OF_TWO)
    assert not only_vote(cluster.step(vote("1", 4, (1, 2)))).is_granted, "shorter"
    assert not only_vote(cluster.step(vote("1", 4, (9, 1)))).is_granted, "an older last term"
    assert only_vote(cluster.step(vote("1", 4, (2, 2)))).is_granted, "as far"
    assert only_vote(cluster.step(vote("1", 4, (2, 2)))).is_granted, "the same one again"
    assert not only_vote(cluster.step(vote("3", 4, (9, 3)))).is_granted, "another one"
    assert only_vote(cluster.step(vote("3", 5, (2, 3)))).is_granted, "a later last term, a new term"


# Rules for all


def test_all_1_what_is_committed_is_applied_in_order() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 1", "stabilize")
    told = cluster.run("propose 1 a", "propose 1 b", "stabilize", "tick 1 200", "stabilize")
    for number in "123":
        applied = [line for line in told.splitlines() if line.startswith(f"{number}: apply")]
        assert "".join(applied).index("2@1 a") < "".join(applied).index("3@1 b")


def test_all_2_a_higher_term_makes_a_follower_of_anybody() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 2", "stabilize")
    assert cluster.describe("2").role is Role.LEADER
    cluster.step(append(7, (0, 0)))
    described = cluster.describe("2")
    assert (described.role, described.term) == (Role.FOLLOWER, 7)


# Followers


def test_followers_1_they_answer_candidates_and_leaders() -> None:
    cluster = Cluster(*LOG_OF_TWO)
    assert cluster.step(vote("1", 4, (2, 2)))
    assert cluster.step(append(4, (2, 2)))


def test_followers_2_silence_makes_a_candidate_and_a_leaders_word_does_not() -> None:
    cluster = Cluster("voters 1 2 3")
    cluster.run("tick 2 900")
    cluster.step(append(1, (0, 0)))
    cluster.run("tick 2 900")
    assert cluster.describe("2").role is Role.FOLLOWER
    cluster.run("campaign 2")
    assert cluster.describe("2").role is Role.PRE_CANDIDATE, "PreVote comes first"


# Candidates


def test_candidates_1_a_new_term_the_own_vote_and_a_request_to_everybody() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 2", "deliver 1 3", "deliver 2")
    described = cluster.describe("2")
    assert described.role is Role.CANDIDATE
    assert described.hard_state.term == 1
    assert described.hard_state.voted_for == member_id("2")
    asked = {notation.message(one) for one in cluster.script.world.network}
    assert asked == {"vote? 2→1 term=1 last=0@0", "vote? 2→3 term=1 last=0@0"}


def test_candidates_2_a_majority_of_votes_makes_a_leader_and_fewer_do_not() -> None:
    cluster = Cluster("voters 1 2 3 4 5", "campaign 2", "deliver 1 3 4 5", "deliver 2")
    cluster.run("deliver 1", "deliver 2")
    assert cluster.describe("2").role is Role.CANDIDATE
    cluster.run("deliver 3", "deliver 2")
    assert cluster.describe("2").role is Role.LEADER


def test_candidates_3_the_word_of_a_leader_of_the_term_ends_a_candidacy() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 2", "deliver 1 3", "deliver 2")
    cluster.step(append(1, (0, 0)))
    described = cluster.describe("2")
    assert (described.role, described.leader) == (Role.FOLLOWER, member_id("1"))


def test_candidates_4_without_a_decision_a_new_election_begins() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 2", "deliver 1 3", "deliver 2", "drop 1 3")
    told = cluster.run("campaign 2")
    assert "prevote? 2→1 term=2" in told, "asked anew, PreVote first, for the next term"


# Leaders


def test_leaders_1_a_new_leader_speaks_at_once_and_in_every_idle_period() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 1", "stabilize")
    assert cluster.describe("2").leader == member_id("1")
    told = cluster.run("tick 1 200")
    assert "heartbeat 1→2" in told
    assert "heartbeat 1→3" in told


def test_leaders_2_a_command_is_appended_and_takes_effect_when_applied() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 1", "stabilize")
    told = cluster.run("propose 1 a")
    assert "accepted at 2@1" in told
    assert "apply" not in told
    assert "1: apply [2@1 a]" in cluster.run("stabilize")


def test_leaders_3_a_follower_that_is_behind_is_sent_what_it_lacks() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 1", "stabilize")
    assert "append 1→2 term=1 prev=1@1 [2@1 a]" in cluster.run("propose 1 a")


def test_leaders_3_success_moves_next_and_match() -> None:
    cluster = Cluster("voters 1 2 3", "campaign 1", "stabilize", "propose 1 a", "stabilize")
    places = {(peer.match_index, peer.next_index) for peer in cluster.describe("1").progress}
    assert places == {(2, 3)}


def test_leaders_3_a_mismatch_moves_next_back_and_is_tried_again() -> None:
    cluster = Cluster("voters 1 2 3", "log 1 term=2 1 1 2", "log 2 term=2 1", "campaign 1")
    cluster.run("stabilize", "tick 1 200", "stabilize")
    assert cluster.durable_terms("2") == [1, 1, 2, 3]


def test_leaders_4_only_an_entry_of_the_own_term_on_a_majority_is_committed() -> None:
    # One entry a request, so that the old entry arrives without the leader's own.
    cluster = Cluster("options append_entries_max=1", "voters 1 2 3", "log 1 term=3 1 2")
    cluster.run("log 2 term=3 1", "log 3 term=3 1", "campaign 1")
    for _ in range(4):
        cluster.run("deliver 2 3", "deliver 1")
    assert cluster.durable_terms("2") == cluster.durable_terms("3") == [1, 2]
    assert {peer.match_index for peer in cluster.describe("1").progress} == {2}
    assert cluster.describe("1").commit_index == 0, "all have the old entry, and that is not enough"
    cluster.run("stabilize")
    assert cluster.describe("1").commit_index == 3
