"""What gRPC tools expect of a listener: the health service, and reflection if asked for.

Imports its libraries only when a listener starts, so that nothing else pays for them.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc.aio

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
REFLECTION_SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"


class Extras:
    """The health of one listener's services."""

    def __init__(self, health: Any) -> None:
        self._health = health

    async def stop(self) -> None:
        """Tell watchers that the listener goes away."""
        await self._health.enter_graceful_shutdown()


async def add_extras(
    server: grpc.aio.Server, services: Sequence[str], reflection_services: Sequence[str]
) -> Extras:
    """Serve health for `services`, and reflection if it lists any."""
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    servicer = health.aio.HealthServicer()
    for service in services:
        await servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if reflection_services:
        from grpc_reflection.v1alpha import reflection

        names = (*reflection_services, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    return Extras(servicer)
