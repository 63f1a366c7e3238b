"""The workers of `make test`: whole files, long ones first; planted bugs anywhere; ports apart."""

import socket

import pytest

from tests.support.distribution import longest_first, scope_of
from tidelog.chaos.live.processes import ports


def test_tests_of_a_file_stay_together_and_planted_bugs_go_anywhere() -> None:
    assert scope_of("tests/a.py::test_one[x::y]") == scope_of("tests/a.py::Test::test_two")
    plants = [f"tests/a.py::Test::test_a_planted_bug_is_found_soon[{name}]" for name in "xy"]
    assert len({scope_of(each) for each in (*plants, "tests/a.py::test_one")}) == 3


class _Item(pytest.Item):
    def runtest(self) -> None:
        """Never called."""


def ordered(request: pytest.FixtureRequest, marks: dict[str, str]) -> list[str]:
    """Tests with at most one mark each, as the workers get them."""
    items: list[pytest.Item] = []
    for name, mark in marks.items():
        item = _Item.from_parent(request.session, name=name, nodeid=name)
        if mark:
            item.add_marker(mark)
        items.append(item)
    longest_first(items)
    return [item.nodeid for item in items]


def test_files_with_long_tests_come_first_and_keep_their_order(
    request: pytest.FixtureRequest,
) -> None:
    marks = {"a.py::1": "", "b.py::1": "", "b.py::2": "slow", "c.py::1": "spark", "d.py::1": "slow"}
    assert ordered(request, marks) == ["c.py::1", "b.py::1", "b.py::2", "d.py::1", "a.py::1"]


def test_files_that_wait_stand_between_those_that_compute(request: pytest.FixtureRequest) -> None:
    marks = {f"live{number}.py::1": "live" for number in range(2)}
    marks |= {f"slow{number}.py::1": "slow" for number in range(4)}
    assert [name.partition(".")[0] for name in ordered(request, marks)] == [
        "slow0",
        "live0",
        "slow1",
        "slow2",
        "live1",
        "slow3",
    ]


def test_ports_differ_and_stay_below_those_that_a_system_gives_out() -> None:
    given = [*ports.free_ports(20), ports.free_port()]
    assert len(set(given)) == 21
    assert all(ports.FIRST <= port <= ports.LAST for port in given)


def test_a_port_that_somebody_listens_at_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = ports.free_ports(1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", taken))
        listener.listen()
        monkeypatch.setattr(ports, "_given", taken - ports._MINE - 1)
        assert ports.free_port() != taken
