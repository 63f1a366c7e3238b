"""`tidelog storage upgrade` on golden directories: dry runs, real ones, interrupted ones."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tidelog.broker.log.marks.marks import decode_marks
from tidelog.server.commands.upgrade import Upgraded, UpgradeOptions, upgrade_storage
from tidelog.server.storage.format import FORMAT_VERSION
from tidelog.wire.errors import ErrorCode, TidelogError

GOLDEN = Path(__file__).parent / "golden"


def golden(tmp_path: Path, version: int) -> Path:
    """A copy of the directory as that version left it."""
    return Path(shutil.copytree(GOLDEN / f"format_{version}", tmp_path / "data"))


def content(directory: Path) -> dict[str, str]:
    """Every file's digest, but for the lock's."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def upgrade(directory: Path, *, is_dry_run: bool = False) -> Upgraded:
    (upgraded,) = upgrade_storage(
        UpgradeOptions(directories=(str(directory),), is_dry_run=is_dry_run)
    )
    return upgraded


def test_a_dry_run_tells_the_steps_and_changes_nothing(tmp_path: Path) -> None:
    directory = golden(tmp_path, 2)
    before = content(directory)
    planned = upgrade(directory, is_dry_run=True)
    assert (planned.from_version, planned.to_version, planned.is_done) == (2, FORMAT_VERSION, False)
    assert planned.steps[0] == "write `marks` with what `flush_marks` tells of 3 partitions"
    assert content(directory) == before


def test_flush_marks_become_marks_and_segments_stay(tmp_path: Path) -> None:
    directory = golden(tmp_path, 2)
    before = content(directory)
    assert upgrade(directory).is_done
    after = content(directory)
    assert "flush_marks" not in after
    kept = {name: digest for name, digest in before.items() if name.endswith(".log")}
    assert kept.items() <= after.items()
    marks = decode_marks((directory / "marks").read_bytes())
    assert sorted(known.flushed_offset for known in marks.values()) == [5, 20, 20]


def test_a_directory_of_this_format_needs_nothing(tmp_path: Path) -> None:
    directory = golden(tmp_path, 2)
    upgrade(directory)
    before = content(directory)
    assert upgrade(directory).steps == ()
    assert content(directory) == before


def test_an_upgrade_that_was_interrupted_before_the_version_is_gone_over_again(
    tmp_path: Path,
) -> None:
    directory = golden(tmp_path, 2)
    (directory / "marks").write_bytes(b"half")
    assert upgrade(directory).is_done
    assert len(decode_marks((directory / "marks").read_bytes())) == 3


@pytest.mark.parametrize("version", [1, FORMAT_VERSION + 1])
def test_another_version_is_refused_and_not_touched(tmp_path: Path, version: int) -> None:
    directory = golden(tmp_path, 2)
    file = directory / "node.json"
    file.write_text(file.read_text().replace('"format_version": 2', f'"format_version": {version}'))
    before = content(directory)
    with pytest.raises(TidelogError) as refused:
        upgrade(directory)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert f"format version {version}" in refused.value.happened
    assert content(directory) == before


def test_no_directory_is_changed_if_one_cannot_be(tmp_path: Path) -> None:
    directory = golden(tmp_path, 2)
    empty = tmp_path / "empty"
    empty.mkdir()
    before = content(directory)
    with pytest.raises(TidelogError) as refused:
        upgrade_storage(UpgradeOptions(directories=(str(directory), str(empty))))
    assert refused.value.code is ErrorCode.STORAGE_NOT_FORMATTED
    assert content(directory) == before


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(TidelogError) as refused:
        upgrade(tmp_path / "nowhere")
    assert "it is not there" in refused.value.happened
    assert not (tmp_path / "nowhere").exists()
