"""Each check of a cluster's clients finds the history that is bad in its way, and no good one."""

from collections.abc import Sequence

import pytest

from tidelog.chaos.checkers import HISTORY_CHECKS, check_clients
from tidelog.chaos.checkers.history.history import (
    Acks,
    Excuse,
    History,
    Inquiry,
    Outcome,
    Poll,
    Send,
)

PARTITION = "t-0"


def send(
    *values: str,
    at: int = -1,
    outcome: Outcome | None = None,
    time: tuple[int, int] = (0, 1),
    stream: str = "",
    position: int = 0,
    acks: Acks = Acks.ALL,
    is_idempotent: bool = True,
) -> Send:
    """A send; with `at` it was acknowledged there."""
    return Send(
        client="producer",
        partition=PARTITION,
        values=values,
        began_ns=time[0],
        ended_ns=time[1],
        outcome=outcome or (Outcome.ACKNOWLEDGED if at >= 0 else Outcome.INDETERMINATE),
        base_offset=at,
        stream=stream,
        stream_position=position,
        acks=acks,
        is_idempotent=is_idempotent,
    )


def poll(
    *records: tuple[int, str],
    position: int = 0,
    watermark: int = 100,
    time: tuple[int, int] = (10, 11),
    reader: str = "reader",
    is_final: bool = False,
) -> Poll:
    """An answer."""
    return Poll(
        reader=reader,
        partition=PARTITION,
        began_ns=time[0],
        ended_ns=time[1],
        position=position,
        records=records,
        high_watermark=watermark,
        is_final=is_final,
    )


def inquiry(
    offset: int,
    *,
    is_refused: bool = False,
    watermark: int = -1,
    time: tuple[int, int] = (10, 11),
    is_leader: bool = True,
) -> Inquiry:
    """What a broker told somebody who came with an offset."""
    return Inquiry(
        client="stranger",
        partition=PARTITION,
        broker="n1",
        method="Fetch",
        began_ns=time[0],
        ended_ns=time[1],
        offset=offset,
        is_refused_for_good=is_refused,
        high_watermark=watermark,
        is_leader=is_leader,
    )


def drain(*values: str, watermark: int = 100) -> Poll:
    """The final read of everything."""
    return poll(
        *enumerate(values), watermark=watermark, time=(90, 91), reader="drain", is_final=True
    )


def history(
    events: Sequence[Send | Poll | Inquiry],
    *,
    excuse: Excuse | None = None,
    trimmed_to: int = 0,
    healed_ns: int | None = None,
) -> History:
    made = History()
    made.sends = [event for event in events if isinstance(event, Send)]
    made.polls = [event for event in events if isinstance(event, Poll)]
    made.inquiries = [event for event in events if isinstance(event, Inquiry)]
    made.trims[PARTITION] = trimmed_to
    if excuse is not None:
        made.excuse(PARTITION, excuse)
    if healed_ns is not None:
        made.heals_ns.append(healed_ns)
    return made


def kinds(made: History) -> set[str]:
    return {anomaly.check for anomaly in check_clients(made)}


A, B, C = send("a"), send("b"), send("c")

