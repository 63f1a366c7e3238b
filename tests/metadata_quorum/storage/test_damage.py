"""Damaged bytes: everything is there, or a repair says what is missing, or opening is refused."""

import collections
import random
from collections.abc import Iterator

import pytest

from tests.metadata_quorum.storage.storage_steps import entry, format_, open_, persist
from tests.metadata_quorum.storage.stores import (
    Files,
    Store,
    Truth,
    check,
    fill,
    open_checked,
    places,
)
from tidelog.wire.errors import ErrorCode, TidelogError

REFUSALS = (ErrorCode.STORAGE_CORRUPT, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.WRONG_CLUSTER)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        yield made


def outcome(
    store: Store, files: Files, truth: Truth, where: str, end_index_min: int | None = None
) -> str:
    """Of opening these files; `where` stands in the failure's message."""
    store.put(files)
    try:
        result = store.run(open_checked(store, truth, end_index_min=end_index_min))
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    if isinstance(result, TidelogError):
        assert result.code in REFUSALS, f"{where}: {result}"
        return result.code.name
    return "whole" if result else "repair"


def flipped(content: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    return bytes(changed)


def flip_everywhere(store: Store, truth: Truth, step: int) -> dict[str, collections.Counter[str]]:
    """Outcomes by the first letters of the files' names."""
    files = store.files()
    outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for path, position in places(files, step):
        damaged = files | {path: flipped(files[path], position, position % 8)}
        told = outcome(store, damaged, truth, f"{path} byte {position}")
        outcomes[path.partition("-")[0]][told] += 1
        kept = store.files().values()
        assert any(each.startswith(damaged[path]) for each in kept), f"the bytes of {path} are gone"
    return outcomes


def check_flips(outcomes: dict[str, collections.Counter[str]]) -> None:
    assert set(outcomes["marks"]) == {"whole"}, "each mark stands there twice"
    assert set(outcomes["journal"]) == {"whole", "repair"}, outcomes["journal"]
    assert set(outcomes["snapshot"]) <= {"whole", "repair"}, outcomes["snapshot"]
    assert set(outcomes["quorum.json"]) <= {"whole", *(code.name for code in REFUSALS)}


def test_a_flipped_bit_after_a_killed_process_never_shortens_the_log(store: Store) -> None:
    truth = store.run(fill(store, is_settled=False))
    check_flips(flip_everywhere(store, truth, 101))


def test_a_flipped_bit_after_a_settled_machine_crash_never_shortens_the_log(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    store.crash()
    check_flips(flip_everywhere(store, truth, 101))


@pytest.mark.slow
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_flipped_bit_in_any_third_byte_never_shortens_the_log(
    store: Store, is_settled: bool
) -> None:
    truth = store.run(fill(store, is_settled=is_settled))
    if is_settled:
        store.crash()
    check_flips(flip_everywhere(store, truth, 3))


@pytest.mark.slow
@pytest.mark.parametrize("length", [16, 200, 512])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_damaged_stretch_never_shortens_the_log(
    store: Store, length: int, is_settled: bool
) -> None:
    truth = store.run(fill(store, is_settled=is_settled))
    if is_settled:
        store.crash()
    files = store.files()
    drawn = random.Random(length)
    for path, position in places(files, 17):
        content = files[path]
        stretch = drawn.randbytes(min(length, len(content) - position))
        damaged = content[:position] + stretch + content[position + length :]
        where = f"{path} bytes {position} to {position + length}"
        outcome(store, files | {path: damaged}, truth, where)


@pytest.mark.slow
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_file_that_was_cut_off_never_loses_what_was_settled(
    store: Store, is_settled: bool
) -> None:
    truth = store.run(fill(store, is_settled=is_settled))
    files = store.files()
    for path, position in places(files, 5):
        damaged = files | {path: files[path][:position]}
        where = f"{path} cut off at byte {position}"
        outcome(store, damaged, truth, where, end_index_min=truth.marked_index)


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_file_that_is_gone_never_takes_what_was_settled_with_it(
    store: Store, is_settled: bool
) -> None:
    truth = store.run(fill(store, is_settled=is_settled))
    files = store.files()
    for path in sorted(files):
        left = {each: content for each, content in files.items() if each != path}
        store.put(left)
        result = store.run(open_checked(store, truth, end_index_min=truth.marked_index))
        if path == "quorum.json":
            assert isinstance(result, TidelogError)
            assert result.code is ErrorCode.STORAGE_NOT_FORMATTED
        elif path == "marks":
            assert isinstance(result, TidelogError)
            assert result.code is ErrorCode.STORAGE_CORRUPT
        else:
            assert not isinstance(result, TidelogError), (path, result)


def test_without_any_snapshot_everything_is_fetched_again(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    files = store.files()
    store.put({path: files[path] for path in files if not path.startswith("snapshot")})
    recovered = store.run(store.open()).recovered
    assert recovered.snapshot is None
    assert recovered.entries == ()
    assert recovered.hard_state.repair is not None
    assert recovered.hard_state.repair.from_index == 1
    assert recovered.hard_state.repair.last_index == truth.end_index


def test_the_last_block_damaged_between_flush_and_settle_is_repaired_in_the_same_boot(
    store: Store,
) -> None:
    truth = store.run(fill(store, is_settled=False))
    files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    position = files[newest].rindex(b"later 13")
    damaged = files | {newest: flipped(files[newest], position, 0)}
    assert outcome(store, damaged, truth, newest) == "repair"


def test_a_last_block_that_the_file_ends_within_is_torn_in_the_same_boot(store: Store) -> None:
    truth = store.run(fill(store, is_settled=False))
    files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    position = files[newest].rindex(b"later 12")
    cut_off = files | {newest: files[newest][:position]}
    assert outcome(store, cut_off, truth, newest, end_index_min=11) == "whole"


def test_a_last_block_without_head_and_foot_is_refused_in_the_same_boot(store: Store) -> None:
    truth = store.run(fill(store, is_settled=False))
    files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    begin = files[newest].rindex(b"TQB1")
    damaged = files | {newest: files[newest][:begin] + bytes(len(files[newest]) - begin)}
    assert outcome(store, damaged, truth, newest) == "STORAGE_CORRUPT"


def test_a_settled_block_without_head_and_foot_is_repaired_in_the_same_boot(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    begin = files[newest].rindex(b"TQB1")
    damaged = files | {newest: files[newest][:begin] + bytes(len(files[newest]) - begin)}
    assert outcome(store, damaged, truth, newest) == "repair"
    # The end of a write that was broken off behind it changes nothing.
    damaged[newest] += b"TQB1"
    assert outcome(store, damaged, truth, newest) == "repair"


@pytest.mark.slow
def test_after_a_machine_crash_the_last_block_may_be_torn_anywhere(store: Store) -> None:
    truth = store.run(fill(store, is_settled=False))
    store.crash()
    files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    begin = files[newest].rindex(b"TQB1")
    for length in range(1, len(files[newest]) - begin, 3):
        torn = files[newest][:begin] + bytes(length) + files[newest][begin + length :]
        where = f"{length} bytes missing"
        assert outcome(store, files | {newest: torn}, truth, where, end_index_min=11) == "whole"


def test_a_cut_that_is_lost_is_known_by_the_mark(store: Store) -> None:
    async def fill_and_cut() -> None:
        await format_(store.disk())
        storage = await store.open()
        await storage.perform([persist(*(entry(index) for index in range(1, 7)), term=1)])
        await storage.settle()
        await storage.perform([persist(entry(4, 2, b"x" * 800), cut=4, term=2)])
        await storage.perform([persist(entry(5, 2, b"x" * 800), entry(6, 2))])
        await storage.settle()

    store.run(fill_and_cut())
    files = store.files()
    first = min(path for path in files if path.startswith("journal"))
    store.put({path: files[path] for path in ("quorum.json", "marks", first)})
    recovered = store.run(store.open()).recovered
    assert recovered.entries == tuple(entry(index) for index in range(1, 4))
    repair = recovered.hard_state.repair
    assert repair is not None
    assert (repair.from_index, repair.last_index, repair.last_term) == (4, 6, 2)


@pytest.mark.parametrize("text", [b"one", b"two", b"three"])
def test_a_process_killed_again_and_again_without_a_settle_loses_nothing(
    store: Store, text: bytes
) -> None:
    """Each life's last block is damaged before the next one."""

    async def begin() -> None:
        await format_(store.disk())

    store.run(begin())
    texts = [b"one", b"two", b"three"]
    for index, data in enumerate(texts, start=1):
        storage = store.run(store.open())
        store.run(storage.perform([persist(entry(index, 1, data * 5), term=1)]))
    files = store.files()
    path = next(each for each, content in files.items() if text * 5 in content)
    store.put(files | {path: files[path].replace(text * 5, b"?" * len(text * 5))})
    state = store.run(store.open()).recovered.hard_state
    assert state.repair is not None
    assert state.repair.from_index == texts.index(text) + 1
    assert state.repair.last_index == 3


def damage_newest(store: Store, text: bytes) -> None:
    """While nothing runs."""
    files = store.files()
    newest = max(path for path in files if path.startswith("journal"))
    assert text in files[newest]
    store.put(files | {newest: files[newest].replace(text, bytes(len(text)))})


def test_the_first_block_after_a_restart_of_the_machine_is_not_taken_for_torn(
    store: Store,
) -> None:
    store.run(fill(store, is_settled=True))
    store.crash()
    storage = store.run(store.open())
    store.run(storage.perform([persist(entry(14, 2, b"first of this boot"))]))
    damage_newest(store, b"first of this boot")
    repair = store.run(store.open()).recovered.hard_state.repair
    assert repair is not None
    assert (repair.from_index, repair.last_index, repair.last_term) == (14, 14, 2)


@pytest.mark.parametrize("boot_ids", [("", "node-boot-1"), ("node-boot-1", ""), ("", "")])
def test_without_a_boot_id_a_damaged_last_block_is_torn(
    store: Store, boot_ids: tuple[str, str]
) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(open_(store.disk(), boot_ids[0]))
    store.run(storage.perform([persist(entry(14, 2, b"of no known boot"))]))
    damage_newest(store, b"of no known boot")
    assert check(store.run(open_(store.disk(), boot_ids[1])).recovered, truth)


def test_a_term_that_no_member_would_have_taken_stops_the_opening_with_an_error(
    store: Store,
) -> None:
    async def forge() -> None:
        await format_(store.disk())
        storage = await store.open()
        await storage.perform([persist(entry(1), term=(1 << 64) - 1)])
        await storage.settle()

    store.run(forge())
    files = store.files()
    with pytest.raises(TidelogError, match="the term is 18446744073709551615") as caught:
        store.run(store.open())
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    assert caught.value.hint
    assert store.files() == files
