"""Binds nodes' certificates to their ids: a caller speaks only as the node its certificate is for.

Owns how a name is made from a node id, and the check. Without it any certificate of the cluster's
authority may vote, lead and copy as any node. The contract says in which fields of a request the
caller names itself (`Access.caller`); a request that names no caller needs the certificate of some
node. The check comes after the message was counted and before its handler sees it.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from tidelog.broker.shared.events import EventLog
from tidelog.ports import CertificateNames, RequestContext
from tidelog.v1 import options_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

SETTING: Final = "listeners.cluster.tls.node_principal"
NODE_ID: Final = "{node_id}"
NAMES_CHARACTERS_MAX: Final = 200
"""Of a stranger's certificate in messages: one may hold thousands of names."""
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")

Claims = Callable[[bytes], tuple[int, ...]]
"""Node ids by which the sender of a message names itself."""


class NodePrincipals(msgspec.Struct, frozen=True):
    """How a node's certificate is called: a template with `{node_id}` in it once."""

    template: str

    def of(self, node_id: int) -> str:
        """The name of one node."""
        return self.template.replace(NODE_ID, str(node_id))

    def node_ids(self, certificate: CertificateNames) -> frozenset[int]:
        """The nodes that the certificate is for; none: it is no node's."""
        before, _, after = self.template.partition(NODE_ID)
        middles = (
            name[len(before) : len(name) - len(after)]
            for name in certificate.comparable(self.template)
            if name.startswith(before) and name.endswith(after)
        )
        return frozenset(int(middle) for middle in middles if _NUMBER.fullmatch(middle))


class NodeCallers:
    """Holds the callers of the cluster listener against their certificates."""

    def __init__(self, principals: NodePrincipals, events: EventLog) -> None:
        self._principals = principals
        self._events = events

    def check(self, name: str, context: RequestContext, claimed: Iterable[int]) -> None:
        """PERMISSION_DENIED unless the certificate is for each node that is named, and for some
        node where none is."""
        own = self._principals.node_ids(context.certificate)
        for node_id in claimed:
            if node_id not in own:
                wanted = self._principals.of(node_id)
                raise self._refuse(context, f"call {name} as node {node_id}", f"be {wanted}")
        if not own:
            raise self._refuse(context, f"call {name}", f"be a node's: {self._principals.template}")

    def _refuse(self, context: RequestContext, tried: str, wanted: str) -> TidelogError:
        found = context.certificate.described(self._principals.template)
        found = found[:NAMES_CHARACTERS_MAX]
        self._events.warning(
            "node_refused", tried=tried, address=context.address, certificate=found, wanted=wanted
        )
        return TidelogError(
            ErrorCode.PERMISSION_DENIED,
            tried=tried,
            happened=f"the caller's certificate has {found} and would have to {wanted} ({SETTING})",
            hint="Give the node the certificate of its own node_id; if it has it, correct "
            "node_principal on the node that was called.",
        )


def claims_of(name: str) -> Claims:
    """What reads the fields that the method's `Access.caller` lists."""
    method = descriptor_pool.Default().FindMethodByName(name.removeprefix("/").replace("/", "."))
    paths = [path.split(".") for path in method.GetOptions().Extensions[options_pb2.access].caller]
    request = message_factory.GetMessageClass(method.input_type)

    def read(data: bytes) -> tuple[int, ...]:
        if not paths:
            return ()
        message = request.FromString(data)
        return tuple(_value(message, path) for path in paths)

    return read


def _value(message: Message, path: list[str]) -> int:
    value: object = message
    for part in path:
        value = getattr(value, part)
    assert isinstance(value, int), f"a node id is a number, not {value!r}"
    return value
