"""One look at what listens at an address: does it speak TLS, for whom, does it want a certificate?

Owns a socket for the time of the look.
"""

import contextlib
import socket
import ssl

from tidelog.client.tls.look import (
    LOOK_TIMEOUT_S,
    Seen,
    context_of,
    name_to_ask_for,
    names_in,
    place_of,
)
from tidelog.client.tls.security import Security


def look(address: str, security: Security) -> Seen | None:
    """None: there was no handshake, for whatever reason."""
    try:
        context = context_of(security)
        with (
            socket.create_connection(place_of(address), LOOK_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=name_to_ask_for(address)) as encrypted,
        ):
            return Seen(names_in(encrypted.getpeercert()), _is_closed(encrypted))
    except (OSError, ValueError):
        return None


def _is_closed(connection: ssl.SSLSocket) -> bool:
    """A node says its settings at once; one that refuses this end closes instead."""
    with contextlib.suppress(TimeoutError):
        try:
            return not connection.recv(1)
        except OSError as error:
            return not isinstance(error, TimeoutError)
    return False
