"""Directories that earlier builds left: opened in a whole node, every record read."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.server.support.directories_in_world import DATA, Directories, run_directories
from tidelog.chaos.sim.ports.clock import WALL_START_MS
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium
from tidelog.wire.batch import decode_batch, iterate_headers

GOLDEN: Final = Path(__file__).parent / "golden"
WRITTEN_MS: Final = 1_700_000_000_000
QUORUM: Final = "quorum"


def value(number: int) -> bytes:
    """As `make_golden` writes it."""
    return b"value-%04d" % number + b"x" * 40


def of_golden(count: int) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Two partitions, records in turn."""
    return {
        ("golden", partition): [(n // 2, value(n)) for n in range(partition, count, 2)]
        for partition in (0, 1)
    }


SMALL: Final = [(number, b"s%d" % number) for number in range(6)]
COMPACTED: Final = [(number, value(number - 1)) for number in (59, 60)]
TRIMMED: Final = [(number, value(number)) for number in range(25, 40)]
CLEAN: Final = {**of_golden(40), ("small", 0): SMALL[:5], ("trimmed", 0): TRIMMED}
KILLED: Final = {**of_golden(60), ("small", 0): SMALL, ("trimmed", 0): TRIMMED}


def load(medium: Medium, directory: Path, *, without: str = "") -> None:
    """Put a directory's files on a simulated disk, durably."""
    for path in sorted(directory.rglob("*")):
        names = path.relative_to(directory).parts
        if not path.is_file() or path.name == ".lock" or names[0] == without:
            continue
        place = medium.root
        for name in names[:-1]:
            child = place.seen.setdefault(name, Directory())
            place.durable[name] = child
            assert isinstance(child, Directory)
            place = child
        inode = Inode()
        inode.write(path.read_bytes())
        inode.cover(inode.made)
        place.seen[path.name] = place.durable[path.name] = inode


async def opened(directories: Directories, source: Path) -> None:
    """A node over a copy, in the days when it was written: retention is not what is tested."""
    directories.log_dirs = ()
    directories.machine.wall_offset_ms = WRITTEN_MS + 3_600_000 - WALL_START_MS
    load(directories.medium(DATA), source, without=QUORUM)
    load(directories.medium(QUORUM), source / QUORUM)
    await directories.start()


async def check_records(
    directories: Directories, expected: Mapping[tuple[str, int], list[tuple[int, bytes]]]
) -> None:
    """Every one that is there, and its offset; of a compacted topic each key's last."""
    for (name, partition), records in expected.items():
        topic_id = await directories.client.topic_id(name)
        first = records[0][0]
        assert await read_from(directories, topic_id, partition, first) == records, name


async def read_from(
    directories: Directories, topic_id: bytes, partition: int, offset: int
) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while (answer := await directories.client.fetch(topic_id, partition, offset)) is not None:
        assert not answer.HasField("error"), answer.error
        for place, header in iterate_headers(answer.batches, is_compacted=True):
            records = decode_batch(answer.batches, place, is_compacted=True)
            found += [(each[0], each[4] or b"") for each in records if each[0] >= offset]
            offset = header.base_offset + header.last_offset_delta + 1
    return found


@pytest.mark.parametrize(
    ("name", "expected", "restored", "later"), [("clean", CLEAN, 5, 5), ("killed", KILLED, 0, 3)]
)
def test_a_directory_of_format_3_is_read_whole(
    name: str,
    expected: Mapping[tuple[str, int], list[tuple[int, bytes]]],
    restored: int,
    later: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def work(directories: Directories) -> None:
        await opened(directories, GOLDEN / "format_3" / name)
        await check_records(directories, expected)
        topic_id = await directories.client.topic_id("compacted")
        assert (await read_from(directories, topic_id, 0, 0))[-2:] == COMPACTED
        await directories.stop()
        await directories.start()
        await check_records(directories, expected)

    run_directories(work)
    told = [each for each in caplog.messages if each.startswith("logs_recovered")]
    assert f"partitions=5 restored={restored} torn_bytes=0" in told[0]
    # Where a log ends with a segment that holds nothing yet its directory is looked at.
    assert f"partitions=5 restored={later} torn_bytes=0" in told[1]


def can_be_made(sidecar: Path) -> bool:
    """Whether nothing of what it tells lies in segments that are gone.

    The first sidecar of a trimmed log tells of what came before it, one of a compacted segment
    what it stands for.
    """
    is_first = sidecar == min(sidecar.parent.glob("*.sidecar"))
    is_trimmed = is_first and not sidecar.name.startswith("0" * 20)
    return "-" not in sidecar.stem and not is_trimmed


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_sidecars_that_are_made_again_are_those_that_were_stored(name: str, tmp_path: Path) -> None:
    stored = GOLDEN / "format_3" / name
    source = Path(shutil.copytree(stored, tmp_path / "data"))
    (source / "log_checkpoint").unlink(missing_ok=True)
    removed = [path for path in sorted(source.glob("*-[0-9]*/*.sidecar")) if can_be_made(path)]
    for path in removed:
        path.unlink()
    assert len(removed) > 3

    async def work(directories: Directories) -> None:
        await opened(directories, source)
        names = [str(path.relative_to(source)) for path in removed]
        files = directories.medium(DATA).files
        await directories.wait(lambda: set(names) <= dict(files()).keys())
        made = dict(files())
        for each in names:
            assert bytes(made[each].seen) == (stored / each).read_bytes(), each

    run_directories(work)
