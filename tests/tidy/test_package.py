"""What users install: the same from the checkout and from the sdist, under two names only."""

from pathlib import Path

import pytest

from tools import package
from tools.repository import TOP

pytestmark = pytest.mark.slow


def test_the_wheel_and_the_wheel_from_the_sdist_hold_the_same_modules(tmp_path: Path) -> None:
    sdist = package.build(TOP, tmp_path / "sdist", "sdist")
    wheel = package.build(TOP, tmp_path / "wheel", "wheel")
    source = package.unpack(sdist, tmp_path / "unpacked")
    again = package.build(source, tmp_path / "again", "wheel")
    shown = list(package.check_wheels(wheel, again))
    assert shown[-1] == "top-level names: pyspark_tidelog, tidelog"


def test_two_different_wheels_are_told_apart(tmp_path: Path) -> None:
    wheel = package.build(TOP, tmp_path / "wheel", "wheel")
    sdist = package.build(TOP, tmp_path / "sdist", "sdist")
    source = package.unpack(sdist, tmp_path / "unpacked")
    (source / "ports/tidelog/ports/clock.py").write_text("")
    again = package.build(source, tmp_path / "again", "wheel")
    with pytest.raises(package.PackageError, match=r"differ: \['tidelog/ports/clock\.py'\]"):
        list(package.check_wheels(wheel, again))
