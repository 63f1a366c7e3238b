"""What holds of a leader's session after every input. Pure.

Owns the order of what was confirmed, sent and written, and that nothing is held without a session.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replication.leader.session import LeaderSession


def check(session: LeaderSession) -> None:
    """Fails with what is wrong."""
    assert session.confirmed_answer <= session.answer_sequence, "confirmed before it was sent"
    with_batches = list(session.with_batches)
    assert all(one < other for one, other in pairwise(with_batches)), f"{with_batches} ascend"
    for number in with_batches:
        assert session.confirmed_answer < number <= session.answer_sequence, (
            f"answer {number} is on its way, {session.confirmed_answer} is confirmed, "
            f"{session.answer_sequence} sent"
        )
    if session.is_full_start_wanted or not session.session_id:
        assert not session.partitions, "nothing is held before a full start"
    for waiting in (session.ready, session.numbers):
        assert waiting.keys() <= session.partitions.keys(), "something waits that is not held"
    for news in session.replies:
        assert news.key not in session.partitions, f"{news.key}: held, and told why it is not"
    for key, held in session.partitions.items():
        assert held.confirmed_offset <= held.next_offset, f"{key}: confirmed before it was sent"
        if held.log.leader_epoch == held.leader_epoch and not held.log.is_being_cut:
            assert held.next_offset <= held.log.log_end_offset, f"{key}: sent what is not there"
