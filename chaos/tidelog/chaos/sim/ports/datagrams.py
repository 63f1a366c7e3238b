"""Datagrams with loss, duplication and reordering, for cores that must stand all three.

Streams never duplicate or reorder; Raft is run over this as well, so that its safety does not rest
on the transport. Cuts and delays are the fabric's.
"""

from collections.abc import Callable

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.ports.fabric import Fabric

_REORDER_NS_MAX = 2_000_000_000

Receive = Callable[[str, bytes], None]
"""Called with the sender's name and the datagram."""


class Datagrams:
    """All datagrams of a world, by name of the receiving process."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._receivers: dict[str, Receive] = {}

    def listen(self, name: str, receive: Receive) -> None:
        """Take what is sent to `name`; the last caller wins, as after a restart."""
        self._receivers[name] = receive

    def send(self, source: str, target: str, datagram: bytes) -> None:
        """Send and forget: it may be lost, come twice, or after later ones."""
        faults = self._fabric.faults
        if faults.fires(FaultKind.DATAGRAM_LOSS):
            faults.took_effect(FaultKind.DATAGRAM_LOSS, f"{source}>{target}")
            return
        self._send_once(source, target, datagram)
        if faults.fires(FaultKind.DATAGRAM_DUPLICATE):
            faults.took_effect(FaultKind.DATAGRAM_DUPLICATE, f"{source}>{target}")
            self._send_once(source, target, datagram)

    def _send_once(self, source: str, target: str, datagram: bytes) -> None:
        fabric = self._fabric
        delay_ns = fabric.delay_ns(source, target)
        if fabric.faults.fires(FaultKind.DATAGRAM_REORDER):
            delay_ns += fabric.random.below(_REORDER_NS_MAX)
            fabric.faults.took_effect(FaultKind.DATAGRAM_REORDER, f"{source}>{target}")
        fabric.loop.call_at_ns(
            fabric.loop.now_ns + delay_ns,
            self._arrive,
            source,
            target,
            datagram,
            context=fabric.loop.world_context,
        )

    def _arrive(self, source: str, target: str, datagram: bytes) -> None:
        receive = self._receivers.get(target)
        if receive is None or self._fabric.is_cut(source, target):
            return
        self._fabric.trace.note(target, "net:datagram", source)
        receive(source, datagram)
