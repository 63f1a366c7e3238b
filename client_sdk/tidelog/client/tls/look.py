"""What one look at an address tells of TLS there: whom the certificate is for, what is refused.

Owns the questions and the meaning of their answers; each driver has a socket of its own kind. gRPC
says the same of a node that wants a certificate, of one that speaks TLS to a client in plaintext,
and of one that died: `Socket closed`.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidelog.client.tls.security import Security
from tidelog.ports.real.tls import reasons as tls_reasons
from tidelog.ports.real.tls.reasons import Mistake

LOOK_TIMEOUT_S: Final = 1.0


class Seen(msgspec.Struct, frozen=True):
    """What one handshake told."""

    names: tuple[str, ...]
    """Host names and addresses of the certificate; empty if it was not checked."""
    is_closed: bool
    """Whether the other side closed the connection once it had seen this end's certificate."""


def context_of(security: Security) -> ssl.SSLContext:
    """For a handshake that believes the same authorities as the client, and any name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if not security.is_encrypted:
        context.verify_mode = ssl.CERT_NONE
    if security.authorities:
        context.load_verify_locations(cadata=security.authorities.decode("ascii"))
    elif security.is_encrypted:
        context.load_default_certs()
    return context


def place_of(address: str) -> tuple[str, int]:
    """Host and port, as sockets want them."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def name_to_ask_for(address: str) -> str | None:
    """What the handshake names; None for an address of IPv6."""
    return None if address.startswith("[") else address.rpartition(":")[0]


def names_in(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Host names and addresses of a peer's certificate, as the ssl module tells it."""
    found: tuple[tuple[str, str], ...] = (certificate or {}).get("subjectAltName", ())
    return tuple(str(each[1]) for each in found)


def wants_look(details: str) -> bool:
    """Whether a look at the address would tell more than gRPC's words."""
    mistake = tls_reasons.find(details)
    if mistake is None:
        return tls_reasons.is_closed_after_handshake(details)
    return mistake is tls_reasons.WRONG_HOST


def explain(address: str, details: str, security: Security, seen: Seen | None) -> Mistake | None:
    """What gRPC's failure means, if TLS is to blame; `seen`: what a look has told, if it had to."""
    mistake = tls_reasons.find(details)
    if mistake is not None:
        if mistake is not tls_reasons.WRONG_HOST or seen is None or not seen.names:
            return mistake
        host = address.rpartition(":")[0]
        happened = f"its certificate is for {', '.join(seen.names)}, not for {host}"
        return mistake._replace(happened=happened)
    if seen is None:
        return None
    if not security.is_encrypted:
        return tls_reasons.TLS_NODE
    if not seen.is_closed:
        return None
    is_known = bool(security.certificate)
    return tls_reasons.CLIENT_REFUSED if is_known else tls_reasons.NO_CLIENT_CERTIFICATE
