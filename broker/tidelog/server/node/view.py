"""What a node holds in memory, for those who look at it from outside: the simulator, tests.

Owns the one place at which a node's parts are handed out. Whoever looks must never change anything:
a view is no way around the owner of a log.
"""

from collections.abc import Callable

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replicas
from tidelog.metadata.image.image import Image
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.wire.ids import BrokerId


def _nothing_to_check() -> None:
    """A node that is no broker replicates nothing and has no streams."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """As of now; ask again after a step."""

    directories: tuple[LogDirectory, ...]
    """Of its partitions, whether they are open yet or not."""
    replicas: Replicas | None
    """None: it is no broker, or not one yet."""
    is_recovered: bool
    """Whether its replicas have opened their logs."""
    image: Image | None
    """The newest metadata that it shows; None: it has none yet."""
    check_replication: Callable[[], None] = _nothing_to_check
    """Fails if an invariant of its replication does not hold."""
    check_subscriptions: Callable[[], None] = _nothing_to_check
    """Fails if an invariant of a stream of the easy path does not hold."""
    controller_id: BrokerId | None = None
    """Whom it takes for the active controller; None: it knows of none."""


def view_of(
    directories: tuple[LogDirectory, ...], broker: BrokerRole | None, side: MetadataSide | None
) -> NodeView:
    """Of a node's parts, as far as there are any."""
    return NodeView(
        directories=directories,
        replicas=None if broker is None else broker.replicas,
        check_replication=_nothing_to_check if broker is None else broker.replication.check,
        check_subscriptions=(
            _nothing_to_check if broker is None else broker.groups.subscriptions.check
        ),
        is_recovered=broker is not None and broker.is_recovered,
        image=None if side is None else side.metadata.image(),
        controller_id=None if side is None else side.metadata.controller_id(),
    )
