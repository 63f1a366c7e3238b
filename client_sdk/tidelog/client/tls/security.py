"""What encrypts a client's connections: checked when the client is made, before anything connects.

Owns the meaning of security_protocol and the ssl_* arguments. It must never import gRPC before
the first connection, nor read a file for a client in plaintext.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tidelog.client.errors import with_article
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    import grpc

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
VARIABLE_PREFIX: Final = "TIDELOG_"
_USER: Final = "this client"
_FROM_ENVIRONMENT: Final[Mapping[str, Mapping[str, object] | None]] = {
    "security_protocol": {PLAINTEXT: PLAINTEXT, SSL: SSL},
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_check_hostname": {"true": True, "false": False},
}
"""Arguments with the values that a variable may have; None: the name of a file."""


class SecurityArguments(Protocol):
    """The arguments that every client has."""

    @property
    def security_protocol(self) -> str: ...
    @property
    def ssl_cafile(self) -> str | None: ...
    @property
    def ssl_certfile(self) -> str | None: ...
    @property
    def ssl_keyfile(self) -> str | None: ...
    @property
    def ssl_check_hostname(self) -> bool: ...


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Of all connections of one client."""

    is_encrypted: bool = False
    authorities_file: str = ""
    certificate_file: str = ""
    authorities: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    checks_host_name: bool = True

    def credentials(self) -> grpc.ChannelCredentials:
        """In gRPC's words."""
        import grpc

        assert self.is_encrypted, "a plaintext connection has no credentials"
        return grpc.ssl_channel_credentials(
            root_certificates=self.authorities or None,
            private_key=self.key or None,
            certificate_chain=self.certificate or None,
        )


def security_of(client: str, options: SecurityArguments) -> Security:
    """The files read and found usable, or the error that names argument and file."""
    check_security(client, options)
    if options.security_protocol == PLAINTEXT:
        return Security()
    import os

    from tidelog.ports import TlsFiles
    from tidelog.ports.real.tls import files as tls_files

    # What fails is told in our words; gRPC would print a line of its own on stderr as well.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    certificate = options.ssl_certfile or ""
    files = TlsFiles(
        certificate=certificate,
        # As in kafka-python, one file may hold both.
        key=options.ssl_keyfile or certificate,
        authorities=options.ssl_cafile or _authorities_of_the_system(),
        is_for_calling=True,
    )
    try:
        material = tls_files.read(files, _USER)
        if certificate and options.ssl_keyfile is None and b"PRIVATE KEY" not in material.key:
            raise _invalid(
                client,
                f"ssl_certfile ({certificate}) holds no private key, and ssl_keyfile is not given",
                "set ssl_keyfile, or put the key into the same file",
            )
        tls_files.prove(files, material, _USER)
    except TidelogError as error:
        raise TidelogError(
            ErrorCode.INVALID_CONFIGURATION,
            tried=error.tried,
            happened=error.happened,
            hint=error.hint,
        ) from None
    return Security(
        is_encrypted=True,
        authorities_file=files.authorities,
        certificate_file=certificate,
        authorities=material.authorities,
        certificate=material.certificate,
        key=material.key,
        checks_host_name=options.ssl_check_hostname,
    )


def security_variables(
    client: str, given: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, object]:
    """The arguments that the environment gives, as TIDELOG_BOOTSTRAP gives the address.

    Whoever says PLAINTEXT in the program means it: files of the environment do not contradict that.
    """
    if given.get("security_protocol") == PLAINTEXT:
        return {}
    found: dict[str, object] = {}
    for name in _FROM_ENVIRONMENT:
        variable = VARIABLE_PREFIX + name.upper()
        text = environment.get(variable, "")
        if not text or name in given:
            continue
        known = _FROM_ENVIRONMENT[name]
        if known is not None and text not in known:
            allowed = " or ".join(known)
            raise _invalid(
                client,
                f"{variable} is {text!r}, it can be {allowed}",
                f"correct or unset {variable}",
            )
        found[name] = text if known is None else known[text]
    return found


def check_security(client: str, options: SecurityArguments) -> None:
    """What contradicts itself is refused; nothing is read."""
    protocol = options.security_protocol
    if protocol not in (PLAINTEXT, SSL):
        raise _invalid(
            client,
            f"security_protocol is {protocol!r}, it can be {PLAINTEXT} or {SSL} in this release",
            "use SSL with ssl_certfile for clients that prove who they are",
        )
    if protocol == PLAINTEXT:
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if getattr(options, name) is not None:
                raise _invalid(
                    client,
                    f"{name} is given, and security_protocol is PLAINTEXT: nothing would be "
                    "encrypted",
                    "set security_protocol='SSL'",
                )
    if options.ssl_keyfile is not None and options.ssl_certfile is None:
        raise _invalid(client, "ssl_keyfile is given without ssl_certfile", "set both")


def _authorities_of_the_system() -> str:
    """Empty: gRPC's own list."""
    import ssl

    name: Any = ssl.get_default_verify_paths().cafile
    return name if name and Path(name).is_file() else ""


def _invalid(client: str, happened: str, hint: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried=f"make {with_article(client)}",
        happened=happened,
        hint=hint,
    )
