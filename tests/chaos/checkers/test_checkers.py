"""Each history check finds the history that is bad in its way, and no other check does."""

from collections.abc import Sequence

import pytest

from tidelog.chaos.checkers import LOG_CHECKS, History, Outcome, Poll, Send, check_log

PARTITION = "t-0"


def send(
    *values: str,
    at: int = -1,
    outcome: Outcome | None = None,
    time: tuple[int, int] = (0, 1),
    stream: str = "",
    position: int = 0,
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


def drain(*values: str, watermark: int = 100) -> Poll:
    """The final read of everything."""
    return poll(
        *enumerate(values), watermark=watermark, time=(90, 91), reader="drain", is_final=True
    )


def history(events: Sequence[Send | Poll]) -> History:
    made = History()
    made.sends = [event for event in events if isinstance(event, Send)]
    made.polls = [event for event in events if isinstance(event, Poll)]
    return made


BAD: dict[str, list[Send | Poll]] = {
    "inconsistent_offsets": [
        send("a", time=(0, 9)),
        send("b", time=(0, 9)),
        poll((0, "a")),
        poll((0, "b"), reader="other"),
    ],
    "duplicate": [send("a"), drain("a", "a")],
    "reused_offset": [send("a", at=0, time=(0, 5)), send("b", at=0, time=(1, 6))],
    "misplaced": [send("a", at=1), send("b"), drain("a", "b")],
    "lost_write": [send("a", at=0), send("b", at=1), poll((1, "b"), position=1)],
    "unseen": [send("a", at=0), send("b", at=1), drain("a")],
    "vanished": [send("a"), send("b"), poll((0, "a"), (1, "b")), drain("a")],
    "failed_read": [send("a", outcome=Outcome.FAILED), drain("a")],
    "from_nowhere": [drain("a")],
    "torn_batch": [send("a", "b"), drain("a")],
    "poll_skip": [send("a"), send("b"), poll((0, "a"), (2, "b"))],
    "fresh_offset": [send("a", at=5, time=(0, 1)), send("b", at=4, time=(2, 3))],
    "reordered": [
        send("a", stream="s", position=1),
        send("b", stream="s", position=2),
        drain("b", "a"),
    ],
    "beyond_watermark": [send("a"), drain("a", watermark=0)],
    "falling_watermark": [
        poll(watermark=7, time=(0, 1)),
        poll(watermark=6, time=(2, 3), reader="other"),
    ],
}

GOOD: list[Send | Poll] = [
    send("a", "b", at=0, time=(0, 1), stream="s", position=1),
    send("c", at=2, time=(0, 3), stream="s", position=2),
    send("d", time=(2, 8)),
    send("e", outcome=Outcome.FAILED, time=(4, 5)),
    send("f", time=(4, 9)),
    poll((0, "a"), (1, "b"), watermark=2, time=(1, 2)),
    poll((2, "c"), position=2, watermark=3, time=(3, 4)),
    poll(position=3, watermark=3, time=(4, 5)),
    drain("a", "b", "c", "f", watermark=4),
]


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_check_finds_the_history_that_is_bad_in_its_way(name: str) -> None:
    assert name in {anomaly.check for anomaly in check_log(history(BAD[name]))}


@pytest.mark.parametrize("name", sorted(BAD))
def test_no_other_check_would_have_found_it_by_the_way(name: str) -> None:
    related = {
        "inconsistent_offsets": {"duplicate"},
        "duplicate": set(),
        "unseen": {"lost_write"},
        "reused_offset": set(),
    }
    found = {anomaly.check for anomaly in check_log(history(BAD[name]))}
    assert found <= {name} | related.get(name, set())


def test_every_check_has_a_bad_history() -> None:
    assert sorted(check.__name__ for check in LOG_CHECKS) == sorted(BAD)


def test_a_good_history_has_no_anomaly() -> None:
    assert check_log(history(GOOD)) == []


def test_a_partition_may_be_left_out() -> None:
    bad = history(BAD["from_nowhere"])
    assert check_log(bad, without=frozenset({PARTITION})) == []


def test_a_send_that_never_ended_is_indeterminate() -> None:
    made = History()
    made.begin(send("a"))
    made.settle(50)
    assert [(s.outcome, s.ended_ns) for s in made.sends] == [(Outcome.INDETERMINATE, 50)]


def test_an_anomaly_says_check_partition_and_what() -> None:
    (anomaly,) = check_log(history(BAD["from_nowhere"]))
    assert str(anomaly) == "from_nowhere in t-0: a at 0 was sent by nobody"
