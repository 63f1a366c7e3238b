"""What gRPC says of a connection that TLS kept from coming to be, and what it means.

Owns the table of texts, as the supported versions of gRPC print them. Both ends of the product
read it: a node for its peers, the SDK for brokers. It imports neither gRPC nor sockets.
"""

from typing import Final, NamedTuple

NEVER_CONNECTED: Final = "failed to connect to all addresses"
BROKEN_HANDSHAKE: Final = "Handshake read failed"
"""The other side went away before it said anything: with TLS the sign of a dead process behind a
proxy, as `Socket closed` is without."""
CLOSED: Final = ("Socket closed", "Connection reset by peer", "Broken pipe")


class Mistake(NamedTuple):
    """One thing that is wrong, in words for a person."""

    happened: str
    hint: str
    is_host_name: bool = False
    """Whether only the name in the certificate is wrong."""


WRONG_HOST: Final = Mistake(
    "its certificate is for another host name",
    "connect by a name that the certificate holds, or issue one that holds this name",
    is_host_name=True,
)
PLAINTEXT_NODE: Final = Mistake(
    "what listens there does not speak TLS",
    "check the port, or leave TLS out: security_protocol='PLAINTEXT'",
)
TLS_NODE: Final = Mistake(
    "what listens there speaks TLS, and this client does not",
    "set security_protocol='SSL' and ssl_cafile",
)
NO_CLIENT_CERTIFICATE: Final = Mistake(
    "the node wants a client certificate, and this client has none",
    "set ssl_certfile and ssl_keyfile",
)
CLIENT_REFUSED: Final = Mistake(
    "the node does not accept this client's certificate",
    "use a certificate of the authority that the listener's client_ca names",
)

_TEXTS: Final = (
    (
        "certificate has expired",
        Mistake("its certificate has expired", "renew it on the node (it is read again there)"),
    ),
    (
        "certificate is not yet valid",
        Mistake("its certificate is not valid yet", "compare the clocks of both machines"),
    ),
    (
        "certificate_verify_failed",
        Mistake(
            "its certificate comes from an authority that is not trusted here",
            "set ssl_cafile to the authority of the node's certificate",
        ),
    ),
    ("hostname verification check failed", WRONG_HOST),
    ("is not in peer certificate", WRONG_HOST),
    ("wrong_version_number", PLAINTEXT_NODE),
    ("tls handshake failed", Mistake("TLS could not be agreed on", "look into the node's log")),
    ("ssl handshake failed", Mistake("TLS could not be agreed on", "look into the node's log")),
)


def find(details: str) -> Mistake | None:
    """What gRPC's text says without doubt; None: nothing of TLS."""
    lowered = details.lower()
    return next((mistake for sign, mistake in _TEXTS if sign in lowered), None)


def is_closed_after_handshake(details: str) -> bool:
    """Whether the other side closed a connection on which it had spoken, or never answered one in
    plaintext: what a listener does to a caller whose certificate, or lack of one, it refuses.
    """
    return (
        NEVER_CONNECTED in details
        and BROKEN_HANDSHAKE not in details
        and any(mark in details for mark in CLOSED)
    )