BAD: dict[str, list[Send | Poll | Inquiry]] = {
    "refused_kept": [send("a", "b", at=0), inquiry(2, is_refused=True), drain("a", "b")],
    "end_behind": [send("a", "b", at=0), inquiry(0, watermark=1), drain("a", "b")],
    "inconsistent_offsets": [A, B, poll((0, "a")), poll((0, "b"), reader="other")],
    "duplicate": [A, poll((0, "a"), (1, "a"))],
    "reused_offset": [send("a", at=0, time=(0, 5)), send("b", at=0, time=(1, 6))],
    "misplaced": [send("a", at=1), B, poll((0, "a"), (1, "b"))],
    "fresh_offset": [send("a", at=5, time=(0, 1)), send("b", at=4, time=(2, 3))],
    "lost_write": [send("a", at=0), send("b", at=1, time=(0, 1)), poll((1, "b"), position=1)],
    "unseen": [send("a", at=0), send("b", at=1, time=(0, 1)), drain("a")],
    "vanished": [A, B, poll((0, "a"), (1, "b")), drain("a")],
    "torn_batch": [send("a", "b"), drain("a")],
    "aborted_read": [send("a", outcome=Outcome.FAILED), poll((0, "a"))],
    "from_nowhere": [poll((0, "a"))],
    "int_poll_skip": [
        A,
        B,
        C,
        poll((0, "a"), (1, "b"), (2, "c")),
        poll((0, "a"), (2, "c"), reader="other"),
    ],
    "ext_poll_skip": [
        A,
        B,
        C,
        poll((0, "a"), (1, "b"), (2, "c")),
        poll((0, "a"), reader="other"),
        poll((2, "c"), reader="other", position=-1),
    ],
    "int_nonmonotonic_poll": [A, B, poll((1, "b"), (0, "a"), position=-1)],
    "ext_nonmonotonic_poll": [A, B, poll((0, "a"), (1, "b")), poll((1, "b"), position=-1)],
    "beyond_watermark": [A, poll((0, "a"), watermark=0)],
    "int_send_skip": [send("a", "b"), C, poll((0, "a"), (1, "c"), (2, "b"))],
    "int_nonmonotonic_send": [send("a", "b"), poll((0, "b"), (1, "a"))],
    "ext_nonmonotonic_send": [
        send("a", at=1, time=(0, 8), stream="s", position=1),
        send("b", at=0, time=(0, 9), stream="s", position=2),
    ],
    "reordered": [
        send("a", stream="s", position=1),
        send("b", stream="s", position=2),
        poll((0, "b"), (1, "a")),
    ],
    "overtaken": [
        send("a", at=1, time=(0, 1), stream="s", position=1, acks=Acks.LEADER),
        send("b", at=0, time=(2, 3), stream="s", position=2, acks=Acks.LEADER),
        poll((0, "b"), (1, "a")),
    ],
}

RELATED: dict[str, set[str]] = {
    "misplaced": {"inconsistent_offsets"},
    "lost_write": {"ext_poll_skip"},
}

