"""Settings of what a node tells of itself to machines: the pages of metrics and probes.

Owns names and defaults. Off unless an address is given: several nodes on one machine would fight
for a port that nobody asked for.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from tidelog.server.settings.listeners import is_loopback
from tidelog.wire.errors import ErrorCode, TidelogError


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics and probes over HTTP: `/metrics`, `/livez`, `/readyz`."""

    bind: Annotated[
        str,
        Meta(
            description="`host:port` to serve them on, for example 127.0.0.1:9194; port 0 picks a "
            "free one, which the node's log tells; empty: nowhere."
        ),
    ] = ""
    per_partition: Annotated[
        bool,
        Meta(
            description="Also offsets, size and lag of every replica that the node holds, a line "
            "each; else sums and extremes only."
        ),
    ] = False


def check_metrics(metrics: MetricsSettings, *, allow_plaintext: bool) -> Iterator[TidelogError]:
    """Nothing encrypts these pages: they are for this machine, or for a network that is trusted."""
    if not metrics.bind or allow_plaintext or is_loopback(metrics.bind):
        return
    yield TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried="read metrics.bind",
        happened=f"`{metrics.bind}` can be reached from outside this machine, and nothing "
        "encrypts it",
        hint="Bind 127.0.0.1 and let an agent on this machine scrape it, or set "
        "allow_plaintext = true if the network is trusted.",
    )
