"""A call whose message is about to be read while the server stops ends without a word."""

import asyncio
from typing import Any, cast

import grpc.aio
import pytest

from tidelog.ports import ListenerLimits
from tidelog.ports.real.network import handlers as network_handlers
from tidelog.ports.real.network.admission import CallAdmission
from tidelog.ports.real.network.handlers import Serving


class Stopped:
    """The call of a server that has stopped."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    async def read(self) -> bytes:
        raise self._error("Server already stopped.")


class Named:
    """As much of what is served as a read asks for."""

    admission = CallAdmission("client", ListenerLimits(), lambda: 0, lambda _: None)

    class listener:  # noqa: N801
        class limits:  # noqa: N801
            message_ms_max = 1_000


def read(error: type[Exception]) -> object:
    context: Any = Stopped(error)
    serving = cast(Serving, Named())
    return asyncio.run(network_handlers._first_message(context, "/a/B", serving))


def test_a_read_of_a_server_that_has_stopped_is_a_call_that_is_over() -> None:
    with pytest.raises(asyncio.CancelledError):
        read(grpc.aio.BaseError)


def test_a_fault_of_ours_is_not_taken_for_that() -> None:
    with pytest.raises(grpc.aio.UsageError):
        read(grpc.aio.UsageError)
