"""PEM files of one end of encrypted connections: read, proved usable, read again when they change.

Owns what "usable" means: the key fits the certificate, the certificate is valid today, each
authority can be parsed. gRPC itself checks nothing before the first handshake, and then tells the
other end nothing. It must never replace what works by what does not.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidelog.ports.certificates import CertificateNames, CertificateNews
from tidelog.ports.network import TlsFiles
from tidelog.wire.errors import ErrorCode, TidelogError

FILE_BYTES_MAX: Final = 1024 * 1024
"""Of one PEM file: a mistyped name of a large file must not fill the memory."""
_HANDSHAKE_TURNS_MAX: Final = 10
_UNSUITABLE_PURPOSE: Final = 26
"""X509_V_ERR_INVALID_PURPOSE."""
_AGAIN: Final = "Put certificate and key in place together; a node looks at them again."


class Material(msgspec.Struct, frozen=True):
    """What the files hold; empty: there is no such file."""

    certificate: bytes
    key: bytes
    authorities: bytes


class Identity(CertificateNames, frozen=True, kw_only=True):
    """What a certificate says of its owner."""

    expires: str = ""


class WatchedFiles:
    """The last usable content of the files, and who the certificate is for."""

    def __init__(self, user: str, files: TlsFiles, proof: "Proof | None" = None) -> None:
        self.user = user
        self._files = files
        self._prove = proof or prove
        self.material = read(files, user)
        self.identity = self._prove(files, self.material, user)
        self._refused: tuple[Material | None, str] | None = None
        """What was told last, with its reason; None: the files are the material."""
        self.generation = 0
        """Grows with each change of the material."""

    def refresh(self) -> CertificateNews | None:
        """Read again; None: nothing is new."""
        found = None
        try:
            found = read(self._files, self.user)
            if found == self.material:
                self._refused = None
                return None
            # Also what was refused before: time alone makes a certificate valid whose authority's
            # clock is ahead, and no change of the files would tell.
            identity = self._prove(self._files, found, self.user)
        except TidelogError as error:
            return self._refuse(found, error)
        self._refused = None
        self.material, self.identity = found, identity
        self.generation += 1
        return CertificateNews(
            user=self.user,
            certificate=self._files.certificate or self._files.authorities,
            subject=identity.subject,
            names=identity.names,
            expires=identity.expires,
        )

    def _refuse(self, found: Material | None, refusal: TidelogError) -> CertificateNews | None:
        refused = (found, str(refusal))
        if self._refused == refused:
            return None
        self._refused = refused
        return CertificateNews(user=self.user, certificate=self._files.certificate, refusal=refusal)


Proof = Callable[[TlsFiles, Material, str], Identity]
"""As `prove`: refuses what it cannot use."""


def read(files: TlsFiles, user: str) -> Material:
    """The files as they are; STORAGE_FAILED names the one that cannot be read."""
    return Material(
        _read(files.certificate, "certificate", user),
        _read(files.key, "key", user),
        _read(files.authorities, "authorities", user),
    )


def prove(files: TlsFiles, material: Material, user: str) -> Identity:
    """Refuse what no handshake could use; INVALID_CONFIGURATION names file and reason."""
    if material.authorities:
        _prove_authorities(files.authorities, material.authorities, user)
    if not material.certificate:
        return Identity()
    tried = f"use the certificate {files.certificate} for {user}"
    try:
        identity = _shake_hands(files)
    except ssl.SSLCertVerificationError as error:
        raise _unusable(tried, *_verdict(error, files)) from None
    except ssl.SSLError as error:
        raise _unusable(tried, *_reason(error, files, material)) from None
    except OSError as error:
        # OpenSSL opens the files by name, once more after `read`: one may be gone meanwhile.
        happened = f"it went while it was looked at: {error.strerror or error}"
        raise _unusable(tried, happened, _AGAIN) from None
    if read(files, user) != material:
        raise _unusable(tried, "it changed while it was looked at", _AGAIN)
    if files.wanted_name and not identity.is_for(files.wanted_name):
        raise _unusable(
            tried,
            f"it has {identity.described(files.wanted_name)}; wanted is {files.wanted_name}",
            "Have it issued for that name, or name the file of the certificate that is.",
        )
    return identity


def prove_place(files: TlsFiles, user: str, host: str, authorities: str) -> None:
    """Refuse a listener's certificate that those would not believe who connect to `host`, trusting
    `authorities`; empty: whomever."""
    tried = f"use the certificate {files.certificate} for {user} at {host}"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        server.load_cert_chain(files.certificate, files.key, password=_no_password)
        client.load_verify_locations(authorities or files.certificate)
        serving = server.wrap_bio(there, back, server_side=True)
        calling = client.wrap_bio(back, there, server_hostname=host)
        for _ in range(_HANDSHAKE_TURNS_MAX):
            if _step(calling) and _step(serving):
                return
            _step(serving)
    except ssl.SSLCertVerificationError as error:
        raise _unusable(
            tried,
            f"whoever connects there refuses it: {error.verify_message}",
            f"Have it issued for {host} by an authority of {authorities or 'the callers'}, or "
            "advertise a name that it holds.",
        ) from None
    except (ssl.SSLError, OSError):
        # What no handshake could use `prove` tells.
        return


def _read(name: str, what: str, user: str) -> bytes:
    if not name:
        return b""
    try:
        with Path(name).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TidelogError(
            ErrorCode.STORAGE_FAILED,
            tried=f"read {name} ({what}) for {user}",
            happened=error.strerror or str(error),
            hint="Name a file that is there and that this program may read.",
        ) from None
    if not content or len(content) > FILE_BYTES_MAX:
        raise _unusable(
            f"read {name} ({what}) for {user}",
            f"it holds {len(content)} bytes or more" if content else "it is empty",
            "Name a PEM file.",
        )
    return content


def _prove_authorities(name: str, content: bytes, user: str) -> None:
    tried = f"use the authorities {name} for {user}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        hint = "Name a PEM file with `BEGIN CERTIFICATE` blocks."
        raise _unusable(tried, "it holds no certificates that can be read", hint) from None


def _shake_hands(files: TlsFiles) -> Identity:
    """One handshake in memory, with an end that believes this certificate and no other.

    The end that shows it is the one that will: a certificate may name the uses it is for.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # A server has to show one in any case.
    server.load_cert_chain(files.certificate, files.key, password=_no_password)
    judge = client
    if files.is_for_calling:
        client.load_cert_chain(files.certificate, files.key, password=_no_password)
        client.verify_mode, server.verify_mode = ssl.CERT_NONE, ssl.CERT_REQUIRED
        judge = server
    judge.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    judge.load_verify_locations(files.certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(there, back, server_side=True)
    calling = client.wrap_bio(back, there)
    for _ in range(_HANDSHAKE_TURNS_MAX):
        waiting = sum(not _step(each) for each in (calling, serving))
        if not waiting:
            break
    else:
        raise AssertionError("a handshake in memory comes to its end")
    judging = serving if files.is_for_calling else calling
    return _identity(judging.getpeercert() or {})


def _step(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _no_password() -> str:
    # Without it OpenSSL asks at the terminal, and the node waits there for ever.
    return ""


def _identity(told: "ssl._PeerCertRetDictType") -> Identity:
    subject: object = told.get("subject", ())
    assert isinstance(subject, tuple), "a subject is a tuple of names"
    names = told.get("subjectAltName", ())
    assert isinstance(names, tuple), "names are a tuple"
    return Identity(
        subject=",".join("+".join(map(_attribute, reversed(part))) for part in reversed(subject)),
        names=tuple(str(each[1]) for each in names),
        expires=str(told.get("notAfter", "")),
    )


def _attribute(named: tuple[str, str]) -> str:
    """As gRPC tells it of a caller (RFC 2253), so that the two can be compared."""
    name, value = named
    text = "".join(map(_escaped, value))
    if value[:1] in ("#", " "):
        text = "\\" + text
    if len(value) > 1 and value.endswith(" "):
        text = text[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={text}"


def _escaped(character: str) -> str:
    if character in _SPECIAL:
        return "\\" + character
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:02X}" for byte in character.encode())


_SPECIAL: Final = ',+"\\<>;'
_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "domainComponent": "DC",
    "userId": "UID",
    "surname": "SN",
    "givenName": "GN",
}


def _reason(error: ssl.SSLError, files: TlsFiles, material: Material) -> tuple[str, str]:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {files.key} is not its key", "Replace both files together."
    if b"ENCRYPTED" in material.key:
        return f"the key in {files.key} is encrypted", "Store the key without a password."
    return (
        f"certificate or key ({files.key}) cannot be read: {error.reason or 'not PEM'}",
        "Name PEM files: the certificate with its intermediates, and its key.",
    )


def _verdict(error: ssl.SSLCertVerificationError, files: TlsFiles) -> tuple[str, str]:
    message = error.verify_message
    if error.verify_code == _UNSUITABLE_PURPOSE:
        use = "clientAuth" if files.is_for_calling else "serverAuth"
        return message, f"Have it issued with {use} among its uses (extendedKeyUsage)."
    happened = f"the {message}" if message.startswith("certificate") else message
    return happened, "Replace it: nobody who checks it would connect."


def _unusable(tried: str, happened: str, hint: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_CONFIGURATION, tried=tried, happened=happened, hint=hint)
