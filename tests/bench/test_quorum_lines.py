"""The measurement of the quorum: whom it takes for etcd's leader, and what it prints."""

import pytest

from bench.quorum import CALLS, Line, Measured, Run
from bench.quorum_leaders import fields, leads
from bench.rounds import Calls


def status(member: bytes, leader: bytes) -> bytes:
    """A StatusResponse: header 1 {member id 2}, version 2, leader 4."""
    header = b"\x08\x01\x10" + member
    return b"\x0a" + bytes([len(header)]) + header + b"\x12\x033.4" + b"\x20" + leader


def line(key: str, name: str) -> Line:
    """Of a server that nobody asks."""
    return Line(key=key, name=name, address="", method="", make=bytes, pids=())


def measured(seconds: float) -> Measured:
    """A hundred calls."""
    calls = Calls(calls=100, concurrency=1, seconds=seconds, p50_ms=1.0, p99_ms=2.0)
    return Measured(calls=calls, cpu_ms=0.5)


def test_a_member_that_names_itself_leads() -> None:
    assert leads(status(b"\x96\x01", b"\x96\x01"))
    assert not leads(status(b"\x96\x01", b"\x97\x01"))


def test_a_member_without_a_leader_does_not_lead() -> None:
    assert not leads(status(b"\x00", b"\x00"))


def test_fields_of_a_message_come_in_order() -> None:
    assert list(fields(b"\x08\x96\x01\x12\x02ab")) == [(1, 150), (2, b"ab")]


def test_ratios_are_of_medians(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(3, 1.0)
    first = next(iter(CALLS))
    run.measured["tidelog-leader", first] = [measured(each) for each in (1.0, 2.0, 4.0)]
    run.measured["etcd-leader", first] = [measured(1.0)]
    lines = [line("tidelog-leader", "Tidelog"), line("etcd-leader", "etcd")]
    run.show(lines)
    run.show_ratios(lines)
    printed = capsys.readouterr().out
    rows = [each.split() for each in printed.splitlines()]
    assert ["Tidelog", "1", "50", "25", "100", "1.00", "2.00", "0.50"] in rows
    assert ["Tidelog", "etcd", "1", "0.50", "1.00", "1.00"] in rows
