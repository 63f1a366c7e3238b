"""One look at what listens at an address: does it speak TLS, for whom, does it want a certificate?

Owns a socket for the time of the look. gRPC says the same of a node that wants a certificate, of
one that speaks TLS to a client in plaintext, and of one that died: `Socket closed`.
"""

import contextlib
import socket
import ssl
from typing import Final

import msgspec

from tidelog.client.security import Security
from tidelog.ports.real import tls_reasons
from tidelog.ports.real.tls_reasons import Mistake

LOOK_TIMEOUT_S: Final = 1.0


class Seen(msgspec.Struct, frozen=True):
    """What one handshake told."""

    names: tuple[str, ...]
    """Host names and addresses of the certificate; empty if it was not checked."""
    is_closed: bool
    """Whether the other side closed the connection once it had seen this end's certificate."""


def look(address: str, security: Security) -> Seen | None:
    """None: there was no handshake, for whatever reason."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if not security.is_encrypted:
        context.verify_mode = ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    try:
        if security.authorities:
            context.load_verify_locations(cadata=security.authorities.decode("ascii"))
        elif security.is_encrypted:
            context.load_default_certs()
        with (
            socket.create_connection((host.strip("[]"), int(port)), LOOK_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=_name_to_ask_for(host)) as encrypted,
        ):
            told = encrypted.getpeercert() or {}
            found = told.get("subjectAltName", ())
            assert isinstance(found, tuple), "names are a tuple"
            names = tuple(str(each[1]) for each in found)
            return Seen(names, _is_closed(encrypted))
    except (OSError, ValueError):
        return None


def _name_to_ask_for(host: str) -> str | None:
    return None if host.startswith("[") else host


def _is_closed(connection: ssl.SSLSocket) -> bool:
    """A node says its settings at once; one that refuses this end closes instead."""
    with contextlib.suppress(TimeoutError):
        try:
            return not connection.recv(1)
        except OSError as error:
            return not isinstance(error, TimeoutError)
    return False


def explain(address: str, details: str, security: Security) -> Mistake | None:
    """What gRPC's failure means, if TLS is to blame; looks at the address where that helps."""
    mistake = tls_reasons.find(details)
    if mistake is not None and mistake is tls_reasons.WRONG_HOST:
        seen = look(address, security)
        if seen is not None and seen.names:
            host = address.rpartition(":")[0]
            happened = f"its certificate is for {', '.join(seen.names)}, not for {host}"
            return mistake._replace(happened=happened)
    if mistake is not None or not tls_reasons.is_closed_after_handshake(details):
        return mistake
    seen = look(address, security)
    if seen is None:
        return None
    if not security.is_encrypted:
        return tls_reasons.TLS_NODE
    if not seen.is_closed:
        return None
    is_known = bool(security.certificate)
    return tls_reasons.CLIENT_REFUSED if is_known else tls_reasons.NO_CLIENT_CERTIFICATE
