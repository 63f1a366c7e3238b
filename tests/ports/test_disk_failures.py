"""The seventh promise of the Disk port, in every world: failures are typed, none hides another."""

import pytest

from tests.ports.support.abilities import Ability
from tests.ports.support.adapters import World
from tests.ports.support.disk_steps import append, code_of, codes_of, fail, read_all
from tidelog.ports import Append
from tidelog.wire.errors import ErrorCode


def test_7_a_missing_file_and_one_that_exists_already_fail_as_storage_failed(
    world: World,
) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk()
        await disk.open("there", create=True)
        return await codes_of(
            [
                disk.open("missing"),
                disk.open("there", create=True),
                disk.open("no/such/directory", create=True),
                disk.rename("missing", "x"),
                disk.remove("missing"),
            ]
        )

    assert world.run(run()) == [ErrorCode.STORAGE_FAILED] * 5


def test_7_an_error_names_the_directory_and_the_path(world: World) -> None:
    async def run() -> tuple[str, str]:
        disk = await world.disk()
        return disk.name, str(await fail(disk.open("missing/file")))

    name, text = world.run(run())
    assert name in text
    assert "missing/file" in text


@pytest.mark.needs(Ability.FILL_DISK)
def test_7_no_space_is_storage_full_and_a_truncate_makes_the_file_whole_again(
    world: World,
) -> None:
    async def run() -> tuple[ErrorCode, bool, bytes, int]:
        disk = await world.full_disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"begin ")
        full = await fail(append(disk, file, bytes(2 * 1024 * 1024)))
        torn = await fail(append(disk, file, b"behind the tear"))
        await disk.truncate(file, 6)
        await append(disk, file, b"end")
        is_refused = torn.code in (ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_FAILED)
        return full.code, is_refused, await read_all(disk, file), file.size_bytes

    assert world.run(run()) == (
        ErrorCode.STORAGE_FULL,
        True,
        b"begin end",
        9,
    )


def test_7_a_file_full_to_the_last_byte_takes_nothing_until_it_is_truncated(world: World) -> None:
    async def run() -> tuple[list[ErrorCode | None], bytes]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"begin ")
        with world.cramped(6):
            full = await code_of(append(disk, file, b"x"))
        assert full in (ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_FAILED)
        assert file.size_bytes == 6, "not one byte was written"
        again = await disk.open("log")
        codes = await codes_of(
            [append(disk, file, b"1"), append(disk, again, b"2"), append(disk, file, b"")]
        )
        await disk.truncate(file, 6)
        codes += await codes_of([append(disk, again, b"end"), disk.flush([file])])
        return codes, await read_all(disk, file)

    codes, data = world.run(run())
    assert codes == [ErrorCode.STORAGE_FAILED] * 3 + [None, None]
    assert data == b"begin end"


def test_7_of_several_appends_only_the_one_that_failed_leaves_a_tear(world: World) -> None:
    async def run() -> tuple[list[int], list[ErrorCode | None]]:
        disk = await world.disk()
        files = [await disk.open(name, create=True) for name in ("a", "b", "c")]
        with world.cramped(100):
            sizes = zip(files, (10, 200, 5), strict=True)
            await fail(disk.append([Append(file, [bytes(size)]) for file, size in sizes]))
        lengths = [file.size_bytes for file in files]
        return lengths, await codes_of([append(disk, file, b"more") for file in files])

    lengths, codes = world.run(run())
    assert (lengths[0], lengths[2]) == (10, 0), "before the failure all, behind it nothing"
    assert 0 < lengths[1] <= 100
    assert codes == [None, ErrorCode.STORAGE_FAILED, None]


def test_7_a_tear_is_forgotten_when_the_file_is_closed_and_opened_again(world: World) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        again = await disk.open("log")
        with world.cramped(4):
            await fail(append(disk, file, b"123456"))
        await disk.close(again)
        codes = await codes_of([append(disk, file, b"x")])
        await disk.close(file)
        return codes + await codes_of([append(disk, await disk.open("log"), b"x")])

    assert world.run(run()) == [ErrorCode.STORAGE_FAILED, None]


def test_7_a_second_holder_of_the_directory_is_storage_in_use(world: World) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk()
        refused = await codes_of([world.disk()])
        await disk.shutdown()
        await world.disk()
        return refused

    assert world.run(run()) == [ErrorCode.STORAGE_IN_USE]
