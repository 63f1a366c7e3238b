"""What holds of a follower's session after every input. Pure.

Owns that no partition is forgotten: each one waits to be named, to be tried again, or for a log, or
it is named; and that an answer is confirmed only after all before it. Reads private state, and must
never change it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog.broker.replication.follower.partition import Phase

if TYPE_CHECKING:
    from tidelog.broker.replication.follower.session import FollowerSession


def check(session: FollowerSession) -> None:
    """Fails with what is wrong, and of which partition."""
    assert session.confirmed_answer <= session.last_answer, "confirmed before it came"
    numbers = [number for number, _ in session._unwritten]
    assert all(one < other for one, other in pairwise(numbers)), f"{numbers} ascend"
    for number, appends in session._unwritten:
        assert session.confirmed_answer < number <= session.last_answer, f"answer {number}"
        assert appends >= 0, f"answer {number} was written more than once"
    for key, partition in session.partitions.items():
        phase = partition.phase
        assert phase is not Phase.WANTED or key in session._wanted, f"{key}: never named again"
        assert phase is not Phase.REFUSED or key in session._refused, f"{key}: never tried again"
        if phase is Phase.NAMED:
            assert partition.was_named, f"{key}: named, and its leader does not hold it"
            assert partition.named_at <= session.session_sequence, f"{key}: named by no request"
            end, flushed = partition.told
            assert flushed <= end <= partition.expected_offset, f"{key}: told more than has come"
    for waiting in (session._wanted, session._refused, session._moved):
        assert waiting.keys() <= session.partitions.keys(), "something waits that is not followed"
    assert not session._removed.keys() & {
        key for key, each in session.partitions.items() if each.was_named
    }, "taken out of the session, and held by it"
