"""Every RPC of a served service has a handler, an access option, and the authorizer before it."""

import asyncio

import pytest
from google.protobuf.descriptor import MethodDescriptor

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import ADDRESS, CALL_MS, PlainClient
from tidelog.broker.services.metadata.table import METADATA_FILES
from tidelog.broker.services.table import BROKER_FILES
from tidelog.metadata_quorum.admin.access import method_name, read_access
from tidelog.ports import RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

METHODS = [
    method
    for file in dict.fromkeys((*BROKER_FILES, *METADATA_FILES))
    for service in file.services_by_name.values()
    for method in service.methods
]


@pytest.mark.parametrize("method", METHODS, ids=method_name)
def test_every_rpc_says_who_may_call_it(method: MethodDescriptor) -> None:
    access = read_access(method)
    assert access.resource in ("topic", "cluster", "broker", "group", "transaction")
    assert access.listener == "client"


class Deny:
    """Allows nothing to clients; remembers what it was asked about them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def is_allowed(self, context: RequestContext, resource: str, operation: str) -> bool:
        """No, except to nodes."""
        if context.listener == "cluster":
            return True
        self.asked.append((context.listener, resource, operation))
        return False


def test_the_authorizer_is_asked_before_any_rpc_looks_at_its_request() -> None:
    deny = Deny()

    async def work(client: PlainClient) -> None:
        for method in METHODS:
            with pytest.raises(TidelogError) as caught:
                await call(client, method)
            assert caught.value.code is ErrorCode.PERMISSION_DENIED, method.full_name
        expected = [read_access(method) for method in METHODS]
        assert deny.asked == [("client", each.resource, each.operation) for each in expected]

    with_node(work, authorizer=deny)


def test_no_rpc_of_a_served_service_is_without_a_handler() -> None:
    async def work(client: PlainClient) -> None:
        for method in METHODS:
            with pytest.raises(TidelogError) as caught:
                await call(client, method)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT, method.full_name
            assert "does not fit the contract" in caught.value.happened

    with_node(work)


async def call(client: PlainClient, method: MethodDescriptor) -> None:
    """Send bytes that are no protobuf."""
    name, garbage = method_name(method), b"\xff\xff\xff"
    if not method.server_streaming:
        await client.network.call(ADDRESS, name, garbage, timeout_ms=CALL_MS)
        return
    stream = client.network.stream(ADDRESS, name)
    await stream.send(garbage)
    async with asyncio.timeout(CALL_MS / 1000):
        while await stream.receive() is not None:
            pass