GOOD: dict[str, list[Send | Poll | Inquiry]] = {
    "inquiries that say nothing wrong": [
        send("a", "b", at=0),
        inquiry(3, is_refused=True),
        inquiry(2, watermark=2),
        inquiry(2, watermark=1, is_leader=False),
        send("c", at=2, time=(12, 20)),
        inquiry(3, is_refused=True, time=(15, 16)),
        inquiry(2, watermark=2, time=(15, 16)),
        drain("a", "b", "c"),
    ],
    "all kinds of outcomes": [
        send("a", "b", at=0, time=(0, 1), stream="s", position=1),
        send("c", at=2, time=(0, 3), stream="s", position=2),
        send("d", time=(2, 8)),
        send("e", outcome=Outcome.FAILED, time=(4, 5)),
        send("f", time=(4, 9)),
        poll((0, "a"), (1, "b"), watermark=2, time=(1, 2)),
        poll((2, "c"), position=2, watermark=3, time=(3, 4)),
        poll(position=3, watermark=3, time=(4, 5)),
        drain("a", "b", "c", "f", watermark=4),
    ],
    "an acknowledgement of the leader alone may be lost, and its offset given again": [
        send("a", at=0, acks=Acks.LEADER, time=(0, 1), stream="s", position=1),
        send("b", at=0, time=(2, 3), stream="s", position=2),
        drain("b"),
    ],
    "a send without sequences may be there twice": [
        send("a", at=1, is_idempotent=False, acks=Acks.LEADER),
        drain("a", "a"),
    ],
    "no answer was wanted": [send("a", outcome=Outcome.ACKNOWLEDGED, acks=Acks.NONE), drain()],
    "offsets with gaps that nobody has ever seen filled": [A, B, poll((0, "a"), (4, "b"))],
    "a reader that does not say where it stands nor how far it may read": [
        A,
        B,
        poll((0, "a"), position=-1, watermark=-1),
        poll((1, "b"), position=-1, watermark=-1),
    ],
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_check_finds_the_history_that_is_bad_in_its_way(name: str) -> None:
    assert name in kinds(history(BAD[name]))


@pytest.mark.parametrize("name", sorted(BAD))
def test_no_other_check_would_have_found_it_by_the_way(name: str) -> None:
    assert kinds(history(BAD[name])) <= {name} | RELATED.get(name, set())


def test_every_check_has_a_bad_history() -> None:
    assert sorted(check.__name__ for check in HISTORY_CHECKS) == sorted(BAD)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_good_history_has_no_anomaly(name: str) -> None:
    assert check_clients(history(GOOD[name])) == []


@pytest.mark.parametrize("name", ["lost_write", "unseen"])
def test_a_deleted_topic_is_not_drained(name: str) -> None:
    assert name not in kinds(history(BAD[name], excuse=Excuse.DELETED))


@pytest.mark.parametrize("name", ["inconsistent_offsets", "duplicate", "from_nowhere"])
def test_what_was_read_of_a_deleted_topic_is_judged(name: str) -> None:
    assert name in kinds(history(BAD[name], excuse=Excuse.DELETED))


@pytest.mark.parametrize("name", ["lost_write", "unseen", "vanished", "fresh_offset"])
def test_more_lost_copies_than_the_settings_can_do_without_excuse_what_is_gone(name: str) -> None:
    assert kinds(history(BAD[name], excuse=Excuse.LOST)) == set()


@pytest.mark.parametrize("name", ["from_nowhere", "aborted_read", "int_send_skip"])
def test_lost_copies_do_not_excuse_what_was_never_sent(name: str) -> None:
    assert name in kinds(history(BAD[name], excuse=Excuse.LOST))


def test_a_loss_is_not_forgotten_when_its_topic_is_deleted() -> None:
    made = history(BAD["unseen"], excuse=Excuse.LOST)
    made.excuse(PARTITION, Excuse.DELETED)
    assert made.excuses[PARTITION] is Excuse.LOST


def test_what_a_trim_has_taken_is_not_lost() -> None:
    events: list[Send | Poll] = [send("a", at=0), send("b", at=1, time=(0, 1))]
    events.append(poll((1, "b"), is_final=True))
    assert kinds(history(events, trimmed_to=1)) == set()
    assert "unseen" in kinds(history(events))


RECOVERY_BOUND_NS = 1_000


def test_what_is_stored_at_a_place_that_nobody_knows_any_more_is_judged_without_it() -> None:
    """A leader whose log begins behind a batch knows of a repetition only that it is stored."""
    forgotten = send("b", "c", outcome=Outcome.ACKNOWLEDGED, time=(2, 3), stream="s", position=2)
    sends = [send("a", at=0, stream="s", position=1), forgotten]
    assert kinds(history([*sends, drain("a", "b", "c"), inquiry(3, watermark=3)])) == set()
    assert kinds(history([*sends, drain("a", "b")])) >= {"unseen"}
    assert kinds(history([*sends, poll((3, "d"), position=3)], trimmed_to=3)) == {"from_nowhere"}


@pytest.mark.parametrize(
    ("ended_ns", "is_acknowledged", "is_bad"),
    [(1_900, True, False), (2_100, True, True), (2_100, False, True), (1_900, False, False)],
)
def test_the_first_acknowledgement_after_the_last_heal_comes_within_the_bound(
    ended_ns: int, is_acknowledged: bool, is_bad: bool
) -> None:
    tried = send("a", at=0 if is_acknowledged else -1, time=(900, ended_ns))
    made = history([tried], healed_ns=1_000)
    found = {each.check for each in check_clients(made, recovery_bound_ns=RECOVERY_BOUND_NS)}
    assert ("recovery" in found) is is_bad
