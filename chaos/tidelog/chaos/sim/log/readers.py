"""Who reads: at the tail, from the start, anywhere, and by time. Hands every answer to the models.

It checks what it reads as a client does, and sees besides whether the medium holds it for good.
"""

from typing import Final

from tidelog.chaos.checkers.log.medium import is_durable
from tidelog.chaos.checkers.log.model import Bounds, LogModel
from tidelog.chaos.checkers.log.records import Found, read_records
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.log.node import LogNode, NodeGone
from tidelog.chaos.sim.log.partition_client import PartitionClient, Stage
from tidelog.chaos.sim.ports.clock import WALL_START_MS, sleep_ns
from tidelog.wire.batch import HEADER_BYTES, CorruptBatch, iterate_headers, verify_checksum
from tidelog.wire.errors import ErrorCode, TidelogError

_MS: Final = 1_000_000
_PAUSE_NS: Final = 24 * _MS
_MAX_BYTES: Final = (1, 700, 4_096, 65_536)
_BACK_MS: Final = 4_000


class Reader:
    """One reader of all partitions."""

    def __init__(self, stage: Stage, clients: list[PartitionClient], random: SeededRandom) -> None:
        self._stage = stage
        self._clients = clients
        self._random = random
        self._positions: dict[int, int] = {}
        self._durable: set[bytes] = set()
        """Bodies of batches that were seen to be durable; only ever asked for one of them."""
        self.reads = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await sleep_ns(self._stage.loop, self._random.below(_PAUSE_NS))
            if self._stage.node is None:
                continue
            number = self._random.below(len(self._clients))
            client = self._clients[number]
            if self._random.chance(0.15):
                await self._search(client)
            else:
                await self._read_on(number, client)

    async def _read_on(self, number: int, client: PartitionClient) -> None:
        node = self._stage.node
        assert node is not None, "checked by the caller"
        bounds = node.bounds_of(client.key)
        draw = self._random.unit()
        if draw < 0.1 or number not in self._positions:
            self._positions[number] = bounds.log_start
        elif draw < 0.2 and bounds.log_start < bounds.high_watermark:
            self._positions[number] = self._random.between(
                bounds.log_start, bounds.high_watermark - 1
            )
        max_bytes = _MAX_BYTES[self._random.below(len(_MAX_BYTES))]
        for _ in range(self._random.between(1, 4)):
            following = await self.read(client, self._positions[number], max_bytes)
            if following is None:
                del self._positions[number]
                return
            if following == self._positions[number]:
                return
            self._positions[number] = following

    async def read(
        self,
        client: PartitionClient,
        offset: int,
        max_bytes: int,
        collect: list[Found] | None = None,
    ) -> int | None:
        """Where to go on; None: it was refused."""
        node, model, key = self._stage.node, client.model, client.key
        if node is None:
            return None
        reading = model.begin_read(offset)

        async def ask() -> tuple[bytes, int, Bounds]:
            data, next_offset = await node.read(key, offset, max_bytes)
            return data, next_offset, node.bounds_of(key)

        try:
            data, next_offset, bounds = await node.call(ask, "read")
        except NodeGone:
            return None
        except TidelogError as error:
            self._on_refused(node, client, offset, error)
            return None
        self.reads += 1
        found = self._decode(client, data, bounds)
        if found is None or node is not self._stage.node:
            return None
        detail = f"{offset} to {next_offset} of {bounds.log_start} to {bounds.high_watermark}"
        self._stage.note(key, "client:read", detail)
        self._stage.tell_time()
        model.see(bounds, reading)
        if node.log_of(key).failure is None and model.truncating_to is None:
            model.see(node.bounds_of(key))
        model.read(reading, found, next_offset, bounds)
        if collect is not None:
            collect += found
        return next_offset

    def _decode(self, client: PartitionClient, data: bytes, bounds: Bounds) -> list[Found] | None:
        found: list[Found] = []
        model = client.model
        try:
            for position, header in iterate_headers(data, is_compacted=True):
                verify_checksum(data, header, position)
                batch = data[position : position + header.size_bytes]
                if header.record_count:
                    found += read_records(batch)
                if model.policy.is_flush_sync and header.record_count:
                    self._check_durable(client, batch, header.base_offset)
        except CorruptBatch as error:
            model.violate("wrong_bytes", f"a batch was served that is none: {error}")
            return None
        del bounds
        return found

    def _check_durable(self, client: PartitionClient, batch: bytes, base_offset: int) -> None:
        body = batch[HEADER_BYTES:]
        if body in self._durable:
            return
        if is_durable(self._stage.medium_of(client.planned), client.key, body):
            self._durable.add(body)
        elif client.model.truncating_to is None:
            client.model.violate("not_flushed", f"a batch was served at {base_offset}")

    def _on_refused(
        self, node: LogNode, client: PartitionClient, offset: int, error: TidelogError
    ) -> None:
        model: LogModel = client.model
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._stage.report(error)
            return
        bounds = node.bounds_of(client.key)
        is_within = bounds.log_start <= offset <= model.certain_end
        if node is self._stage.node and is_within and model.truncating_to is None:
            model.violate("false_range", f"{offset} was refused: {error}; {bounds}")

    async def _search(self, client: PartitionClient) -> None:
        node, model, key = self._stage.node, client.model, client.key
        assert node is not None, "checked by the caller"
        now_ms = WALL_START_MS + self._stage.loop.now_ns // _MS
        is_newest = self._random.chance(0.25)
        timestamp_ms = now_ms - self._random.below(_BACK_MS)
        reading = model.begin_read(0)

        async def ask() -> tuple[tuple[int, int] | None, Bounds, Bounds]:
            before = node.bounds_of(key)
            search = node.newest(key) if is_newest else node.first_at(key, timestamp_ms)
            return await search, before, node.bounds_of(key)

        try:
            found, before, after = await node.call(ask, "search")
        except NodeGone:
            return
        except TidelogError as error:
            self._stage.report(error)
            return
        if node is not self._stage.node:
            return
        self.reads += 1
        bounds = Bounds(
            log_start=after.log_start,
            high_watermark=before.high_watermark,
            log_end=before.log_end,
        )
        if found is not None and found[0] < after.log_start:
            return
        if is_newest:
            model.find_newest(reading, found, bounds)
        else:
            model.find_time(reading, timestamp_ms, found, bounds)
