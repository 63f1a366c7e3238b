"""What Raft promises (Figure 3), checked over all members as a run goes on."""

from typing import TYPE_CHECKING

from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import ReadAt
from tidelog.metadata_quorum.raft.messages import AppendResponse, Message, VoteRequest, VoteResponse
from tidelog.metadata_quorum.raft.types import Entry, MemberId
from tidelog.wire.ids import LogIndex, Term

if TYPE_CHECKING:
    from tests.metadata_quorum.raft.harness import Disk


class Safety:
    """Remembers everything that was ever promised."""

    def __init__(self) -> None:
        self.leaders: dict[Term, MemberId] = {}
        self.committed: dict[LogIndex, Entry] = {}
        self.commit_index = 0
        self.votes: dict[tuple[MemberId, Term], MemberId] = {}
        self.reads: dict[int, int] = {}

    def leads(
        self,
        before: Description | None,
        state: Description,
        core: RaftCore,
        disks: "dict[MemberId, Disk]",
    ) -> None:
        """Election safety, leader completeness, and that a commit is held by a majority."""
        is_new = state.term not in self.leaders
        holder = self.leaders.setdefault(state.term, state.id)
        assert holder == state.id, f"term {state.term} has two leaders"
        if is_new:
            for index, entry in self.committed.items():
                if index >= state.log_start_index:
                    assert core.term_at(index) == entry.term, f"leader lacks committed {index}"
            assert state.last_index >= self.commit_index, "a leader lacks what is committed"
        self.commit_index = max(self.commit_index, state.commit_index)
        if before is not None and before.commit_index < state.commit_index:
            self._check_majority(state, core, disks)

    def _check_majority(
        self, state: Description, core: RaftCore, disks: "dict[MemberId, Disk]"
    ) -> None:
        index = state.commit_index
        term = core.term_at(index)
        assert term == state.term, "a leader commits by counting in its own term only"
        holders = 0
        for voter in state.members.voters:
            disk = disks[voter]
            repair = disk.hard_state.repair
            is_lost = repair is not None or disk.corrupt_from > 0
            holders += disk.term_at(index) == term or is_lost or disk.last_index > index
        assert holders >= state.members.majority, f"entry {index} is committed without a majority"

    def applied(self, entry: Entry) -> None:
        """State machine safety."""
        known = self.committed.setdefault(entry.index, entry)
        assert known == entry, f"two different entries are applied at {entry.index}"

    def sent(self, message: Message, disk: "Disk") -> None:
        """What is promised is on the disk, and no vote is given twice."""
        if isinstance(message, VoteRequest) and not message.is_pre_vote:
            self._voted(message.sender, message.term, message.sender, disk)
        if isinstance(message, VoteResponse) and message.is_granted and not message.is_pre_vote:
            self._voted(message.sender, message.term, message.receiver, disk)
        if isinstance(message, AppendResponse) and message.is_success:
            assert disk.hard_state.term >= message.term, "acknowledged in a term not flushed"
            assert disk.hard_state.repair is None, "acknowledged while repairing"
            assert disk.last_index >= message.match_index, "acknowledged what is not flushed"

    def _voted(self, voter: MemberId, term: Term, candidate: MemberId, disk: "Disk") -> None:
        state = disk.hard_state
        assert (state.term, state.voted_for) == (term, candidate), "a vote left before its flush"
        assert self.votes.setdefault((voter, term), candidate) == candidate, "voted twice"

    def read_began(self, request_id: int) -> None:
        """Everything committed so far must be seen by it."""
        self.reads[request_id] = self.commit_index

    def answered(self, request_id: int, outcome: object) -> None:
        """Linearizable reads."""
        if isinstance(outcome, ReadAt):
            assert outcome.index >= self.reads[request_id], "a stale read"


def check_log_matching(cores: list[RaftCore]) -> None:
    """Two logs with an entry of one term at one index are equal up to there."""
    for place, first in enumerate(cores):
        for second in cores[place + 1 :]:
            _check_pair(first, second)


def _check_pair(first: RaftCore, second: RaftCore) -> None:
    one, other = first.describe(), second.describe()
    start = max(one.log_start_index, other.log_start_index)
    is_equal = False
    for index in range(min(one.last_index, other.last_index), start - 1, -1):
        same = first.term_at(LogIndex(index)) == second.term_at(LogIndex(index))
        assert same or not is_equal, f"logs agree after {index} but not at it"
        is_equal = is_equal or same
