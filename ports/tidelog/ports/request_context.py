"""Who calls, from where, and until when: the first argument of every handler."""

import msgspec

from tidelog.ports.answer_room import UNBOUNDED, AnswerRoom
from tidelog.ports.certificates import CertificateNames
from tidelog.ports.request_room import NO_REQUEST_LIMIT, RequestRoom

CLIENT_LISTENER = "client"
CLUSTER_LISTENER = "cluster"

ANONYMOUS = "anonymous"
"""The principal of a caller that gave no credentials."""


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Made by the network port when a call comes in; handlers know no gRPC type."""

    principal: str
    listener: str
    """`client` or `cluster`."""
    client_id: str
    """What the client calls itself; for quotas, logs and metrics, never for authority."""
    address: str
    """Where the call came from, `host:port`."""
    deadline_ns: int
    """By the node's monotonic clock; the largest 64-bit number: none was given."""
    certificate: CertificateNames = CertificateNames()
    """Whom the certificate is for that the caller has proved, of an encrypted listener."""
    answer_room: AnswerRoom = UNBOUNDED
    """Asked before a large answer is made."""
    request_room: RequestRoom = NO_REQUEST_LIMIT
    """Asked before anything is made of a message."""

    @property
    def caller(self) -> str:
        """Whose share of a limit the call takes, whatever connection it comes over: its
        principal's, else that of the machine that it comes from."""
        if self.principal != ANONYMOUS:
            return self.principal
        return self.address.rpartition(":")[0] or self.address


NO_DEADLINE_NS = (1 << 63) - 1
