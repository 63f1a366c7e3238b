"""The metadata's part of the `client` listener, the same on brokers and on controllers.

Owns which of these methods this node answers from its own image and which go to the active
controller. A method that this release does not serve yet is refused as such, never missing.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tidelog.broker.rpc.access import read_accesses
from tidelog.broker.rpc.guard import Gate, guard_all
from tidelog.broker.rpc.metadata_export import MetadataExport
from tidelog.metadata_quorum.image import Image
from tidelog.metadata_quorum.port import Metadata
from tidelog.metadata_quorum.rpc.controller_methods import local_reads
from tidelog.metadata_quorum.rpc.forwarding import FORWARDED, SERVED_FILES, left_ms
from tidelog.ports import Clock, Method, RequestContext, StreamHandler, UnaryHandler
from tidelog.ports.request_context import CLIENT_LISTENER
from tidelog.wire.errors import ErrorCode, TidelogError

METADATA_FILES: Final = SERVED_FILES
NOT_SERVED: Final = ("/tidelog.v1.TopicAdminService/DeleteRecords",)
EXPORT: Final = "/tidelog.v1.MetadataAdminService/ExportMetadata"

Settle = Callable[[int], Awaitable[None]]
"""Waits until this node acts upon the metadata's version."""


async def settled_at_once(version: int) -> None:
    """Of a node that holds no partitions."""
    del version


def build_metadata_methods(
    metadata: Metadata,
    gate: Gate,
    *,
    clock: Clock,
    timeout_ms: int,
    node_settings: Mapping[str, str],
    settle: Settle = settled_at_once,
) -> Mapping[str, Method]:
    """The methods by full name."""
    unary: dict[str, UnaryHandler] = {}
    for name in FORWARDED:
        unary[name] = _forward(name, metadata, clock, timeout_ms, settle)
    for name, read in local_reads(node=node_settings).items():
        unary[name] = _read(metadata, read)
    for name in NOT_SERVED:
        unary[name] = _refuse(name)
    streams: dict[str, StreamHandler] = {EXPORT: MetadataExport(metadata).export_metadata}
    accesses = read_accesses(METADATA_FILES)
    assert all(accesses[name].listener == CLIENT_LISTENER for name in (*unary, *streams)), (
        "the contract assigns these methods to the client listener"
    )
    return guard_all(unary, streams, accesses, gate)


def _forward(
    method: str, metadata: Metadata, clock: Clock, timeout_ms: int, settle: Settle
) -> UnaryHandler:
    async def handle(context: RequestContext, message: bytes) -> bytes:
        wait_ms = min(timeout_ms, left_ms(context, clock))
        answer = await metadata.forward(context, method, message, timeout_ms=wait_ms)
        await settle(answer.version)
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
            ErrorCode.NOT_IMPLEMENTED,
            tried=f"call {name}",
            happened="this release does not serve it yet",
        )

    return handle
