"""Directories that are not the node's: it does not start, says why, and touches nothing."""

from collections.abc import Callable

import msgspec
import pytest

from tests.server.support.directories_in_world import DATA, Directories, run_directories
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.server.storage.format import FILE_NAME, FORMAT_VERSION
from tidelog.wire.errors import ErrorCode

Damage = Callable[[Directories], None]


def identity_file(directories: Directories, name: str) -> Inode:
    return dict(directories.medium(name).files())[FILE_NAME]


def replace(directories: Directories, name: str, **fields: object) -> None:
    """Write other fields into a directory's identity."""
    inode = identity_file(directories, name)
    known = msgspec.json.decode(bytes(inode.seen), type=dict[str, object])
    inode.seen = bytearray(msgspec.json.encode(known | {"checksum": None} | fields))
    inode.durable = bytearray(inode.seen)


def another_cluster(directories: Directories) -> None:
    replace(directories, "disk1", cluster_id="another")


def another_node(directories: Directories) -> None:
    replace(directories, "disk1", node_id=2)


def a_copy(directories: Directories) -> None:
    own = msgspec.json.decode(bytes(identity_file(directories, DATA).seen), type=dict[str, object])
    replace(directories, "disk1", directory_id=own["directory_id"])


def a_copy_of_another_one(directories: Directories) -> None:
    other = identity_file(directories, "disk2").seen
    known = msgspec.json.decode(bytes(other), type=dict[str, object])
    replace(directories, "disk1", directory_id=known["directory_id"])


def newer(directories: Directories) -> None:
    replace(directories, "disk1", format_version=FORMAT_VERSION + 1)


def older(directories: Directories) -> None:
    replace(directories, "disk1", format_version=FORMAT_VERSION - 1)


def unformatted(directories: Directories) -> None:
    directories.machine.media.pop("disk1")
    directories.unformatted["disk1"] = None


def no_directory_of_ours(directories: Directories) -> None:
    unformatted(directories)
    stranger = Inode()
    stranger.write(b"a picture")
    directories.medium("disk1").root.seen["holiday.jpg"] = stranger


@pytest.mark.parametrize(
    ("damage", "code", "why", "hint"),
    [
        (another_cluster, ErrorCode.WRONG_CLUSTER, "belongs to cluster another", "log_dirs"),
        (another_node, ErrorCode.WRONG_CLUSTER, "belongs to node 2, this is node 1", "log_dirs"),
        (a_copy, ErrorCode.WRONG_CLUSTER, "copy of the data directory", "log_dirs"),
        (a_copy_of_another_one, ErrorCode.WRONG_CLUSTER, "copy of", "log_dirs"),
        (newer, ErrorCode.UNSUPPORTED_VERSION, "format version 4", "Upgrade"),
        (older, ErrorCode.UNSUPPORTED_VERSION, "format version 2", "never released"),
        (unformatted, ErrorCode.STORAGE_NOT_FORMATTED, "no node.json", "add-log-dirs"),
        (no_directory_of_ours, ErrorCode.STORAGE_NOT_FORMATTED, "holds `holiday.jpg`", "mounted"),
    ],
)
def test_a_node_refuses_a_log_directory_that_is_not_its_own_and_touches_nothing(
    damage: Damage, code: ErrorCode, why: str, hint: str
) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        await directories.stop()
        damage(directories)
        error = await directories.refused()
        assert error.code is code, error
        assert why in error.happened
        assert hint in error.hint

    run_directories(work)


@pytest.mark.parametrize("content", [b"", b"{", b'{"format_version": "3"}', b"\xff\xfe"])
def test_a_damaged_identity_of_a_further_directory_costs_its_partitions_only(
    content: bytes,
) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await directories.client.create_topic("t", 3)
        await directories.stop()
        inode = identity_file(directories, "disk1")
        inode.seen = inode.durable = bytearray(content)
        directories.unformatted["disk1"] = None
        await directories.start()
        codes = [await directories.write(topic_id, number, b"x") for number in range(3)]
        assert codes == [0, ErrorCode.STORAGE_CORRUPT.value, 0]

    run_directories(work)


@pytest.mark.parametrize("start", [1, 2], ids=["once", "after a second attempt"])
def test_a_refused_start_can_be_followed_by_a_right_one(start: int) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        await directories.stop()
        kept = bytes(identity_file(directories, "disk1").seen)
        another_cluster(directories)
        for _ in range(start):
            await directories.refused()
        inode = identity_file(directories, "disk1")
        inode.seen = inode.durable = bytearray(kept)
        await directories.start()

    run_directories(work)
