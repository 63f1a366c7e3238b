"""Credentials of gRPC from PEM files that may change: for listeners, and for connections to nodes.

Owns which of the files are watched, and that a change counts for every handshake after it.
Connections that are open stay: their ends have proved themselves already.
"""

import os
from collections.abc import Callable, Sequence
from typing import cast

# Handshakes that fail are told in our words, where they matter; gRPC prints each on stderr as well.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

from tidelog.ports.certificates import CertificateNews
from tidelog.ports.network import Listener, TlsFiles
from tidelog.ports.real.tls_files import Material, WatchedFiles


class RealCertificates:
    """Every file that this process's listeners and connections use."""

    def __init__(self, outbound: TlsFiles | None = None) -> None:
        self._watched: list[WatchedFiles] = []
        self.outbound: WatchedFiles | None = None
        """Of connections to other nodes; None: they are in plaintext."""
        if outbound is not None:
            self.outbound = self._watch("connections to nodes", outbound)

    def refresh(self) -> Sequence[CertificateNews]:
        """See `Certificates`."""
        return [news for each in self._watched if (news := each.refresh()) is not None]

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
