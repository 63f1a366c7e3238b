"""Which method is served by what, and the check that stands before each of them.

Owns the method table: every RPC of a served service has a row. The authorizer is asked before a
request's bytes are looked at.
"""

from collections.abc import Callable, Mapping

import msgspec
from google.protobuf.message import DecodeError

from tidelog.broker.handlers.admin import AdminHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.records import RecordsHandler
from tidelog.broker.rpc.access import Access, read_accesses
from tidelog.broker.rpc.admin import AdminRpc
from tidelog.broker.rpc.fetch import FetchRpc
from tidelog.broker.rpc.metadata import MetadataRpc
from tidelog.broker.rpc.produce import ProduceRpc
from tidelog.broker.rpc.records import RecordsRpc
from tidelog.ports import (
    Authorizer,
    Method,
    RequestContext,
    Stream,
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from tidelog.v1 import admin_pb2, fetch_pb2, metadata_pb2, produce_pb2, records_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

SERVED_FILES = (
    produce_pb2.DESCRIPTOR,
    fetch_pb2.DESCRIPTOR,
    records_pb2.DESCRIPTOR,
    metadata_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
)
"""Every service in these files is served whole."""


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """What the table's rows call."""

    produce: ProduceHandler
    fetch: FetchHandler
    records: RecordsHandler
    metadata: MetadataHandler
    offsets: OffsetsHandler
    admin: AdminHandler


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Asked before every call."""

    authorizer: Authorizer
    is_ready: Callable[[], bool]


def service_names() -> tuple[str, ...]:
    """Full names of the served services, for reflection."""
    return tuple(
        service.full_name for file in SERVED_FILES for service in file.services_by_name.values()
    )


def build_methods(
    handlers: Handlers, gate: Gate, *, listener: str, release: str, stream_requests_max: int
) -> Mapping[str, Method]:
    """The methods that the contract assigns to the listener, each behind the gate."""
    produce = ProduceRpc(handlers.produce, stream_requests_max=stream_requests_max)
    fetch = FetchRpc(handlers.fetch)
    records = RecordsRpc(handlers.records)
    metadata = MetadataRpc(handlers.metadata, handlers.offsets)
    admin = AdminRpc(handlers.admin, release=release)
    unary: dict[str, UnaryHandler] = {
        "/tidelog.v1.ProduceService/Produce": produce.produce,
        "/tidelog.v1.FetchService/Fetch": fetch.fetch,
        "/tidelog.v1.RecordsService/ProduceRecords": records.produce_records,
        "/tidelog.v1.RecordsService/FetchRecords": records.fetch_records,
        "/tidelog.v1.MetadataService/GetMetadata": metadata.get_metadata,
        "/tidelog.v1.MetadataService/ListOffsets": metadata.list_offsets,
        "/tidelog.v1.AdminService/CreateTopics": admin.create_topics,
        "/tidelog.v1.AdminService/DescribeTopics": admin.describe_topics,
        "/tidelog.v1.AdminService/DescribeCluster": admin.describe_cluster,
    }
    streams: dict[str, StreamHandler] = {
        "/tidelog.v1.ProduceService/ProduceStream": produce.produce_stream,
        "/tidelog.v1.FetchService/FetchStream": fetch.fetch_stream,
    }
    accesses = read_accesses(SERVED_FILES)
    methods: dict[str, Method] = {}
    for name, handler in unary.items():
        if accesses[name].listener == listener:
            methods[name] = UnaryMethod(_guard_unary(name, handler, accesses[name], gate))
    for name, stream_handler in streams.items():
        if accesses[name].listener == listener:
            methods[name] = StreamMethod(_guard_stream(name, stream_handler, accesses[name], gate))
    return methods


def _guard_unary(name: str, handler: UnaryHandler, access: Access, gate: Gate) -> UnaryHandler:
    async def guarded(context: RequestContext, message: bytes) -> bytes:
        _check(name, context, access, gate)
        try:
            return await handler(context, message)
        except DecodeError as error:
            raise _malformed(name, error) from None

    return guarded


def _guard_stream(name: str, handler: StreamHandler, access: Access, gate: Gate) -> StreamHandler:
    async def guarded(context: RequestContext, stream: Stream) -> None:
        _check(name, context, access, gate)
        try:
            await handler(context, stream)
        except DecodeError as error:
            raise _malformed(name, error) from None

    return guarded


def _check(name: str, context: RequestContext, access: Access, gate: Gate) -> None:
    if not gate.authorizer.is_allowed(context, access.resource, access.operation):
        raise TidelogError(
            ErrorCode.PERMISSION_DENIED,
            tried=f"call {name}",
            happened=f"{context.principal} may not {access.operation} a {access.resource}",
        )
    if not gate.is_ready():
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried=f"call {name}", happened="the node is starting or stopping"
        )


def _malformed(name: str, error: DecodeError) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"call {name}",
        happened=f"the message does not fit the contract: {error}",
    )
