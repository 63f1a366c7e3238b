"""The limit of open files: how far it is raised, and how directories share it."""

import pytest

from tests.ports.support.limits import open_files_limit
from tidelog.ports.real.disk.open_files import (
    RAISED_MIN,
    TABLE_MAX,
    TABLE_MIN,
    UNLIMITED,
    Limit,
    raise_limit,
    table_size,
)


class SystemOf(Limit):
    """A system that admits so many, whatever it calls its hard limit."""

    def __init__(self, soft: int, hard: int, admitted: int) -> None:
        self.soft = soft
        self.hard = hard
        self.admitted = admitted

    def read(self) -> tuple[int, int]:
        return self.soft, self.hard

    def raise_to(self, wanted: int) -> None:
        if wanted > self.admitted:
            raise ValueError("not admitted")
        self.soft = wanted


@pytest.mark.parametrize(
    ("soft", "hard", "admitted", "raised"),
    [
        (256, 4_096, 4_096, 4_096),
        (1_024, 1_048_576, 1_048_576, 1_048_576),
        (256, UNLIMITED, UNLIMITED, UNLIMITED),
        (256, UNLIMITED, RAISED_MIN, RAISED_MIN),
        (20_000, UNLIMITED, RAISED_MIN, 20_000),
        (512, 512, 512, 512),
        (256, 1_024, 256, 256),
    ],
)
def test_the_limit_is_raised_as_far_as_the_system_admits_and_never_lowered(
    soft: int, hard: int, admitted: int, raised: int
) -> None:
    system = SystemOf(soft, hard, admitted)
    assert raise_limit(system) == system.soft == raised


def test_the_limit_of_this_process_is_raised_to_the_hard_one() -> None:
    with open_files_limit(1_024) as hard:
        assert raise_limit() == hard
        assert Limit().read() == (hard, hard)


@pytest.mark.parametrize(
    ("soft", "directories", "size"),
    [
        (1_024, 1, 256),
        (1_024, 2, 256),
        (1_024, 8, 64),
        (256, 40, TABLE_MIN),
        (20_000, 2, TABLE_MAX),
    ],
)
def test_the_directories_of_a_node_share_half_of_the_limit(
    soft: int, directories: int, size: int
) -> None:
    assert table_size(directories, SystemOf(soft, UNLIMITED, UNLIMITED)) == size
