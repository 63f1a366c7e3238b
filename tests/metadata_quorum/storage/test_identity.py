"""Formatting never overwrites; what belongs to another node, cluster or version is not opened."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata_quorum.storage.storage_steps import (
    MEMBERS,
    UUID,
    entry,
    format_,
    open_,
    persist,
)
from tests.metadata_quorum.storage.stores import Files, Store, fill
from tidelog.metadata_quorum.storage.identity import format_storage
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.ports.real.disk.disk import open_disk
from tidelog.wire.errors import ErrorCode, TidelogError


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        yield made


def refusal_of_formatting(store: Store, files: Files) -> TidelogError:
    store.put(files)
    with pytest.raises(TidelogError) as refused:
        store.run(format_(store.disk()))
    assert store.files() == files, "nothing was touched"
    return refused.value


def refusal_of_opening(
    store: Store, *, node_id: int | None = None, cluster_id: str | None = None
) -> TidelogError:
    files = store.files()
    with pytest.raises(TidelogError) as refused:
        store.run(open_storage(store.disk(), node_id=node_id, cluster_id=cluster_id))
    assert store.files() == files, "nothing was touched"
    return refused.value


def test_a_formatted_directory_is_not_formatted_again(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    error = refusal_of_formatting(store, store.files())
    assert error.code is ErrorCode.STORAGE_IN_USE
    assert "quorum.json" in error.happened


@pytest.mark.parametrize("name", ["marks", "journal-1.log", "photo.jpg"])
def test_a_directory_that_holds_something_is_not_formatted(store: Store, name: str) -> None:
    error = refusal_of_formatting(store, {name: b"something"})
    assert error.code is ErrorCode.STORAGE_NOT_FORMATTED
    assert name in error.happened


def test_marks_of_a_quorum_that_lost_its_identity_are_not_overwritten(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    left = {path: each for path, each in store.files().items() if path == "marks"}
    assert refusal_of_formatting(store, left).code is ErrorCode.STORAGE_NOT_FORMATTED


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "uuid"),
    [("", 1, UUID), ("c", -1, UUID), ("c", 1, UUID[:15])],
)
def test_formatting_without_a_name_is_refused(
    store: Store, cluster_id: str, node_id: int, uuid: bytes
) -> None:
    with pytest.raises(TidelogError) as refused:
        store.run(
            format_storage(
                store.disk(),
                cluster_id=cluster_id,
                node_id=node_id,
                directory_uuid=uuid,
                bootstrap=MEMBERS,
                bootstrap_command=b"",
            )
        )
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert store.files() == {}


def test_a_directory_without_an_identity_is_not_opened(store: Store) -> None:
    assert refusal_of_opening(store).code is ErrorCode.STORAGE_NOT_FORMATTED


def test_another_node_s_directory_is_not_opened(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    error = refusal_of_opening(store, node_id=2)
    assert error.code is ErrorCode.WRONG_CLUSTER
    assert "node 1" in error.happened


def test_another_cluster_s_directory_is_not_opened(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    error = refusal_of_opening(store, node_id=1, cluster_id="other")
    assert error.code is ErrorCode.WRONG_CLUSTER
    assert "cluster c" in error.happened


def test_another_format_version_is_not_opened(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    files = store.files()
    other = files["quorum.json"].replace(b'"format_version": 1', b'"format_version": 2')
    store.put(files | {"quorum.json": other})
    error = refusal_of_opening(store)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "version 2" in error.happened


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format_version": 1}'])
def test_an_identity_that_does_not_decode_is_corrupt(store: Store, content: bytes) -> None:
    store.run(fill(store, is_settled=True))
    store.put(store.files() | {"quorum.json": content})
    assert refusal_of_opening(store).code is ErrorCode.STORAGE_CORRUPT


def test_a_locked_directory_is_not_opened(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    process = store.machine.processes["node2"]
    assert not process.is_dead
    with pytest.raises(TidelogError) as refused:
        process.ports.open_disk("quorum")
    assert refused.value.code is ErrorCode.STORAGE_IN_USE


@pytest.mark.slow
def test_a_real_directory_is_formatted_locked_filled_and_opened_again(tmp_path: Path) -> None:
    async def main() -> None:
        disk = await open_disk(tmp_path)
        await format_(disk)
        storage = await open_(disk, "boot")
        with pytest.raises(TidelogError) as refused:
            await open_disk(tmp_path)
        assert refused.value.code is ErrorCode.STORAGE_IN_USE
        for index in range(1, 20):
            await storage.perform([persist(entry(index), term=1, vote=True)])
        await storage.close()
        await disk.shutdown()
        disk = await open_disk(tmp_path)
        recovered = (await open_(disk, "boot")).recovered
        assert recovered.entries == tuple(entry(index) for index in range(1, 20))
        assert recovered.hard_state.repair is None
        with pytest.raises(TidelogError) as formatted:
            await format_(disk)
        assert formatted.value.code is ErrorCode.STORAGE_IN_USE
        await disk.shutdown()

    asyncio.run(main())
