"""The numbered promises of the Disk port, in every world."""

import asyncio
from collections.abc import Awaitable

import pytest

from tests.ports.support.abilities import Ability
from tests.ports.support.adapters import World
from tests.ports.support.disk_steps import append, codes_of, read_all
from tidelog.ports import Append, DirectoryGone, FileUnusable, TaskScope
from tidelog.wire.errors import ErrorCode

BAD_PATHS = ["", "/etc/passwd", "..", "../x", "a/../../x", "a//b", "./a", "a/.", "a/"]
BAD_PATHS += ["a\0b", "a/\0", ".lock", ".lock/a"]


def test_1_appends_and_truncates_take_effect_in_the_order_of_their_calls(world: World) -> None:
    expected: list[bytes] = []

    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)

        async def change(number: int) -> None:
            if number % 10 == 3:
                expected.clear()
                await disk.truncate(file, 0)
            else:
                expected.append(b"%02d;" % number)
                await append(disk, file, b"%02d;" % number)

        async with TaskScope() as scope:
            for number in range(50):
                scope.start(change(number), name=str(number))
        return await read_all(disk, file)

    assert world.run(run()) == b"".join(expected)


def test_1_the_order_of_calls_holds_across_files_of_a_directory(world: World) -> None:
    async def run() -> list[bytes]:
        disk = await world.disk()
        files = [await disk.open(name, create=True) for name in ("a", "b")]
        await disk.append(
            [
                Append(files[0], [b"1", bytearray(b"2"), memoryview(b"3")]),
                Append(files[1], [b"x"]),
                Append(files[0], [b"4"]),
            ]
        )
        return [await read_all(disk, file) for file in files]

    assert world.run(run()) == [b"1234", b"x"]


def test_2_what_an_append_wrote_is_seen_by_every_later_read(world: World) -> None:
    async def run() -> list[bytes]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        seen = []
        for number in range(5):
            await append(disk, file, bytes([number]))
            seen.append(await disk.read(file, 0, 10))
        return seen

    assert world.run(run()) == [bytes(range(end)) for end in range(1, 6)]


def test_2_what_a_truncate_cut_is_not_seen_by_any_later_read(world: World) -> None:
    async def run() -> tuple[bytes, int, bytes]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"0123456789")
        await disk.truncate(file, 4)
        seen, size_bytes = await disk.read(file, 2, 10), file.size_bytes
        await append(disk, file, b"X")
        return seen, size_bytes, await read_all(disk, file)

    assert world.run(run()) == (b"23", 4, b"0123X")


def test_a_read_is_shorter_only_at_the_end_of_the_file(world: World) -> None:
    data = bytes(range(256)) * 9_000

    async def run() -> list[bytes]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, data)
        places = [(0, 10), (250, 20), (len(data) - 5, 100), (len(data), 1), (len(data) + 7, 3)]
        places += [(0, len(data)), (0, 2 * len(data)), (5, 0)]
        return [await disk.read(file, *place) for place in places]

    assert world.run(run()) == [
        data[:10],
        data[250:270],
        data[-5:],
        b"",
        b"",
        data,
        data,
        b"",
    ]


@pytest.mark.needs(Ability.CRASH_MACHINE)
def test_3_a_crash_keeps_everything_flushed(world: World) -> None:
    async def run() -> tuple[bytes, list[str]]:
        disk = await world.disk()
        await disk.make_directory("topic")
        file = await disk.open("topic/log", create=True)
        await append(disk, file, b"flushed")
        await disk.flush([file], directories=["", "topic"])
        await append(disk, file, b" and not")
        world.crash(is_machine=True)
        disk = await world.disk()
        file = await disk.open("topic/log")
        return await read_all(disk, file), await disk.list()

    data, names = world.run(run())
    assert data[:7] == b"flushed"
    assert names == ["topic/"]


@pytest.mark.needs(Ability.KILL_PROCESS)
def test_3_a_killed_process_leaves_what_its_ended_appends_wrote(world: World) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"not flushed")
        world.crash(is_machine=False)
        disk = await world.disk()
        return await read_all(disk, await disk.open("log"))

    assert world.run(run()) == b"not flushed"


