"""Certificates: whom one names, and what changed when one is replaced while a node serves.

The files are an operator's, or a renewing program's. What cannot be used is refused and what was
used before stays, so that a half-written file takes no listener down.
"""

import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from tidelog.wire.errors import TidelogError

_SUBJECT: Final = re.compile(r"[A-Za-z][A-Za-z0-9.]*=")
"""How a subject begins, and no host name and no URI does: with an attribute and its value."""


class CertificateNames(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a certificate that was checked is for."""

    subject: str = ""
    """As in `CN=alice,O=Example`: the last part first, special characters behind a backslash
    (RFC 2253). Empty: there is no certificate, or it has none."""
    names: tuple[str, ...] = ()
    """Host names, addresses and URIs of its subjectAltName."""

    def comparable(self, wanted: str) -> tuple[str, ...]:
        """What is compared with a name that is wanted: one that begins as a subject does only
        with the whole subject, any other one only with the further names."""
        if _SUBJECT.match(wanted):
            return (self.subject,)
        return self.names

    def is_for(self, wanted: str) -> bool:
        """Whether the certificate is for that name; nothing in it is taken for a pattern."""
        return wanted in self.comparable(wanted)

    def described(self, wanted: str) -> str:
        """The part that was compared, for a message."""
        found = [each for each in self.comparable(wanted) if each]
        what = "subject" if _SUBJECT.match(wanted) else "subjectAltName"
        return f"{what} {', '.join(found)}" if found else f"no {what}"


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
