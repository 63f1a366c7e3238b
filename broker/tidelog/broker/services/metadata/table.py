"""The metadata's part of the `client` listener, the same on brokers and on controllers.

Owns which of these methods this node answers from its own image and which go to the active
controller. What only a partition's leader can do is refused here, never missing: a broker's own
table takes its place.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tidelog.broker.services.metadata.export import MetadataExport
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.port import Metadata
from tidelog.metadata_quorum.services.methods import local_reads
from tidelog.metadata_quorum.shared.forwarding import (
    FORWARDED,
    SERVED_FILES,
    asked_ms,
    left_ms,
)
from tidelog.ports import Clock, Method, RequestContext, StreamMethod, UnaryHandler, UnaryMethod
from tidelog.wire.errors import ErrorCode, TidelogError

METADATA_FILES: Final = SERVED_FILES
DELETE_RECORDS: Final = "/tidelog.v1.TopicAdminService/DeleteRecords"
OF_LEADERS: Final = (DELETE_RECORDS,)
"""Of the services above, what a node without partitions cannot do."""
EXPORT: Final = "/tidelog.v1.MetadataAdminService/ExportMetadata"

Settle = Callable[[int], Awaitable[None]]
"""Waits until this node acts upon the metadata's version."""


async def settled_at_once(version: int) -> None:
    """Of a node that holds no partitions."""
    del version


def forwarding_methods(
    metadata: Metadata, clock: Clock, *, timeout_ms: int, settle: Settle = settled_at_once
) -> Mapping[str, Method]:
    """What the active controller answers, by full name, and what a node without partitions
    refuses."""
    methods: dict[str, Method] = {}
    for name in FORWARDED:
        methods[name] = UnaryMethod(_forward(name, metadata, clock, timeout_ms, settle))
    for name in OF_LEADERS:
        methods[name] = UnaryMethod(_refuse(name))
    return methods


def reading_methods(metadata: Metadata) -> Mapping[str, Method]:
    """What this node's image answers, by full name."""
    reads: dict[str, Method] = {
        name: UnaryMethod(_read(metadata, read)) for name, read in local_reads().items()
    }
    return {**reads, EXPORT: StreamMethod(MetadataExport(metadata).export_metadata)}


def _forward(
    method: str, metadata: Metadata, clock: Clock, timeout_ms: int, settle: Settle
) -> UnaryHandler:
    async def handle(context: RequestContext, message: bytes) -> bytes:
        # Also where no controller answers that would keep to it.
        wait_ms = min(asked_ms(method, message) or timeout_ms, timeout_ms, left_ms(context, clock))
        answer = await metadata.forward(context, method, message, timeout_ms=wait_ms)
        await settle(answer.applied_index)
        return answer.response

    return handle


def _read(metadata: Metadata, read: Callable[[Image, bytes], bytes]) -> UnaryHandler:
    async def handle(context: RequestContext, message: bytes) -> bytes:
        del context
        return read(metadata.image(), message)

    return handle


def _refuse(name: str) -> UnaryHandler:
    async def handle(context: RequestContext, message: bytes) -> bytes:
        del context, message
        raise TidelogError(
            ErrorCode.NOT_LEADER,
            tried=f"call {name}",
            happened="this node holds no partitions",
        )

    return handle
