"""What gRPC tools expect of a listener: the health service, and reflection if asked for.

Imports its libraries only when a listener starts, so that nothing else pays for them.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc.aio

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
REFLECTION_SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"


class Extras:
    """The health of one listener's services; the empty name is the listener as a whole."""

    def __init__(self, health: Any) -> None:
        self._health = health

    async def set(self, services: Sequence[str], *, is_serving: bool) -> None:
        """Whoever watches one of them is told; after `stop` nobody is."""
        from grpc_health.v1 import health_pb2

        kinds = health_pb2.HealthCheckResponse
        for service in services:
            await self._health.set(service, kinds.SERVING if is_serving else kinds.NOT_SERVING)

    async def stop(self) -> None:
        """Tell watchers that the listener goes away; a second time changes nothing."""
        await self._health.enter_graceful_shutdown()


async def add_extras(
    server: grpc.aio.Server,
    services: Sequence[str],
    reflection_services: Sequence[str],
    *,
    starts_serving: bool,
) -> Extras:
    """Serve health for `services`, and reflection if it lists any."""
    from grpc_health.v1 import health, health_pb2_grpc

    servicer = health.aio.HealthServicer()
    extras = Extras(servicer)
    await extras.set(("", *services), is_serving=starts_serving)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if reflection_services:
        from grpc_reflection.v1alpha import reflection

        names = (*reflection_services, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    return extras
