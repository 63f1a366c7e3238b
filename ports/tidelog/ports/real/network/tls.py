"""Credentials of gRPC from PEM files that may change: for listeners, and for connections to nodes.

Owns which of the files are watched, and that a change counts for every handshake after it.
Connections that are open stay: their ends have proved themselves already.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final, cast

# Handshakes that fail are told in our words, where they matter; gRPC prints each on stderr as well.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

from tidelog.ports.certificates import CertificateNews
from tidelog.ports.network import Listener, TlsFiles
from tidelog.ports.real.network.errors import TLS_PREFIX
from tidelog.ports.real.tls.files import Material, WatchedFiles
from tidelog.wire.errors import TidelogError

OUTBOUND: Final = "connections to nodes"


class RealCertificates:
    """Every file that this process's listeners and connections use."""

    def __init__(self, outbound: TlsFiles | None = None) -> None:
        self._watched: list[WatchedFiles] = []
        self.outbound: WatchedFiles | None = None
        """Of connections to other nodes; None: they are in plaintext."""
        self._failures: dict[str, TidelogError] = {}
        self._told: dict[str, str] = {}
        if outbound is not None:
            self.outbound = self._watch(OUTBOUND, outbound)

    def refresh(self) -> Sequence[CertificateNews]:
        """See `Certificates`."""
        changes = [news for each in self._watched if (news := each.refresh()) is not None]
        return [*changes, *self._new_failures()]

    @property
    def troubled_peers(self) -> tuple[str, ...]:
        """Whom TLS keeps this process from reaching."""
        return tuple(self._failures)

    def report(self, peer: str, error: TidelogError | None) -> None:
        """How a connection to the peer fared; None: well."""
        if error is None:
            if self._failures.pop(peer, None) is not None:
                self._told.pop(peer, None)
        elif error.happened.startswith(TLS_PREFIX):
            self._failures[peer] = error

    def _new_failures(self) -> list[CertificateNews]:
        found = []
        for peer, error in self._failures.items():
            if self._told.get(peer) != error.happened:
                self._told[peer] = error.happened
                found.append(CertificateNews(user=OUTBOUND, peer=peer, refusal=error))
        return found

    def server_credentials(self, listener: Listener) -> grpc.ServerCredentials:
        """Of a listener; asked again at each handshake."""
        assert listener.tls is not None, "a plaintext listener has no credentials"
        files = self._watch(f"listener {listener.name}", listener.tls)
        handed_over = files.generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # Runs on a thread of gRPC's, one handshake at a time.
            nonlocal handed_over
            if files.generation == handed_over:
                return None
            handed_over = files.generation
            return _server_configuration(files.material)

        return grpc.dynamic_ssl_server_credentials(
            _server_configuration(files.material),
            # gRPC's documentation lets it return None, which its types forget.
            cast("Callable[[], grpc.ServerCertificateConfiguration]", fetch),
            listener.requires_client_certificate,
        )

    def _watch(self, user: str, files: TlsFiles) -> WatchedFiles:
        watched = WatchedFiles(user, files)
        self._watched.append(watched)
        return watched


def channel_credentials(material: Material) -> grpc.ChannelCredentials:
    """Of a calling end."""
    return grpc.ssl_channel_credentials(
        root_certificates=material.authorities or None,
        private_key=material.key or None,
        certificate_chain=material.certificate or None,
    )


def _server_configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.authorities or None
    )
