"""The step that makes a directory a node's: done once, refused where it would overwrite."""

import asyncio
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.metadata_quorum.storage import identity as quorum_identity
from tidelog.ports import Append
from tidelog.server.storage import format as storage_format
from tidelog.server.storage.format import (
    CleanShutdown,
    NodeIdentity,
    decode_identity,
    encode_identity,
    read_identity,
    write_file,
)
from tidelog.server.storage.formatting import FormatOptions, Formatted, InitialVoter, format_disks
from tidelog.wire.errors import ErrorCode, TidelogError

Work = Callable[[SimulatedDisk, SimulatedDisk, SimulatedPorts], Coroutine[object, object, None]]

ALONE = FormatOptions(data_dir="d", node_id=1, standalone_address="n1:9193")
VOTERS = tuple(
    InitialVoter(node_id=number, address=f"n{number}:9193", directory_uuid=bytes([number]) * 16)
    for number in (1, 2, 3)
)


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def with_disks(work: Work) -> None:
    """Run over an empty data directory and an empty quorum directory."""
    world = World(1)

    async def main() -> None:
        ports = world.machine("m").start("p", wait_forever).ports
        await work(ports.open_disk(), ports.open_disk("quorum"), ports)

    try:
        world.run(main())
    finally:
        world.close()


async def refused(disk: SimulatedDisk, node_id: int = 1) -> TidelogError:
    """Why the directory is refused at a start; it is not touched."""
    before = await disk.list()
    with pytest.raises(TidelogError) as caught:
        await read_identity(disk, node_id)
    assert await disk.list() == before
    return caught.value


async def refused_format(
    disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts, options: FormatOptions
) -> TidelogError:
    """Why formatting is refused; nothing is touched."""
    before = (await disk.list(), await quorum.list())
    with pytest.raises(TidelogError) as caught:
        await format_disks(disk, quorum, ports.random, options)
    assert (await disk.list(), await quorum.list()) == before
    return caught.value


def test_an_empty_directory_is_formatted_and_a_second_time_refused() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        made = await format_disks(disk, quorum, ports.random, ALONE)
        assert (await read_identity(disk, 1)).cluster_id == made.cluster_id
        assert len(made.cluster_id) == 32
        assert made.voters == (1,)
        error = await refused_format(disk, quorum, ports, ALONE)
        assert error.code is ErrorCode.STORAGE_IN_USE

    with_disks(work)


def test_a_directory_that_was_never_formatted_says_what_to_type() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        del quorum, ports
        error = await refused(disk)
        assert error.code is ErrorCode.STORAGE_NOT_FORMATTED
        assert "`tidelog storage format --standalone --node-id 1 --data-dir" in error.hint

    with_disks(work)


def test_the_top_of_a_new_file_system_counts_as_empty() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        await disk.make_directory("lost+found")
        assert (await format_disks(disk, quorum, ports.random, ALONE)).node_id == 1

    with_disks(work)


