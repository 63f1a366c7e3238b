"""The metadata port of a node that is its own quorum: one log file, one writer, no elections.

Owns `metadata/records.log`. It must never show an image of which a record is not flushed, nor
write two entries at a time. One task owns the log and the image; handlers submit and await.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidelog.metadata_quorum import invariants, record_log
from tidelog.metadata_quorum.apply import apply_entries, apply_entry
from tidelog.metadata_quorum.controller import brokers
from tidelog.metadata_quorum.controller import topics as topic_decisions
from tidelog.metadata_quorum.controller.brokers import Registration
from tidelog.metadata_quorum.controller.topics import NewTopic, TopicDefaults
from tidelog.metadata_quorum.image import Image
from tidelog.metadata_quorum.port import CreatedTopic
from tidelog.metadata_quorum.records import (
    FORMAT_VERSION,
    FenceRecord,
    FormatRecord,
    MetadataRecord,
    decode_entry,
    encode_entry,
)
from tidelog.ports import Append, Disk, File, Random, RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, TopicId

DIRECTORY: Final = "metadata"
LOG_PATH: Final = "metadata/records.log"
QUEUED_WRITES_MAX: Final = 1_000
READ_BYTES: Final = 4 * 1024 * 1024

Entry = tuple[MetadataRecord, ...]
Decide = Callable[[Image], tuple[Entry, object]]
"""Run by the owning task against the newest image: the entry to write if it holds anything, and
what to answer."""


class _Write(msgspec.Struct, frozen=True):
    decide: Decide
    done: "asyncio.Future[object]"


async def open_log(
    disk: Disk, cluster_id: str, *, must_exist: bool = False
) -> tuple[File, Image, int]:
    """Open or make the log; recover its image. Returns the bytes of a torn tail that were cut.

    With `must_exist` an absent or empty log is damage: its topics would be gone without a word.
    """
    if "records.log" not in await disk.list(DIRECTORY):
        _refuse_loss(disk, "it is not there", must_exist=must_exist)
        return await _make_log(disk, cluster_id)
    file = await disk.open(LOG_PATH)
    scanned = record_log.scan(await _read_all(disk, file), file_name=f"{disk.name}/{LOG_PATH}")
    entries = [decode_entry(payload) for payload in scanned.payloads]
    if not entries:
        _refuse_loss(disk, "it holds no entry", must_exist=must_exist)
    else:
        _validate_format(disk, entries[0], cluster_id)
    torn_bytes = file.size_bytes - scanned.valid_bytes
    if torn_bytes:
        await disk.truncate(file, scanned.valid_bytes)
    if not entries:
        await _write_format(disk, file, cluster_id)
        return file, apply_entry(Image(), (FormatRecord(cluster_id=cluster_id),)), torn_bytes
    # Of what a killed process left, bytes and names may be in memory only.
    await disk.flush([file], directories=[DIRECTORY, ""])
    return file, apply_entries(Image(), entries), torn_bytes


def _refuse_loss(disk: Disk, happened: str, *, must_exist: bool) -> None:
    if must_exist:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"open {disk.name}/{LOG_PATH}",
            happened=f"{happened}, but the data directory was in use before",
            hint="Restore the file from a backup; without it the node knows none of its topics.",
        )


async def _make_log(disk: Disk, cluster_id: str) -> tuple[File, Image, int]:
    await disk.make_directory(DIRECTORY)
    file = await disk.open(LOG_PATH, create=True)
    await _write_format(disk, file, cluster_id)
    return file, apply_entry(Image(), (FormatRecord(cluster_id=cluster_id),)), 0


async def _write_format(disk: Disk, file: File, cluster_id: str) -> None:
    payload = encode_entry((FormatRecord(cluster_id=cluster_id),))
    await disk.append([Append(file, [record_log.frame(payload)])])
    await disk.flush([file], directories=[DIRECTORY, ""])


async def _read_all(disk: Disk, file: File) -> bytes:
    pieces = []
    for position in range(0, file.size_bytes, READ_BYTES):
        pieces.append(await disk.read(file, position, READ_BYTES))
    return b"".join(pieces)


def _validate_format(disk: Disk, first: Entry, cluster_id: str) -> None:
    tried = f"open {disk.name}/{LOG_PATH}"
    if not first or not isinstance(first[0], FormatRecord):
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT, tried=tried, happened="its first entry is no format record"
        )
    if first[0].version != FORMAT_VERSION:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=tried,
            happened=f"it has format version {first[0].version}, "
            f"this release reads {FORMAT_VERSION}",
        )
    if first[0].cluster_id != cluster_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it belongs to cluster {first[0].cluster_id}, this node to {cluster_id}",
        )


class SingleNodeMetadata:
    """`Metadata` over one file. `run()` is the owning task; nothing is written before it runs."""

    def __init__(
        self,
        disk: Disk,
        file: File,
        image: Image,
        *,
        random: Random,
        broker_id: BrokerId,
        defaults: TopicDefaults,
    ) -> None:
        self._disk = disk
        self._file = file
        self._image = image
        self._random = random
        self._broker_id = broker_id
        self._defaults = defaults
        self._inbox: deque[_Write] = deque()
        self._news = asyncio.Event()
        self._is_stopping = False
        self._failure: TidelogError | None = None
        self._waiters: list[tuple[int, asyncio.Future[Image]]] = []

    def image(self) -> Image:
        """See `Metadata`."""
        return self._image

    @property
    def failure(self) -> TidelogError | None:
        """Why nothing can be written any more, if that is so."""
        return self._failure

    def controller_id(self) -> BrokerId | None:
        """The node is its own controller as long as its log can be written."""
        return None if self._failure else self._broker_id

    async def wait_version(self, version: int) -> Image:
        """See `Metadata`."""
        if self._image.version >= version:
            return self._image
        waiter: asyncio.Future[Image] = asyncio.get_running_loop().create_future()
        self._waiters.append((version, waiter))
        return await waiter

    async def create_topics(
        self,
        context: RequestContext,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool,
        timeout_ms: int,
    ) -> list[CreatedTopic | TidelogError]:
        """See `Metadata`. One entry for all of them: a crash that keeps a part of a write may
        keep a later entry without an earlier one, which is damage in every other case.
        """
        del context
        results: list[CreatedTopic | TidelogError] = []

        def decide(image: Image) -> tuple[Entry, object]:
            version = image.version + 1
            records: list[MetadataRecord] = []
            for wanted in topics:
                try:
                    topic_id = TopicId(self._random.uuid())
                    plan = topic_decisions.plan_topic(image, wanted, topic_id, self._defaults)
                    _validate_entry_size(plan, len(records))
                except TidelogError as error:
                    results.append(error)
                    continue
                image = apply_entry(image, plan.records)
                records += plan.records
                results.append(_created(plan, version, validate_only=validate_only))
            return () if validate_only else tuple(records), None

        await self._submit(decide, tried="create topics", timeout_ms=timeout_ms)
        return results

    async def register_broker(self, registration: Registration) -> BrokerEpoch:
        """See `Metadata`."""

        def decide(image: Image) -> tuple[Entry, object]:
            record = brokers.plan_registration(image, registration)
            return (record,), record.epoch

        epoch = await self._submit(decide, tried="register the broker", timeout_ms=None)
        assert isinstance(epoch, int), "a registration is answered with its epoch"
        return BrokerEpoch(epoch)

    async def unfence_broker(self, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
        """See `Metadata`."""

        def decide(image: Image) -> tuple[Entry, object]:
            known = image.brokers.get(broker_id)
            if known is None or known.epoch != epoch:
                raise TidelogError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    tried=f"unfence broker {broker_id}",
                    happened=f"epoch {epoch} is not its registration any more",
                )
            return (FenceRecord(broker_id=broker_id, epoch=epoch, is_fenced=False),), None

        await self._submit(decide, tried="unfence the broker", timeout_ms=None)

    async def run(self) -> None:
        """The owning task: drains the inbox until `stop`."""
        while not self._is_stopping or self._inbox:
            if not self._inbox:
                self._news.clear()
                await self._news.wait()
                continue
            await self._perform(self._inbox.popleft())

    async def stop(self) -> None:
        """See `Metadata`."""
        self._is_stopping = True
        self._news.set()

    async def _submit(self, decide: Decide, *, tried: str, timeout_ms: int | None) -> object:
        if self._is_stopping:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried=tried, happened="the node is stopping")
        if len(self._inbox) >= QUEUED_WRITES_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried=tried,
                happened=f"{QUEUED_WRITES_MAX} metadata writes are waiting",
            )
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Write(decide, done))
        self._news.set()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await done
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=tried,
                happened=f"not durable within {timeout_ms} ms",
            ) from None

    async def _perform(self, write: _Write) -> None:
        """Decide, write, flush, show; a refusal or a failed disk goes to the one who asked."""
        try:
            if self._failure is not None:
                raise _again(self._failure)
            entry, answer = write.decide(self._image)
            if entry:
                await self._write(entry)
        except TidelogError as error:
            if not write.done.done():
                write.done.set_exception(error)
            return
        if not write.done.done():
            write.done.set_result(answer)

    async def _write(self, entry: Entry) -> None:
        """One entry at a time: what lies behind a damaged one proves that it had been flushed."""
        size_bytes = self._file.size_bytes
        frame = record_log.frame(encode_entry(entry))
        after = apply_entry(self._image, entry)
        invariants.check_step(self._image, after)
        try:
            await self._disk.append([Append(self._file, [frame])])
        except TidelogError as error:
            await self._undo(size_bytes, error)
            raise
        try:
            await self._disk.flush([self._file])
        except TidelogError as error:
            self._failure = error
            raise
        self._show(after)

    async def _undo(self, size_bytes: int, error: TidelogError) -> None:
        """Cut off what a full disk let through; a disk that refuses that too is given up."""
        if error.code is not ErrorCode.STORAGE_FULL:
            self._failure = error
            return
        try:
            await self._disk.truncate(self._file, size_bytes)
            await self._disk.flush([self._file])
        except TidelogError as second:
            self._failure = second

    def _show(self, after: Image) -> None:
        assert after.version > self._image.version, "an image never goes back"
        self._image = after
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if waiter.done():
                continue
            if version <= after.version:
                waiter.set_result(after)
            else:
                self._waiters.append((version, waiter))


def _again(error: TidelogError) -> TidelogError:
    """An equal error: one that is raised again and again would grow its traceback."""
    return TidelogError(error.code, tried=error.tried, happened=error.happened, hint=error.hint)


def _validate_entry_size(plan: topic_decisions.TopicPlan, records_before: int) -> None:
    if records_before + len(plan.records) > topic_decisions.PARTITIONS_PER_REQUEST_MAX + 1:
        raise TidelogError(
            ErrorCode.INVALID_PARTITION_COUNT,
            tried=f"create topic {plan.name} with {plan.partition_count} partitions",
            happened=f"one request creates at most {topic_decisions.PARTITIONS_PER_REQUEST_MAX} "
            "topics and partitions",
            hint="Create the topics in several requests.",
        )


def _created(plan: topic_decisions.TopicPlan, version: int, *, validate_only: bool) -> CreatedTopic:
    return CreatedTopic(
        name=plan.name,
        topic_id=plan.topic_id,
        partition_count=plan.partition_count,
        replication_factor=plan.replication_factor,
        version=0 if validate_only else version,
    )