@pytest.mark.needs(Ability.CRASH_MACHINE)
def test_3_a_rename_that_is_flushed_survives_a_crash(world: World) -> None:
    async def run() -> tuple[list[str], bytes]:
        disk = await world.disk()
        for directory in ("old", "new"):
            await disk.make_directory(directory)
        file = await disk.open("old/a", create=True)
        await append(disk, file, b"content")
        await disk.flush([file], directories=["", "old", "new"])
        await disk.rename("old/a", "new/b")
        await disk.flush([], directories=["old", "new"])
        world.crash(is_machine=True)
        disk = await world.disk()
        names = await disk.list("old") + await disk.list("new")
        return names, await read_all(disk, await disk.open("new/b"))

    assert world.run(run()) == (["b"], b"content")


@pytest.mark.needs(Ability.CRASH_MACHINE)
def test_4_a_flush_covers_every_append_and_truncate_that_had_ended(world: World) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"0123456789")
        await disk.truncate(file, 5)
        await append(disk, file, b"abc")
        flush = asyncio.create_task(disk.flush([file], directories=[""]))
        await asyncio.sleep(0)
        await flush
        world.crash(is_machine=True)
        disk = await world.disk()
        return await read_all(disk, await disk.open("log"))

    assert world.run(run()) == b"01234abc"


def test_4_many_flushes_at_once_all_end(world: World) -> None:
    async def run() -> int:
        disk = await world.disk()
        files = [await disk.open(f"log-{number}", create=True) for number in range(40)]
        await disk.append([Append(file, [b"x" * 100]) for file in files])
        flushes = [
            asyncio.create_task(disk.flush(files[: number + 1], directories=[""]))
            for number in range(len(files))
        ]
        for flush in flushes:
            await flush
        return len(flushes)

    assert world.run(run()) == 40


def test_5_after_a_flush_that_failed_every_later_write_or_flush_fails(world: World) -> None:
    async def run() -> tuple[list[ErrorCode | None], bytes]:
        disk = await world.disk(is_flush_failing=True)
        file = await disk.open("log", create=True)
        await append(disk, file, b"written")
        failing = [
            disk.flush([file]),
            disk.flush([file]),
            disk.flush([], directories=[""]),
            append(disk, file, b"more"),
            disk.truncate(file, 0),
            disk.open("other", create=True),
            disk.make_directory("directory"),
            disk.rename("log", "log2"),
            disk.remove("log"),
        ]
        codes = await codes_of(failing)
        return codes, await read_all(disk, file)

    codes, data = world.run(run())
    assert codes == [ErrorCode.STORAGE_FAILED] * 9
    assert data == b"written", "reading goes on"


def test_5_everyone_who_waits_for_a_flush_that_fails_hears_of_it(world: World) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk(is_flush_failing=True)
        file = await disk.open("log", create=True)
        await append(disk, file, b"written")
        flushes = [asyncio.create_task(disk.flush([file])) for _ in range(10)]
        return await codes_of(flushes)

    assert world.run(run()) == [ErrorCode.STORAGE_FAILED] * 10


@pytest.mark.parametrize("path", BAD_PATHS)
def test_6_paths_never_leave_the_directory(world: World, path: str) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk()
        await disk.make_directory("a")
        file = await disk.open("a/file", create=True)
        await disk.close(file)
        refused: list[Awaitable[object]] = [
            disk.open(path),
            disk.open(path, create=True),
            disk.make_directory(path),
            disk.rename("a/file", path),
            disk.rename(path, "a/file"),
            disk.remove(path),
        ]
        if path:
            refused += [disk.list(path), disk.flush([], directories=[path])]
        codes = await codes_of(refused)
        assert await disk.list("a") == ["file"]
        return codes

    assert set(world.run(run())) == {ErrorCode.STORAGE_FAILED}


def test_the_content_stays_when_the_directory_is_opened_again(world: World) -> None:
    async def run() -> tuple[bytes, int]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"first")
        await disk.close(file)
        await disk.shutdown()
        disk = await world.disk()
        file = await disk.open("log")
        size_bytes = file.size_bytes
        await append(disk, file, b" second")
        return await read_all(disk, file), size_bytes

    assert world.run(run()) == (b"first second", 5)


def test_7_a_path_that_is_not_as_it_should_be_is_told_from_a_disk_that_has_failed(
    world: World,
) -> None:
    async def run() -> list[bytes]:
        disk = await world.disk()
        await disk.make_directory("a")
        there = await disk.open("log", create=True)
        for path, create in (("gone", False), ("a", False), ("a/gone", False), ("log", True)):
            with pytest.raises(FileUnusable) as caught:
                await disk.open(path, create=create)
            assert caught.value.code is ErrorCode.STORAGE_FAILED
        await append(disk, there, b"goes on")
        await disk.flush([there], directories=[""])
        return [await read_all(disk, there)]

    assert world.run(run()) == [b"goes on"]


