"""Certificates that are replaced while a node serves: what changed, told to whoever asks.

The files are an operator's, or a renewing program's. What cannot be used is refused and what was
used before stays, so that a half-written file takes no listener down.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidelog.wire.errors import TidelogError


class CertificateNews(msgspec.Struct, frozen=True, kw_only=True):
    """What became of files that were found changed, or of a connection that TLS prevents."""

    user: str
    """`listener client`, `listener cluster`, `connections to nodes`."""
    certificate: str = ""
    """The file."""
    peer: str = ""
    """Not empty: nothing changed, but no connection to this address comes to be; `refusal` tells
    why, once until one does."""
    subject: str = ""
    names: tuple[str, ...] = ()
    """Host names and addresses that the certificate is for."""
    expires: str = ""
    """The end of its validity as the certificate says it."""
    refusal: TidelogError | None = None
    """Why the new files are not used; None: they are, for every connection from now on."""


class Certificates(Protocol):
    """All certificates that a node uses."""

    def refresh(self) -> Sequence[CertificateNews]:
        """Look at the files again, also at what was refused before: it may be valid by now. A
        refusal is told once, until the files or its reason change."""
        ...


class NoCertificates:
    """Of a node without encrypted connections."""

    def refresh(self) -> Sequence[CertificateNews]:
        """Nothing ever changes."""
        return ()
