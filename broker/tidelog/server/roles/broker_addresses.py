"""Where other brokers serve their replicas, as this node knows it.

Owns which of two words counts: an address in the node's own settings wins over what the broker said
when it registered.
"""

from collections.abc import Mapping

from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.wire.ids import BrokerId


class BrokerAddresses:
    """`of` any broker."""

    def __init__(self, source: ImageSource, peer_addresses: Mapping[str, str]) -> None:
        self._source = source
        self._peer_addresses = peer_addresses

    def of(self, broker_id: BrokerId) -> str | None:
        """Its `host:port`; None: it is not registered."""
        known = self._source.image().brokers.get(broker_id)
        if known is None:
            return None
        own = self._peer_addresses.get(str(broker_id))
        return own or known.listeners.get(CLUSTER_LISTENER)
