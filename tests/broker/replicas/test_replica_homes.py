"""In which directory a partition is served: what the metadata name, else what is found."""

import asyncio

import pytest

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.homes import Homes
from tidelog.metadata.image.image import NO_DIRECTORY, PartitionImage
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

KEY = PartitionKey(TopicId(b"t" * 16), PartitionId(0))
ME = BrokerId(1)
GONE = TidelogError(ErrorCode.STORAGE_FAILED, tried="open it", happened="it is gone")


class Stand(LogDirectory):
    """A directory of which only what homes look at is there."""

    def __init__(self, name: str, *, holds: bool = False, fails: bool = False, count: int = 0):
        self.name = name
        self.directory_uuid = name.encode()
        self._holds = holds
        self._fails = fails
        self._count = count

    @property
    def failure(self) -> TidelogError | None:
        return GONE if self._fails else None

    @property
    def partition_count(self) -> int:
        return self._count

    async def survey(self) -> tuple[PartitionKey, ...]:
        return (KEY,) if self._holds and not self._fails else ()


def image(directory: bytes) -> PartitionImage:
    """A partition that broker 1 holds there."""
    return PartitionImage(
        partition=PartitionId(0),
        leader_id=ME,
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        replicas=(ME,),
        in_sync_replicas=(ME,),
        directories=(directory,) if directory else (),
    )


def chosen(named: bytes, *directories: Stand, was_here: bool = True) -> str:
    """The name of the directory, or what is wrong."""
    homes = Homes(directories, ME)
    asyncio.run(homes.survey())
    found = homes.choose(KEY, image(named), was_here=was_here)
    return found.happened if isinstance(found, TidelogError) else found.name


def test_the_directory_that_the_metadata_name_is_taken_with_its_files_or_without() -> None:
    assert chosen(b"b", Stand("a"), Stand("b")) == "b"
    assert chosen(b"b", Stand("a", holds=True), Stand("b", holds=True)) == "b"


def test_records_that_are_found_elsewhere_only_are_served_from_there() -> None:
    assert chosen(b"b", Stand("a", holds=True), Stand("b")) == "a"


@pytest.mark.parametrize("holds", [True, False])
def test_a_named_directory_that_failed_stops_the_partition_whatever_lies_elsewhere(
    holds: bool,
) -> None:
    assert chosen(b"b", Stand("a", holds=holds), Stand("b", fails=True)) == "it is gone"


def test_a_named_directory_that_nobody_configured_stops_the_partition() -> None:
    assert "neither data_dir nor one of log_dirs" in chosen(b"c", Stand("a"), Stand("b"))
    assert "id 63" in chosen(b"c", Stand("a", holds=True))


def test_one_that_could_not_be_read_may_be_the_named_one() -> None:
    unread = Stand("", fails=True)
    assert chosen(b"c", Stand("a"), unread) == "it is gone"


def test_files_of_an_earlier_assignment_are_taken_up_where_they_lie() -> None:
    assert chosen(b"a", Stand("a", holds=True), was_here=False) == "a"
    assert chosen(b"b", Stand("a", holds=True), Stand("b"), was_here=False) == "a"
    assert chosen(NO_DIRECTORY, Stand("a", count=9, holds=True), Stand("b"), was_here=False) == "a"


def test_a_partition_is_found_where_its_files_lie_until_they_are_removed() -> None:
    with_files, without = Stand("a", holds=True), Stand("b")
    homes = Homes((with_files, without), ME)
    asyncio.run(homes.survey())
    assert homes.is_found(KEY, with_files)
    assert not homes.is_found(KEY, without)
    homes.note_removed(KEY, with_files, are_gone=True)
    assert not homes.is_found(KEY, with_files)
    homes.note_removed(KEY, without, are_gone=False)
    assert homes.is_found(KEY, without), "they are not to be taken for new ones"


def test_without_a_named_directory_what_is_found_counts_else_the_emptiest() -> None:
    assert chosen(NO_DIRECTORY, Stand("a"), Stand("b", holds=True)) == "b"
    stands = (Stand("a", count=3), Stand("b", count=1), Stand("c", count=2))
    assert chosen(NO_DIRECTORY, *stands) == "b"


def test_without_a_named_directory_one_that_failed_may_hold_what_was_here_before() -> None:
    stands = (Stand("a"), Stand("b", fails=True))
    assert chosen(NO_DIRECTORY, *stands) == "it is gone"
    assert chosen(NO_DIRECTORY, *stands, was_here=False) == "a"
    assert chosen(NO_DIRECTORY, Stand("b", fails=True), was_here=False) == "it is gone"