@pytest.mark.needs(Ability.LOCK_FILES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_7_an_append_that_finds_a_file_locked_names_it_and_writes_to_none(
    world: World, place: int
) -> None:
    async def run() -> list[bytes]:
        disk = await world.disk()
        files = [await disk.open(path, create=True) for path in ("a", "b", "c")]
        whole = [Append(file, [b"1"]) for file in files]
        await disk.append(whole)
        locked = files[place]
        with world.locked(locked.path):
            with pytest.raises(FileUnusable) as caught:
                await disk.append(whole)
            assert caught.value.paths == (locked.path,)
            assert "EPERM" in caught.value.happened
            assert [file.size_bytes for file in files] == [1, 1, 1]
            await disk.append([each for each in whole if each.file is not locked])
            await disk.flush([file for file in files if file is not locked])
        await append(disk, locked, b"2")
        await disk.flush(files)
        return [await read_all(disk, file) for file in files]

    expected = [b"11", b"11", b"11"]
    expected[place] = b"12"
    assert world.run(run()) == expected


MOVES = [("a/log", "a/log.bak"), ("a/log", ""), ("a", "a.bak"), ("a", ""), ("other", "a/log")]
"""What another program does: the file is renamed, removed, or replaced, or its directory is."""


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_8_a_flush_names_what_somebody_has_moved_and_the_others_are_flushed_without_it(
    world: World, old: str, new: str
) -> None:
    async def run() -> tuple[tuple[str, ...], bytes]:
        disk = await world.disk()
        await disk.make_directory("a")
        moved = await disk.open("a/log", create=True)
        stays = await disk.open("stays", create=True)
        await disk.open("other", create=True)
        await disk.flush([moved, stays], directories=["", "a"])
        await disk.append([Append(moved, [b"1"]), Append(stays, [b"2"])])
        world.move_behind_its_back(old, new)
        directories = ["a"] if old == "a" else []
        with pytest.raises(FileUnusable) as caught:
            await disk.flush([moved, stays], directories=["", *directories])
        assert caught.value.code is ErrorCode.STORAGE_FAILED
        assert caught.value.paths == ("a/log", *directories)
        assert "a/log" in caught.value.tried
        assert "put it back" in caught.value.hint
        await disk.flush([stays], directories=[""])
        await append(disk, stays, b"3")
        await disk.flush([stays])
        return caught.value.paths, await read_all(disk, stays)

    assert world.run(run())[1] == b"23"


def test_8_what_is_renamed_or_removed_through_the_port_is_flushed_like_anything_else(
    world: World,
) -> None:
    async def run() -> list[bytes]:
        disk = await world.disk()
        await disk.make_directory("a")
        files = [await disk.open(path, create=True) for path in ("a/moved", "one", "two", "gone")]
        await disk.flush(files, directories=["", "a"])
        for file in files:
            await append(disk, file, b"1")
        await disk.rename("a", "b")
        await disk.rename("one", "two")
        await disk.remove("gone")
        await disk.flush(files, directories=["", "b"])
        return [await read_all(disk, file) for file in files]

    assert world.run(run()) == [b"1"] * 4


@pytest.mark.parametrize("is_replaced", [False, True])
def test_9_a_directory_that_is_not_under_its_name_is_changed_no_more_and_none_is_made(
    world: World, is_replaced: bool
) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        await disk.make_directory("a")
        file = await disk.open("a/log", create=True)
        await append(disk, file, b"1")
        await disk.flush([file], directories=["", "a"])
        world.move_directory_away(is_replaced=is_replaced)

        async def refused(*works: Awaitable[object]) -> None:
            for work in works:
                with pytest.raises(DirectoryGone) as caught:
                    await work
                assert caught.value.code is ErrorCode.STORAGE_FAILED
                assert "start the node again" in caught.value.hint

        await refused(disk.open("a/log"), disk.open("gone"), disk.list(), disk.list("a"))
        await refused(disk.free_bytes())
        changes = (
            lambda: disk.flush([file]),
            lambda: disk.flush([], directories=["", "a"]),
            lambda: append(disk, file, b"2"),
            lambda: disk.open("new", create=True),
            lambda: disk.open("a/new", create=True),
            lambda: disk.make_directory("b"),
            lambda: disk.rename("a", "b"),
            lambda: disk.remove("a"),
            lambda: disk.truncate(file, 0),
        )
        await refused(*(change() for change in changes))
        assert world.made_in_its_place() == []
        world.move_directory_back()
        # What was written before may have been lost with a disk that was not the same.
        await refused(*(change() for change in changes))
        return await read_all(disk, file)

    assert world.run(run()) == b"1"


def test_9_a_directory_that_was_away_while_nobody_asked_goes_on(world: World) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        world.move_directory_away(is_replaced=False)
        with pytest.raises(DirectoryGone):
            await disk.list()
        world.move_directory_back()
        await append(disk, file, b"1")
        await disk.flush([file], directories=[""])
        return await read_all(disk, file)

    assert world.run(run()) == b"1"


def test_a_cancelled_append_takes_effect_or_does_not_but_keeps_the_order(world: World) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"1")
        cancelled = asyncio.create_task(append(disk, file, b"2"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await append(disk, file, b"3")
        return await read_all(disk, file)

    assert world.run(run()) in (b"13", b"123")


def test_list_names_files_and_directories_sorted_and_a_missing_directory_is_empty(
    world: World,
) -> None:
    async def run() -> list[list[str]]:
        disk = await world.disk()
        await disk.make_directory("b/c/d")
        await disk.make_directory("b/c/d")
        for path in ("z", "a", "b/file", "b/c/d/deep"):
            await disk.open(path, create=True)
        return [await disk.list(path) for path in ("", "b", "b/c", "b/c/d", "missing", "b/x")]

    assert world.run(run()) == [
        ["a", "b/", "z"],
        ["c/", "file"],
        ["d/"],
        ["deep"],
        [],
        [],
    ]


def test_rename_replaces_and_an_open_file_goes_with_its_new_name(world: World) -> None:
    async def run() -> tuple[list[str], str, bytes, bytes]:
        disk = await world.disk()
        replaced = await disk.open("new", create=True)
        await append(disk, replaced, b"replaced")
        file = await disk.open("old", create=True)
        await append(disk, file, b"kept")
        await disk.rename("old", "new")
        await append(disk, file, b" and grown")
        again = await disk.open("new")
        return await disk.list(), file.path, await read_all(disk, again), await read_all(disk, file)

    names, path, by_name, by_file = world.run(run())
    assert (names, path) == (["new"], "new")
    assert by_name == by_file == b"kept and grown"


def test_remove_takes_a_file_or_a_directory_with_all_in_it(world: World) -> None:
    async def run() -> list[str]:
        disk = await world.disk()
        for directory in ("gone/deep", "kept"):
            await disk.make_directory(directory)
        for path in ("gone/a", "gone/deep/b", "kept/a", "file"):
            await disk.open(path, create=True)
        await disk.remove("gone")
        await disk.remove("file")
        return await disk.list()

    assert world.run(run()) == ["kept/"]


def test_a_file_that_was_closed_is_refused(world: World) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"x")
        await disk.close(file)
        return await codes_of(
            [disk.read(file, 0, 1), append(disk, file, b"y"), disk.truncate(file, 0)]
        )

    codes = world.run(run())
    assert set(codes) == {ErrorCode.CLOSED}


def test_a_disk_that_was_shut_down_refuses_everything(world: World) -> None:
    async def run() -> list[ErrorCode | None]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await disk.shutdown()
        await disk.shutdown()
        return await codes_of(
            [
                disk.open("log"),
                append(disk, file, b"x"),
                disk.read(file, 0, 1),
                disk.flush([file]),
                disk.list(),
                disk.remove("log"),
            ]
        )

    codes = world.run(run())
    assert set(codes) == {ErrorCode.CLOSED}


def test_free_bytes_is_a_size(world: World) -> None:
    async def run() -> int:
        return await (await world.disk()).free_bytes()

    assert world.run(run()) > 0


def test_an_empty_append_and_an_empty_flush_are_fine(world: World) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await disk.append([])
        await disk.append([Append(file, [])])
        await disk.append([Append(file, [b"", b"x", b""])])
        await disk.flush([])
        await disk.flush([file, file], directories=["", ""])
        return await read_all(disk, file)

    assert world.run(run()) == b"x"


def test_thousands_of_pieces_are_written_in_order(world: World) -> None:
    pieces = [b"%d," % number for number in range(5_000)]

    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await disk.append([Append(file, pieces)])
        return await read_all(disk, file)

    assert world.run(run()) == b"".join(pieces)
