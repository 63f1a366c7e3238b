"""The network between real nodes and their clients: one Toxiproxy proxy for each directed path.

Owns the proxies and what is done to them. A connection that node A opens to node B runs through
the proxy A to B, and bytes flow both ways on it; so "B hears nothing from A" drops what A sends on
its own connections to B, and what it answers on B's connections to A. Nobody is told: connections
stand, and new ones are accepted, until the path is whole again; then those that lack bytes are
closed. It must never touch a proxy that it has not made.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from toxiproxy import Toxiproxy

from tidelog.chaos.live.processes.ports import free_port
from tidelog.chaos.live.processes.server import Place, Reach

CLIENTS: Final = 0
"""Stands for every client, as a node number."""
TO: Final = "upstream"
"""Bytes from whoever has opened the connection."""
BACK: Final = "downstream"

Path = tuple[int, int]
"""Who opens connections, and to whom."""


class Toxic(msgspec.Struct, frozen=True):
    """One thing that is done to the bytes of a proxy, in one direction."""

    path: Path
    kind: str
    direction: str
    attributes: Mapping[str, int]

    @property
    def name(self) -> str:
        """Unique on its proxy."""
        return f"{self.kind}-{self.direction}"


def silence(talker: int, listener: int) -> list[Toxic]:
    """What `talker` sends does not reach `listener`, whoever has opened the connection."""
    dropped: dict[str, int] = {"timeout": 0}
    toxics = []
    if talker != CLIENTS:
        toxics.append(Toxic((listener, talker), "timeout", BACK, dropped))
    if listener != CLIENTS:
        toxics.append(Toxic((talker, listener), "timeout", TO, dropped))
    return toxics


def delay(path: Path, latency_ms: int, jitter_ms: int) -> list[Toxic]:
    """Each byte comes later, both ways."""
    attributes = {"latency": latency_ms, "jitter": jitter_ms}
    return [Toxic(path, "latency", direction, attributes) for direction in (TO, BACK)]


def reset(path: Path, after_ms: int) -> list[Toxic]:
    """Connections on which anything is sent are reset, so long after it."""
    return [Toxic(path, "reset_peer", TO, {"timeout": after_ms})]


class Paths:
    """The proxies of a cluster; needs a Toxiproxy server at the address."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server: Any = Toxiproxy()
        self._server.update_api_consumer(*server)
        self._proxies: dict[Path, Any] = {}
        self._toxics: dict[tuple[Path, str], Toxic] = {}

    def lay(self, places: Mapping[int, Place]) -> dict[int, Reach]:
        """A proxy for each ordered pair of nodes and for the clients of each node."""
        for each in places.values():
            self._make((CLIENTS, each.node_id), each.client_address)
            for other in places.values():
                if other is not each:
                    self._make((other.node_id, each.node_id), each.cluster_address)
        return {number: self._reach(number, places) for number in places}

    def _make(self, path: Path, upstream: str) -> None:
        name = f"{path[0]}-to-{path[1]}-{upstream.rpartition(':')[2]}"
        listen = f"127.0.0.1:{free_port()}"
        self._proxies[path] = self._server.create(name=name, upstream=upstream, listen=listen)

    def _reach(self, number: int, places: Mapping[int, Place]) -> Reach:
        peers = {
            other: self.address((number, other)) for other in sorted(places) if other != number
        }
        own = places[number].cluster_address
        return Reach(
            advertised_client=self.address((CLIENTS, number)),
            bootstrap_servers=(own, *peers.values()),
            peer_addresses=peers,
        )

    def address(self, path: Path) -> str:
        """Where its proxy listens."""
        listen: str = self._proxies[path].listen
        return listen

    def apply(self, toxics: Iterable[Toxic]) -> None:
        """From now on, until `clear`."""
        for each in toxics:
            assert (each.path, each.name) not in self._toxics, f"{each} is there already"
            self._proxies[each.path].add_toxic(
                name=each.name,
                type=each.kind,
                stream=each.direction,
                attributes=dict(each.attributes),
            )
            self._toxics[each.path, each.name] = each

    def clear(self) -> None:
        """All paths are whole."""
        for path, name in self._toxics:
            self._proxies[path].destroy_toxic(name)
        self._toxics.clear()

    def break_off(self, paths: Iterable[Path]) -> None:
        """Every connection of these paths ends at once; new ones are accepted."""
        for path in paths:
            self._proxies[path].disable()
            self._proxies[path].enable()

    def of(self, number: int) -> list[Path]:
        """Between a node and its peers, both ways."""
        return [path for path in self._proxies if number in path and CLIENTS not in path]

    def close(self) -> None:
        """The proxies are gone."""
        for proxy in self._proxies.values():
            proxy.destroy()
        self._proxies.clear()