def test_a_directory_of_another_node_version_or_purpose_is_refused() -> None:
    async def another_node(
        disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts
    ) -> None:
        await format_disks(disk, quorum, ports.random, ALONE)
        assert (await refused(disk, 2)).code is ErrorCode.WRONG_CLUSTER

    async def another_version(
        disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts
    ) -> None:
        await format_disks(disk, quorum, ports.random, ALONE)
        made = msgspec.to_builtins(await read_identity(disk, 1))
        for version in (1, 2, storage_format.FORMAT_VERSION + 1):
            content = msgspec.json.encode(made | {"format_version": version})
            await write_file(disk, storage_format.FILE_NAME, content)
            assert (await refused(disk)).code is ErrorCode.UNSUPPORTED_VERSION

    async def damaged(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        del quorum, ports
        await write_file(disk, storage_format.FILE_NAME, b"{")
        assert (await refused(disk)).code is ErrorCode.STORAGE_CORRUPT

    async def foreign(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        file = await disk.open("holiday.jpg", create=True)
        await disk.append([Append(file, [b"x"])])
        assert (await refused(disk)).code is ErrorCode.STORAGE_NOT_FORMATTED
        error = await refused_format(disk, quorum, ports, ALONE)
        assert error.code is ErrorCode.STORAGE_NOT_FORMATTED

    for work in (another_node, another_version, damaged, foreign):
        with_disks(work)


def test_data_from_before_the_quorum_are_refused_with_what_to_do() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        content = b'{"format_version":1,"cluster_id":"c","node_id":1,"directory_id":"d"}'
        await write_file(disk, storage_format.FILE_NAME, content)
        await disk.make_directory("metadata")
        error = await refused(disk)
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert "never released" in error.hint
        error = await refused_format(disk, quorum, ports, ALONE)
        assert error.code is ErrorCode.UNSUPPORTED_VERSION

    with_disks(work)


def test_a_formatting_that_was_cut_short_is_completed_by_the_next() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        made = await format_disks(disk, quorum, ports.random, ALONE)
        await disk.rename(storage_format.FILE_NAME, storage_format.NEW_FILE_NAME)
        again = await format_disks(disk, quorum, ports.random, ALONE)
        assert again.cluster_id == made.cluster_id
        assert (await read_identity(disk, 1)).cluster_id == made.cluster_id

    with_disks(work)


def test_a_list_of_voters_gives_every_one_of_them_the_same_beginning() -> None:
    found: list[quorum_identity.QuorumIdentity] = []

    def format_one(number: int) -> None:
        async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
            options = FormatOptions(
                data_dir="d", node_id=number, cluster_id="c", voters=VOTERS[::-1], broker_count=5
            )
            made = await format_disks(disk, quorum, ports.random, options)
            assert made.voters == (1, 2, 3)
            assert made.directory_uuid == (bytes([number]) * 16).hex()
            found.append(await quorum_identity.read_identity(quorum))

        with_disks(work)

    for number in (1, 2, 3):
        format_one(number)
    assert found[0].bootstrap == found[1].bootstrap == found[2].bootstrap
    assert found[0].bootstrap_command == found[1].bootstrap_command == found[2].bootstrap_command


def test_a_node_that_joins_has_no_members_and_proposes_nothing() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        options = FormatOptions(data_dir="d", node_id=4, cluster_id="c")
        assert (await format_disks(disk, quorum, ports.random, options)).voters == ()
        found = await quorum_identity.read_identity(quorum)
        assert found.bootstrap.members == ()
        assert found.bootstrap_command == b""

    with_disks(work)


def test_a_node_that_lost_its_quorum_directory_gets_a_new_one_for_the_same_cluster() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        made: Formatted = await format_disks(disk, quorum, ports.random, ALONE)
        empty = ports.open_disk("another")
        error = await refused_format(
            disk, empty, ports, FormatOptions(data_dir="d", node_id=1, cluster_id="elsewhere")
        )
        assert error.code is ErrorCode.WRONG_CLUSTER
        options = FormatOptions(data_dir="d", node_id=1, cluster_id=made.cluster_id)
        again = await format_disks(disk, empty, ports.random, options)
        assert again.directory_uuid != made.directory_uuid
        assert (await read_identity(disk, 1)).cluster_id == made.cluster_id

    with_disks(work)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (FormatOptions(data_dir="d", node_id=1), "needs its id"),
        (FormatOptions(data_dir="d", node_id=1, voters=VOTERS), "need one cluster id"),
        (FormatOptions(data_dir="d", node_id=9, cluster_id="c", voters=VOTERS), "not in its own"),
        (
            FormatOptions(data_dir="d", node_id=1, cluster_id="c", voters=VOTERS + VOTERS[:1]),
            "stands twice",
        ),
        (
            FormatOptions(data_dir="d", node_id=1, voters=VOTERS, standalone_address="n1:1"),
            "both a quorum of its own and a list",
        ),
    ],
)
def test_contradicting_options_are_refused_before_anything_is_written(
    options: FormatOptions, why: str
) -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        error = await refused_format(disk, quorum, ports, options)
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert why in error.happened

    with_disks(work)


def test_the_clean_marker_counts_once() -> None:
    async def work(disk: SimulatedDisk, quorum: SimulatedDisk, ports: SimulatedPorts) -> None:
        del quorum, ports
        marker = CleanShutdown(broker_epoch=4, boot_id="b")
        assert await storage_format.read_clean_marker(disk) is None
        await storage_format.write_clean_marker(disk, marker)
        assert await storage_format.read_clean_marker(disk) == marker
        await storage_format.remove_clean_marker(disk)
        assert await storage_format.read_clean_marker(disk) is None

    with_disks(work)


IDENTITY = NodeIdentity(
    format_version=3, cluster_id="7f3a52c09be1", node_id=1, directory_id="c4d5e6f70819"
)


def test_a_flipped_bit_makes_no_other_node_of_it() -> None:
    whole = encode_identity(IDENTITY)
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_identity(bytes(content)) == IDENTITY
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def test_an_identity_from_before_there_were_checksums_is_read() -> None:
    assert decode_identity(msgspec.json.encode(IDENTITY)) == IDENTITY
